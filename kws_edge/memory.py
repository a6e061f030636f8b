"""Give back memory that only the start of a program needed."""

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_PROCESS = Path("/proc/self")
_DONTNEED = 4  # MADV_DONTNEED
_RANGE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ", re.MULTILINE)
# A file's code or constants, of which no page was written to: such a page's content would be lost.
_CODE = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) r-[x-]p \S+ \S+ \d+ +/.*\n(?:[A-Z].*\n)*?Anonymous: +0 kB$", re.MULTILINE
)


def release_start() -> bool:
    """Return freed memory to the system, and the pages of libraries' code and constants; whether that was done.

    Most of the code that runs while libraries are loaded and a model is opened never runs again. What does run again is
    mapped again when it does, from the page cache. Does nothing anywhere but on Linux with glibc. Takes some ms.
    """
    if sys.platform != "linux":
        return False
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        trim = libc.malloc_trim
        libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for start, end in _code((_PROCESS / "maps").read_bytes(), (_PROCESS / "smaps").read_bytes()):
            libc.madvise(start, end - start, _DONTNEED)
        trim(0)
    except (OSError, AttributeError):  # no /proc, or a C library without malloc_trim
        return False
    return True


def _code(maps: bytes, smaps: bytes) -> Iterator[tuple[int, int]]:
    """Where files' code and constants are mapped, by what /proc says of this process.

    An emulator of another processor, such as qemu, shows this process's addresses in maps, but its own in smaps, which
    may mean something else here: what is not in both is left alone.
    """
    known = set(map(_addresses, _RANGE.finditer(maps)))
    return (range_ for range_ in map(_addresses, _CODE.finditer(smaps)) if range_ in known)


def _addresses(found: re.Match[bytes]) -> tuple[int, int]:
    return int(found[1], 16), int(found[2], 16)
