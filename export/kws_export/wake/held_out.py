"""How good a network is at what it is for: words missed at a rate of false accepts, on streams that were held out.

For choosing between epochs, many times over, so by the shortest way: the features of a stream are computed once, and a
network that needs no padding (padding "valid") goes over them in one piece. `release` has the figures of record.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kws_edge.arrays import F16, F32, F64, I16, I64
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.pcm import as_float
from kws_edge.errors import SettingError
from kws_edge.model.features import FrontEnd
from kws_edge.tuning.soundscape import compose, joined
from kws_export.data.features import window_features
from kws_export.network.matchboxnet import MatchboxNet
from kws_export.wake.material import Material, Saying

WINDOW = 128
"""Frames."""
HOP = 10
"""Frames, 0.1 s: the default of a stream."""
SMOOTHING = 3
"""Hops."""
REFRACTORY = 8
"""Hops between two false accepts."""
BEFORE, AFTER = 1, 7
"""Hops before and after the end of a word in which it counts as found."""
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
_CHUNK = 20_000  # frames that the network takes at once


@dataclass(frozen=True, slots=True, eq=False)
class WordStream:
    """A stream of words: features float32 [T, coefficients]; the end (in hops), label and weight of each word."""

    features: F32
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
    threshold : log-odds above which a word is told, at the limit.
    """

    missed: dict[str, float]
    of_word: dict[str, float]
    mean: float
    threshold: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {"missed": self.missed, "of_word": self.of_word, "mean": self.mean, "threshold": self.threshold}


class HeldOut:
    """The streams, made once."""

    def __init__(self, material: Material, labels: Sequence[str], front_end: FrontEnd, limit: float, seed: int) -> None:
        """Compose them: words in silence, over sounds and over speech, and speech and sounds alone.

        Near-misses are no part of it: said one after the other, they would fire more often than a day of speech does.
        """
        self.labels, self.limit = tuple(labels), limit
        sayings = chosen(material.words, self.labels, seed, enough=PEOPLE)
        backgrounds = {"in silence": None, "over sounds": material.sounds, "over speech": material.speech}
        self.words = {
            name: _word_stream(sayings, self.labels, front_end, background, seed)
            for name, background in backgrounds.items()
            if background is None or background
        }
        without = [*_at_most(material.speech, MOST_SPEECH), *material.sounds]
        blocks = joined(as_float(recording) for recording in without)
        self.without = stream_features(blocks, front_end)
        self.hours = len(self.without) * front_end.hop / SAMPLE_RATE / 3600

    def judge(self, network: MatchboxNet) -> Judgement:
        """Measure a network."""
        odds = log_odds(network, self.without, len(self.labels)).max(axis=1)
        fired = odds[peak_places(odds)]
        thresholds = {rate: _threshold(fired, rate * self.limit * self.hours) for rate in RATES}
        missed: dict[str, float] = {}
        total: list[float] = []
        of_word = np.zeros((len(self.labels), 2))
        for name, stream in self.words.items():
            best = _best_at_words(log_odds(network, stream.features, len(self.labels)), stream)
            for rate, threshold in thresholds.items():
                share = float(np.average(best <= threshold, weights=stream.weights))
                total.append(share)
                if rate == 1.0:
                    missed[name] = share
                    np.add.at(
                        of_word, stream.labels, np.stack([(best <= threshold) * stream.weights, stream.weights], 1)
                    )
        shares = of_word[:, 0] / np.maximum(of_word[:, 1], 1e-9)
        return Judgement(
            missed, dict(zip(self.labels, shares.tolist(), strict=True)), float(np.mean(total)), thresholds[1.0]
        )


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


def log_odds(network: MatchboxNet, features: F32 | F16, words: int) -> F64:
    """Of each word at each hop, after smoothing: [T, coefficients] → float64 [hops, words]."""
    p = torch.softmax(stream_logits(network, features).double(), dim=1).numpy()
    total = np.cumsum(np.concatenate([np.zeros((SMOOTHING, p.shape[1])), p]), axis=0)
    smooth = np.clip((total[SMOOTHING:] - total[:-SMOOTHING])[:, :words] / SMOOTHING, 1e-12, 1 - 1e-12)
    odds: F64 = np.log(smooth / (1 - smooth))
    return odds


