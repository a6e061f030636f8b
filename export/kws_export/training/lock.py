"""Who may train in a folder: one process at a time."""

import logging
from typing import IO, Any

_log = logging.getLogger(__name__)


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
