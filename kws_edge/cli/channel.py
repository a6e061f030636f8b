"""`--channel N|mix`: which channel of a source with several is listened to."""

from typing import Any

import click

from kws_edge.audio.channels import Channel


class _ChannelType(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click only
    name = "channel"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Channel:
        if value == "mix" or isinstance(value, int):
            return value
        if not str(value).isdecimal() or int(value) < 1:
            self.fail(f"{value}: expected a number from 1, or mix", param, ctx)
        return int(value)


channel_option = click.option(
    "--channel",
    type=_ChannelType(),
    metavar="N|mix",
    help="Of a source with several: its number, the first being 1, or mix for their average  [default: the average; "
    "where the channels cancel each other, the strongest]",
)
