"""Losses of samples, and whether there are too many of them for a word to be heard.

A word must lie between two losses to be found, and be seen whole for some tenths of a second. Where a loss comes every
1.5 s, half of the words are found that are found without; at 1.2 s fewer, and at 0.6 s none.
"""

from collections import deque
from typing import Final

HEARABLE: Final = 1.5
"""Seconds between two losses in which a word is more likely found than not."""
SPAN: Final = 10.0
"""Seconds that are looked back on."""
_LEAST: Final = 3
"""Losses within them: one long outage is no reason to distrust what comes after it."""


class Losses:
    """Where samples were lost lately. Times are stream time, rising."""

    def __init__(self) -> None:
        """Nothing is lost yet."""
        self._lost: deque[tuple[float, float]] = deque()

    def add(self, start: float, seconds: float) -> None:
        """Samples were lost from `start` on, for so long; 0 where that is not known."""
        self._lost.append((start, start + seconds))
        while self._lost[-1][1] - self._lost[0][1] > SPAN:
            self._lost.popleft()
        # Of those before the last few, only the stretches count that are long enough to hear in: a flood takes no room.
        if len(self._lost) > _LEAST + 1:
            (first, end), (begin, last) = self._lost[-_LEAST - 2], self._lost[-_LEAST - 1]
            if begin - end < HEARABLE:
                del self._lost[-_LEAST - 2]
                self._lost[-_LEAST - 1] = first, last

    def too_many(self, now: float) -> bool:
        """Whether less than half of the last `SPAN` lay in stretches of at least `HEARABLE` without a loss."""
        begin = max(0.0, now - SPAN)
        whole, count, end = 0.0, 0, begin
        for lost, resumed in [*self._lost, (now, now)]:
            if resumed >= begin:
                whole += lost - end if lost - end >= HEARABLE else 0.0
                count, end = count + 1, resumed
        return count > _LEAST and whole < (now - begin) / 2
