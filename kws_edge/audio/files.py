"""Which recordings a file, folder or pattern stands for."""

import glob
import os
from pathlib import Path

from kws_edge.audio.load import is_audio


def recordings_at(given: str) -> list[Path]:
    """The recordings of a file, a folder (to its depths) or a pattern, by their names (`is_audio`), in order of these.

    A pattern also stands for what is in the folders that it matches; a file that has its name is taken before it. Empty
    where there is none.

    Examples
    --------
    >>> from kws_edge.audio.files import recordings_at
    >>> [path.name for path in recordings_at("kws_edge/samples/s*.flac")]
    ['silence.flac']
    """
    there = os.path.exists(given)  # unlike Path's, False for what cannot be asked about
    found = map(Path, [given] if there else glob.glob(given, recursive=True))
    return sorted({path for each in found for path in (each.rglob("*") if each.is_dir() else [each]) if is_audio(path)})
