"""`kws-export pack`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kws_edge.cli.options import force_option
from kws_edge.text import counted, one_line
from kws_export.cli.options import existing_file, existing_folder

if TYPE_CHECKING:
    from kws_export.data.pack import Codec


@click.command()
@click.argument("folders", nargs=-1, type=existing_folder, metavar="[FOLDER]...")
@click.option(
    "--sources", type=existing_file, metavar="FILE.toml", help="Folders to pack, with their licences and speakers."
)
@click.option(
    "--data", type=existing_folder, default=Path(), metavar="FOLDER", help="Where the paths in --sources start."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE.npz", help="File to write.")
@click.option(
    "--codec",
    type=click.Choice(["int16", "opus"]),
    default="int16",
    show_default=True,
    help="opus is ten times smaller, but takes half a minute to load for each hour.",
)
@click.option(
    "--without", multiple=True, metavar="TEXT", help="Leave out recordings whose transcript has TEXT; repeatable."
)
@force_option
def pack(
    folders: tuple[Path, ...],
    sources: Path | None,
    data: Path,
    out: Path,
    codec: "Codec",
    without: tuple[str, ...],
    force: bool,
) -> None:
    """Pack recordings without the words into one file.

    The file loads in seconds, and serves as the negatives of `kws-export wake`. If a folder, or one in it, has
    transcripts.tsv (path of a file as seen from there, text), the pack keeps the texts. If a recording has a label
    track NAME.labels.txt beside it, the words that it names are cut out.

    \b
    kws-export pack my_radio my_kitchen --out negatives.npz
    kws-export pack --sources export/packs/negatives.toml --data ../shared/data --codec opus --out negatives.npz
    """
    from rich.console import Console
    from rich.progress import Progress

    from kws_edge.errors import SettingError
    from kws_edge.files import check_new
    from kws_export.data.pack import Pack, Piece, check_name, collect, each_once, manifest_lines
    from kws_export.data.sources import Source, load_sources
    from kws_export.stored import check_writable

    check_name(out)
    check_new(out, overwrite=force)
    check_writable(out)
    wanted = [(folder.parent, Source.of(folder)) for folder in folders]
    wanted += [(data, source) for source in (load_sources(sources) if sources else ())]
    if not wanted:
        raise SettingError("nothing to pack; give a FOLDER, or --sources")
    pieces: list[Piece] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for root, source in wanted:
            task = progress.add_task(source.name, total=None)
            pieces += collect(root, source, lambda task=task: progress.advance(task))  # type: ignore[misc]
    packed = Pack(each_once(pieces)).without(without)
    packed.save(out, codec)
    for line in manifest_lines(packed):
        click.echo(line)
    click.echo(
        f"{packed.hours:.2f} h, {counted(len(packed.pieces), 'recording')}, {out.stat().st_size / 1e6:.0f} MB: "
        f"{one_line(out)}"
    )
