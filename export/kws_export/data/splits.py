"""A split as arrays: the clips that a model's classes stand for, decoded once and kept in a cache.

A class is a word. Two others make it a task for any audio, such as the public one of 12 classes: `_unknown_` stands for
every other word of the data set and the clips in its folder `_unknown_`, `_silence_` for stretches of its background
noise.
"""

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache as cached
from pathlib import Path
from typing import BinaryIO, get_args

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32, I16, I64
from kws_edge.audio.load import load
from kws_edge.audio.pcm import as_int16
from kws_edge.errors import AudioError, SettingError
from kws_edge.model.metadata import SILENCE_CLASS
from kws_export.data.speech_commands import CLIP_SAMPLES, LISTS, Clip, Split, index, listed, noise_files, unlabelled

_KEPT = "kept.npy"
"""In a cache entry of which some clips could not be decoded: the indices of the others."""
_PARTIAL = ".partial-"
"""What a folder of the cache is called while its clips are decoded."""
_LEFT = 86_400.0
"""Seconds without a new byte in such a folder, after which no process is at work in it: it was killed."""
_CACHE_FORMAT = 1  # part of every cache key: raise it when decoding or cropping changes

_log = logging.getLogger(__name__)


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

    samples: I16
    lengths: npt.NDArray[np.int32]
    labels: I64
    names: list[str]

    def __len__(self) -> int:
        """The number of clips."""
        return len(self.names)


UNKNOWN, SILENCE = "_unknown_", SILENCE_CLASS

SILENCE_CLIPS: dict[Split, int] = {"train": 2000, "validation": 300, "test": 400}
"""Stretches of noise that a split has, where silence is a class."""

_SILENCE_SEED = 20_181


@dataclass(frozen=True, slots=True)
class Stretch(Clip):
    """A second of a noise recording from sample `start` on, at `gain` times its level."""

    start: int
    gain: float

    @property
    def name(self) -> str:
        """As a clip's, with the place."""
        return f"{self.word}/{self.path.name}@{self.start}*{self.gain:.4f}"


def load_split(root: Path, split: Split, labels: Sequence[str], cache: Path, *, test_list: str = "") -> ArrayDataset:
    """The clips of one split that belong to one of the classes `labels`, words in the order of `index`.

    The first call decodes every clip and keeps the samples below `cache`; later calls map that file. The key of a
    cache entry covers each clip's name, size and time of change, so an edited data set is decoded anew. A clip
    longer than 1 s, of which the public data set has none, is cut to its loudest second, with a warning.

    Parameters
    ----------
    labels : words; also `UNKNOWN` and `SILENCE`.
    test_list : the file in `root` that names the clips of the split "test", in place of the speakers' split; a clip
        that it names twice counts twice.

    Raises
    ------
    SettingError : what `index` and `listed` raise; an unknown split; no label, a label given twice or without clips;
        no clip in the split; a cache that cannot be written.
    AudioError : no clip can be decoded. One among others that cannot is named, counted and left out.
    """
    chosen = split_clips(root, split, labels, test_list=test_list)
    entry = cache / f"{split}-{_digest(chosen)}"
    if not entry.is_dir():
        _build(entry, chosen)
    chosen = _readable(entry, chosen)
    class_of = {label: i for i, label in enumerate(labels)}
    return ArrayDataset(
        samples=np.load(entry / "samples.npy", mmap_mode="r"),
        lengths=np.load(entry / "lengths.npy"),
        labels=np.array([class_of.get(clip.word, class_of.get(UNKNOWN, -1)) for clip in chosen], np.int64),
        names=[clip.name for clip in chosen],
    )


def split_clips(root: Path, split: Split, labels: Sequence[str], *, test_list: str = "") -> list[Clip]:
    """The clips that `load_split` decodes, in its order. Raises SettingError as it does."""
    if split not in get_args(Split):
        raise SettingError(f"unknown split {split!r}; expected one of {', '.join(get_args(Split))}")
    class_of = {label: i for i, label in enumerate(labels)}
    if not labels or len(class_of) < len(labels):
        raise SettingError(f"labels {list(labels)}; expected at least one, each once")
    clips = index(root)
    words = sorted({clip.word for clip in clips})
    if absent := [label for label in labels if label not in (*words, UNKNOWN, SILENCE)]:
        raise SettingError(f"no clips for {', '.join(absent)} in {root}; the words there are {', '.join(words)}")
    if split == "test" and test_list:
        found = listed(root, test_list)
    else:
        found = [clip for clip in clips if clip.split == split]
        found += [clip for clip in unlabelled(root) if clip.split == split] if UNKNOWN in class_of else []
        found += _silence(root, split) if SILENCE in class_of else []
    chosen = [clip for clip in found if clip.word in class_of or (UNKNOWN in class_of and clip.word != SILENCE)]
    if not chosen:
        more = f": name some in {LISTS[split]}, or give clips of more speakers" if split in LISTS else ""
        raise SettingError(f"no {split} clips for {', '.join(labels)} in {root}{more}")
    return chosen


def loudest_second(samples: F32) -> F32:
    """The second with the most energy, the earliest of equals. [n ≥ 16000] → [16000]."""
    energy = np.concatenate([[0.0], np.cumsum(np.square(samples, dtype=np.float64))])
    start = int(np.argmax(energy[CLIP_SAMPLES:] - energy[:-CLIP_SAMPLES]))
    return samples[start : start + CLIP_SAMPLES]


