"""The command line `kws-export`. There is one module per command; each imports what it needs when it runs."""

import click

from kws_edge.cli.arguments import refuse_empty_values
from kws_edge.cli.output import replace_closed_output, said, write_any_script
from kws_edge.cli.signals import tidied
from kws_edge.errors import KwsEdgeError
from kws_export.cli.average import average
from kws_export.cli.download import download
from kws_export.cli.export import export
from kws_export.cli.inspect import inspect
from kws_export.cli.pack import pack
from kws_export.cli.quantise import quantise
from kws_export.cli.report import report
from kws_export.cli.score import score
from kws_export.cli.speak import speak
from kws_export.cli.sweep import sweep
from kws_export.cli.train import train
from kws_export.cli.wake import wake
from kws_export.cli.wordless import wordless
from kws_export.cli.zoo import zoo


class _OneLineErrors(click.Group):
    """Errors of the package and of the system become one line and exit status 1; Ctrl-C is status 130."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments."""
        replace_closed_output()
        write_any_script()  # before --help, too
        refuse_empty_values(args)
        try:
            return super().parse_args(ctx, args)
        except BrokenPipeError:
            raise  # click ends in silence where the reader of a pipe went away
        except OSError as error:  # of --help on a full disk
            raise click.ClickException(said(error)) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            with tidied():
                return super().invoke(ctx)
        except (KwsEdgeError, OSError) as error:
            raise click.ClickException(said(error)) from None
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)


@click.group(
    cls=_OneLineErrors,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit status: 0 success; 1 an error, in one line on standard error; 2 wrong usage; 130 interrupted.",
)
def main() -> None:
    """Train keyword spotters that know when they are not sure, and export them for kws-edge.

    \b
    kws-export wake "hey lamp" ...     make a wake word model of your own
    kws-export download FOLDER         fetch the recordings that the shipped models were trained on
    kws-export train --recipe ...      train a model
    kws-export export RUN ...          turn a trained run into a model file
    kws-export COMMAND --help          options and examples of a command
    """


for command in (
    train, sweep, average, score, report, export, quantise, zoo, download, inspect, speak, pack, wake, wordless
):  # fmt: skip
    main.add_command(command)
