"""The option --target of several commands."""

from typing import Any

import click

from kws_edge.errors import SettingError


class _TargetType(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click only
    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from kws_edge.model.target import parse_target

        try:
            return parse_target(value)
        except SettingError as error:
            self.fail(str(error), param, ctx)


TARGET = _TargetType()
"""An accuracy as a percentage or a fraction: 99.5, 99.5% and 0.995 are the same."""
