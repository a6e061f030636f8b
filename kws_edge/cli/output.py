"""Standard output and error that can be written whatever their encoding, and even if they are closed."""

import io
import os
import sys


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
