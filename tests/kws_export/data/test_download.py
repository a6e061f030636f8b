"""Fetching the public archive, against a local HTTP server that can misbehave."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kws_edge.errors import DependencyError, SettingError
from kws_export.data import download as module
from kws_export.data.download import ARCHIVES, DownloadError, download

LIST = b"yes/a_nohash_0.wav\n"
NOISE = np.random.default_rng(0).bytes(300_000)  # does not compress, so the archive is as long


def make_archive(*extra: tarfile.TarInfo) -> bytes:
    """A small archive of the public one's form: flat, every name behind "./"."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        top = tarfile.TarInfo("./")
        top.type, top.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(top)
        for name, content in {"./testing_list.txt": LIST, "./yes/a_nohash_0.wav": NOISE}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for info in extra:
            tar.addfile(info)
    return buffer.getvalue()


ARCHIVE = make_archive()


@dataclass
class Site:
    """What the server holds, how it misbehaves, and what it was asked."""

    content: bytes = ARCHIVE
    etag: str | None = '"v1"'
    ranges: bool = True
    cut_after: list[int] = field(default_factory=list)  # one entry a request: close after so many bytes of the body
    statuses: list[int] = field(default_factory=list)  # one entry a request: answer with this status instead
    chunked: bool = False
    shift: int = 0  # answers to range requests start this many bytes too late
    requests: list[dict[str, str]] = field(default_factory=list)
    sent: int = 0  # bytes of bodies
    url: str = ""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    site: Site
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        site = self.site
        site.requests.append(dict(self.headers))
        self.close_connection = True
        if site.statuses:
            self.answer(site.statuses.pop(0), b"")
            return
        start = 0
        wanted = self.headers.get("Range")
        if wanted and site.ranges and self.headers.get("If-Range", site.etag) == site.etag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) + site.shift
        size = len(site.content)
        if start >= size:
            self.answer(416, b"", {"Content-Range": f"bytes */{size}"})
        elif start:
            self.answer(206, site.content[start:], {"Content-Range": f"bytes {start}-{size - 1}/{size}"})
        else:
            self.answer(200, site.content)

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        site = self.site
        self.send_response(status)
        chunked = site.chunked and status == 200
        headers = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(len(body)), **(headers or {})}
        if site.etag:
            headers["ETag"] = site.etag
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        cut = site.cut_after.pop(0) if body and site.cut_after else len(body)
        site.sent += len(body[:cut])
        if chunked:
            self.wfile.write(b"%x\r\n" % len(body) + body[:cut] + (b"\r\n0\r\n\r\n" if cut == len(body) else b""))
        else:
            self.wfile.write(body[:cut])


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    site = Site()
    with ThreadingHTTPServer(("127.0.0.1", 0), type("SiteHandler", (Handler,), {"site": site})) as server:
        site.url = f"http://127.0.0.1:{server.server_port}/speech_commands_v0.02.tar.gz"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        server.shutdown()
        thread.join()


@pytest.fixture
def fetch(site: Site, tmp_path: Path) -> Callable[..., Path]:
    def fetch(**options: Any) -> Path:
        return download(tmp_path / "data", **{"url": site.url, "sha256": site.sha256, **options})

    return fetch


def test_an_empty_folder_may_be_a_link(site: Site, fetch: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "disk" / "large").mkdir(parents=True)
    (tmp_path / "data").symlink_to(tmp_path / "disk" / "large")
    assert_complete(fetch())
    assert (tmp_path / "data").is_symlink()


def assert_complete(root: Path) -> None:
    assert (root / "testing_list.txt").read_bytes() == LIST
    assert (root / "yes" / "a_nohash_0.wav").read_bytes() == NOISE
    assert [p.name for p in root.parent.iterdir()] == [root.name], "something was left beside the data set"


def part_of(root: Path) -> Path:
    return root.parent / "speech_commands_v0.02.tar.gz.part"


# --- the straight way


def test_fetches_checks_and_unpacks(fetch: Callable[..., Path], site: Site) -> None:
    assert_complete(fetch())
    assert len(site.requests) == 1


