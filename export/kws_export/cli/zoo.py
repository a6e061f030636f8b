"""`kws-export zoo`."""

from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def zoo(folder: Path) -> None:
    """Write the table of a FOLDER's models into its README.md, from the files and their cards.

    It stands between the lines "<!-- kws-export zoo -->" and "<!-- end -->".

    \b
    kws-export zoo models
    """
    from kws_export.release.zoo import update

    click.echo(f"wrote {update(folder)} rows into {folder / 'README.md'}")
