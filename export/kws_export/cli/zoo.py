"""`kws-export zoo`."""

from pathlib import Path

import click

from kws_export.cli.options import existing_folder


@click.command()
@click.argument("folder", type=existing_folder, metavar="FOLDER")
def zoo(folder: Path) -> None:
    """Update the table of models in FOLDER/README.md.

    It is made from the model files and their cards, and stands between the lines "<!-- kws-export zoo -->" and "<!--
    end -->".

    \b
    kws-export zoo models
    """
    from kws_export.release.zoo import update

    click.echo(f"wrote {update(folder)} rows into {folder / 'README.md'}")
