"""Google Speech Commands on disk: which clips there are, whose they are, which split they belong to, and their samples.

The layout is the public data set's own, `ROOT/WORD/SPEAKER_nohash_N.wav` beside `validation_list.txt` and
`testing_list.txt`, with .flac, .ogg and .opus accepted too. Folders whose names start with an underscore
(`_background_noise_` and the like) hold no word and are never a class.

Source: P. Warden, "Speech Commands: A Dataset for Limited-Vocabulary Speech Recognition", arXiv:1804.03209.
"""

import hashlib
import logging
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from kws_edge.audio import load
from kws_edge.errors import SettingError

Split = Literal["train", "validation", "test"]

EXTENSIONS = (".wav", ".flac", ".ogg", ".opus")
LISTS: dict[Split, str] = {"validation": "validation_list.txt", "test": "testing_list.txt"}
CLIP_SAMPLES = 16_000
"""Every clip of the data set is at most 1 s long, at 16 kHz."""

_MAX_CLIPS_PER_WORD = 2**27 - 1  # the data set's constant: it sets how finely the hash is turned into a percentage
_CACHE_FORMAT = 1  # part of every cache key: raise it when decoding or cropping changes

_log = logging.getLogger(__name__)


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


@dataclass(frozen=True, slots=True)
class ArrayDataset:
    """One split as arrays; row i of each belongs to the same clip.

    Attributes
    ----------
    samples : int16 [n, 16000], a read-only memory map; full scale is ±32768; short clips end in zeros.
    lengths : int32 [n], samples that were recorded, 1 to 16000; the rest of the row is padding.
    labels : int64 [n], index of the clip's word in the sequence of labels that was asked for.
    names : the n clips' names, `word/file`.
    """

    samples: npt.NDArray[np.int16]
    lengths: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int64]
    names: list[str]

    def __len__(self) -> int:
        """The number of clips."""
        return len(self.names)


def index(root: Path) -> list[Clip]:
    """All clips of all words, sorted by word and file name.

    A list file decides its split where it is present; where it is absent, `split_of` does. The extension in a list
    need not be the file's. A listed word that has no folder is passed over, so a part of the data set is fine.

    Raises
    ------
    SettingError : `root` is no folder, or holds no word; one clip has two files; a clip is in both lists; a listed
        clip is missing from its word's folder; a speaker is in two splits.
    """
    files = _word_files(root)
    listed = {split: _read_list(root / name) for split, name in LISTS.items() if (root / name).is_file()}
    for split, keys in listed.items():
        missing = sorted(k for k in keys - files.keys() if (root / k).parent.is_dir())
        if missing:
            raise SettingError(
                f"{LISTS[split]} in {root} names {len(missing)} clips that are not there, such as {missing[0]} "
                f"(looked for {', '.join(EXTENSIONS)}); unpack the data set again, or remove the whole word's folder"
            )
    if len(listed) == len(LISTS) and (both := set.intersection(*listed.values())):
        names = " and ".join(LISTS.values())
        raise SettingError(f"{len(both)} clips, such as {min(both)}, are in both {names} of {root}")
    clips = [Clip(path, path.parent.name, _speaker(key), _assign(key, listed)) for key, path in files.items()]
    check_speakers(clips)
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
    bucket = int.from_bytes(hashlib.sha1(_speaker(name).encode(), usedforsecurity=False).digest(), "big")
    tenths = 10 * (bucket % (_MAX_CLIPS_PER_WORD + 1))
    if tenths < _MAX_CLIPS_PER_WORD:
        return "validation"
    return "test" if tenths < 2 * _MAX_CLIPS_PER_WORD else "train"


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


def load_split(root: Path, split: Split, labels: Sequence[str], cache: Path) -> ArrayDataset:
    """The clips of one split that say one of `labels`, in the order of `index`.

    The first call decodes every clip and keeps the samples below `cache`; later calls map that file. The key of a
    cache entry covers each clip's name, size and time of change, so an edited data set is decoded anew. A clip
    longer than 1 s, of which the public data set has none, is cut to its loudest second, with a warning.

    Raises
    ------
    SettingError : what `index` raises; an unknown split; no label, a label given twice or without clips; no clip in
        the split; a cache that cannot be written.
    AudioError : a clip cannot be decoded.
    """
    if split not in get_args(Split):
        raise SettingError(f"unknown split {split!r}; expected one of {', '.join(get_args(Split))}")
    clips = index(root)
    words = sorted({clip.word for clip in clips})
    if absent := [label for label in labels if label not in words]:
        raise SettingError(f"no clips for {', '.join(absent)} in {root}; the words there are {', '.join(words)}")
    label_index = {label: i for i, label in enumerate(labels)}
    if not labels or len(label_index) < len(labels):
        raise SettingError(f"labels {list(labels)}; expected at least one, each once")
    chosen = [clip for clip in clips if clip.split == split and clip.word in label_index]
    if not chosen:
        raise SettingError(f"no {split} clips for {', '.join(labels)} in {root}")

    entry = cache / f"{split}-{_digest(chosen)}"
    if not entry.is_dir():
        _build(entry, chosen)
    return ArrayDataset(
        samples=np.load(entry / "samples.npy", mmap_mode="r"),
        lengths=np.load(entry / "lengths.npy"),
        labels=np.array([label_index[clip.word] for clip in chosen], np.int64),
        names=[clip.name for clip in chosen],
    )


