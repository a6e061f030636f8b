"""All sounds that a wake word is trained and judged with, parted by speaker and voice into training and held out."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from kws_edge.arrays import I16
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import is_audio, load
from kws_edge.audio.pcm import as_float, as_int16
from kws_edge.errors import SettingError
from kws_edge.tuning.soundscape import speech_bounds
from kws_export.data.pack import Kind, Pack, Piece
from kws_export.texts import folder_name

HELD_OUT = 0.2
"""Of the speakers, voices and takes."""
HELD_OUT_SPEECH = 0.3
"""Of the speakers of the negatives: an hour at least is needed to tell one false accept an hour."""
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
    """(training, held out): no speaker, no voice and no recording is in both.

    Where a word has recordings of one speaker alone, every fifth take is held out. Recordings of the kind "words" are
    held out apart from speech: an hour of them is a hundred hours of what people say on its own, so a limit of false
    accepts that held there would silence the model in any room.

    Raises
    ------
    SettingError : there is no saying of a word, or no speech to tell it from.
    """
    training, held_out = Material(), Material()
    labels = list(dict.fromkeys(saying.label for saying in words))
    for label in labels:
        for real in (True, False):
            some = [s for s in words if s.label == label and s.real is real]
            for saying, out in zip(some, _held_out(some, seed), strict=True):
                (held_out if out else training).words.append(saying)
    for saying, out in zip(near, _held_out(near, seed), strict=True):
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
        if not material.words:
            raise SettingError(f"no recording of the wake word is {name}; expected five takes or more")
    return training, held_out


def load_recordings(folder: Path, labels: Sequence[str]) -> list[Saying]:
    """The takes of a folder: FOLDER/WORD/*, or FOLDER/* where there is one word.

    Who speaks is what stands before `_nohash_` in a file's name; a file without it has a speaker of its own, unless
    none has it, which is taken for one speaker.

    Raises
    ------
    SettingError : there are none, or none of a word that has a folder.
    AudioError : one cannot be decoded.
    """
    found = []
    for label in labels:
        own = [
            p
            for p in folder.iterdir()
            if p.is_dir() and p.name.casefold() in (label.casefold(), folder_name(label).casefold())
        ]
        where = own[0] if own else folder
        if len(labels) > 1 and not own:
            continue
        for path in sorted(p for p in where.iterdir() if is_audio(p)):
            found.append(Saying(label, path.stem.partition("_nohash_")[0], True, cut_out(as_int16(load(path).samples))))
    if not found:
        expected = (
            "audio files" if len(labels) == 1 else f"folders {', '.join(map(folder_name, labels))} with audio files"
        )
        raise SettingError(f"no takes in {folder}; expected {expected}")
    return found


def load_takes(label: str, paths: Sequence[Path]) -> list[Saying]:
    """What voices said, as files of `voices.files`: one speaker a voice."""
    return [Saying(label, path.stem.partition("_nohash_")[0], False, as_int16(load(path).samples)) for path in paths]


def cut_out(samples: I16) -> I16:
    """The word of a recording, with `MARGIN` on both sides; at most `LONGEST`, the end of it where it is longer."""
    start, end = speech_bounds(as_float(samples))
    margin = round(MARGIN * SAMPLE_RATE)
    start = max(0, start - margin, end - round(LONGEST * SAMPLE_RATE))
    return samples[start : end + margin]


def _held_out(sayings: Sequence[Saying], seed: int) -> list[bool]:
    """Which are held out: by speaker, where there are several, in a fifth of the sayings at most."""
    speakers = list(dict.fromkeys(s.speaker for s in sayings))
    if len(speakers) < 3:
        return [i % 5 == 2 for i in range(len(sayings))]
    order = sorted(speakers, key=lambda speaker: _share(speaker, seed))
    out: set[str] = set()
    for speaker in order:
        if sum(s.speaker in out for s in sayings) >= HELD_OUT * len(sayings):
            break
        out.add(speaker)
    return [s.speaker in out for s in sayings]


def _parted(pieces: Sequence[Piece], seed: int) -> tuple[list[I16], list[I16]]:
    """Recordings to train with, and others, `HELD_OUT_SPEECH` of the time, by other speakers; of few, the last part."""
    speakers: dict[str, list[I16]] = {}
    for piece in pieces:
        speakers.setdefault(f"{piece.source.name}/{piece.speaker}", []).append(piece.samples)
    if len(speakers) < 3:
        cuts = [(x, round(len(x) * (1 - HELD_OUT_SPEECH))) for samples in speakers.values() for x in samples]
        return [x[:cut] for x, cut in cuts], [x[cut:] for x, cut in cuts]
    left = HELD_OUT_SPEECH * sum(len(piece.samples) for piece in pieces)
    training, held_out = list[I16](), list[I16]()
    for name in sorted(speakers, key=lambda name: _share(name, seed)):
        if left > 0:
            held_out += speakers[name]
            left -= sum(map(len, speakers[name]))
        else:
            training += speakers[name]
    return training, held_out


def _share(name: str, seed: int) -> float:
    digest = hashlib.sha1(os.fsencode(f"{seed}/{name}"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


def hours(recordings: Sequence[I16]) -> float:
    """How long they last together."""
    return sum(map(len, recordings)) / SAMPLE_RATE / 3600
