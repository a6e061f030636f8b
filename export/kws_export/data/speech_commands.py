"""Google Speech Commands on disk: which clips there are, whose they are, which split they belong to.

The layout is the public data set's own, `ROOT/WORD/SPEAKER_nohash_N.wav` beside `validation_list.txt` and
`testing_list.txt`, in any format that `kws_edge.audio.load` reads. Folders whose names start with an underscore
(`_background_noise_` and the like) hold no word and are never a class.

Source: P. Warden, "Speech Commands: A Dataset for Limited-Vocabulary Speech Recognition", arXiv:1804.03209.
"""

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kws_edge.arrays import F32
from kws_edge.audio.files import audio_in
from kws_edge.audio.lists import check_found, read_lines, read_list
from kws_edge.audio.load import EXTENSIONS, load
from kws_edge.errors import SettingError

Split = Literal["train", "validation", "test"]

LISTS: dict[Split, str] = {"validation": "validation_list.txt", "test": "testing_list.txt"}
CLIP_SAMPLES = 16_000
"""Every clip of the data set is at most 1 s long, at 16 kHz."""

_MAX_CLIPS_PER_WORD = 2**27 - 1  # the data set's constant: it sets how finely the hash is turned into a percentage


@dataclass(frozen=True, slots=True)
class Clip:
    """One recording: its file, the word said in it, who said it, and the split that speaker belongs to."""

    path: Path
    word: str
    speaker: str
    split: Split

    @property
    def name(self) -> str:
        """The file relative to the data set's root, `word/file`, with a forward slash on every system."""
        return f"{self.word}/{self.path.name}"


def index(root: Path) -> list[Clip]:
    """All clips of all words, sorted by word and file name.

    A list file decides its split where it is present; where it is absent, `split_of` does. The extension in a list
    need not be the file's. A listed word that has no folder is passed over, so a part of the data set is fine.
    Where all clips are one speaker's, lists may part them, and without lists each clip counts as a speaker.

    Raises
    ------
    SettingError : `root` is no folder, or holds no word; one clip has two files; a clip is in both lists; a listed
        clip is missing from its word's folder; a speaker is in two splits.
    """
    files = _word_files(root)
    listed: dict[Split, set[str]] = {}
    for split, name in LISTS.items():
        if (root / name).is_file():
            keys = {key: line for key, line in read_list(root / name).items() if not key.startswith("_")}
            check_found(root / name, keys, files.keys(), {path.parent.name for path in files.values()})
            listed[split] = set(keys)
    if len(listed) == len(LISTS) and (both := set.intersection(*listed.values())):
        names = " and ".join(LISTS.values())
        raise SettingError(f"{len(both)} clips, such as {min(both)}, are in both {names} of {root}")
    clips = [Clip(path, path.parent.name, _speaker(key), _assign(key, listed)) for key, path in files.items()]
    if len({clip.speaker for clip in clips}) > 1:
        check_speakers(clips)
    elif not listed:  # one speaker alone, whom the rule would put into one split: the clips are shared out instead
        clips = [replace(clip, split=split_of(clip.name.replace("_nohash_", " "))) for clip in clips]
    return clips


def split_of(name: str) -> Split:
    """The split that the data set's own rule gives a clip: about 10 % validation, 10 % test, by a hash of the speaker.

    Parameters
    ----------
    name : `word/SPEAKER_nohash_N.wav`, or the file name alone; neither folder, N nor extension matters.

    The rule: SHA-1 of the speaker, modulo 2^27, as a part of 2^27 - 1: the first tenth is validation, the second
    test. It is published with the data set, and made its lists. (This takes the extension off a file without
    `_nohash_` too, which the public data set does not have.)
    """
    bucket = int.from_bytes(hashlib.sha1(os.fsencode(_speaker(name)), usedforsecurity=False).digest(), "big")
    tenths = 10 * (bucket % (_MAX_CLIPS_PER_WORD + 1))
    if tenths < _MAX_CLIPS_PER_WORD:
        return "validation"
    return "test" if tenths < 2 * _MAX_CLIPS_PER_WORD else "train"


def split_rule(root: Path) -> str:
    """How `index` parts a folder's clips into splits, in words for a model's card."""
    lists = [name for name in LISTS.values() if (root / name).is_file()]
    by_hash = "by a hash of the speaker's name, which is the rule of Speech Commands"
    if len(lists) == len(LISTS):
        return f"by the recordings' own lists, {' and '.join(lists)}"
    if lists:
        return f"by the recordings' own list, {lists[0]}, and what it does not name {by_hash}"
    one_speaker = len({clip.speaker for clip in index(root)}) == 1
    return "by a hash of each clip's name, since all are one speaker's" if one_speaker else by_hash


