"""Judge a network by words missed at a rate of false accepts, on held-out streams.

For choosing between epochs, many times over, so by the fast way of `whole_stream`, at a threshold that `release` would
take. `release` has the figures of record.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kws_edge.arrays import F32, F64, I16, I64
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.pcm import as_float
from kws_edge.model.metadata import Metadata
from kws_edge.stream.framing import DEFAULT_HOP
from kws_edge.tuning.calibration import CROWDINGS
from kws_edge.tuning.soundscape import compose, joined
from kws_export.network.matchboxnet import MatchboxNet
from kws_export.wake.material import Material, Saying
from kws_export.wake.whole_stream import (
    HOP,
    Stream,
    certainty,
    heard_stream,
    log_odds,
    peak_places,
    smoothed,
    stream_logits,
)

BEFORE, AFTER = 1, 7
"""Hops before and after the end of a word in which it counts as found."""
ODDS = 9.0
"""At which words fire at the limit: p̂ is 0.9 then."""
MOST_BIAS = 20.0
SNR = 10.0
MOST_WORDS = 120
"""Of each wake word, in each condition."""
MOST_SPEECH = 2.0
"""Hours."""
PEOPLE = 20
"""Held-out takes by people that are enough to judge by them alone."""
REAL_WEIGHT = 4.0
"""A person's take counts for so many of a voice's."""
RATES = (0.5, 1.0, 2.0)
"""In parts of the limit: the average over three rates varies less from epoch to epoch than one."""


@dataclass(frozen=True, slots=True, eq=False)
class WordStream:
    """A stream of words; the end (in hops), label and weight of each word."""

    stream: Stream
    ends: I64
    labels: I64
    weights: F64


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a network gives on the held-out streams.

    Attributes
    ----------
    missed : condition → share of the words that are missed at the limit.
    of_word : label → share of its words that are missed at the limit, over all conditions.
    mean : what epochs are compared by: over conditions, words and `RATES`.
    crowding : which of `CROWDINGS` this is at, the one with the least mean.
    bias : what was added to each word's logit (`HeldOut.bias`).
    """

    missed: dict[str, float]
    of_word: dict[str, float]
    mean: float
    crowding: float
    bias: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**asdict(self), "bias": list(self.bias)}


class HeldOut:
    """The streams, made once."""

    def __init__(self, material: Material, labels: Sequence[str], start: Metadata, limit: float, seed: int) -> None:
        """Compose them: words in silence, over sounds and over speech, and speech and sounds alone.

        Near-misses are no part of it: said one after the other, they would fire more often than a day of speech does.

        Parameters
        ----------
        start : of the model that training begins with, whose front end and windows are those of the streams.
        """
        self.labels, self.limit = tuple(labels), limit
        self._material, self._start, self._seed = material, start, seed

    @cached_property
    def words(self) -> dict[str, WordStream]:
        """Condition → the words in it; made when a network is first judged."""
        material = self._material
        sayings = chosen(material.words, self.labels, self._seed, enough=PEOPLE)
        backgrounds = {"in silence": None, "over sounds": material.sounds, "over speech": material.speech}
        return {
            name: _word_stream(sayings, self.labels, self._start, background, self._seed)
            for name, background in backgrounds.items()
            if background is None or background
        }

    @cached_property
    def without(self) -> Stream:
        """Speech and sounds in which no word is said."""
        recordings = [*_at_most(self._material.speech, MOST_SPEECH), *self._material.sounds]
        return heard_stream(joined(map(as_float, recordings)), self._start)

    @property
    def hours(self) -> float:
        """Of `without`."""
        return len(self.without.heard) * DEFAULT_HOP / 3600

    def judge(self, network: MatchboxNet) -> Judgement:
        """Measure a network as it will be with its `bias`."""
        logits = stream_logits(network, self.without.features)
        bias = self.bias(logits)
        without = smoothed(logits + bias, self.without.heard)
        words = {
            name: (smoothed(stream_logits(network, said.stream.features) + bias, said.stream.heard), said)
            for name, said in self.words.items()
        }
        found = [self._judge(surer, without, words, bias) for surer in crowdings(self._material.words)]
        return min(found, key=lambda judgement: judgement.mean)

    def bias(self, logits: Tensor) -> Tensor:
        """What to add to the logits, float32 [classes], so that the words fire at odds of `ODDS` at the limit.

        A word is told only where it is the most probable class, but training shows words far more often than life
        does, and other speech so often that hours of it may pass without a window at even odds. What lies between
        would be out of any threshold's reach.
        """
        allowed = int(self.limit * self.hours)
        bias = torch.zeros(logits.shape[1])
        for i in range(len(self.labels)):
            low, high = -MOST_BIAS, MOST_BIAS
            for _ in range(12):  # to within 0.01; the mean over hops is not linear in it
                bias[i] = (low + high) / 2
                odds = log_odds(smoothed(logits + bias, self.without.heard), len(self.labels))[:, i]
                fired = odds[peak_places(odds, allowed + 1)]
                low, high = (low, float(bias[i])) if fired[-1] > math.log(ODDS) else (float(bias[i]), high)
        return bias

    def _judge(
        self, crowding: float, without: F64, words: dict[str, tuple[F64, WordStream]], bias: Tensor
    ) -> Judgement:
        n = len(self.labels)
        sure = certainty(without, self.without, n, crowding).max(axis=1)
        fired = sure[peak_places(sure)]
        thresholds = {rate: _threshold(fired, rate * self.limit * self.hours) for rate in RATES}
        missed: dict[str, float] = {}
        total: list[float] = []
        of_word = np.zeros((n, 2))
        for name, (p, said) in words.items():
            best = _best_at_words(certainty(p, said.stream, n, crowding), said)
            for rate, threshold in thresholds.items():
                lost = best <= threshold + 1e-6  # a tie is no hit
                share = float(np.average(lost, weights=said.weights))
                total.append(share)
                if rate == 1.0:
                    missed[name] = share
                    np.add.at(of_word, said.labels, np.stack([lost * said.weights, said.weights], 1))
        shares = of_word[:, 0] / np.maximum(of_word[:, 1], 1e-9)
        of_words = dict(zip(self.labels, shares.tolist(), strict=True))
        return Judgement(missed, of_words, float(np.mean(total)), crowding, tuple(bias[:n].tolist()))


