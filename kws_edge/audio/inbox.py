"""The queue of a microphone: PortAudio's thread puts blocks in, the one that iterates takes them out."""

import threading
import time
from collections import deque
from dataclasses import dataclass

from kws_edge.arrays import I16


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """What one callback brought: int16 [n, channels], what was lost before it, and when it came."""

    data: I16
    lost: int
    overflow: bool
    arrived: float


class Inbox:
    """The queue between PortAudio's thread and the consumer's; its lock is held for a few instructions only."""

    def __init__(self, limit: int) -> None:
        """Hold up to `limit` pieces."""
        self._limit, self._ready = limit, threading.Condition()
        self._pieces: deque[Piece] = deque()
        self.arrived = 0.0
        self.error: Exception | None = None

    def __len__(self) -> int:
        """The pieces that wait."""
        return len(self._pieces)

    def put(self, data: I16, *, overflow: bool) -> None:
        """Add a piece; where the queue is full, all that wait are lost."""
        with self._ready:
            lost = 0
            if len(self._pieces) >= self._limit:
                lost = sum(piece.lost + len(piece.data) for piece in self._pieces)
                overflow |= any(piece.overflow for piece in self._pieces)
                self._pieces.clear()
            self.arrived = time.monotonic()
            self._pieces.append(Piece(data, lost, overflow, self.arrived))
            self._ready.notify()

    def fail(self, error: Exception) -> None:
        """Tell the consumer of an error on the way here."""
        with self._ready:
            self.error = error
            self._ready.notify()

    def get(self, timeout: float) -> Piece | None:
        """The next piece; None where none came in `timeout` seconds, or there is an error."""
        with self._ready:
            if not self._pieces and self.error is None:
                self._ready.wait(timeout)
            return self._pieces.popleft() if self._pieces else None

    def clear(self) -> None:
        """Forget what waits, as when the device is reopened."""
        with self._ready:
            self._pieces.clear()
            self.error = None
