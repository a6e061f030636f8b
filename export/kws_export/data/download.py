"""Fetch the public Speech Commands archive: resumed where it broke off, checked against its SHA-256, unpacked safely.

The data set's folder appears complete or not at all: bytes arrive in `NAME.part`, become the archive once the
checksum agrees, and are unpacked beside the target, which is renamed into place at the end. A run that was cut off is
continued by the next one.
"""

import hashlib
import http
import http.client
import os
import re
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from kws_edge.errors import DependencyError, KwsEdgeError, SettingError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@dataclass(frozen=True, slots=True)
class Archive:
    """A published version of the data set: where it is, and the SHA-256 of its bytes."""

    url: str
    sha256: str


_PUBLIC = "https://storage.googleapis.com/download.tensorflow.org/data"
ARCHIVES = MappingProxyType(
    {
        "0.01": Archive(
            f"{_PUBLIC}/speech_commands_v0.01.tar.gz",
            "743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d",
        ),
        "0.02": Archive(
            f"{_PUBLIC}/speech_commands_v0.02.tar.gz",
            "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
        ),
    }
)
"""The checksums are those that torchaudio and TensorFlow Datasets pin."""

UNPACKED_RATIO = 1.6
"""Disk space of the folder over the archive's: v0.02 is 105,829 clips, 3.5 GB in blocks of 4 kB, from 2.4 GB."""

ATTEMPTS = 5  # in a row, without one new byte
PAUSE_S = 1.0  # before the next attempt; doubled for each one that brought nothing
TIMEOUT_S = 60.0  # without a byte
TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_BLOCK = 1 << 20

ABOUT_FILE = "about.toml"
ABOUT = (
    "# For the card of a model that is trained on these recordings. The licence of its weights is its maker's to say.\n"
    'data = "Speech Commands (P. Warden), v{version}"\n'
    'attribution = """Trained on "Speech Commands" by Pete Warden (arXiv:1804.03209), CC BY 4.0, '
    'https://creativecommons.org/licenses/by/4.0/."""\n'
)
"""What the folder is told to say of itself, as kws_export.training.about reads it."""


class DownloadError(KwsEdgeError):
    """The archive could not be fetched, is not the expected one, or could not be unpacked."""


def download(root: Path, version: str = "0.02", *, url: str | None = None, sha256: str | None = None) -> Path:
    """Fetch one version of Speech Commands and unpack it as `root`.

    Parameters
    ----------
    root : the folder to create; its parent holds the archive meanwhile (2.4 GB for v0.02, and 3.5 GB to unpack it).
    version : "0.01" or "0.02".
    url : another place to fetch the same archive from, http or https.
    sha256 : the checksum to hold it to, 64 hexadecimal digits; by default the version's own. Needed only where `url`
        is a different archive.

    Returns
    -------
    `root`, ready for `speech_commands.index`. The archive is removed.

    Raises
    ------
    SettingError : an unknown version, an impossible url or checksum, or a `root` that exists and is not empty.
    DownloadError : the server refuses, the connection fails repeatedly, the disk is too small or not writable, the
        checksum differs, or the archive cannot be unpacked safely. What arrived is kept for the next run, unless its
        checksum differs.
    DependencyError : this Python cannot unpack safely.
    """
    if version not in ARCHIVES:
        raise SettingError(f"unknown version {version!r}; expected one of {', '.join(ARCHIVES)}")
    url, sha256 = url or ARCHIVES[version].url, (sha256 or ARCHIVES[version].sha256).lower()
    if not re.fullmatch(r"https?://[^/\s]\S*", url):
        raise SettingError(f"url {url!r}; expected http:// or https://")
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise SettingError(f"sha256 {sha256!r}; expected 64 hexadecimal digits")
    if not hasattr(tarfile, "data_filter"):
        raise DependencyError("this Python cannot unpack archives safely; expected 3.11.4 or newer")
    root = Path(os.path.realpath(root.expanduser()))  # an empty folder may be a link to a larger disk
    archive = root.parent / f"speech_commands_v{version}.tar.gz"
    try:
        if root.exists() and not (root.is_dir() and not any(root.iterdir())):
            raise SettingError(f"{root} exists and is not empty; name another folder, or remove it first")
        root.parent.mkdir(parents=True, exist_ok=True)
        with _progress() as progress:
            if archive.exists():
                _check(archive, sha256)
            else:
                _fetch(url, archive, sha256, progress)
            known = sha256 == ARCHIVES[version].sha256  # another archive has recordings that nothing is known of
            _unpack(archive, root, ABOUT.format(version=version) if known else "", progress)
        archive.unlink()
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise DownloadError(f"could not fetch or unpack {archive.name} in {root.parent}: {error}") from error
    return root


