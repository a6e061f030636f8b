"""Say the same thing again and again, but not too often."""

import time
from typing import Final

SAY_AGAIN: Final = 10.0
"""Seconds between two lines of the log that say the same."""


class Throttle:
    """Lets one line through in `SAY_AGAIN` seconds.

    Examples
    --------
    >>> from kws_edge.throttle import Throttle
    >>> throttle = Throttle()
    >>> throttle.passes(), throttle.passes()
    (True, False)
    """

    def __init__(self) -> None:
        """The first line passes."""
        self._last = float("-inf")

    def passes(self) -> bool:
        """Whether there is to be a line now; then none for a while."""
        now = time.monotonic()
        if now - self._last < SAY_AGAIN:
            return False
        self._last = now
        return True
