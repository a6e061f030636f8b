"""What is said in recordings, by the tables of texts in their folders."""

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Final

from kws_edge.audio.files import audio_below
from kws_edge.errors import SettingError
from kws_edge.files import read_text
from kws_edge.text import one_line, shown

TRANSCRIPTS: Final = "transcripts.tsv"


def transcripts(folder: Path, recordings: Collection[Path] = ()) -> dict[Path, str]:
    """The texts of the recordings below a folder; those without one are left out.

    A table TRANSCRIPTS has a line for each recording: its path as seen from the table's folder, a tab and its text. The
    bare name will do where no other recording below that folder has it. Of several tables the nearest one counts.

    Parameters
    ----------
    recordings : further ones than are found, as in folders that a link leads to.

    Raises
    ------
    SettingError : a table cannot be read, names no recording, has two texts for one, or a name that several have.
    AudioError : a folder below it cannot be read.
    """
    every = sorted({*audio_below(folder), *recordings})
    texts: dict[Path, str] = {}
    for table in sorted(folder.rglob(TRANSCRIPTS), key=lambda path: len(path.parts)):
        texts |= _of_table(table, [path for path in every if path.is_relative_to(table.parent)])
    return texts


def _of_table(table: Path, recordings: Collection[Path]) -> dict[Path, str]:
    by_path = {path.relative_to(table.parent).as_posix(): path for path in recordings}
    by_name: dict[str, list[Path]] = defaultdict(list)
    rows = _rows(table)
    texts = {by_path[name]: text for name, text in rows.items() if name in by_path}
    for path in recordings:
        if path not in texts:
            by_name[path.name].append(path)
    for name in sorted(rows.keys() & by_name.keys() - by_path.keys()):
        first, *others = by_name[name]
        if others:
            raise SettingError(
                f"{table}: {shown(name)} may be {one_line(first)} or {one_line(others[0])}; expected paths as seen "
                f"from {one_line(table.parent)} where recordings share a name"
            )
        texts[first] = rows[name]
    if not texts:
        raise SettingError(
            f"{table}: no line names a recording in {table.parent}; expected a file's name, a tab and its text, a line "
            "each"
        )
    return texts


def transcript(recording: Path) -> str:
    """The text of one recording by the table in its own folder; empty where there is none.

    Raises SettingError as `transcripts` does where the table cannot be read, or has two texts for one file.
    """
    table = recording.parent / TRANSCRIPTS
    return _rows(table).get(recording.name, "") if table.is_file() else ""


def _rows(table: Path) -> dict[str, str]:
    try:
        lines = read_text(table).split("\n")  # a text may hold other ends of lines
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{table}: {error}; expected lines of a file's name, a tab and its text, as UTF-8") from None
    rows: dict[str, str] = {}
    for line in lines:
        name, tab, text = line.partition("\t")
        if name and tab and rows.setdefault(str(PurePosixPath(name)), text) != text:
            raise SettingError(f"{table}: two texts for {shown(name)}; expected one")
    return rows