@torch.inference_mode()
def stream_logits(network: MatchboxNet, features: F32 | F16) -> Tensor:
    """A stream's logits, hop by hop: [T, coefficients] → [hops, classes], the first for frame 0 to `HOP`.

    What lies before the stream counts as its first frame, repeated: silence that has no edge.
    """
    if network.padding != "valid":
        raise SettingError('a network with padding "same" in a stream in one piece; expected padding "valid"')
    network.eval()
    frames, edge = WINDOW, network.reach
    pooled = frames - 2 * edge
    before = np.repeat(features[:1], frames - HOP, axis=0)
    x = np.concatenate([before, features])
    hops = (len(x) - frames) // HOP + 1
    found: list[Tensor] = []
    per_chunk = (_CHUNK - frames) // HOP + 1
    for first in range(0, hops, per_chunk):
        n = min(per_chunk, hops - first)
        block = x[first * HOP : first * HOP + (n - 1) * HOP + frames]
        part = torch.from_numpy(np.ascontiguousarray(block.T, np.float32))[None]  # [1, coefficients, T]
        inner = network.activations(part)[:, :, edge : part.shape[2] - edge]
        found.append(network.classifier(torch.nn.functional.avg_pool1d(inner, pooled, HOP)[0].T))
    return torch.cat(found)


def stream_features(blocks: Iterable[F32], front_end: FrontEnd) -> F32:
    """All frames of a stream: float32 [T, coefficients]."""
    frames: list[F32] = []
    step, size = front_end.frames * front_end.hop, (front_end.frames - 1) * front_end.hop + front_end.window
    rest = np.empty(0, np.float32)
    for block in blocks:
        rest = np.concatenate([rest, block])
        start = 0
        while start + size <= len(rest):
            frames.append(window_features(rest[start : start + size], front_end).T)
            start += step
        rest = rest[start:]
    if not frames:
        raise SettingError("a stream shorter than a window; expected more")
    return np.concatenate(frames)


def peak_places(odds: F64, most: int = 1000, apart: int = REFRACTORY) -> I64:
    """Where a stream's values are highest, falling, no two closer than `apart` hops."""
    free = np.ones(len(odds), np.bool_)
    found: list[int] = []
    for i in np.argsort(-odds, kind="stable").tolist():
        if free[i]:
            found.append(i)
            free[max(0, i - apart + 1) : i + apart] = False
            if len(found) == most:
                break
    return np.array(found, np.int64)


def _threshold(fired: F64, allowed: float) -> float:
    """What is exceeded `allowed` times at most, and no less than even odds: below them the word is not the answer."""
    return max(0.0, float(fired[min(int(allowed), len(fired) - 1)]))


def _best_at_words(odds: F64, stream: WordStream) -> F64:
    """The highest value of each word's own label around its end."""
    return np.array(
        [
            odds[max(0, end - BEFORE) : end + AFTER, label].max(initial=-np.inf)
            for end, label in zip(stream.ends, stream.labels, strict=True)
        ]
    )


def _word_stream(
    sayings: Sequence[Saying], labels: Sequence[str], front_end: FrontEnd, background: Sequence[I16] | None, seed: int
) -> WordStream:
    clips = [(s.label, as_float(s.samples)) for s in sayings]
    behind = None if background is None else [as_float(b) for b in background[:400]]
    ends: list[int] = []

    def blocks() -> Iterator[F32]:
        for samples, word in compose(clips, seed=seed, gap=(1.0, 1.6), background=behind, snr=SNR):
            if word:
                ends.append(round(word.end * SAMPLE_RATE / front_end.hop / HOP))
            yield samples
        yield np.zeros(2 * SAMPLE_RATE, np.float32)  # so that the last word's hops are complete

    features = stream_features(blocks(), front_end)
    weights = np.array([REAL_WEIGHT if s.real else 1.0 for s in sayings])
    return WordStream(features, np.array(ends), np.array([labels.index(s.label) for s in sayings]), weights)


def _at_most(recordings: Sequence[I16], hours: float) -> list[I16]:
    left, found = hours * 3600 * SAMPLE_RATE, []
    for recording in recordings:
        if left > 0:
            found.append(recording)
            left -= len(recording)
    return found
