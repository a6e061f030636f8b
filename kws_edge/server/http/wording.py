"""What a field takes, in words for whoever typed its value: pydantic's own are about Python's types."""

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BeforeValidator, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from kws_edge.model.target import parse_target
from kws_edge.text import shortened

_NUMBERS: Final[Mapping[Any, str]] = {int: "a whole number", float: "a number"}
TARGET: Final = (
    BeforeValidator(parse_target),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 100}),
)
"""What makes a float field a target, as `Annotated[float, *TARGET]`: 0.995, 99.5 or 99.5 %."""

BYTES: Final = "bytes"
"""A note, as `Annotated[int, BYTES]`, which is told with what the field takes; as is SECONDS. Of a text it is all."""
SECONDS: Final = "seconds"
CHANNELS: Final = "a number from 1 to 99, or mix"


def wrong(error: ErrorDetails, fields: Mapping[str, FieldInfo], what: str) -> str:
    """What was given for one of the fields, and what it takes; `what` they are, as "parameter"."""
    if error["type"] == "extra_forbidden":
        return f"no such {what}; expected some of {', '.join(fields)}"
    field = fields.get(str(error["loc"][-1])) if error["loc"] else None
    takes = _takes(field) if field else None
    if takes is None or error["type"] == "value_error":  # which says all that itself, and may be about a secret
        return error["msg"].removeprefix("Value error, ")
    return f"{shortened(repr(error['input']))}; expected {takes}"


def _takes(field: FieldInfo) -> str | None:
    """What a field takes; None where it is neither a number nor one of a few values, nor a text."""
    kind = next((k for k in get_args(field.annotation) or (field.annotation,) if k is not NoneType), None)
    if get_origin(field.annotation) is Literal or get_origin(kind) is Literal:
        choices = get_args(field.annotation if get_origin(field.annotation) is Literal else kind)
        return f"one of {', '.join(choices)}"
    if kind is bool:
        return "true or false"
    limits = {name: getattr(m, name) for m in field.metadata for name in ("ge", "gt", "le", "lt") if hasattr(m, name)}
    notes = [m for m in field.metadata if isinstance(m, str)]
    if kind in _NUMBERS:
        return " ".join([_NUMBERS[kind], *_range(**limits), *(f"({note})" for note in notes)])
    if kind is str and notes:
        return notes[0]
    most = next((m.max_length for m in field.metadata if hasattr(m, "max_length")), None)
    return f"up to {most} characters" if kind is str and most else None


def _range(
    ge: float | None = None, gt: float | None = None, le: float | None = None, lt: float | None = None
) -> Iterator[str]:
    if ge is not None:
        yield f"from {ge}" if le is not None else f"of {ge} or more"
    if gt is not None:
        yield f"above {gt}"
    if le is not None:
        yield f"to {le}" if ge is not None else f"up to {le}"
    if lt is not None:
        yield f"and below {lt}"
