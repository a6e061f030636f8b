"""Values that are empty because a variable of the shell is not set, as in `--save-events "$FOLDER"`."""

import re
from collections.abc import Sequence

import click


def refuse_empty_values(arguments: Sequence[str]) -> None:
    """Raise UsageError where an option has one: as a path it would be this folder, as a list all there are."""
    for before, value in zip(["", *arguments], arguments, strict=False):
        option = before if value == "" else value.removesuffix("=")
        if re.fullmatch("--[a-z][a-z-]*", option) and (value == "" or value.endswith("=")):
            raise click.UsageError(f"{option}: an empty value; expected one, or no {option}")
