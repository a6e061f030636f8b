"""Instructions and cycles of this thread, from the processor's own counters: Linux's perf_event_open, through ctypes.

Source: perf_event_open(2); struct perf_event_attr of linux/perf_event.h, as its first version has it.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

_SYSCALLS: Final = {"x86_64": 298, "aarch64": 241}
_HARDWARE, _CYCLES, _INSTRUCTIONS = 0, 0, 1  # PERF_TYPE_HARDWARE and two of its events
_DISABLED, _EXCLUDE_KERNEL, _EXCLUDE_HV = 1 << 0, 1 << 5, 1 << 6
_SIZE = 64  # PERF_ATTR_SIZE_VER0
_RESET, _ENABLE, _DISABLE = 0x2403, 0x2400, 0x2401
_WHY = {
    errno.ENOENT: "this machine shows no such counter, as most virtual ones do not",
    errno.EACCES: "not allowed: sysctl kernel.perf_event_paranoid=2, or less, allows it",
    errno.EPERM: "not allowed: a container or sandbox forbids perf_event_open",
    errno.ENOSYS: "this kernel, or the emulator, does not have perf_event_open",
    errno.EOPNOTSUPP: "this processor has no such counter",
}


class Counted(NamedTuple):
    """What one call took in user space, a mean."""

    instructions: float
    cycles: float


def measure(work: Callable[[], Any], calls: int = 50) -> Counted | str:
    """Count so many calls on this thread, after a few that do not count; or why it cannot be counted, in words."""
    if sys.platform != "linux":
        return "counted on Linux alone"
    import fcntl  # which other systems may lack

    if platform.machine() not in _SYSCALLS:
        return f"not known how to ask on {platform.machine()}"
    with ExitStack() as stack:
        counters = []
        for event in (_INSTRUCTIONS, _CYCLES):
            try:
                counters.append(_open(event))
            except OSError as error:
                return _WHY.get(error.errno or 0, f"perf_event_open fails: {error.strerror}")
            stack.callback(os.close, counters[-1])
        for _ in range(min(calls, 5)):
            work()
        for order in (_RESET, _ENABLE):
            for counter in counters:
                fcntl.ioctl(counter, order, 0)
        for _ in range(calls):
            work()
        for counter in counters:
            fcntl.ioctl(counter, _DISABLE, 0)
        return Counted(*(struct.unpack("Q", os.read(counter, 8))[0] / calls for counter in counters))


def _open(event: int) -> int:
    """A counter of this thread, stopped. Raises OSError."""
    flags = _DISABLED | _EXCLUDE_KERNEL | _EXCLUDE_HV
    attributes = ctypes.create_string_buffer(struct.pack("IIQQQQQ", _HARDWARE, _SIZE, event, 0, 0, 0, flags), _SIZE)
    call = ctypes.CDLL(None, use_errno=True).syscall
    here, any_processor, no_group, no_flags = 0, -1, -1, 0
    number = ctypes.c_long(_SYSCALLS[platform.machine()])
    found = call(number, attributes, here, any_processor, no_group, ctypes.c_ulong(no_flags))
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(found)
