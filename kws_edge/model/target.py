"""A target, the accuracy that accepted clips should have, as people write it: 99.5 %, 99.5 or 0.995."""

from typing import TypeAlias

from kws_edge.errors import SettingError
from kws_edge.text import shortened

Target: TypeAlias = float | str
"""A number or text: below 1 a fraction, above 1 a percentage; "%" says that it is one."""


def parse_target(target: Target) -> float:
    """The fraction, in (0, 1], that is meant.

    Raises
    ------
    SettingError : no number, none between 0 and 100 %, or a bare 1, which may mean 1 % or 100 %.

    Examples
    --------
    >>> from kws_edge.model.target import parse_target
    >>> parse_target(0.995), parse_target(99.5), parse_target("99.5 %"), parse_target("100%")
    (0.995, 0.995, 0.995, 1.0)
    """
    text = str(target).strip()
    try:
        number = float("nan") if isinstance(target, bool) else float(text.removesuffix("%"))
    except ValueError:
        number = float("nan")
    if text.endswith("%") or 1 < number <= 100:
        number /= 100
    elif number == 1:
        raise SettingError(f"target={target}; expected 100 % or 1 %, whichever is meant")
    if not 0 < number <= 1:
        raise SettingError(
            f"target={shortened(text, 40)}; expected an accuracy such as 99.5 %, which is also 99.5 and 0.995"
        )
    return number
