"""`kws-export download`."""

from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--version", type=click.Choice(["0.01", "0.02"]), default="0.02", show_default=True)
def download(folder: Path, version: str) -> None:
    """Fetch Speech Commands into FOLDER: resumable, checksummed.

    \b
    kws-export download speech_commands
    """
    from kws_export.data.download import download as fetch

    click.echo(f"Speech Commands {version} is in {fetch(folder, version)}")