def _digest(clips: Sequence[Clip]) -> str:
    digest = hashlib.sha256(str(_CACHE_FORMAT).encode())
    for clip in clips:
        stat = clip.path.stat()
        digest.update(os.fsencode(f"\n{clip.name}\t{stat.st_size}\t{stat.st_mtime_ns}"))
    return digest.hexdigest()[:20]


def _silence(root: Path, split: Split) -> list[Clip]:
    """Stretches of the background recordings, at levels from nothing to their own, the same in every run."""
    recordings = [(path, len(_recording(path))) for path in noise_files(root)]
    rng = np.random.default_rng([_SILENCE_SEED, get_args(Split).index(split)])
    clips: list[Clip] = []
    for i in range(SILENCE_CLIPS[split]):
        path, n = recordings[i % len(recordings)]
        start = int(rng.integers(max(1, n - CLIP_SAMPLES)))
        clips.append(Stretch(path, SILENCE, "", split, start, float(rng.random())))
    return clips


def _decode(clip: Clip) -> tuple[I16, bool]:
    """A clip's samples, int16 [1 to 16000], and whether it was longer."""
    if isinstance(clip, Stretch):
        second = _recording(clip.path)[clip.start : clip.start + CLIP_SAMPLES]
        return np.rint(second * np.float32(clip.gain * 32767)).astype(np.int16), False
    audio = load(clip.path)
    for warning in audio.warnings:
        _log.warning("%s: %s", clip.path, warning)
    samples = audio.samples
    longer = samples.size > CLIP_SAMPLES
    if longer:
        samples = loudest_second(samples)
    return as_int16(samples), longer


@cached
def _recording(path: Path) -> F32:
    return load(path).samples


def _build(entry: Path, clips: Sequence[Clip]) -> None:
    """Decode the clips into `entry`, which appears complete or not at all."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        _clear_left(entry.parent)
        with tempfile.TemporaryDirectory(dir=entry.parent, prefix=_PARTIAL) as scratch:
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


def _clear_left(cache: Path) -> None:
    """Remove what killed processes left half made, and nothing that another may still be making."""
    for folder in cache.glob(f"{_PARTIAL}*"):
        with contextlib.suppress(OSError):  # another process removes it, too
            if time.time() - max(path.stat().st_mtime for path in (folder, *folder.rglob("*"))) > _LEFT:
                shutil.rmtree(folder)


def _write_arrays(folder: Path, clips: Sequence[Clip]) -> None:
    from rich.console import Console
    from rich.progress import track

    lengths: list[int] = []
    kept: list[int] = []
    cropped: list[str] = []
    # Rows are appended, not stored through a memory map: a full disk is then an error and not a bus fault.
    # Threads are as fast as processes here, since the decoder releases the interpreter lock, and need no start-up.
    pool = ThreadPoolExecutor(os.cpu_count())
    with (folder / "samples.npy").open("wb") as file, ExitStack() as ends:
        ends.callback(pool.shutdown, cancel_futures=True)  # whatever ends it, the rest need not be decoded
        _write_header(file, len(clips))
        decoded = pool.map(_attempt, clips)
        console = Console(stderr=True)
        progress = track(decoded, f"decoding {clips[0].split}", total=len(clips), console=console)
        for i, outcome in enumerate(progress):
            if isinstance(outcome, AudioError):
                _log.warning("%s: skipped", outcome)
                continue
            samples, longer = outcome
            kept.append(i)
            lengths.append(samples.size)
            file.write(np.pad(samples, (0, CLIP_SAMPLES - samples.size)).astype("<i2").tobytes())
            if longer:
                cropped.append(clips[i].name)
        if not kept:
            raise AudioError(
                f"none of {len(clips)} clips can be decoded, such as {clips[0].path}; expected sound files"
            )
        file.seek(0)
        _write_header(file, len(kept))  # as long as before: numpy leaves room for the number of rows
    np.save(folder / "lengths.npy", np.array(lengths, np.int32))
    if len(kept) < len(clips):
        np.save(folder / _KEPT, np.array(kept, np.int64))
    if cropped:
        _log.warning("%d clips longer than 1 s were cut to their loudest second, such as %s", len(cropped), cropped[0])


def _write_header(file: BinaryIO, rows: int) -> None:
    header = {"descr": "<i2", "fortran_order": False, "shape": (rows, CLIP_SAMPLES)}
    np.lib.format.write_array_header_1_0(file, header)


def _attempt(clip: Clip) -> tuple[I16, bool] | AudioError:
    """What `_decode` gives or raises: one file of thousands must not end the work."""
    try:
        return _decode(clip)
    except AudioError as error:
        return error


def _readable(entry: Path, clips: list[Clip]) -> list[Clip]:
    """The clips that an entry of the cache holds: all but those that could not be decoded."""
    if not (entry / _KEPT).is_file():
        return clips
    kept = [int(i) for i in np.load(entry / _KEPT)]
    lost = sorted(set(range(len(clips))) - set(kept))
    first = clips[lost[0]].path
    _log.warning("%d of %d clips cannot be decoded and are skipped, such as %s", len(lost), len(clips), first)
    return [clips[i] for i in kept]
