"""`--server URL`: use a model on a server. Only with this option does audio leave the machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from kws_edge.errors import SettingError

if TYPE_CHECKING:
    from kws_edge.client import Client, Hello
    from kws_edge.stream.state import Snapshot, State

KEY_VARIABLE = "KWS_EDGE_API_KEY"
"""Where the key comes from: a flag would show it to everybody who lists the processes."""

PATIENCE = 30.0
"""Seconds for which a server that is busy is asked again."""

server_option = click.option(
    "--server",
    metavar="URL",
    help=f"Run the model on a `kws-edge serve`, such as http://HOST:8765. Its API key, if any, is read from "
    f"${KEY_VARIABLE}. Needs the extra client.",
)


@contextmanager
def connected(url: str) -> Iterator["Client"]:
    """A client of the server.

    Raises
    ------
    SettingError, DependencyError, ServerError : as `Client` does; one about the key says where it is looked for.
    """
    from kws_edge.client import Client, ServerError
    from kws_edge.client.proxy import without_password

    key = os.environ.get(KEY_VARIABLE)
    try:
        with Client(url, key=key, patience=PATIENCE) as client:
            yield client
    except ServerError as error:
        if error.code != "unauthorized":
            raise
        what = "refuses the key in" if key else "asks for an API key; expected it in"
        raise ServerError(f"{without_password(url)} {what} the variable {KEY_VARIABLE}", error.code) from None


def served_model(client: "Client", name: str | None) -> dict[str, Any]:
    """What the server says of a model of that name, or of its default. Raises SettingError where it has none."""
    models = client.models()
    found = next((m for m in models if m["name"] == name or (name is None and m["default"])), None)
    if found is None:
        names = ", ".join(m["name"] for m in models)
        raise SettingError(f"model {name!r}; expected one that the server has: {names}")
    return found


def is_for_waking(client: "Client", name: str | None) -> bool:
    """Whether a stream of that model, or of the server's default one, is silent about all but its words.

    Raises SettingError where the server has no such model.
    """
    from kws_edge.model.metadata import WAKE_WORD

    names = [served_model(client, name)["name"]] if name else [model["name"] for model in client.models()]
    described = (client.model(each) for each in names)
    first: dict[str, Any] = next(described, {})
    calibrated = (model for model in chain([first], described) if model.get("stream"))
    training = next(calibrated, first).get("training")  # of the one that the server chooses
    return isinstance(training, dict) and training.get("purpose") == WAKE_WORD


def refuse_with_server(ctx: click.Context, *parameters: str) -> None:
    """Refuse options that say how a model runs here."""
    for name in parameters:
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name} cannot be used with --server, which decides that itself")


class View:
    """A stream at a server as the live screen sees one: what it reads of a `Spotter`, kept up to date by messages."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.model = SimpleNamespace(name="", labels=())
        self.settings: Any = SimpleNamespace(thresholds={})
        self.last: Snapshot | None = None

    def __call__(self, message: "Hello | Snapshot") -> None:
        """Take what `Client.listen` hands to its `watch`."""
        from kws_edge.client import Hello

        if isinstance(message, Hello):
            self.model = SimpleNamespace(name=message.model, labels=message.labels)
            self.settings = message
        else:
            self.last = message

    @property
    def state(self) -> "State":
        """What the stream is at."""
        from kws_edge.stream.state import State

        return self.last.state if self.last else State.WARMING_UP

    @property
    def time(self) -> float:
        """Stream time of the last hop, s."""
        return self.last.time if self.last else 0.0
