"""What is checked and replaced in the arguments of a command line before click reads them."""

import re
from collections.abc import Mapping, Sequence

import click


def refuse_empty_values(arguments: Sequence[str]) -> None:
    """Raise UsageError for an option with an empty value, as a shell makes of `--save-events "$FOLDER"` without FOLDER.

    Otherwise an empty path would mean the current folder, and an empty list everything.
    """
    for before, value in zip(["", *arguments], arguments, strict=False):
        option = before if value == "" else value.removesuffix("=")
        if re.fullmatch("--[a-z][a-z-]*", option) and (value == "" or value.endswith("=")):
            raise click.UsageError(f"{option}: an empty value; expected one, or no {option}")


def replace_renamed(arguments: Sequence[str], renamed: Mapping[tuple[str, str], str]) -> list[str]:
    """The arguments with the old names of a command's options replaced, and a warning for each.

    Parameters
    ----------
    renamed : (command, old name) → new name.
    """
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    replaced = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if new := renamed.get((command, name)):
            click.echo(f"Warning: {command} {name} is deprecated; use {new}", err=True)
            name = new
        replaced.append(f"{name}{equals}{value}")
    return replaced
