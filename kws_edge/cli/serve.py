"""`kws-edge serve`: REST, WebSocket streams and a page that listens."""

from functools import cached_property
from typing import Any, Literal, get_args, get_origin

import click

from kws_edge.errors import missing_package


class _Serve(click.Command):
    """A command whose options are the fields of `ServerSettings`, looked up when they are needed."""

    @cached_property
    def _options(self) -> list[click.Parameter]:
        try:
            from kws_edge.server.settings import ServerSettings, flag, variable
        except ImportError as error:
            raise missing_package("the server", error.name, "server") from None
        return [
            click.Option(
                [flag(name)],
                is_flag=field.annotation is bool,
                default=None,
                metavar=None if field.annotation is bool else _metavar(field.annotation, field.metadata),
                help=f"{field.description} [{variable(name)}; {_shown(field.default)}]",
            )
            for name, field in ServerSettings.model_fields.items()
            if name != "api_keys"  # which the list of processes would show to everybody
        ]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        self.params = self._options
        return super().get_params(ctx)


@click.command(cls=_Serve)
def serve(**given: Any) -> None:
    """Serve models over HTTP and WebSocket, with a web page.

    REST is at /v1, live streams are at /v1/stream, and a page that listens to the microphone is at /.

    \b
    kws-edge serve
    curl --data-binary @clip.wav -H 'Content-Type: audio/wav' http://127.0.0.1:8765/v1/classify

    Each option can also be set by the environment variable in brackets, which is followed by the default. API keys can
    only be set there: KWS_EDGE_API_KEYS=KEY,KEY. Sizes are in bytes, times in seconds, and lists are written a,b.

    Exit status: 0 stopped by SIGTERM; 2 a setting, model or address that cannot be used; 130 stopped by Ctrl-C.
    """
    from kws_edge.cli.signals import untidied
    from kws_edge.server.processes.supervisor import serve as run
    from kws_edge.server.settings import ServerSettings

    untidied()
    run(ServerSettings.load(**{name: value for name, value in given.items() if value is not None}))


def _metavar(annotation: Any, metadata: list[Any]) -> str:
    """What stands for the value of a setting in --help."""
    from kws_edge.server.http.wording import BYTES, SECONDS

    for unit in (SECONDS, BYTES):
        if unit in metadata:
            return unit.upper()
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    if get_origin(annotation) is tuple:
        return "VALUE,..."
    return "N" if {int, float} & {annotation, *get_args(annotation)} else "VALUE"


def _shown(default: Any) -> str:
    if default in ((), None):
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default)
