"""Choose the thresholds of a stream's decision from recordings: how many words are found, and what that costs.

The network runs once over each recording (`hops.trace`); what it gave is then decided on under every candidate. That
gives the trade-off curve: words that are not found, against false accepts per hour where no word is said.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kws_edge import evidence
from kws_edge.decision import StreamSettings, decide
from kws_edge.errors import SettingError
from kws_edge.evaluation import Report, evaluate
from kws_edge.hops import DEFAULT_HOP, Hops, trace
from kws_edge.metadata import Metadata, Score
from kws_edge.model import KeywordModel
from kws_edge.scenes import Word

F32 = npt.NDArray[np.float32]

CANDIDATES: Final = 48
"""Thresholds that are tried for each score and smoothing: enough for steps of 2 % of the words."""


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A recording as the network saw it, and what was said in it.

    Attributes
    ----------
    name : of the recording, or of the folder whose recordings it joins.
    hops : what the network gave.
    words : where it has words; none where it has not.
    """

    name: str
    hops: Hops
    words: tuple[Word, ...] = ()

    @property
    def seconds(self) -> float:
        """How long it is, to a hop."""
        return float(self.hops.time[-1])


@dataclass(frozen=True, slots=True)
class Point:
    """What some settings give: `words` where words are said, `negatives` by name where none are."""

    settings: StreamSettings
    words: Report
    negatives: dict[str, Report]

    @property
    def false_accepts_per_hour(self) -> float:
        """That of the recording without words where it is highest: the others do not dilute it."""
        return max(3600 * report.false_accepts / report.seconds for report in self.negatives.values())

    @property
    def miss_rate(self) -> float:
        """The share of the words without a hit."""
        return 1 - self.words.hits / self.words.words

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "settings": self.settings.to_dict(),
            "miss_rate": self.miss_rate,
            "false_accepts_per_hour": self.false_accepts_per_hour,
            "words": self.words.to_dict(),
            "negatives": {name: report.to_dict() for name, report in self.negatives.items()},
        }


def trace_stream(
    model: KeywordModel, stretches: Iterable[tuple[F32, Word | None]], name: str, hop: float = DEFAULT_HOP
) -> Traced:
    """Run the network over a stream of `scenes.compose`, or one of the same form.

    Raises
    ------
    SettingError : the stream is shorter than a hop, or the hop is out of its range.
    """
    words: list[Word] = []

    def blocks() -> Iterator[F32]:
        for samples, word in stretches:
            if word is not None:
                words.append(word)
            yield samples

    hops = trace(model, blocks(), hop)
    if not len(hops):
        raise SettingError(f"{name}: shorter than a hop of {hop} s; expected more")
    return Traced(name, hops, tuple(words))


def assess(
    metadata: Metadata, recordings: Iterable[Traced], settings: StreamSettings, words: Collection[str] | None = None
) -> Report:
    """What some settings give on recordings, added up; `words` are the labels that give events, None for all."""
    labels = metadata.labels if words is None else words
    total = Report(0.0)
    for recording in recordings:
        events = decide(metadata, recording.hops, settings, words)
        total += evaluate(events, recording.words, recording.seconds, labels)
    return total


def candidates(positives: Sequence[Traced], negatives: Sequence[Traced], score: Score) -> F32:
    """Thresholds worth trying, rising: [at most 2 CANDIDATES + 1].

    Half of them are spread evenly over the scores of windows with words, which moves the misses; half over the lowest
    scores where no word is said, ever closer to the lowest, which moves the false accepts. The first accepts nothing
    that was seen without words.
    """

    def scores(recordings: Sequence[Traced], *, at_words: bool) -> F32:
        found = [np.empty(0, np.float32)]
        for recording in recordings:
            hops = recording.hops
            values = hops.vacuity if score == "vacuity" else evidence.entropy(hops.alpha)
            chosen = hops.heard.copy()
            if at_words:
                spoken = np.zeros(len(hops), np.bool_)
                for word in recording.words:
                    first, last = np.searchsorted(hops.time, (word.end, word.end + 0.5))  # as soon as it is whole
                    spoken[first:last] = True
                chosen &= spoken
            found.append(values[chosen])
        return np.sort(np.concatenate(found))

    with_words, without = scores(positives, at_words=True), scores(negatives, at_words=False)
    chosen = [np.quantile(with_words, np.linspace(0, 1, CANDIDATES))] if len(with_words) else []
    if len(without):
        ranks = np.geomspace(1, len(without), CANDIDATES).round().astype(np.int64) - 1
        chosen += [without[ranks], without[:1] * np.float32(0.999)]
    if not chosen:
        raise SettingError("nothing is above the noise in any recording; expected recordings with words in them")
    return np.unique(np.concatenate(chosen).astype(np.float32))


def trade_off(
    metadata: Metadata,
    positives: Sequence[Traced],
    negatives: Sequence[Traced],
    settings: StreamSettings,
    thresholds: Iterable[float],
    *,
    until: float = math.inf,
    progress: Callable[[], None] = lambda: None,
) -> list[Point]:
    """Decide on all recordings at each threshold of the one score that the settings have.

    Parameters
    ----------
    positives, negatives : recordings with words, and without.
    settings : all but the threshold, which is replaced; thresholds of single labels are dropped.
    thresholds : rising, as `candidates` gives them.
    until : false accepts per hour after which the rest is left out: what is beyond interests nobody.
    progress : called for each threshold.

    Raises
    ------
    SettingError : there are no words to find, no recordings without words, or thresholds on several scores.
    """
    if not negatives or not any(word.label in metadata.labels for recording in positives for word in recording.words):
        raise SettingError("nothing to weigh; expected recordings with words of the model, and recordings without")
    if len(settings.thresholds) != 1:
        raise SettingError(f"thresholds on {', '.join(settings.thresholds)}; expected one score to sweep")
    (score,) = settings.thresholds
    points: list[Point] = []
    for threshold in thresholds:
        if not points or points[-1].false_accepts_per_hour <= until:
            candidate = replace(settings, thresholds={score: float(threshold)}, labels={})
            reports = {n.name: assess(metadata, [n], candidate) for n in negatives}
            points.append(Point(candidate, assess(metadata, positives, candidate), reports))
        progress()
    return points


def choose(points: Iterable[Point], false_accepts_per_hour: float) -> Point:
    """The point with the most hits of those that hold the limit on every recording without words.

    Of points with equal hits, the one with the fewest false accepts, and of those the one with the fewest wrong labels
    on or between the words.

    Raises
    ------
    SettingError : no point holds the limit and finds a word.
    """
    held = [p for p in points if p.false_accepts_per_hour <= false_accepts_per_hour and p.words.hits]
    if not held:
        raise SettingError(
            f"no threshold finds a word with {false_accepts_per_hour:g} false accepts per hour or fewer; expected a "
            "higher limit, or recordings without words in which the model hears none"
        )
    return min(held, key=lambda p: (-p.words.hits, p.false_accepts_per_hour, _errors(p)))


def frontier(points: Iterable[Point]) -> list[Point]:
    """The trade-off curve: the points that none beats in both hits and false accepts, false accepts rising."""
    best: list[Point] = []
    for p in sorted(points, key=lambda p: (p.false_accepts_per_hour, -p.words.hits, _errors(p))):
        if not best or p.words.hits > best[-1].words.hits:
            best.append(p)
    return best


def _errors(point: Point) -> int:
    return point.words.wrong + point.words.false_accepts
