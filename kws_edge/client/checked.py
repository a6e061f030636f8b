"""Check the types of values from a server, which may be of another version, broken or hostile."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, Final, TypeVar

import numpy as np

from kws_edge.arrays import F32
from kws_edge.model.prediction import Reason
from kws_edge.model.score import Score
from kws_edge.stream.state import State
from kws_edge.text import one_line

T = TypeVar("T")

_LARGEST: Final = float(np.finfo(np.float32).max)


def printable(value: Any) -> Any:
    """What JSON holds, its texts without what would move a terminal's cursor or end a line: a server may be hostile."""
    match value:
        case str():
            return one_line(value)
        case list():
            return [printable(item) for item in value]
        case dict():
            return {one_line(key): printable(item) for key, item in value.items()}
        case _:
            return value


def text(value: Any) -> str:
    """A text; raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} instead of a text")
    return value


def number(value: Any) -> float:
    """A number that float32 holds too, which an infinite one is not; raises TypeError or ValueError for another."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a {type(value).__name__} instead of a number")
    if not abs(value) <= _LARGEST:
        raise ValueError("a number without bounds")
    return value


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts; raises TypeError for anything else."""
    if not isinstance(value, list):
        raise TypeError(f"a {type(value).__name__} instead of a list")
    return tuple(map(text, value))


def from_json(kind: Callable[..., T], message: Mapping[str, Any]) -> T:
    """A dataclass of the package from its JSON; what else is in it, a later version's, is left out.

    Raises KeyError, TypeError or ValueError where it is another version's and does not fit.
    """
    return kind(**{f.name: _READ[f.type](message[f.name]) for f in fields(kind)})  # type: ignore[arg-type]


def _numbers(value: Any) -> F32:
    if not isinstance(value, list):
        raise TypeError(f"a {type(value).__name__} instead of a list")
    return np.array([number(item) for item in value], np.float32)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a {type(value).__name__} instead of a whole number")
    if not 0 < value <= 2**31:
        raise ValueError("a whole number out of its range")
    return value


def _by_name(value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise TypeError(f"a {type(value).__name__} instead of numbers with names")
    return {text(name): number(item) for name, item in value.items()}


def _or_none(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


_READ: Final[Mapping[Any, Callable[[Any], Any]]] = {
    str: text,
    str | None: _or_none(text),
    Score: text,
    float: number,
    int: _whole,
    F32: _numbers,
    tuple[str, ...]: texts,
    Mapping[str, float]: _by_name,
    State: State,
    Reason | None: _or_none(lambda value: Reason(text(value))),
    datetime | None: _or_none(lambda value: datetime.fromisoformat(text(value))),
}
"""By the type of a field, how it is read."""
