"""How far behind a live stream is, and when to tell its client."""

import math
import time
from collections.abc import Callable
from typing import Final

_SLOW: Final = 1.0  # s of live audio that waits, from which on its client is told
_SLOW_AGAIN: Final = 2.0  # s between two messages of that
_LOOK_AGAIN: Final = 0.5  # s between two looks how much waits


class Lag:
    """How much live audio waits. A client that sends a recording as fast as it can is ahead, and does not wait."""

    def __init__(self, bytes_per_second: int, waiting: Callable[[], int] | None) -> None:
        """Begin; `waiting` tells the bytes that have come and were not read, None where that is not known."""
        self._bytes_per_second, self._waiting = bytes_per_second, waiting
        self._began: float | None = None
        self._told = self._looked = -math.inf

    def begin(self) -> None:
        """Audio is there; the first time, the stream's clock starts."""
        self._began = time.monotonic() if self._began is None else self._began

    def reset(self) -> None:
        """The stream's clock is at 0 again."""
        self._began = None

    def of(self, stream_time: float) -> float | None:
        """Seconds of audio that wait, where the client is to be told of it: it is live, and was not told just now."""
        now = time.monotonic()
        if self._waiting is None or self._began is None or now - self._told < _SLOW_AGAIN:
            return None
        if now - self._looked < _LOOK_AGAIN:  # which takes a while where very many messages wait
            return None
        self._looked = now
        lag = self._waiting() / self._bytes_per_second
        if lag < _SLOW or stream_time + lag > now - self._began + _SLOW:
            return None
        self._told = now
        return lag
