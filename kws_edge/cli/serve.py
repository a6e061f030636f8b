"""`kws-edge serve`: REST, WebSocket streams and a page that listens."""

from functools import cached_property
from typing import Any

import click

from kws_edge.errors import lacking


class _Serve(click.Command):
    """A command whose options are the fields of `ServerSettings`, looked up when they are needed."""

    @cached_property
    def _options(self) -> list[click.Parameter]:
        try:
            from kws_edge.server.settings import ENV_PREFIX, ServerSettings
        except ImportError as error:
            raise lacking("the server", error.name, "server") from None
        return [
            click.Option(
                [f"--{name.replace('_', '-')}"],
                is_flag=field.annotation is bool,
                default=None,
                metavar=None if field.annotation is bool else "VALUE",
                help=f"{field.description} [{ENV_PREFIX}{name.upper()}; {_shown(field.default)}]",
            )
            for name, field in ServerSettings.model_fields.items()
            if name != "api_keys"  # which the list of processes would show to everybody
        ]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        self.params = self._options
        return super().get_params(ctx)


@click.command(cls=_Serve)
def serve(**given: Any) -> None:
    """Answer over HTTP: REST at /v1, live streams at /v1/stream, a page that listens at /.

    \b
    kws-edge serve
    curl --data-binary @clip.wav -H 'Content-Type: audio/wav' http://127.0.0.1:8765/v1/classify

    Every option can come from the environment instead, under the name in its brackets. API keys come from there
    alone: KWS_EDGE_API_KEYS=KEY,KEY. Sizes are in bytes, times in seconds, lists are a,b.

    Exit status: 0 stopped by SIGTERM; 2 a setting, model or address that cannot be used; 130 stopped by Ctrl-C.
    """
    from kws_edge.server.processes.supervisor import serve as run
    from kws_edge.server.settings import ServerSettings

    run(ServerSettings.load(**{name: value for name, value in given.items() if value is not None}))


def _shown(default: Any) -> str:
    if default in ((), None):
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default)