def _fetch(url: str, archive: Path, sha256: str, progress: "Progress") -> None:
    """Bring `archive` here, going on from a part that an earlier run left, and through broken connections."""
    part = archive.with_name(f"{archive.name}.part")
    validator = part.with_name(f"{part.name}.etag")
    task = progress.add_task(f"fetching {archive.name}", total=None)
    most, failures = _size(part), 0
    while True:
        try:
            _transfer(url, part, validator, progress, task)
            break
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
                if error.code not in TRANSIENT_STATUS:
                    raise DownloadError(f"{url}: {error}; check the address") from error
            arrived = _size(part)
            failures = 0 if arrived > most else failures + 1
            most = max(most, arrived)
            if failures == ATTEMPTS:
                raise DownloadError(
                    f"{url}: {error}; gave up after {ATTEMPTS} attempts without a new byte. "
                    f"{arrived:,} bytes are kept: run it again to continue"
                ) from error
            time.sleep(PAUSE_S * 2**failures)
    validator.unlink(missing_ok=True)
    try:
        _check(part, sha256)
    except DownloadError:
        part.unlink()  # it would be resumed from, and fail again
        raise
    part.rename(archive)


def _transfer(url: str, part: Path, validator: Path, progress: "Progress", task: "TaskID") -> None:
    """One request: the bytes that `part` lacks, or all of them if the server cannot resume or has a new file."""
    have = _size(part)
    headers = {"User-Agent": "kws-export"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if validator.exists():
            headers["If-Range"] = validator.read_text()
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        error.close()
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return  # all of it was here already
        part.unlink()
        raise ConnectionError(f"there is no byte {have:,} to resume from") from error

    with response:
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            given = response.headers.get("Content-Range")
            if not (given or "").startswith(f"bytes {have}-"):
                part.unlink()
                raise ConnectionError(f"asked for bytes from {have:,} and was given {given}")
        else:
            have = 0
            _write_validator(validator, response.headers)
        total = None if response.length is None else have + response.length
        progress.update(task, total=total, completed=have)
        if total is not None:
            _require_space(part.parent, total - have + int(total * UNPACKED_RATIO))
        with part.open("ab" if have else "wb") as file:
            while block := _read(response):
                file.write(block)
                have += len(block)
                progress.update(task, completed=have)
    if total is not None and have < total:
        raise ConnectionError(f"the connection closed after {have:,} of {total:,} bytes")


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_BLOCK)
    except OSError as error:  # of the network, among them "no route to host"; kept apart from those of the disk
        raise ConnectionError(str(error)) from error


def _write_validator(path: Path, headers: Message) -> None:
    """Keep what If-Range needs: a strong ETag, else the date, else nothing (the checksum is the judge in the end)."""
    etag = headers.get("ETag") or "W/"
    value = headers.get("Last-Modified") if etag.startswith("W/") else etag
    if value:
        path.write_text(value)
    else:
        path.unlink(missing_ok=True)


def _check(file: Path, sha256: str) -> None:
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise DownloadError(
            f"{file} has SHA-256 {found}; expected {sha256}: it was damaged on the way or is another archive"
        )


def _unpack(archive: Path, root: Path, about: str, progress: "Progress") -> None:
    size = archive.stat().st_size
    _require_space(root.parent, int(size * UNPACKED_RATIO))
    task = progress.add_task(f"unpacking {archive.name}", total=size)
    scratch = root.with_name(f".{root.name}.partial")
    shutil.rmtree(scratch, ignore_errors=True)  # of a run that was killed
    scratch.mkdir()
    try:
        with archive.open("rb") as stream, tarfile.open(fileobj=stream, mode="r|gz") as tar:
            for member in tar:
                # The filter refuses names that lead out of the folder, links out of it, and devices.
                tar.extract(member, scratch, filter="data")
                progress.update(task, completed=stream.tell())
        if about:
            (scratch / ABOUT_FILE).write_text(about, encoding="utf-8")
        if root.exists():
            root.rmdir()
        scratch.rename(root)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadError(
            f"{folder} has {free / 1e9:.1f} GB free; fetching and unpacking need another {needed / 1e9:.1f} GB"
        )


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _progress() -> "Progress":
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
    )