def check_speakers(clips: Iterable[Clip]) -> None:
    """Raise SettingError, naming the speakers, where a speaker has clips in more than one split."""
    splits: defaultdict[str, set[Split]] = defaultdict(set)
    for clip in clips:
        splits[clip.speaker].add(clip.split)
    shared = [f"{speaker} ({', '.join(sorted(found))})" for speaker, found in sorted(splits.items()) if len(found) > 1]
    if shared:
        shown = ", ".join(shared[:5]) + (", …" if len(shared) > 5 else "")
        raise SettingError(
            f"{len(shared)} speakers are in more than one split: {shown}; "
            f"give each speaker to one of {' and '.join(LISTS.values())}, or to neither for training"
        )


def words_with(clips: Iterable[Clip], minimum: int) -> tuple[str, ...]:
    """The words that have more than `minimum` training clips, in alphabetical order."""
    counts = Counter(clip.word for clip in clips if clip.split == "train")
    return tuple(sorted(word for word, n in counts.items() if n > minimum))


def unlabelled(root: Path) -> list[Clip]:
    """The clips of the folder `_unknown_`, of words that are in no class, each with its speaker's split. Often none."""
    folder = root / "_unknown_"
    keys = _keyed(folder) if folder.is_dir() else {}
    lists = _split_keys(root)
    return [Clip(path, folder.name, _speaker(key), _assign(key, lists)) for key, path in keys.items()]


def listed(root: Path, name: str) -> list[Clip]:
    """The clips that a list of another test set names, one `folder/file` a line, in its order; repeats stay.

    Such as the public test set of the 12-class task, whose words come from the split "test".

    Raises
    ------
    SettingError : there is no such list, it names a clip that is not there, or one of another split; as `index`.
    """
    path = root / name
    if not path.is_file():
        raise SettingError(f"no list {path}; expected a file with one `word/file` a line")
    splits = {f"{clip.word}/{clip.path.stem}": clip.split for clip in index(root)}
    files = {key: p for folder in sorted(root.iterdir()) if folder.is_dir() for key, p in _keyed(folder).items()}
    clips = []
    for number, key in read_lines(path):
        if key not in files:
            raise SettingError(f"{path}, line {number}: {key} is not there (looked for {', '.join(EXTENSIONS)})")
        clips.append(Clip(files[key], key.partition("/")[0], _speaker(key), "test"))
    words = [clip for clip in clips if not clip.word.startswith("_")]
    if seen := [clip.name for clip in words if splits.get(f"{clip.word}/{clip.path.stem}", "test") != "test"]:
        raise SettingError(
            f"{path} names {len(seen)} clips of another split, such as {seen[0]}; expected test speakers"
        )
    return clips


def noise_files(root: Path) -> list[Path]:
    """The recordings of `_background_noise_`, by name. Raises SettingError where there are none."""
    folder = root / "_background_noise_"
    files = audio_in(folder) if folder.is_dir() else []
    if not files:
        raise SettingError(f"no background noise: looked for {', '.join(EXTENSIONS)} files in {folder}")
    return files


def background(root: Path) -> dict[str, F32]:
    """The same, decoded: name → float32 [n] at 16 kHz, full scale ±1, a minute or so each."""
    return {path.stem: load(path).samples for path in noise_files(root)}


def held_out(root: Path) -> set[str]:
    """What is kept from training: keys `folder/file` without extension, of _unknown_ and what else a list names too.

    Raises SettingError as `index` does.
    """
    clips = [*index(root), *unlabelled(root)]
    found = {f"{clip.path.parent.name}/{clip.path.stem}" for clip in clips if clip.split != "train"}
    return found.union(*_split_keys(root).values())


def _split_keys(root: Path) -> dict[Split, set[str]]:
    """What each list file that is there names, clips without a word too."""
    return {split: set(read_list(root / name)) for split, name in LISTS.items() if (root / name).is_file()}


def _keyed(folder: Path) -> dict[str, Path]:
    """A folder's clips by key, `folder/file` without extension."""
    return {f"{folder.name}/{path.stem}": path for path in audio_in(folder)}


def _word_files(root: Path) -> dict[str, Path]:
    """Every clip's file by its key, `word/file` without extension, sorted."""
    if not root.is_dir():
        raise SettingError(f"no folder {root}; expected Speech Commands, as `kws-export download` leaves it")
    folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith(("_", ".")))
    files: dict[str, Path] = {}
    for path in (path for folder in folders for path in audio_in(folder)):
        key = f"{path.parent.name}/{path.stem}"
        if key in files:
            raise SettingError(f"{path} and {files[key].name} are one clip; keep one of the two")
        files[key] = path
    if not files:
        raise SettingError(
            f"no words in {root}: looked for folders named for a word with {', '.join(EXTENSIONS)} files in them"
        )
    return files


def _assign(key: str, listed: dict[Split, set[str]]) -> Split:
    for split, keys in listed.items():
        if key in keys:
            return split
    by_rule = split_of(key)
    return "train" if by_rule in listed else by_rule


def _speaker(name: str) -> str:
    """What stands before `_nohash_`; a file without it has a speaker of its own. The extension may be missing."""
    file = name.rpartition("/")[2]
    speaker, marker, _ = file.partition("_nohash_")
    if marker:
        return speaker
    stem, extension = os.path.splitext(file)
    return stem if extension.lower() in EXTENSIONS else file
