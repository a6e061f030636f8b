"""`kws-export pack`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kws_export.cli.options import existing_file, existing_folder

if TYPE_CHECKING:
    from kws_export.data.pack import Codec


@click.command()
@click.argument("folders", nargs=-1, type=existing_folder)
@click.option("--sources", type=existing_file, help="TOML file that names folders, licences, speakers.")
@click.option("--data", type=existing_folder, default=Path(), help="Folder that paths in --sources start from.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file to write, NAME.npz.")
@click.option("--codec", type=click.Choice(["int16", "opus"]), default="int16", show_default=True)
@click.option("--without", multiple=True, metavar="TEXT", help="Leave out recordings that say this; repeatable.")
def pack(
    folders: tuple[Path, ...], sources: Path | None, data: Path, out: Path, codec: "Codec", without: tuple[str, ...]
) -> None:
    """Put recordings into one file that loads in seconds: the speech and sounds in which a model must find no word.

    FOLDER/transcripts.tsv (file name, text) may say what is said in the recordings; the pack keeps it. Words that
    a label track NAME.labels.txt beside a recording names are cut out. opus is ten times smaller than int16 and takes
    half a minute an hour to load.

    \b
    kws-export pack my_radio my_kitchen --out negatives.npz
    kws-export pack --sources export/packs/negatives.toml --data ../shared/data --codec opus --out negatives.npz
    """
    from rich.console import Console
    from rich.progress import Progress

    from kws_edge.errors import SettingError
    from kws_export.data.pack import Pack, Piece, Source, collect, load_sources, manifest_lines

    wanted = [(folder.parent, Source(folder.name)) for folder in folders]
    wanted += [(data, source) for source in (load_sources(sources) if sources else ())]
    if not wanted:
        raise SettingError("nothing to pack; expected folders, or --sources")
    pieces: list[Piece] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for root, source in wanted:
            task = progress.add_task(source.name, total=None)
            pieces += collect(root, source, lambda task=task: progress.advance(task))  # type: ignore[misc]
    packed = Pack(tuple(pieces)).without(without)
    packed.save(out, codec)
    for line in manifest_lines(packed):
        click.echo(line)
    click.echo(f"{packed.hours:.2f} h, {len(packed.pieces):,} recordings, {out.stat().st_size / 1e6:.0f} MB: {out}")
