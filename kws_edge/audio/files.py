"""Which recordings a file, folder or pattern stands for."""

import glob
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from kws_edge.audio.load import is_audio
from kws_edge.errors import AudioError

Unread = Callable[[str], None]
"""Called with the path of each folder or file that cannot be looked at; with None in its place, it is an AudioError."""


def recordings_at(given: str, unread: Unread | None = None) -> list[Path]:
    """The recordings of a file, a folder (to its depths) or a pattern, by their names (`is_audio`), in order of these.

    A pattern also stands for what is in the folders that it matches; a file that has its name is taken before it. Empty
    where there is none.

    Raises
    ------
    AudioError : a folder or file cannot be looked at, and there is no `unread`.

    Examples
    --------
    >>> from kws_edge.audio.files import recordings_at
    >>> [path.name for path in recordings_at("kws_edge/samples/s*.flac")]
    ['silence.flac']
    """
    there = os.path.exists(given)  # unlike Path's, False for what cannot be asked about
    found = [given] if there else glob.glob(given, recursive=True)
    below = (audio_below(path, unread) if os.path.isdir(path) else _audio([path], unread) for path in found)
    return sorted({path for paths in below for path in paths})


def audio_in(folder: str | Path) -> list[Path]:
    """The recordings in a folder, in order of name. Raises AudioError where it cannot be read."""
    try:
        found = [path for path in Path(folder).iterdir() if is_audio(path)]
    except OSError as error:
        raise _refusal(error) from None
    return sorted(found, key=lambda path: path.name)  # paths themselves sort differently on other systems


def audio_below(folder: str | Path, unread: Unread | None = None) -> Iterator[Path]:
    """The recordings in a folder and its subfolders, in no order; links to folders are not followed.

    Raises
    ------
    AudioError : one cannot be looked at, and there is no `unread`.
    """
    for parent, _, names in os.walk(folder, onerror=lambda error: _tell(error, unread)):
        yield from _audio((os.path.join(parent, name) for name in names), unread)


def _audio(paths: Iterator[str] | list[str], unread: Unread | None) -> Iterator[Path]:
    for path in map(Path, paths):
        try:
            found = is_audio(path)
        except OSError as error:  # as in a folder whose names can be read, but no file
            _tell(error, unread)
        else:
            if found:
                yield path


def _tell(error: OSError, unread: Unread | None) -> None:
    if unread is None:
        raise _refusal(error)
    unread(os.fspath(error.filename))


def _refusal(error: OSError) -> AudioError:
    return AudioError(f"{error.filename}: {error.strerror}; expected a folder all of which can be read")
