"""Lists of clips, one `WORD/file` a line, as Speech Commands keeps its validation and test clips apart."""

from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath

from kws_edge.audio.load import EXTENSIONS
from kws_edge.errors import SettingError
from kws_edge.files import read_text
from kws_edge.text import shortened, shown


def read_list(path: Path) -> dict[str, int]:
    """The clips that a list names: their keys, and the line of each; of one that is named twice the first line."""
    keys: dict[str, int] = {}
    for number, key in read_lines(path):
        keys.setdefault(key, number)
    return keys


def read_lines(path: Path) -> list[tuple[int, str]]:
    """The lines of a list: their numbers, from 1, and the keys of the clips, `WORD/file` without extension.

    A byte order mark and empty lines are skipped.

    Raises
    ------
    SettingError : the list cannot be read, is not UTF-8, or a line is no `WORD/file`, as one with quotes, with another
        folder in front or with backslashes: what it holds out would else not be held out.
    """
    try:
        text = read_text(path)
    except OSError as error:
        raise SettingError(f"{path}: {error.strerror}; expected a list with one WORD/file a line") from None
    except UnicodeDecodeError:
        raise SettingError(f"{path}: not UTF-8; expected one WORD/file a line, saved as UTF-8") from None
    lines = enumerate(text.splitlines(), 1)
    return [(number, _key(path, number, line.strip())) for number, line in lines if line.strip()]


def _key(path: Path, number: int, line: str) -> str:
    name = PurePosixPath(line)
    file = len(name.parts) == 2 and (name.suffix == "" or name.suffix.lower() in EXTENSIONS or "_nohash_" in name.name)
    if not file or "\\" in line or "\0" in line or line[0] in "\"'`" or line[-1] in "\"'`,;":
        raise SettingError(f"{path}, line {number}: {shown(line)}; expected WORD/file, as yes/0a7c2a8d_nohash_0.wav")
    return str(name.with_suffix("")) if name.suffix.lower() in EXTENSIONS else str(name)


def check_found(path: Path, keys: Mapping[str, int], found: Collection[str], folders: Collection[str]) -> None:
    """Refuse a list whose lines match nothing.

    Those about a word that has no folder are skipped, so that a part of a data set is fine with the whole's lists.

    Parameters
    ----------
    keys : of the list, as `read_list` gives them.
    found : the keys of the clips that there are.
    folders : the words that there are.

    Raises
    ------
    SettingError : a line names a clip that is not in its word's folder, however its name is spelt.
    """
    known = {folder.casefold() for folder in folders}
    missing = [key for key in keys if key not in found and key.partition("/")[0].casefold() in known]
    if missing:
        number, key = keys[missing[0]], missing[0]
        raise SettingError(
            f"{path}, line {number}: {shortened(key)} is not there (looked for {', '.join(EXTENSIONS)}), one of "
            f"{len(missing)} that are not; unpack the data set again, or remove the whole word's folder"
        )
