"""Run a program as a unit of systemd confines it: its families of addresses and its system calls, by the same filter.

    python tests/support/confined.py UNIT COMMAND...

Read from the unit: RestrictAddressFamilies, SystemCallFilter, RestrictNamespaces, RestrictRealtime, UMask. What the
calls of a set are, `systemd-analyze syscall-filter` says, and libseccomp makes the filter, as for systemd.
"""

import ctypes
import errno
import os
import re
import shutil
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

ALLOW, KILL = 0x7FFF0000, 0x80000000
EQUAL, MASKED = 4, 7  # SCMP_CMP_EQ, SCMP_CMP_MASKED_EQ
FAMILIES = 46  # of Linux
NAMESPACES = (0x80, 0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)


class Comparison(ctypes.Structure):
    _fields_ = (
        ("arg", ctypes.c_uint), ("op", ctypes.c_int), ("datum_a", ctypes.c_uint64), ("datum_b", ctypes.c_uint64),
    )  # fmt: skip


def lacking() -> str | None:
    """What this machine lacks to do it."""
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return "libseccomp.so.2"
    return None if shutil.which("systemd-analyze") else "systemd-analyze"


def settings(unit: Path) -> dict[str, str]:
    """The last value of each setting."""
    return dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))


@cache
def calls(name: str) -> frozenset[str]:
    """The system calls of a set, or of the one of that name."""
    if not name.startswith("@"):
        return frozenset([name])
    run = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    listed = [line.strip() for line in run.stdout.splitlines()[1:]]
    return frozenset().union(*(calls(line) for line in listed if line and not line.startswith("#")))


class Filter:
    def __init__(self, default: int) -> None:
        self.library = ctypes.CDLL("libseccomp.so.2")
        self.library.seccomp_init.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.library.seccomp_init(ctypes.c_uint32(default)))

    def add(self, action: int, call: str, *comparisons: Comparison) -> None:
        number = self.library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:  # else this architecture has no such call
            array = (Comparison * len(comparisons))(*comparisons)
            self.library.seccomp_rule_add_array(
                self.context, ctypes.c_uint32(action), number, len(comparisons), array if comparisons else None
            )

    def load(self) -> None:
        assert self.library.seccomp_load(self.context) == 0, "the filter cannot be loaded"


def confine(unit: Path) -> None:
    """Confine this process, and all that it starts."""
    said = settings(unit)
    refused = Filter(ALLOW)
    allowed = {int(getattr(socket, name)) for name in said["RestrictAddressFamilies"].split()}
    for family in set(range(FAMILIES)) - allowed:
        refused.add(0x00050000 | errno.EAFNOSUPPORT, "socket", Comparison(0, EQUAL, family, 0))
    if said.get("RestrictNamespaces") == "yes":
        refused.add(0x00050000 | errno.EPERM, "setns")
        for flag in NAMESPACES:
            for call in ("unshare", "clone"):
                refused.add(0x00050000 | errno.EPERM, call, Comparison(0, MASKED, flag, flag))
    if said.get("RestrictRealtime") == "yes":
        for policy in (1, 2):  # SCHED_FIFO, SCHED_RR
            refused.add(0x00050000 | errno.EPERM, "sched_setscheduler", Comparison(1, EQUAL, policy, 0))
    known = Filter(KILL)
    for name in said["SystemCallFilter"].split():
        for call in calls(name) | calls("@default"):
            known.add(ALLOW, call)
    os.umask(int(said["UMask"], 8))
    refused.load()
    known.load()


if __name__ == "__main__":
    confine(Path(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
