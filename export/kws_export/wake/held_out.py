"""How good a network is at what it is for: words missed at a rate of false accepts, on streams that were held out.

For choosing between epochs, many times over, so by the shortest way: the features of a stream are computed once, and a
network that needs no padding (padding "valid") goes over them in one piece. What decides is what decides on the device:
the entropy of the smoothed p̂, surer where it is crowded (`kws_edge.stream.decision`), at a threshold that `release`
would take. `release` has the figures of record.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kws_edge.arrays import F16, F32, F64, I16, I64, Bools
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.pcm import as_float
from kws_edge.errors import SettingError
from kws_edge.model.evidence import entropy_of, no_evidence
from kws_edge.model.features import FrontEnd
from kws_edge.model.metadata import Metadata
from kws_edge.stream.decision import Decision
from kws_edge.stream.framing import DEFAULT_HOP, HopStream
from kws_edge.stream.settings import StreamSettings
from kws_edge.stream.trace import Hops
from kws_edge.tuning.calibration import CROWDINGS
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
_CHUNK = 20_000  # frames that the network takes at once


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A stream before the network.

    Attributes
    ----------
    features : float16 [T, coefficients], of each frame.
    heard : bool [hops], whether the network is asked at all.
    crowded : float64 [hops], seconds of sound as loud as itself that a hop is within (`decision`, "Crowding").
    """

    features: F16
    heard: Bools
    crowded: F64


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
        found = [self._judge(crowding, without, words, bias) for crowding in CROWDINGS]
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


def smoothed(logits: Tensor, heard: Bools) -> F64:
    """p̂ at each hop, averaged over `SMOOTHING`; no evidence where nothing is heard. [hops, classes] → the same."""
    p = torch.softmax(logits.double(), dim=1).numpy()
    nothing = 1 / p.shape[1]
    p[~heard] = nothing
    before = np.full((SMOOTHING, p.shape[1]), nothing)
    before[0] = 0
    total = np.cumsum(np.concatenate([before, p]), axis=0)
    mean: F64 = (total[SMOOTHING:] - total[:-SMOOTHING]) / SMOOTHING
    return mean


def certainty(p: F64, stream: Stream, words: int, crowding: float) -> F64:
    """How much each word is accepted at each hop, float64 [hops, words]: -inf where another class is the best.

    It is the negative of what the decision compares with its threshold: the logit of the entropy of p̂, and for each
    second that is crowded `crowding` more.
    """
    h = np.clip(entropy_of(p), 1e-12, 1)
    with np.errstate(divide="ignore"):
        sure = np.log1p(-h) - np.log(h) - crowding * stream.crowded
    best = p.argmax(axis=1)[:, None] == np.arange(words)
    found: F64 = np.where(best & stream.heard[:, None], sure[:, None], -np.inf)
    return found


def log_odds(p: F64, words: int) -> F64:
    """Of each word at each hop, from p̂ [hops, classes]: float64 [hops, words]."""
    p = np.clip(p[:, :words], 1e-12, 1 - 1e-12)
    odds: F64 = np.log(p / (1 - p))
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


def stream_features(blocks: Iterable[F32], front_end: FrontEnd) -> F16:
    """All frames of a stream: float16 [T, coefficients], half the memory of what they are computed in."""
    frames: list[F16] = []
    step, size = front_end.frames * front_end.hop, (front_end.frames - 1) * front_end.hop + front_end.window
    rest = np.empty(0, np.float32)
    for block in blocks:
        rest = np.concatenate([rest, block])
        start = 0
        while start + size <= len(rest):
            frames.append(window_features(rest[start : start + size], front_end).T.astype(np.float16))
            start += step
        rest = rest[start:].copy()
    if not frames:
        raise SettingError("a stream shorter than a window; expected more")
    return np.concatenate(frames)


def heard_stream(blocks: Iterable[F32], start: Metadata) -> Stream:
    """A stream's features, and what the decision makes of its loudness."""
    framing = HopStream(start, DEFAULT_HOP)
    rows: list[tuple[float, float, float, bool]] = []

    def framed() -> Iterator[F32]:
        for block in blocks:
            rows.extend((h.time, h.level, h.noise, h.frames is not None) for h in framing.push(block))
            yield block

    features = stream_features(framed(), start.front_end)
    n = len(features) // HOP
    time, level, noise = (np.array(column[:n], np.float64) for column in list(zip(*rows, strict=True))[:3])
    heard = np.array([row[3] for row in rows[:n]], np.bool_)
    nothing = np.tile(no_evidence(len(start.labels), start.variant), (n, 1))
    hops = Hops(DEFAULT_HOP, time, nothing, np.ones(n, np.float32), level, noise, np.zeros(n, np.bool_), heard)
    rule = Decision(start, StreamSettings({start.score: 0.0}, crowding=1.0), DEFAULT_HOP)
    return Stream(features, heard, np.log([now.odds for _, now in rule.each(hops)]))


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
