"""Options that several commands share, and the values that options take."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kws_edge.errors import SettingError
from kws_edge.model.shipped import DEFAULT_MODEL

if TYPE_CHECKING:
    from kws_edge.audio.channels import Channel

existing_folder: Final = click.Path(exists=True, file_okay=False, path_type=Path)
existing_file: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


class Number(click.FloatRange):
    """A number within bounds; NaN is within none, and no infinite number is meant where there is no bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it; whatever is not within the bounds is wrong usage."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value}; expected a finite number", param, ctx)
        return number

    def _describe_range(self) -> str:  # click's own says "x<=None" where there is no bound
        return "" if self.min is None and self.max is None else super()._describe_range()


class _Parsed(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click only
    """A value that a function makes of the text; its SettingError or ValueError is wrong usage."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except (SettingError, ValueError) as error:
            self.fail(str(error), param, ctx)


def _target(text: str) -> float:
    from kws_edge.model.target import parse_target

    return parse_target(text)


def _channel(text: str) -> "Channel":
    if text == "mix":
        return "mix"
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text}: expected a number from 1, or mix")
    return int(text)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _integers(text: str) -> list[int]:
    try:
        return [int(number) for number in _words(text)]
    except ValueError:
        raise ValueError(f"{text!r}; expected whole numbers separated by commas, such as 1,2,4") from None


def _rates(text: str) -> tuple[float, ...]:
    try:
        rates = tuple(float(rate) for rate in text.split(","))
    except ValueError:
        rates = ()
    if not rates or not all(0 < rate <= 1000 for rate in rates):
        raise ValueError(f"{text!r}; expected false accepts per hour, above 0 to 1000, such as 0.5,1,2")
    return rates


TARGET: Final = _Parsed("target", _target)
"""An accuracy as a percentage or a fraction: 99.5, 99.5% and 0.995 are the same."""
WORDS: Final = _Parsed("words", _words)
"""Words or names with commas between them."""
INTEGERS: Final = _Parsed("integers", _integers)
"""Whole numbers with commas between them."""
RATES: Final = _Parsed("rates", _rates)
"""False accepts per hour with commas between them."""

model_option = click.option(
    "--model",
    metavar="NAME|PATH",
    help=f"A model that `kws-edge models` lists, or an .onnx file  [default: {DEFAULT_MODEL}]",
)
list_option = click.option(
    "--list",
    "listed",
    type=existing_file,
    metavar="FILE",
    help="Use only the clips listed here, a WORD/CLIP per line.",
)
hop_option = click.option(
    "--hop",
    type=Number(),
    default=0.1,
    show_default=True,
    metavar="SECONDS",
    help="Time between two decisions, 0.01 to 1.",
)
device_option = click.option(
    "--device",
    type=_Parsed("device", lambda text: int(text) if text.isdecimal() else text),
    metavar="NUMBER|NAME",
    help="Microphone, by number or part of its name; `kws-edge devices` lists them  [default: the system's]",
)
channel_option = click.option(
    "--channel",
    type=_Parsed("channel", _channel),
    metavar="N|mix",
    help="Use this channel of several: 1 for the first, mix for their average  [default: their average, or the "
    "strongest one if they cancel each other]",
)
SNR: Final = Number(-100, 100)
"""dB of words over other sound."""

seed_option = click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    metavar="N",
    help="Seed for drawing clips and pauses.",
)
force_option = click.option("--force", is_flag=True, help="Overwrite --out if it exists.")
