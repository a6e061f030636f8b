"""Where the recordings of a pack come from: folders, whose they are, and what may be done with them."""

import hashlib
import os
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_args, get_type_hints

from kws_edge.errors import SettingError
from kws_edge.text import is_one_line, one_line, shown
from kws_export.data.credit import Credit
from kws_export.texts import UNSTATED
from kws_export.toml import read_toml

Kind = Literal["speech", "words", "sounds"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where recordings come from, and what may be done with them.

    Attributes
    ----------
    folder : seen from the root that is given beside it; its name is the source's.
    name, licence, attribution : for the cards of models that train on it.
    kind : "speech", "words" (one in a recording) or "sounds" (nobody speaks).
    speaker : a pattern whose first group is the speaker, found in the path below the folder; empty where every
        recording counts as a speaker of its own.
    left_out : the share of the speakers that stay out of the pack, to measure with; the SHA-1 of folder and speaker
        decides, as in bench/split_speech.py.
    pattern : which files below the folder.
    minutes : 0 for all; else that much of it, spread evenly over the recordings.
    """

    folder: str
    name: str = ""
    licence: str = UNSTATED
    attribution: str = UNSTATED
    kind: Kind = "speech"
    speaker: str = ""
    left_out: float = 0.0
    pattern: str = "**/*"
    minutes: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for name, kind in get_type_hints(type(self)).items():
            value, kinds = getattr(self, name), (int, float) if kind is float else (str,)
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise SettingError(
                    f"a source: {name}={shown(value)}; expected a {'number' if kind is float else 'text'}"
                )
        if self.kind not in get_args(Kind):
            raise SettingError(f"source {self.folder}: kind={self.kind!r}; expected one of {', '.join(get_args(Kind))}")
        if not 0 <= self.left_out <= 1:
            raise SettingError(f"source {self.folder}: left_out={self.left_out}; expected 0 to 1")
        if not 0 <= self.minutes < float("inf"):
            raise SettingError(f"source {self.folder}: minutes={self.minutes}; expected 0, for all, or more")
        if not self.pattern or Path(self.pattern).is_absolute() or ".." in Path(self.pattern).parts:
            raise SettingError(f"source {self.folder}: pattern={self.pattern!r}; expected one of files below it")
        try:
            groups = re.compile(self.speaker).groups
        except (re.error, RecursionError, OverflowError) as error:
            raise SettingError(
                f"source {self.folder}: speaker={shown(self.speaker)}: {error}; expected a pattern"
            ) from None
        if self.speaker and not groups:
            raise SettingError(f"source {self.folder}: speaker={shown(self.speaker)}; expected a (group) in it")
        if self.folder:  # "talk/" and "./talk" leave out the same speakers as "talk"
            object.__setattr__(self, "folder", Path(self.folder).as_posix())
        object.__setattr__(self, "name", self.name or one_line(Path(self.folder).name))
        for text in (self.name, self.licence, self.attribution):  # which go into a model's file and onto its card
            if not is_one_line(text):
                raise SettingError(f"source {shown(self.folder)}: {shown(text)}; expected a text of one line")

    @classmethod
    def of(cls, folder: Path) -> "Source":
        """A folder, seen from its parent, of which nothing else is known."""
        return cls(folder.name, one_line(folder.resolve().name))  # which "." and ".." have too

    @property
    def credit(self) -> Credit:
        """Whom to name for it."""
        return Credit(self.name, self.licence, self.attribution)

    def speaker_of(self, path: Path) -> str:
        """Who speaks in a recording."""
        found = re.search(self.speaker, path.as_posix()) if self.speaker else None
        return found[1] or path.as_posix() if found else path.as_posix()

    def holds(self, speaker: str) -> bool:
        """Whether a speaker's recordings are in the pack."""
        digest = hashlib.sha1(os.fsencode(f"{self.folder}/{speaker}"), usedforsecurity=False).digest()
        return int.from_bytes(digest[:4], "big") / 2**32 >= self.left_out


def load_sources(path: Path) -> list[Source]:
    """Read a TOML file of `[[source]]` tables. Raises SettingError where it is not one."""
    tables = read_toml(path, "a file with [[source]] tables").get("source")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise SettingError(f"{path}: source is {shown(tables)}; expected a TOML file with [[source]] tables")
    known = {field.name for field in fields(Source)}
    if unknown := sorted(set().union(*tables) - known):
        raise SettingError(f"{path}: unknown {shown(unknown, 200)}; expected {', '.join(sorted(known))}")
    if any("folder" not in table for table in tables):
        raise SettingError(f"{path}: a [[source]] without a folder; expected one in each")
    return [Source(**table) for table in tables]
