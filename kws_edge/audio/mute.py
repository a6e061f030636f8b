"""Notice a muted input: one that gives nothing but zeros for a few seconds."""

import logging
from typing import Final

MUTED: Final = 3.0
"""Seconds of nothing but zeros, of the stream, after which it is said. A live converter's last bit moves."""

_log = logging.getLogger(__name__)


class MuteWatch:
    """Looks out for zeros in one stream.

    Attributes
    ----------
    problem : what is wrong at the moment, in words; None where there is sound.
    """

    def __init__(self, name: str, cause: str) -> None:
        """Of an input of this name; `cause` says what zeros mean there, in words."""
        self._said = f"{name} gives nothing but zeros: {cause}"
        self._seconds = 0.0
        self.problem: str | None = None

    def add(self, seconds: float, *, zeros: bool) -> None:
        """Take so many seconds that were nothing but zeros, or were not; the first that are too many go to the log."""
        self._seconds = self._seconds + seconds if zeros else 0.0
        if self._seconds < MUTED:
            self.problem = None
        elif self.problem is None:
            self.problem = self._said
            _log.warning("%s", self.problem)
