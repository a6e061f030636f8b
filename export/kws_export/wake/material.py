"""All sounds that a wake word is trained and judged with, parted by speaker and voice into training and held out."""

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from kws_edge.arrays import I16
from kws_edge.audio.files import audio_in
from kws_edge.audio.level import SAMPLE_RATE, measure
from kws_edge.audio.load import load
from kws_edge.audio.pcm import as_float, as_int16
from kws_edge.errors import SettingError
from kws_edge.text import folder_name
from kws_edge.tuning.soundscape import speech_bounds
from kws_export.data.pack import Pack, Piece
from kws_export.data.repeats import warn_of_repeats
from kws_export.data.sources import Kind

HELD_OUT = 0.2
"""Of the speakers, voices and takes."""
HELD_OUT_SPEECH = 0.3
"""Of the speakers of the negatives: an hour at least is needed to tell one false accept an hour."""
DOMINANT = 0.6
"""Who has more than this of the takes or of the time is in both parts: the others alone would be too few for one."""
MARGIN = 0.1
"""Seconds that a word keeps on both sides when it is cut out of a recording."""
LONGEST = 2.0
"""Seconds; what lasts longer is no wake word, or its recording holds something else too."""


@dataclass(frozen=True, slots=True, eq=False)
class Saying:
    """A word as it was said once: int16 [n] at 16 kHz, and by whom; `real` where that is a person."""

    label: str
    speaker: str
    real: bool
    samples: I16


@dataclass(slots=True)
class Material:
    """What there is to train with, or to judge with."""

    words: list[Saying] = field(default_factory=list)
    near: list[I16] = field(default_factory=list)
    speech: list[I16] = field(default_factory=list)
    sounds: list[I16] = field(default_factory=list)
    single: list[I16] = field(default_factory=list)
    """Other words, each said on its own: held out apart from speech. What trains has them among its speech."""


def part(words: Sequence[Saying], near: Sequence[Saying], pack: Pack, seed: int) -> tuple[Material, Material]:
    """(training, held out): no recording is in both, and nobody who says a word.

    Near-misses are said by voices, each of which is on one side with these and with the words.

    Where a word has recordings of one speaker or two, or hardly of any other than one, every fifth take is held out
    instead, and so is the last part of a recording that is most of the speech. Recordings of the kind "words" are
    held out apart from speech: an hour of them is a hundred hours of what people say on its own, so a limit of false
    accepts that held there would silence the model in any room.

    Raises
    ------
    SettingError : there is no saying of a word, or no speech to tell it from.
    """
    training, held_out = Material(), Material()
    labels = list(dict.fromkeys(saying.label for saying in words))
    people, voices = dict[str, bool](), dict[str, bool]()
    for real, before in ((True, people), (False, voices)):
        for label in labels:
            some = [s for s in words if s.label == label and s.real is real]
            for saying, out in zip(some, _held_out(some, seed, before), strict=True):
                (held_out if out else training).words.append(saying)
    for saying, out in zip(near, _held_out(near, seed, voices), strict=True):
        (held_out if out else training).near.append(saying.samples)
    for kind in get_args(Kind):
        trained, kept = _parted([p for p in pack.pieces if p.source.kind == kind], seed)
        if kind == "sounds":
            training.sounds, held_out.sounds = trained, kept
        elif kind == "words":
            training.speech, held_out.single = training.speech + trained, kept
        else:
            training.speech, held_out.speech = training.speech + trained, kept
    if not words:
        raise SettingError("no recording of the wake word; expected --voices, or --recordings with takes of it")
    for name, material in (("training", training), ("held out", held_out)):
        seconds = 3600 * hours(material.speech)
        if seconds < 60:
            raise SettingError(
                f"{seconds:.0f} s of speech that is {name}; expected a minute at least, and an hour to be of use: "
                'give more --negatives, of a kind other than "words"'
            )
        if lacking := [label for label in labels if not any(s.label == label for s in material.words)]:
            what = "the wake word" if len(labels) == 1 else ", ".join(lacking)
            raise SettingError(f"no recording of {what} is {name}; expected five takes or more")
    return training, held_out


def load_recordings(folder: Path, labels: Sequence[str]) -> list[Saying]:
    """The takes of a folder: FOLDER/WORD/*, or FOLDER/* where there is one word.

    A word may have several folders, such as `hey_lamp` and `Hey Lamp`. Who speaks is what stands before `_nohash_` in
    a file's name; a file without it has a speaker of its own, unless none has it, which is taken for one speaker.

    Raises
    ------
    SettingError : there are none, one is silent, or one is given for two words.
    AudioError : one cannot be decoded.
    """
    paths: list[tuple[str, Path]] = []
    for label in labels:
        own = sorted(
            p
            for p in folder.iterdir()
            if p.is_dir() and p.name.casefold() in (label.casefold(), folder_name(label).casefold())
        )
        for where in own or ([folder] if len(labels) == 1 else []):
            paths += [(label, path) for path in audio_in(where)]
    unnamed = not any("_nohash_" in path.stem for _, path in paths)
    found: list[Saying] = []
    first: dict[bytes, tuple[str, Path]] = {}
    again: list[Path] = []
    for label, path in paths:
        samples = _with_sound(path)
        other, where = first.setdefault(hashlib.sha256(samples.tobytes()).digest(), (label, path))
        if other != label:
            raise SettingError(f"{where} and {path} hold the same sound; expected a take to be of one word")
        if where != path:  # a copy would be held out while the other trains
            again.append(path)
        else:
            found.append(Saying(label, "" if unnamed else path.stem.partition("_nohash_")[0], True, cut_out(samples)))
    warn_of_repeats("take", again)
    if not found:
        expected = (
            "audio files" if len(labels) == 1 else f"folders {', '.join(map(folder_name, labels))} with audio files"
        )
        raise SettingError(f"no takes in {folder}; expected {expected}")
    return found


