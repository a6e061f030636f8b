"""Make windows without a word, as most windows of a stream are, from clips and other recordings.

A stream's windows are not the data set's clips. Most hold noise, silence, other speech, or half a word as it enters
or leaves; a network that never saw such windows answers them with confidence. These are shown to it with the label
NO_WORD, for which the loss asks for vacuity 1 (losses.py).
"""

import logging
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32, I16
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load
from kws_edge.audio.pcm import as_float, as_int16
from kws_edge.errors import AudioError, SettingError
from kws_edge.tuning.recordings import recordings
from kws_edge.tuning.soundscape import Word, speech_bounds, words_beside
from kws_export.data.repeats import warn_of_repeats
from kws_export.data.speech_commands import CLIP_SAMPLES, held_out
from kws_export.data.splits import ArrayDataset
from kws_export.ranges import check_ranges, check_share

Sample = TypeVar("Sample", np.float32, np.int16)

_log = logging.getLogger(__name__)

NO_WORD = -1
"""The label of a window without a word."""
JITTER = 1_600
"""Samples, 0.1 s, by which a hard window is moved at most: a stream shows it at any place."""
CLEARANCE = 0.1
"""Seconds that go with a word that is cut out of a recording: how well a label track's times are known."""


@dataclass(frozen=True, slots=True)
class NegativeMix:
    """How many windows of each batch hold no word, and of which kinds.

    Attributes
    ----------
    share : of every batch; 0 trains on words alone, as the paper does.
    partial, reversed, spliced, noise, other : relative weights of the kinds. `partial` is a word cut off by the
        window's edge, `reversed` a word played backwards (speech-like, no word), `spliced` the second half of one word
        and then the first half of another, `noise` background noise or near silence, `other` a piece of the recordings
        given as negatives: other speech, other words, other sounds.
    hard : of the kinds, too: stretches of those recordings to which the network gives the most evidence, chosen again
        before every epoch (mining.py).
    hard_count : how many of those there are.
    most_visible : of a partial word, the largest part that the window shows.
    """

    share: float = 0.0
    partial: float = 0.4
    reversed: float = 0.1
    spliced: float = 0.0
    noise: float = 0.15
    other: float = 0.35
    hard: float = 0.0
    hard_count: int = 4000
    most_visible: float = 0.45

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        check_share("negatives", self, "share")
        check_ranges("negatives", self, {"hard_count": (1, math.inf)})
        if min(self.weights) < 0 or sum(self.weights) == 0:
            raise SettingError(f"negatives: weights {self.weights}; expected none below 0, and one above")
        if not 0 < self.most_visible < 1:
            raise SettingError(f"negatives: most_visible={self.most_visible}; expected between 0 and 1")

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the kinds, in the order partial, reversed, spliced, noise, other, hard."""
        return self.partial, self.reversed, self.spliced, self.noise, self.other, self.hard


class Negatives:
    """Draws windows without a word. Recordings are kept as int16."""

    def __init__(self, words: ArrayDataset, noises: Sequence[F32], others: Sequence[I16], mix: NegativeMix) -> None:
        """`words` are the training clips, `noises` float32 and `others` int16 recordings at the same rate.

        Raises
        ------
        SettingError : a kind has a weight, but no recordings to draw it from.
        """
        self.words, self.noises, self.others, self.mix = words, noises, others, mix
        weights = np.array(mix.weights)
        for name, given, kind in (("noise", noises, 3), ("other", others, 4), ("hard", others, 5)):
            if weights[kind] > 0 and not given:
                raise SettingError(f"negatives: weight {name}={weights[kind]}, but no such recordings were given")
        self._kinds: tuple[Callable[[int, np.random.Generator], F32], ...]
        self._kinds = (self._partial, self._reversed, self._spliced, self._noise, self.other, self._hard)
        self.hard: Sequence[tuple[int, int]] = ()
        """(recording, first sample) of the windows that are hard now; none: others are drawn in their place."""
        self._weights = weights / weights.sum()
        seconds = np.array([max(1.0, len(o) / CLIP_SAMPLES) for o in others])
        self._other_odds = seconds / seconds.sum() if others else seconds

    def draw(self, rng: np.random.Generator, n: int = CLIP_SAMPLES) -> F32:
        """One window: float32 [n], full scale ±1, before augmentation; n at least `CLIP_SAMPLES`."""
        return self._kinds[int(rng.choice(len(self._kinds), p=self._weights))](n, rng)

    def other(self, n: int, rng: np.random.Generator) -> F32:
        """A random stretch of a random recording, longer ones oftener; a shorter one lies anywhere in silence. [n]."""
        recording = self.others[int(rng.choice(len(self.others), p=self._other_odds))]
        return as_float(stretch(recording, n, rng))

    def _hard(self, n: int, rng: np.random.Generator) -> F32:
        if not self.hard:
            return self.other(n, rng)
        recording, start = self.hard[int(rng.integers(len(self.hard)))]
        samples = self.others[recording]
        if len(samples) <= n:
            return as_float(stretch(samples, n, rng))
        start = max(0, min(len(samples) - n, start + int(rng.integers(-JITTER, JITTER + 1))))
        return as_float(samples[start : start + n])

    def _word(self, rng: np.random.Generator) -> tuple[F32, int, int]:
        """A clip, and where its word lies."""
        word = as_float(self.words.samples[int(rng.integers(len(self.words.labels)))])
        return word, *speech_bounds(word)

    def _partial(self, n: int, rng: np.random.Generator) -> F32:
        word, start, end = self._word(rng)
        visible = int((end - start) * rng.uniform(0.05, self.mix.most_visible))
        out = np.zeros(n, np.float32)
        if rng.random() < 0.5:  # entering: its beginning at the window's end
            kept = word[: start + visible]
            out[len(out) - len(kept) :] = kept
        else:  # leaving: its end at the window's beginning
            kept = word[end - visible :]
            out[: len(kept)] = kept
        return out

    def _reversed(self, n: int, rng: np.random.Generator) -> F32:
        return stretch(self._word(rng)[0][::-1], n, rng)

    def _spliced(self, n: int, rng: np.random.Generator) -> F32:
        halves = []
        for second in (True, False):
            word, start, end = self._word(rng)
            middle = (start + end) // 2
            halves.append(word[middle:end] if second else word[start:middle])
        return stretch(np.concatenate(halves), n, rng)

    def _noise(self, n: int, rng: np.random.Generator) -> F32:
        if rng.random() < 0.25:  # near silence: what augmentation's white noise adds is all there is
            return np.zeros(n, np.float32)
        noise = self.noises[int(rng.integers(len(self.noises)))]
        return stretch(noise, n, rng) * np.float32(10 ** (rng.uniform(-30, 6) / 20))


def load_recordings(patterns: Sequence[str], data_root: Path) -> list[list[I16]]:
    """Decode the recordings that each pattern names, leaving out the clips that the data set holds out.

    Where a label track lies beside a recording (NAME.labels.txt), the words in it are cut out.

    Parameters
    ----------
    patterns : folders (searched with all below), files or globs.
    data_root : the Speech Commands folder whose clips for validation and testing must not be trained on: those that its
        lists name or, where it has none, that `speech_commands.index` holds out.

    Returns
    -------
    For each pattern, its int16 recordings at 16 kHz, of any length, but for those of an earlier pattern.

    Raises
    ------
    SettingError : a pattern names no recording, or the data set is none.
    AudioError : none of a pattern's recordings can be decoded. One among others that cannot is named and left out.
    """
    excluded = held_out(data_root)
    found = []
    again: list[Path] = []
    seen = set[str]()
    for pattern in patterns:
        paths = recordings([pattern]).paths
        own = {path: os.path.realpath(path) for path in paths}
        again += [path for path in paths if own[path] in seen]
        kept = [path for path in paths if own[path] not in seen and f"{path.parent.name}/{path.stem}" not in excluded]
        seen.update(own.values())
        pieces, unreadable = [], 0
        for path in kept:
            try:
                pieces += between(load(path).samples, words_beside(path))
            except AudioError as error:  # one file of thousands must not end the work
                unreadable += 1
                _log.warning("%s: skipped", error)
        if unreadable:
            _log.warning("%s: %d of %d recordings cannot be decoded and are skipped", pattern, unreadable, len(kept))
        if kept and unreadable == len(kept):
            raise AudioError(f"none of the {len(kept)} recordings at {pattern} can be decoded; expected sound files")
        found.append(pieces)
    warn_of_repeats("recording", again)
    return found


def between(samples: F32, words: Sequence[Word]) -> list[I16]:
    """What is left of a recording without its words and `CLEARANCE` around them: int16 pieces of a second or more.

    All of it where there are no words, however short it is.
    """
    if not words:
        return [as_int16(samples)]
    keep = np.ones(len(samples), np.bool_)
    for word in words:
        start, end = max(0.0, word.start - CLEARANCE), word.end + CLEARANCE
        keep[round(start * SAMPLE_RATE) : round(end * SAMPLE_RATE)] = False
    ends = np.flatnonzero(np.diff(keep)) + 1
    pieces = zip([0, *ends], [*ends, len(samples)], strict=True)
    return [as_int16(samples[a:b]) for a, b in pieces if keep[a] and b - a >= CLIP_SAMPLES]


def stretch(recording: npt.NDArray[Sample], n: int, rng: np.random.Generator) -> npt.NDArray[Sample]:
    """A random stretch of n samples, a new array; a shorter recording lies at a random place in silence."""
    room = len(recording) - n
    if room >= 0:
        start = int(rng.integers(room + 1))
        return recording[start : start + n].copy()
    out = np.zeros(n, recording.dtype)
    start = int(rng.integers(-room + 1))
    out[start : start + len(recording)] = recording
    return out
