"""What a check finds, and what is to be done where it breaks."""

import errno
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from kws_edge.errors import KwsEdgeError
from kws_edge.text import collapsed

ENOUGH_MB: Final = 150
"""For one program that listens, and the system beside it."""

TEMPORARY: Final = "name a writable folder with free space: TMPDIR=FOLDER kws-edge doctor; listening needs none"

_NOT_WRITABLE = (errno.EROFS, errno.ENOSPC, errno.EDQUOT)
_NO_PROCESS = {
    errno.ENOEXEC: "programs for this processor cannot start others here, as under qemu without binfmt_misc: "
    "register the emulator (docker run --privileged --rm tonistiigi/binfmt --install all), or use a real board",
    errno.EAGAIN: "no more processes are allowed: raise the limit (ulimit -u, --pids-limit, TasksMax=)",
    errno.ENOENT: "Python's interpreter is not where it should be: start that of the environment by its full path",
    errno.EACCES: "allow this user to start Python: mount without noexec, no sandbox that forbids execve",
    errno.EPERM: "allow this user to start Python: mount without noexec, no sandbox that forbids execve",
}
"""Why no process can be started → what to do about it."""


class Status(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """Something is slower, less or other than it could be; words are still recognised."""
    PROBLEM = "problem"
    """Words cannot be recognised, or not from what was asked about."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: `message` in a line, and in `advice` what to do about it, None where nothing is."""

    check: str
    status: Status
    message: str
    advice: str | None = None

    def to_dict(self) -> dict[str, str | None]:
        """Plain JSON types."""
        return asdict(self)


Found: TypeAlias = Iterator[Finding]


def guarded(check: str, look: Callable[[], Found]) -> Found:
    """The findings of a check; where it breaks, that is one."""
    try:
        yield from look()
    except KwsEdgeError as error:
        yield Finding(check, Status.PROBLEM, collapsed(error))
    except Exception as error:  # a broken part may raise anything
        message = f"cannot be checked: {type(error).__name__}: {collapsed(error)}"
        yield Finding(check, Status.PROBLEM, message, advice(error))


def advice(error: Exception) -> str:
    """What to do about an error that no check expects."""
    if isinstance(error, subprocess.TimeoutExpired):
        return "the machine is too busy, or a library hangs as it loads: try again with nothing else running"
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return f"free some memory: kws-edge needs about {ENOUGH_MB} MB"
    if isinstance(error, OSError) and (error.errno in _NOT_WRITABLE or "temporary directory" in str(error)):
        return TEMPORARY
    if isinstance(error, PermissionError):
        return "let this user read it"
    return "reinstall kws-edge and what it needs in a new virtual environment"


def cannot_probe(check: str, error: OSError) -> Finding:
    """What is tried in a process of its own cannot be; such a process needs a place for its files, listening none."""
    message = f"tried in this process, because another cannot be started: {collapsed(error)}"
    if "temporary directory" in str(error):
        return Finding(check, Status.WARNING, message, TEMPORARY)
    return Finding(check, Status.WARNING, message, _NO_PROCESS.get(error.errno or 0) or advice(error))
