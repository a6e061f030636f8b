"""What happens where a service, a terminal that is closed or a batch system ends a command."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

_came: list[int] = []


@contextmanager
def tidied() -> Iterator[None]:
    """What is inside ends at SIGTERM and SIGHUP as at an error, so that nothing half written is left.

    Then the process ends by the signal, as it would have at once. One that is ignored, as under nohup, stays so.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield
        return
    for number in _ENDING:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)
    try:
        yield
    finally:
        untidied()
        if _came:
            os.kill(os.getpid(), _came[0])


def untidied() -> None:
    """End at once again, or as what runs from now on says: a server has its own way to end."""
    for number in _ENDING:
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second one does not wait
    _came.append(number)
    sys.exit(128 + number)