def _with_sound(path: Path) -> I16:
    samples = load(path).samples
    if measure(samples).is_silent:  # a word that is silence would be found wherever it is quiet
        raise SettingError(f"the take {path} is silent; expected a recording of the word: remove it")
    return as_int16(samples)


def load_takes(label: str, paths: Sequence[Path]) -> list[Saying]:
    """What voices said, as files of `voices.files`: one speaker a voice. One longer than `LONGEST` is cut as others."""
    found = []
    for path in paths:
        samples = as_int16(load(path).samples)
        if len(samples) > LONGEST * SAMPLE_RATE:
            samples = cut_out(samples)
        found.append(Saying(label, path.stem.partition("_nohash_")[0], False, samples))
    return found


def cut_out(samples: I16) -> I16:
    """The word of a recording, with `MARGIN` on both sides; of a longer one its last `LONGEST`, with one after it."""
    start, end = speech_bounds(as_float(samples))
    margin = round(MARGIN * SAMPLE_RATE)
    start = max(0, start - margin, end - round(LONGEST * SAMPLE_RATE))
    return samples[start : end + margin]


def _held_out(sayings: Sequence[Saying], seed: int, before: dict[str, bool]) -> list[bool]:
    """Which are held out: by speaker, where there are several, in a fifth of the sayings at most.

    Where even the speaker with the fewest has more than a fifth, it is that one; where one speaker has nearly all,
    every fifth take.

    Parameters
    ----------
    before : of the speakers of earlier words, whether they are held out, which they stay with this word as long as some
        of its takes are held out and some are not; those of this word are added.
    """
    takes = Counter(s.speaker for s in sayings)
    if len(takes) < 3 or max(takes.values()) > DOMINANT * len(sayings):
        return [i % 5 == 2 for i in range(len(sayings))]
    out = {name for name in takes if before.get(name)}
    new = {name: n for name, n in takes.items() if name not in before}
    out |= _fitting(new, HELD_OUT * len(sayings) - sum(takes[name] for name in out), seed)
    if not 0 < len(out) < len(takes):
        choice = new or takes
        out = _fitting(choice, HELD_OUT * len(sayings), seed) or {min(choice, key=choice.__getitem__)}
    for name in takes:
        before.setdefault(name, name in out)
    return [s.speaker in out for s in sayings]


def _parted(pieces: Sequence[Piece], seed: int) -> tuple[list[I16], list[I16]]:
    """Recordings to train with, and others, `HELD_OUT_SPEECH` of the time at most, by other speakers.

    Of few speakers, and of one with most of the time, it is the last part of what each says.
    """
    speakers: dict[str, list[I16]] = {}
    for piece in pieces:
        speakers.setdefault(f"{piece.source.name}/{piece.speaker}", []).append(piece.samples)
    lengths = {name: sum(map(len, samples)) for name, samples in speakers.items()}
    total = sum(lengths.values())
    cut = {name for name, n in lengths.items() if len(speakers) < 3 or n > DOMINANT * total}
    whole = {name: n for name, n in lengths.items() if name not in cut}
    out = _fitting(whole, HELD_OUT_SPEECH * sum(whole.values()), seed)
    if not out and not cut:
        out = {min(whole, key=whole.__getitem__)} if whole else set()
    training, held_out = list[I16](), list[I16]()
    for name in sorted(speakers, key=lambda name: _share(name, seed)):
        if name in cut:
            first, last = _in_time(speakers[name], HELD_OUT_SPEECH)
            training, held_out = training + first, held_out + last
        elif name in out:
            held_out += speakers[name]
        else:
            training += speakers[name]
    return training, held_out


def _fitting(sizes: Mapping[str, int], most: float, seed: int) -> set[str]:
    """Some of those named, in an order by the seed, that have no more than `most` together."""
    found: set[str] = set()
    for name in sorted(sizes, key=lambda name: _share(name, seed)):
        if sizes[name] <= most:
            found.add(name)
            most -= sizes[name]
    return found


def _in_time(recordings: Sequence[I16], share: float) -> tuple[list[I16], list[I16]]:
    """The first part of recordings that follow each other, and the last `share` of the time; one is cut for it."""
    left = round(share * sum(map(len, recordings)))
    first, last = list(recordings), list[I16]()
    while left > 0:
        recording = first.pop()
        if len(recording) > left:
            first.append(recording[:-left])
        last.insert(0, recording[-left:])
        left -= len(recording)
    return first, last


def _share(name: str, seed: int) -> float:
    digest = hashlib.sha1(os.fsencode(f"{seed}/{name}"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


def hours(recordings: Sequence[I16]) -> float:
    """How long they last together."""
    return sum(map(len, recordings)) / SAMPLE_RATE / 3600
