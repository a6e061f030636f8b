"""Settings with a range: refused outside it, in the same words everywhere."""

import math
from collections.abc import Mapping
from typing import Any, Final

from kws_edge.errors import SettingError

MOST_SEED: Final = 10**18
"""The generators of torch take little more."""


def check_ranges(what: str, settings: Any, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuse a field below its least or above its most; an infinite most is none.

    Parameters
    ----------
    what : the settings' name, with which the message begins.
    ranges : field → its least and most.

    Raises
    ------
    SettingError : one is outside.
    """
    for name, (least, most) in ranges.items():
        value = getattr(settings, name)
        if not least <= value <= most:
            expected = f"at least {least:g}" if most == math.inf else f"{least:g} to {most:g}"
            raise SettingError(f"{what}: {name}={value}; expected {expected}")


def check_share(what: str, settings: Any, name: str) -> None:
    """Refuse a field below 0, or not below 1, with a SettingError."""
    value = getattr(settings, name)
    if not 0 <= value < 1:
        raise SettingError(f"{what}: {name}={value}; expected 0 to below 1")
