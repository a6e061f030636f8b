"""The files in which the processes keep their numbers for each other, which are mapped into memory.

A page of such a file that the file system has no room for ends the process that writes to it, by a signal (SIGBUS), in
the middle of a request. So all room is taken before the first number is written, where its lack is an error.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

_KINDS: Final = ("counter", "histogram", "gauge_livesum")
"""As prometheus_client names its files: for each kind of metric, and each way to add gauges up."""

_FILE: Final = 2**20  # bytes; labels are of closed sets, and take a fifth of it at most

ROOM: Final = len(_KINDS) * _FILE
"""Bytes that one process takes."""


def reserve(folder: str) -> None:
    """Take the room for this process, before its first metric is made.

    Raises
    ------
    OSError : there is none.
    """
    for kind in _KINDS:
        fd = os.open(Path(folder) / f"{kind}_{os.getpid()}.db", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, _FILE)
            else:  # macOS; written to, a file has its room as well
                os.pwrite(fd, bytes(max(0, _FILE - os.fstat(fd).st_size)), os.fstat(fd).st_size)
        finally:
            os.close(fd)


def trim(folder: str, pid: int) -> None:
    """Give back what a process that has ended did not use; its counts stay."""
    for file in Path(folder).glob(f"*_{pid}.db"):
        with contextlib.suppress(OSError), file.open("r+b") as opened:
            used = int.from_bytes(opened.read(4), "little")  # prometheus_client keeps it there
            opened.truncate(max(8, used))