def background(root: Path) -> dict[str, npt.NDArray[np.float32]]:
    """The recordings of `_background_noise_`: name → float32 [n] at 16 kHz, full scale ±1, a minute or so each.

    Raises
    ------
    SettingError : there are none.
    """
    folder = root / "_background_noise_"
    files = _audio_files(folder) if folder.is_dir() else []
    if not files:
        raise SettingError(f"no background noise: looked for {', '.join(EXTENSIONS)} files in {folder}")
    return {path.stem: load(path).samples for path in files}


def held_out(root: Path) -> set[str]:
    """What the list files keep from training: keys `folder/file` without extension, of _unknown_ and the like too."""
    paths = [root / name for name in LISTS.values()]
    return set().union(*(_read_keys(path) for path in paths if path.is_file()))


def as_float(samples: npt.NDArray[np.int16]) -> npt.NDArray[np.float32]:
    """int16 of full scale 32768 → float32 of full scale ±1, exactly."""
    return np.multiply(samples, np.float32(1 / 32768), dtype=np.float32)


def loudest_second(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The second with the most energy, the earliest of equals. [n ≥ 16000] → [16000]."""
    energy = np.concatenate([[0.0], np.cumsum(np.square(samples, dtype=np.float64))])
    start = int(np.argmax(energy[CLIP_SAMPLES:] - energy[:-CLIP_SAMPLES]))
    return samples[start : start + CLIP_SAMPLES]


def _audio_files(folder: Path) -> list[Path]:
    # Hidden files are left out: copies made on macOS hold a "._x.wav" of metadata beside every x.wav.
    found = (p for p in folder.iterdir() if p.suffix.lower() in EXTENSIONS and not p.name.startswith("."))
    return sorted(found, key=lambda p: p.name)  # the order of paths differs between systems


def _word_files(root: Path) -> dict[str, Path]:
    """Every clip's file by its key, `word/file` without extension, sorted."""
    if not root.is_dir():
        raise SettingError(f"no folder {root}; expected Speech Commands, as `kws-export download` leaves it")
    folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith(("_", ".")))
    files: dict[str, Path] = {}
    for path in (path for folder in folders for path in _audio_files(folder)):
        key = f"{path.parent.name}/{path.stem}"
        if key in files:
            raise SettingError(f"{path} and {files[key].name} are one clip; keep one of the two")
        files[key] = path
    if not files:
        raise SettingError(
            f"no words in {root}: looked for folders named for a word with {', '.join(EXTENSIONS)} files in them"
        )
    return files


def _read_list(path: Path) -> set[str]:
    """The keys of the word clips that a list names, one `word/file` a line."""
    return {key for key in _read_keys(path) if not key.startswith("_")}


def _read_keys(path: Path) -> set[str]:
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return {str(PurePosixPath(line).with_suffix("")) for line in lines if line}


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


def _digest(clips: Sequence[Clip]) -> str:
    digest = hashlib.sha256(str(_CACHE_FORMAT).encode())
    for clip in clips:
        stat = clip.path.stat()
        digest.update(f"\n{clip.name}\t{stat.st_size}\t{stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:20]


def _decode(path: Path) -> tuple[npt.NDArray[np.int16], bool]:
    """A clip's samples, int16 [1 to 16000], and whether it was longer."""
    audio = load(path)
    for warning in audio.warnings:
        _log.warning("%s: %s", path, warning)
    samples = audio.samples
    longer = samples.size > CLIP_SAMPLES
    if longer:
        samples = loudest_second(samples)
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16), longer


def _build(entry: Path, clips: Sequence[Clip]) -> None:
    """Decode the clips into `entry`, which appears complete or not at all."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=entry.parent, prefix=".partial-") as scratch:
            arrays = Path(scratch) / "arrays"
            arrays.mkdir()
            _write_arrays(arrays, clips)
            try:
                arrays.rename(entry)
            except OSError:
                if not entry.is_dir():  # else another process has built the same entry meanwhile
                    raise
    except OSError as error:
        needed = len(clips) * CLIP_SAMPLES * 2 / 1e6
        raise SettingError(f"cannot write the cache {entry}, {needed:,.0f} MB: {error}") from error


def _write_arrays(folder: Path, clips: Sequence[Clip]) -> None:
    from rich.console import Console
    from rich.progress import track

    lengths = np.empty(len(clips), np.int32)
    cropped: list[str] = []
    header = {"descr": "<i2", "fortran_order": False, "shape": (len(clips), CLIP_SAMPLES)}
    # Rows are appended, not stored through a memory map: a full disk is then an error and not a bus fault.
    # Threads are as fast as processes here, since the decoder releases the interpreter lock, and need no start-up.
    with (folder / "samples.npy").open("wb") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
        np.lib.format.write_array_header_1_0(file, header)
        decoded = pool.map(_decode, [clip.path for clip in clips])
        console = Console(stderr=True)
        progress = track(decoded, f"decoding {clips[0].split}", total=len(clips), console=console)
        for i, (samples, longer) in enumerate(progress):
            lengths[i] = samples.size
            file.write(np.pad(samples, (0, CLIP_SAMPLES - samples.size)).astype("<i2").tobytes())
            if longer:
                cropped.append(clips[i].name)
    np.save(folder / "lengths.npy", lengths)
    if cropped:
        _log.warning("%d clips longer than 1 s were cut to their loudest second, such as %s", len(cropped), cropped[0])
