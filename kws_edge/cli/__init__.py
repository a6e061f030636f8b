"""`kws-edge`: the command line. One module per command; each imports what it needs when it runs."""

import warnings
from typing import Any

import click

from kws_edge.cli.bench import bench
from kws_edge.cli.calibrate import calibrate
from kws_edge.cli.classify import classify
from kws_edge.cli.devices import devices
from kws_edge.cli.doctor import doctor
from kws_edge.cli.evaluate_stream import evaluate_stream
from kws_edge.cli.listen import listen
from kws_edge.cli.models import models
from kws_edge.cli.serve import serve
from kws_edge.cli.stream_cost import stream_cost
from kws_edge.cli.version import version
from kws_edge.errors import KwsEdgeError


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. What is wrong is said in one line, and Ctrl-C ends in silence."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except KwsEdgeError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(2)
        except BrokenPipeError:
            raise  # click ends in silence where the reader of a pipe went away
        except OSError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(2)
        except KeyboardInterrupt:
            ctx.exit(130)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"Warning: {message}", err=True)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 all is well; 1 some input could not be read; 2 wrong usage, or a model, provider or setting "
    "that cannot be used; 130 interrupted.",
)
@click.version_option(package_name="kws-edge", message="%(version)s")
def main() -> None:
    """Spot keywords on this machine, and say so where the answer is not sure.

    \b
    kws-edge listen                   which words are said to the microphone?
    kws-edge classify clip.wav        which word is it?
    kws-edge models                   which models are there?
    kws-edge COMMAND --help           more on a command, with examples
    """


for command in (
    bench,
    calibrate,
    classify,
    devices,
    doctor,
    evaluate_stream,
    listen,
    models,
    serve,
    stream_cost,
    version,
):
    main.add_command(command)
