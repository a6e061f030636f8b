"""A file is replaced whole, or stays what it was."""

import os
import stat
from pathlib import Path

import pytest

from kws_edge.files import replace_file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("content", [b"new\r\n\x00", "neu: ä\n"])
def test_a_file_gets_its_new_content_and_nothing_lies_beside_it(tmp_path: Path, content: bytes | str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    replace_file(path, content)
    assert path.read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert names(tmp_path) == ["a.txt"]


def test_the_content_is_on_the_disk_before_the_name_points_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, order = tmp_path / "a.txt", []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        order.append(("fsync", os.fstat(descriptor).st_size))
        fsync(descriptor)

    def replaced(*names: Path) -> None:
        order.append(("replace", 0))
        replace(*names)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    replace_file(path, b"four")
    assert order == [("fsync", 4), ("replace", 0)]


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_content_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.txt"
    path.write_text("old")
    monkeypatch.setattr(os, fails, full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_permissions_are_those_of_a_new_file_unless_given(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    replace_file(tmp_path / "new", b"")
    replace_file(tmp_path / "given", b"", mode=0o640)
    usual, new, given = (stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("usual", "new", "given"))
    assert (new, given) == (usual, 0o640)
