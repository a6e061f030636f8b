"""A file is replaced whole, or stays what it was."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from kws_edge.errors import SettingError
from kws_edge.files import (
    MOST_MODEL,
    add_file,
    check_new,
    read_arrays,
    read_model,
    read_text,
    replace_file,
    write_named,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    replace_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"
    assert len(list(tmp_path.iterdir())) == 2


def test_links_in_a_circle_lead_nowhere_and_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    replace_file(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_stream_of_the_process_is_written_and_no_file_comes_in_its_place(tmp_path: Path) -> None:
    with (tmp_path / "said").open("wb") as file:
        replace_file(Path(f"/proc/self/fd/{file.fileno()}"), b"new")
    assert (tmp_path / "said").read_bytes() == b"new"


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
    with pytest.raises(OSError, match="No space left") as caught:
        replace_file(path, b"new")
    assert caught.value.filename == str(path)  # which the system does not say of a full disk
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_permissions_are_those_of_a_new_file_unless_given(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    replace_file(tmp_path / "new", b"")
    replace_file(tmp_path / "given", b"", mode=0o640)
    usual, new, given = (stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("usual", "new", "given"))
    assert (new, given) == (usual, 0o640)


def test_a_file_is_added_beside_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "3").write_bytes(b"theirs")
    assert add_file(lambda number: tmp_path / str(number), 3, b"ours").name == "4"
    assert (tmp_path / "3").read_bytes() == b"theirs"


def arrays(tmp_path: Path) -> bytes:
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(1000), text=np.array("ä"))
    return (tmp_path / "a.npz").read_bytes()


def test_arrays_are_read_as_they_were_written(tmp_path: Path) -> None:
    arrays(tmp_path)
    read = read_arrays(tmp_path / "a.npz")
    assert (sorted(read), read["x"].tolist(), str(read["text"])) == (["text", "x"], list(range(1000)), "ä")


def test_damaged_arrays_are_an_error_of_one_kind(tmp_path: Path) -> None:
    whole = arrays(tmp_path)
    huge = whole.replace(b"(1000,)", b"(9" + b"9" * 16 + b",)")
    one = tmp_path / "one.npy"
    np.save(one, np.arange(3))
    cases = [b"", b"PK", b"x" * 99, whole[:-1], whole[: len(whole) // 2], huge, one.read_bytes()]
    cases += [whole[:i] + b"\xff" * 8 + whole[i + 8 :] for i in range(0, len(whole) - 8, 16)]
    refused = 0
    for damaged in cases:
        (tmp_path / "b.npz").write_bytes(damaged)
        try:
            read_arrays(tmp_path / "b.npz")
        except ValueError:
            refused += 1
    assert refused > len(cases) // 2


def test_what_is_no_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    replace_file(tmp_path / "pipe", "said")
    assert os.read(reader, 10) == b"said"
    os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_text_is_read_without_its_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("ja\nñ\n".encode("utf-8-sig"))
    assert read_text(tmp_path / "a.txt") == "ja\nñ\n"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_of_a_text_end_alike_whoever_wrote_it(tmp_path: Path, end: str) -> None:
    (tmp_path / "a.txt").write_bytes(f"ja{end}ñ{end}{end}".encode())
    assert read_text(tmp_path / "a.txt") == "ja\nñ\n\n"


def test_text_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(OSError, match="more than 64 MB of text"):
        read_text(Path("/dev/zero"))


def test_a_file_is_written_over_where_that_is_meant(tmp_path: Path) -> None:
    check_new(tmp_path / "mean.pt", overwrite=False)
    (tmp_path / "mean.pt").touch()
    check_new(tmp_path / "mean.pt", overwrite=True)
    with pytest.raises(SettingError, match=r"mean\.pt exists; expected a new name, or --force to write over it"):
        check_new(tmp_path / "mean.pt", overwrite=False)


def test_what_a_user_named_and_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"^cannot write .*absent/bench\.md: No such file or directory$"):
        write_named(tmp_path / "absent" / "bench.md", "text")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_model_is_not_read_from_what_may_have_no_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    for endless in (tmp_path / "pipe.onnx", Path("/dev/zero")):
        with pytest.raises(OSError, match="a pipe or device"):
            read_model(endless)


def test_a_file_too_large_for_a_model_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large.onnx").open("wb") as file:
        file.truncate(MOST_MODEL + 1)  # takes no room on the disk
    with pytest.raises(OSError, match="more than 256 MB"):
        read_model(tmp_path / "large.onnx")
