"""Whose frames are parsed next: one read may bring tens of thousands of them, and the event loop has more to do."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kws_edge.server.fairness import FairQueue

_TURN: Final = 0.005
"""Seconds of parsing after which everything else on the event loop has its turn."""


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """What is to be done for a client: a piece of work of a few milliseconds at most."""

    client: str
    work: Callable[[], None]


class Turns:
    """All work of this kind on one event loop; of the clients, each has an equal part of the time."""

    def __init__(self) -> None:
        """Begin with nothing to do."""
        self._queue: FairQueue[Turn] = FairQueue()
        self._scheduled = False

    def add(self, turn: Turn) -> None:
        """Do a piece of work as soon as it is its client's turn. It may add itself again."""
        self._queue.append(turn)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        now = time.perf_counter()
        end = now + _TURN
        try:
            while len(self._queue) and now < end:
                turn, began = self._queue.pop(0.0), now
                turn.work()
                now = time.perf_counter()
                self._queue.charge(turn.client, now - began)
        finally:
            if len(self._queue):
                self._schedule()
