"""Output in all scripts, on terminals and into pipes that may not have them."""

import io
import sys


def write_any_script() -> None:
    """Write characters that the output's encoding lacks as escapes, such as `\\u0142`, instead of failing.

    Labels and names of files are of any script; a pipe on Windows takes only that of the system.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
