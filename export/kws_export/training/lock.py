"""A lock on a folder: one process at a time may work in it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from kws_edge.errors import SettingError

_log = logging.getLogger(__name__)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make a folder, and keep other processes from working in it. Raises SettingError where one does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        if not take_lock(file):
            raise SettingError(f"another process trains in {folder}; wait for it, or give another folder")
        yield


def take_lock(file: IO[Any]) -> bool:
    """Take an open file for this process, until it is closed or the process ends; False where another has it.

    On Windows, and on a file system without locks, nothing is kept apart.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        _log.warning("cannot lock %s: make sure that nothing else trains there", file.name)
    return True