def chosen(
    sayings: Sequence[Saying], labels: Sequence[str], seed: int, most: int = MOST_WORDS, *, enough: int = 1 << 30
) -> list[Saying]:
    """At most so many of each word, people before voices, in mixed order.

    Parameters
    ----------
    enough : people's takes of a word beyond which voices are left out.
    """
    rng = np.random.default_rng(seed)
    found: list[Saying] = []
    for label in labels:
        own = [s for s in sayings if s.label == label]
        if sum(s.real for s in own) >= enough:
            own = [s for s in own if s.real]
        mixed = [own[i] for i in rng.permutation(len(own))]
        found += sorted(mixed, key=lambda s: not s.real)[:most]
    return [found[i] for i in rng.permutation(len(found))]


def crowdings(sayings: Sequence[Saying]) -> tuple[float, ...]:
    """Which of `CROWDINGS` to try: the strictest alone where no person says the word.

    Held-out voices are found more surely than people are, whatever the rule, so they are no judges of one that is for
    the words which are found less surely. Both words that people said were found best with the strictest.
    """
    return CROWDINGS if any(saying.real for saying in sayings) else CROWDINGS[-1:]


def _threshold(fired: F64, allowed: float) -> float:
    """What is exceeded `allowed` times at most."""
    return float(fired[int(allowed)]) if int(allowed) < len(fired) else -np.inf


def _best_at_words(sure: F64, stream: WordStream) -> F64:
    """The highest value of each word's own label around its end."""
    return np.array(
        [
            sure[max(0, end - BEFORE) : end + AFTER, label].max(initial=-np.inf)
            for end, label in zip(stream.ends, stream.labels, strict=True)
        ]
    )


def _word_stream(
    sayings: Sequence[Saying], labels: Sequence[str], start: Metadata, background: Sequence[I16] | None, seed: int
) -> WordStream:
    clips = [(s.label, as_float(s.samples)) for s in sayings]
    behind = None if background is None else [as_float(b) for b in background[:400]]
    ends: list[int] = []

    def blocks() -> Iterator[F32]:
        for samples, word in compose(clips, seed=seed, gap=(1.0, 1.6), background=behind, snr=SNR):
            if word:
                ends.append(round(word.end * SAMPLE_RATE / start.front_end.hop / HOP))
            yield samples
        yield np.zeros(2 * SAMPLE_RATE, np.float32)  # so that the last word's hops are complete

    stream = heard_stream(blocks(), start)
    weights = np.array([REAL_WEIGHT if s.real else 1.0 for s in sayings])
    return WordStream(stream, np.array(ends), np.array([labels.index(s.label) for s in sayings]), weights)


def _at_most(recordings: Sequence[I16], hours: float) -> list[I16]:
    left, found = hours * 3600 * SAMPLE_RATE, []
    for recording in recordings:
        if left > 0:
            found.append(recording)
            left -= len(recording)
    return found
