"""Enrol a word from a few takes of one voice: a template instead of training.

The takes become vectors (embedding.py), each where it lies in the window as the others do, and their mean is the
template. A window counts as the word where the cosine of the angle to it is above a threshold. That is set by the
cosines of other speech: beyond a high quantile they thin out about exponentially, and the threshold lies so many times
the mean excess above it, as was measured to give about one false accept an hour (`bench/enrolment.py`).
Source of the tail: S. Coles, "An Introduction to Statistical Modeling of Extreme Values", 2001, chapter 4, at shape 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kws_edge.arrays import F32, F64
from kws_edge.errors import AudioError, ModelError, SettingError
from kws_edge.model.features import FrontEnd, mfcc
from kws_edge.text import counted
from kws_edge.tuning.embedding import BACKGROUND, TRUNK, Background, Embedding
from kws_edge.tuning.soundscape import ROOM_LEVEL, speech_bounds

FEWEST, MOST = 3, 10
"""Takes."""

_SHIFTS = range(-24, 25, 4)  # frames by which a take is moved, to lie as the others do
_ROUNDS = 3


def take_windows(take: F32, front_end: FrontEnd) -> F32:
    """The windows of a take as a stream would show it, around its middle: float32 [n] → float32 [13, 64, 128].

    A take that is longer than a window is seen around its loudest part.

    Raises
    ------
    AudioError : there is nothing in it.
    """
    size = front_end.window + (front_end.frames - 1) * front_end.hop
    level = np.abs(take - take.mean())
    if not level.any():
        raise AudioError("a take of silence; expected one word in each")
    start, end = speech_bounds(take)
    middle = (start + end) // 2
    if end - start > size:
        sums = np.concatenate([[0.0], np.cumsum(level, dtype=np.float64)])
        middle = int(np.argmax(sums[size:] - sums[:-size])) + size // 2
    room = np.float32(ROOM_LEVEL) * np.random.default_rng(0).standard_normal(3 * size, np.float32)
    first = len(room) // 2 - middle
    low, high = max(0, -first), min(len(take), len(room) - first)
    room[first + low : first + high] += take[low:high]
    begin = len(room) // 2 - size // 2
    starts = [begin + shift * front_end.hop for shift in _SHIFTS]
    return np.stack([mfcc(room[i : i + size], front_end).T for i in starts]).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Enrolled:
    """What came of takes.

    Attributes
    ----------
    template : float32 [m], of length 1.
    threshold : the cosine above which a window counts as the word. Takes of several voices, or of more than the word,
        have a mean that much speech is like; it may then lie above 1, which no window reaches.
    cosines : of each take to the mean of the others: those below the threshold would have been missed.
    """

    template: F32
    threshold: float
    cosines: tuple[float, ...]

    @property
    def missed(self) -> tuple[bool, ...]:
        """Of each take, whether it would have been missed by a model of the others."""
        return tuple(cosine <= self.threshold for cosine in self.cosines)

    @property
    def hears(self) -> bool:
        """Whether a model of these takes would hear the word at all: not where it would have missed most of them."""
        return sum(self.missed) * 2 <= len(self.cosines)


def enrol(takes: Sequence[F32], embedding: Embedding, background: Background) -> Enrolled:
    """Make a template of takes, float32 [n] each, mono at 16 kHz, one word in each, of one voice.

    Raises
    ------
    SettingError : fewer than `FEWEST` takes, or more than `MOST`.
    AudioError : as `take_windows`.
    ModelError : the background is that of another trunk.
    """
    if background.trunk != embedding.fingerprint:
        raise ModelError(
            f"{BACKGROUND.name} is of other weights than {TRUNK}; expected what comes with them: reinstall kws-edge"
        )
    if not FEWEST <= len(takes) <= MOST:
        raise SettingError(f"{counted(len(takes), 'take')}; expected {FEWEST} to {MOST} of one voice")
    shifted = [background.whitened(embedding(take_windows(take, embedding.front_end))) for take in takes]
    each = _aligned(shifted)
    template = _mean(each)
    others = [_mean(each[:i] + each[i + 1 :]) for i in range(len(each))]
    cosines = tuple(float((vectors @ other).max()) for vectors, other in zip(shifted, others, strict=True))
    return Enrolled(template, background.threshold(template), cosines)


def _aligned(shifted: Sequence[F32]) -> list[F32]:
    """Of each take's windows those in which it lies as the others do: that most like the others' mean, and its two
    neighbours. A word's middle is not known to a tenth of a second, and where it is decides what the stretches hold."""
    at = [len(vectors) // 2 for vectors in shifted]
    for _ in range(_ROUNDS):
        for i, vectors in enumerate(shifted):
            other = _mean([v[[k]] for j, (v, k) in enumerate(zip(shifted, at, strict=True)) if j != i])
            at[i] = int(np.argmax(vectors @ other))
    return [vectors[max(0, k - 1) : k + 2] for vectors, k in zip(shifted, at, strict=True)]


def _mean(vectors: Sequence[F32]) -> F32:
    mean: F64 = np.mean([v.mean(axis=0) for v in vectors], axis=0, dtype=np.float64)
    return np.asarray(mean / np.linalg.norm(mean), np.float32)