def test_creates_the_folders_above_and_accepts_an_empty_root(site: Site, tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    root.mkdir(parents=True)
    assert_complete(download(root, url=site.url, sha256=site.sha256.upper()))


def test_a_body_of_unknown_length_is_fine(fetch: Callable[..., Path], site: Site) -> None:
    site.chunked = True
    assert_complete(fetch())


def test_the_progress_is_drawn_on_standard_error(
    fetch: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fetch()
    out, err = capsys.readouterr()
    assert out == ""
    assert "fetching speech_commands_v0.02.tar.gz" in err
    assert "unpacking speech_commands_v0.02.tar.gz" in err


def test_both_public_versions_have_an_address_and_a_checksum() -> None:
    assert list(ARCHIVES) == ["0.01", "0.02"]
    for version, archive in ARCHIVES.items():
        assert archive.url.endswith(f"/speech_commands_v{version}.tar.gz")
        assert len(bytes.fromhex(archive.sha256)) == 32


def test_another_address_is_held_to_the_versions_own_checksum(fetch: Callable[..., Path]) -> None:
    with pytest.raises(DownloadError, match=f"expected {ARCHIVES['0.02'].sha256}"):
        fetch(sha256=None)


# --- broken connections


def test_a_broken_connection_is_resumed_where_it_broke(fetch: Callable[..., Path], site: Site) -> None:
    site.cut_after = [100_000, 50_000]
    assert_complete(fetch())
    assert [r.get("Range") for r in site.requests] == [None, "bytes=100000-", "bytes=150000-"]
    assert [r.get("If-Range") for r in site.requests] == [None, '"v1"', '"v1"']
    assert site.sent == len(ARCHIVE), "bytes were sent twice"


def test_a_broken_chunked_body_is_noticed(fetch: Callable[..., Path], site: Site) -> None:
    site.chunked, site.cut_after = True, [100_000]
    assert_complete(fetch())
    assert len(site.requests) == 2


def test_progress_renews_the_patience(fetch: Callable[..., Path], site: Site) -> None:
    site.cut_after = [1_000] * (3 * module.ATTEMPTS)
    assert_complete(fetch())


def test_gives_up_without_progress_and_the_next_run_goes_on(fetch: Callable[..., Path], site: Site) -> None:
    site.cut_after = [100_000] + [0] * module.ATTEMPTS
    with pytest.raises(DownloadError, match=r"closed after 100,000 of .* gave up after 5 .* 100,000 bytes are kept"):
        fetch()
    assert_complete(fetch())
    assert site.sent == len(ARCHIVE)


def test_a_server_that_ignores_ranges_sends_all_of_it_again(fetch: Callable[..., Path], site: Site) -> None:
    site.ranges, site.cut_after = False, [100_000]
    assert_complete(fetch())
    assert site.sent == 100_000 + len(ARCHIVE)


def test_a_server_that_ignores_ranges_and_always_breaks_off_is_given_up(fetch: Callable[..., Path], site: Site) -> None:
    site.ranges, site.cut_after = False, [100_000] * 100
    with pytest.raises(DownloadError, match="gave up"):
        fetch()
    assert len(site.requests) == 1 + module.ATTEMPTS


def test_a_file_that_changed_meanwhile_is_fetched_anew(fetch: Callable[..., Path], site: Site, tmp_path: Path) -> None:
    part = part_of(tmp_path / "data")
    part.write_bytes(b"the beginning of an older file")
    part.with_name(part.name + ".etag").write_text('"v0"')
    assert_complete(fetch())
    assert site.requests[0]["If-Range"] == '"v0"'


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_without_a_strong_etag_the_checksum_is_the_judge(
    fetch: Callable[..., Path], site: Site, etag: str | None
) -> None:
    site.etag, site.cut_after = etag, [100_000]
    assert_complete(fetch())
    assert "If-Range" not in site.requests[1]
    assert site.sent == len(ARCHIVE)


def test_a_part_that_is_complete_is_not_fetched_again(fetch: Callable[..., Path], site: Site, tmp_path: Path) -> None:
    part_of(tmp_path / "data").write_bytes(ARCHIVE)
    assert_complete(fetch())
    assert site.sent == 0


def test_a_part_longer_than_the_file_is_thrown_away(fetch: Callable[..., Path], tmp_path: Path) -> None:
    part_of(tmp_path / "data").write_bytes(ARCHIVE + b"more")
    assert_complete(fetch())


def test_a_range_that_starts_elsewhere_is_not_appended(fetch: Callable[..., Path], site: Site) -> None:
    site.cut_after, site.shift = [100_000], 1
    assert_complete(fetch())
    assert [r.get("Range") for r in site.requests] == [None, "bytes=100000-", None]


# --- refusals


def test_not_found_is_said_at_once(fetch: Callable[..., Path], site: Site) -> None:
    site.statuses = [404]
    with pytest.raises(DownloadError, match=rf"{site.url}: HTTP Error 404: Not Found"):
        fetch()
    assert len(site.requests) == 1


def test_an_overloaded_server_is_asked_again(fetch: Callable[..., Path], site: Site) -> None:
    site.statuses = [503, 429]
    assert_complete(fetch())


def test_nobody_listening_is_an_error_that_names_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        url = f"http://127.0.0.1:{closed.server_port}/x.tar.gz"
    with pytest.raises(DownloadError, match=rf"{url}: .*refused.* gave up"):
        download(tmp_path / "data", url=url)


def test_a_wrong_checksum_names_both_and_starts_anew_next_time(fetch: Callable[..., Path], site: Site) -> None:
    with pytest.raises(DownloadError, match=rf"has SHA-256 {site.sha256}; expected {'0' * 64}"):
        fetch(sha256="0" * 64)
    assert_complete(fetch())
    assert "Range" not in site.requests[1]


def test_a_disk_that_is_too_small_is_noticed_before_the_first_byte(
    fetch: Callable[..., Path], site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = len(ARCHIVE) * (1 + module.UNPACKED_RATIO)
    usage = SimpleNamespace(free=int(needed) - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    with pytest.raises(DownloadError, match=r"GB free; fetching and unpacking need another"):
        fetch()
    assert not part_of(tmp_path / "data").exists()
    usage.free += 1
    assert_complete(fetch())


def test_a_folder_that_cannot_be_written_is_named(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DownloadError, match=r"could not fetch or unpack .* in .*file"):
        download(tmp_path / "file" / "data", url=site.url, sha256=site.sha256)


def test_a_root_with_something_in_it_is_left_alone(fetch: Callable[..., Path], site: Site, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.wav").write_bytes(b"mine")
    with pytest.raises(SettingError, match="data exists and is not empty"):
        fetch()
    assert site.requests == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": "0.03"}, r"unknown version '0\.03'; expected one of 0\.01, 0\.02"),
        ({"url": "file:///etc/passwd"}, r"expected http:// or https://"),
        ({"url": "http://"}, r"expected http:// or https://"),
        ({"sha256": "abc"}, r"sha256 'abc'; expected 64 hexadecimal digits"),
    ],
)
def test_impossible_requests_are_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        download(tmp_path / "data", **options)


def test_a_python_that_cannot_unpack_safely_is_refused_before_fetching(
    fetch: Callable[..., Path], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(tarfile, "data_filter")
    with pytest.raises(DependencyError, match=r"3\.11\.4"):
        fetch()
    assert site.requests == []


# --- unpacking


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "harmful",
    [
        member("../outside.wav"),
        member("yes/../../outside.wav"),
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("link", tarfile.SYMTYPE, "../.."),
        member("device", tarfile.CHRTYPE),
    ],
    ids=lambda info: f"{info.name}-{info.linkname}",
)
def test_an_archive_that_reaches_outside_is_refused(
    fetch: Callable[..., Path], site: Site, tmp_path: Path, harmful: tarfile.TarInfo
) -> None:
    site.content = make_archive(harmful)
    with pytest.raises(DownloadError, match="could not fetch or unpack"):
        fetch()
    assert [p.name for p in tmp_path.iterdir()] == ["speech_commands_v0.02.tar.gz"]


@pytest.mark.parametrize("content", [ARCHIVE[:200_000], b"no archive", b""], ids=["cut", "text", "empty"])
def test_an_archive_that_cannot_be_read_leaves_no_data_set(
    fetch: Callable[..., Path], site: Site, tmp_path: Path, content: bytes
) -> None:
    site.content = content
    with pytest.raises(DownloadError, match="could not fetch or unpack"):
        fetch()
    assert not (tmp_path / "data").exists()


def test_unpacking_that_was_cut_off_is_done_again_without_fetching(
    fetch: Callable[..., Path], site: Site, tmp_path: Path
) -> None:
    (tmp_path / "speech_commands_v0.02.tar.gz").write_bytes(ARCHIVE)
    (tmp_path / ".data.partial").mkdir()
    (tmp_path / ".data.partial" / "half.wav").write_bytes(b"")
    assert_complete(fetch())
    assert site.requests == []


def test_an_archive_put_there_by_hand_is_checked_and_never_removed_on_failure(
    fetch: Callable[..., Path], site: Site, tmp_path: Path
) -> None:
    archive = tmp_path / "speech_commands_v0.02.tar.gz"
    archive.write_bytes(b"something else")
    with pytest.raises(DownloadError, match="SHA-256"):
        fetch()
    assert archive.read_bytes() == b"something else"
