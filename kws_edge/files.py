"""Write files atomically, and read files that may be damaged or have no end."""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from kws_edge.errors import SettingError

if TYPE_CHECKING:
    import numpy as np

PARTIAL = ".partial"
"""The suffix of a file that is still being written; one that is left over, after a power cut, can be deleted."""
MOST_TEXT = 64 << 20
"""Bytes of a list or a label track; the longest real ones have a few million."""
MOST_MODEL = 256 << 20
"""Bytes of a model's file; the largest real ones have two million."""


def replace_file(path: Path, content: bytes | str, *, mode: int | None = None) -> None:
    """Write a file whole: whoever looks, or a power cut at any moment, finds the old content or the new.

    A link stays, and what it leads to is written. What is no file, as a pipe or /dev/stdout, is written as it is.

    Parameters
    ----------
    content : bytes, or text, which becomes UTF-8.
    mode : permissions; None for those of a new file.

    Raises
    ------
    OSError : it cannot be written; what was there stays as it was.
    """
    is_stream = path.is_symlink() and path.absolute().parts[1:2] in (("dev",), ("proc",))  # as /dev/stdout
    if is_stream or (path.exists() and not path.is_file()):  # in whose place no file must come
        with _naming(path):
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return
    path = Path(os.path.realpath(path))  # unlike resolve, also of links in a circle
    partial = path.with_name(f".{path.name}.{os.urandom(4).hex()}{PARTIAL}")
    try:
        with _naming(path):
            with partial.open("xb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())  # else a power cut can leave the new name without its content
            if mode is not None:
                partial.chmod(mode)
            os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def check_new(path: Path, *, overwrite: bool) -> None:
    """Raise SettingError where what a command is to write is there, and not to be written over."""
    if path.exists() and not overwrite:
        raise SettingError(f"{path} exists; expected a new name, or --force to write over it")


def write_named(path: Path, content: bytes | str, *, mode: int | None = None) -> None:
    """`replace_file` of a name that a user gave. Raises SettingError where it cannot be written."""
    try:
        replace_file(path, content, mode=mode)
    except OSError as error:
        raise SettingError(f"cannot write {path}: {error.strerror}") from None


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """An OSError names the file that was to be written; that of a full disk names none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


def add_file(path_of: Callable[[int], Path], number: int, content: bytes) -> Path:
    """Write a file under the first free number from one on, beside what other processes write; its path.

    Raises
    ------
    OSError : it cannot be written; nothing of it is left.
    """
    while True:
        path = path_of(number)
        try:
            file = path.open("xb")
        except FileExistsError:
            number += 1
            continue
        try:
            with _naming(path), file:
                file.write(content)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path


def make_blocking(stream: IO[bytes]) -> None:
    """Have reading wait for what comes, in a pipe that whoever opened it made to say at once that there is nothing.

    That nothing would be taken for the end.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):  # no file of the system, as a BytesIO
        os.set_blocking(stream.fileno(), True)


def read_model(path: Path) -> bytes:
    """The content of a model's file.

    Raises
    ------
    OSError : it cannot be read, is a pipe or a device, which may have no end, or has more than `MOST_MODEL` bytes.
    ValueError : no file can have such a path.
    """
    status = path.stat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(errno.EINVAL, "a pipe or device", os.fspath(path))
    if status.st_size > MOST_MODEL:
        raise OSError(errno.EFBIG, f"more than {MOST_MODEL >> 20} MB", os.fspath(path))
    return path.read_bytes()


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark; its lines end in "\\n" whatever the file has.

    Raises
    ------
    OSError : it cannot be read, or has more than `MOST_TEXT` bytes, as an endless device has.
    UnicodeDecodeError : it is not UTF-8.
    """
    with path.open("rb") as file:
        data = file.read(MOST_TEXT + 1)
    if len(data) > MOST_TEXT:
        raise OSError(errno.EFBIG, f"more than {MOST_TEXT >> 20} MB of text")
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def read_arrays(path: Path) -> "dict[str, np.ndarray[Any, np.dtype[Any]]]":
    """All arrays of an .npz file.

    Raises
    ------
    OSError : it cannot be read.
    ValueError : it is no such file, or damaged, or says that it holds more than there is memory for.
    """
    import zipfile  # 1 MB with what it brings, which a stream does not need
    import zlib

    import numpy as np

    try:
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, zlib.error, EOFError, TypeError, RuntimeError, OverflowError, MemoryError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
