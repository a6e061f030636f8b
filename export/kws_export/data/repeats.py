"""Say of recordings that they were given more than once."""

import logging
from collections.abc import Sequence

from kws_edge.text import counted, one_line

_log = logging.getLogger(__name__)


def warn_of_repeats(noun: str, again: Sequence[object]) -> None:
    """Log how many more than once, such as "recording", and the first of them, by its path or name; of none nothing."""
    if again:
        _log.warning(
            "%s given more than once, such as %s; each counts once", counted(len(again), noun), one_line(again[0])
        )
