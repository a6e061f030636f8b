"""Options that several commands share, and the values that options take."""

from pathlib import Path
from typing import Final

import click

from kws_edge.cli.options import existing_file, existing_folder

__all__ = [
    "CACHE",
    "cache_option",
    "data_option",
    "device_option",
    "existing_file",
    "existing_folder",
    "existing_path",
    "language_option",
    "negatives_option",
    "phonemes_option",
    "recipe_option",
    "threads_option",
    "voices_option",
]

CACHE: Final = Path("runs/cache")
existing_path: Final = click.Path(exists=True, path_type=Path)

data_option = click.option(
    "--data",
    type=existing_folder,
    required=True,
    metavar="FOLDER",
    help="Speech Commands, or recordings in its layout: WORD/CLIP.",
)
cache_option = click.option(
    "--cache",
    type=click.Path(path_type=Path),
    default=CACHE,
    show_default=True,
    metavar="FOLDER",
    help="Where to keep decoded clips.",
)
threads_option = click.option(
    "--threads", type=click.IntRange(1), metavar="N", help="CPU threads  [default: all cores]"
)
device_option = click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True, help="Where to train."
)
recipe_option = click.option(
    "--recipe",
    "recipe_file",
    type=existing_file,
    required=True,
    metavar="FILE.toml",
    help="The recipe; examples are in export/recipes.",
)
negatives_option = click.option(
    "--negatives",
    multiple=True,
    metavar="PATH",
    help="Recordings without words, for a recipe with [negatives]: a folder, file or pattern; repeatable.",
)
language_option = click.option(
    "--language",
    default="en-us",
    show_default=True,
    metavar="CODE",
    help="Language of the voices in espeak-ng's terms, such as en-gb, de, nl.",
)
voices_option = click.option(
    "--voices",
    default="auto",
    show_default=True,
    metavar="NAME,...",
    help="Speech synthesisers: some of kokoro,festival,flite,espeak, or auto for all that are installed.",
)
phonemes_option = click.option(
    "--phonemes", default="", metavar="TEXT", help="Pronunciation of the one TEXT, in espeak-ng's notation."
)
