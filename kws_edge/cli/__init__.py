"""The command line `kws-edge`. There is one module per command, imported only when the command is called."""

import logging
import warnings
from importlib import import_module
from typing import Any, Final

import click

from kws_edge.cli.arguments import refuse_empty_values, replace_renamed
from kws_edge.cli.output import replace_closed_output, said, write_any_script
from kws_edge.cli.signals import tidied
from kws_edge.errors import KwsEdgeError
from kws_edge.text import one_line

_COMMANDS: Final = (
    "bench",
    "calibrate",
    "classify",
    "devices",
    "doctor",
    "enroll",
    "evaluate-stream",
    "listen",
    "models",
    "record",
    "serve",
    "stream-cost",
    "version",
)
"""Each is in the module of its name, and called so there."""
_RENAMED: Final = {("bench", "--output"): "--out", ("record", "--into"): "--out"}
"""Options by their old names, which work until 0.4."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of --help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None where there is none of that name."""
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        return getattr(import_module(f"kws_edge.cli.{name}"), name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments."""
        replace_closed_output()
        write_any_script()  # before --help, too
        refuse_empty_values(args)
        try:
            return super().parse_args(ctx, replace_renamed(args, _RENAMED))
        except KeyboardInterrupt:  # during --help, which imports all commands
            ctx.exit(130)
        except BrokenPipeError:
            raise
        except OSError as error:  # of --help on a full disk
            click.echo(f"Error: {said(error)}", err=True)
            ctx.exit(2)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. What is wrong is said in one line, and Ctrl-C ends in silence."""
        last_resort, logging.lastResort = logging.lastResort, _ShowRecords(logging.WARNING)
        try:
            with tidied(), warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except BrokenPipeError:
            raise  # click ends in silence where the reader of a pipe went away
        except (KwsEdgeError, OSError) as error:
            click.echo(f"Error: {said(error)}", err=True)
            ctx.exit(2)
        except KeyboardInterrupt:
            ctx.exit(130)
        except ImportError as error:
            if not isinstance(error.__cause__, KeyboardInterrupt):  # as which onnxruntime's modules tell of Ctrl-C
                raise
            ctx.exit(130)
        finally:
            logging.lastResort = last_resort


class _ShowRecords(logging.Handler):
    """What is logged and nobody else shows; names of files are in it."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"Warning: {one_line(record.getMessage())}", err=True)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"Warning: {one_line(message)}", err=True)


def _show_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from kws_edge.version import installed_version

        click.echo(installed_version())
        ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 success; 1 some input could not be read; 2 wrong usage, or a model, provider or setting "
    "that cannot be used; 130 interrupted. Each command's --help says more.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Print the version."
)
def main() -> None:
    """Spot keywords on this machine, and abstain when the answer is uncertain.

    \b
    kws-edge doctor                   check that this machine can do it
    kws-edge classify clip.wav        name the word in a file
    kws-edge listen                   name words as they are said to the microphone
    kws-edge COMMAND --help           options and examples of a command
    """
