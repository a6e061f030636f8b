"""Standard output and error that can be written whatever their encoding, and even if they are closed."""

import errno
import io
import os
import sys
from typing import Final

from kws_edge.errors import KwsEdgeError
from kws_edge.text import one_line

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def replace_closed_output() -> None:
    """Let output that was closed (`>&-`) go nowhere.

    Python has None in its place; and the next file that is opened would have its number, so that what a library prints
    would be written into it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8")


def write_any_script() -> None:
    """Write characters that the output's encoding lacks as escapes, such as `\\u0142`, instead of failing.

    Labels and names of files are of any script; a pipe on Windows takes only that of the system.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def said(error: Exception) -> str:
    """What is said of an error, in a line. An error of the system is one of its file, or else of what is printed."""
    if isinstance(error, KwsEdgeError) or not isinstance(error, OSError) or not error.strerror:
        return one_line(error)
    where = "standard output" if error.filename is None and error.errno in _NO_ROOM else error.filename
    return one_line(error.strerror if where is None else f"{where}: {error.strerror}")
