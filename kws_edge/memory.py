"""Give back memory that only the start of a program needed."""

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_SMAPS = Path("/proc/self/smaps")
_DONTNEED = 4  # MADV_DONTNEED
_HEADING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-[x-]p \S+ \S+ \d+\s+/")


class _Code(NamedTuple):
    """Where a library's code or constants are mapped, and how many kB of it were written to, which its file lacks."""

    start: int
    end: int
    written: int


def release_start() -> bool:
    """Return freed memory to the system, and the pages of libraries' code and constants; whether that was done.

    Most of the code that runs while libraries are loaded and a model is opened never runs again. What does run again is
    mapped again when it does, from the page cache. Does nothing anywhere but on Linux with glibc. Takes some ms, once.
    """
    if sys.platform != "linux":
        return False
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.malloc_trim(0)
        libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for code in _code(_SMAPS.read_text(encoding="utf-8", errors="replace")):
            if not code.written:  # what a debugger has changed must stay
                libc.madvise(code.start, code.end - code.start, _DONTNEED)
    except (OSError, AttributeError):  # no /proc, or a C library without malloc_trim
        return False
    return True


def _code(smaps: str) -> Iterator[_Code]:
    """The mappings of files' code in what /proc/self/smaps says."""
    start = end = 0
    for line in smaps.splitlines():
        if heading := _HEADING.match(line):
            start, end = int(heading[1], 16), int(heading[2], 16)
        elif line.startswith("Anonymous:") and end:
            yield _Code(start, end, int(line.split()[1]))
            start = end = 0
        elif not line[:1].isupper():
            start = end = 0
