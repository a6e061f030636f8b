"""Choose the thresholds of a stream's decision from recordings: how many words are found, and what that costs.

The network runs once over each recording (`trace.trace`); what it gave is then decided on under every candidate. That
gives the trade-off curve: words that are not found, against false accepts per hour where no word is said.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from kws_edge.arrays import F32
from kws_edge.errors import SettingError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import Metadata
from kws_edge.model.score import Score
from kws_edge.stream.decision import Decision, decide
from kws_edge.stream.framing import DEFAULT_HOP
from kws_edge.stream.settings import StreamSettings
from kws_edge.stream.trace import Hops, trace
from kws_edge.tuning.evaluation import StreamReport, evaluate
from kws_edge.tuning.soundscape import Word

CANDIDATES: Final = 24
"""Half of the thresholds that are tried for each score and smoothing: enough for steps of 4 % of the words."""
CROWDINGS: Final = (0.0, 8.0)
"""What is tried of `StreamSettings.crowding` where nothing else is asked for."""
PRIOR: Final = 5.0
"""False accepts that every label is taken to have had before any was seen (`per_label`)."""
PRICES: Final = 40
"""Prices of a false accept that are tried there, from a thousand hits to a thousandth of one."""


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A recording as the network saw it, and what was said in it.

    Attributes
    ----------
    name : of the recording, or of the folder whose recordings it joins.
    hops : what the network gave.
    words : where it has words. Recordings without words may have some, where an event is then no false accept.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kws_edge import KeywordModel
    >>> from kws_edge.tuning import trace_words
    >>> model = KeywordModel.load()
    >>> said = [trace_words(model, [("yes", Path("kws_edge/samples/yes.flac"))])]
    >>> [word.label for word in said[0].words], said[0].seconds > 1
    (['yes'], True)
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
    """What some settings give: `words` where words are said, `negatives` by name where none are.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kws_edge import KeywordModel, StreamSettings
    >>> from kws_edge.tuning import candidates, choose, sweep, trace_negatives, trace_words
    >>> model = KeywordModel.load()
    >>> said = [trace_words(model, [("yes", Path("kws_edge/samples/yes.flac"))])]
    >>> quiet = [trace_negatives(model, "kws_edge/samples/noise.flac")]
    >>> base = StreamSettings({"entropy": 1.0}, smoothing=0.3)
    >>> tries = [(candidates(model.metadata, said, quiet, base, ["entropy"]), base)]
    >>> point = choose(list(sweep(model.metadata, said, quiet, tries)), 1.0)
    >>> point.words.hits, point.miss_rate, point.false_accepts_per_hour
    (1, 0.0, 0.0)
    """

    settings: StreamSettings
    words: StreamReport
    negatives: dict[str, StreamReport]

    @property
    def false_accepts_per_hour(self) -> float:
        """That of the recording without words where it is highest: the others do not dilute it."""
        return max(3600 * report.false_accepts / report.seconds for report in self.negatives.values())

    @property
    def joined(self) -> StreamReport:
        """All of the recordings without words together."""
        return sum(self.negatives.values(), StreamReport(0.0))

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
    model: KeywordModel, stretches: Iterable[tuple[F32, Iterable[Word]]], name: str, hop: float = DEFAULT_HOP
) -> Traced:
    """Run the network over a stream that comes in stretches, float32 [n], with the words in each; times in the stream.

    Raises
    ------
    SettingError : the stream is shorter than a hop, or the hop is out of its range.
    """
    words: list[Word] = []

    def blocks() -> Iterator[F32]:
        for samples, said in stretches:
            words.extend(said)
            yield samples

    hops = trace(model, blocks(), hop)
    if not len(hops):
        raise SettingError(f"{name}: shorter than a hop of {hop} s; expected more")
    return Traced(name, hops, tuple(words))


def assess(
    metadata: Metadata, recordings: Iterable[Traced], settings: StreamSettings, words: Collection[str] | None = None
) -> StreamReport:
    """What some settings give on recordings, added up; `words` are the labels that give events, None for all.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kws_edge import KeywordModel, StreamSettings
    >>> from kws_edge.tuning import assess, trace_words
    >>> model = KeywordModel.load()
    >>> said = [trace_words(model, [("yes", Path("kws_edge/samples/yes.flac"))])]
    >>> report = assess(model.metadata, said, StreamSettings.of(model.metadata))
    >>> report.words, report.false_accepts
    (1, 0)
    """
    labels = metadata.labels if words is None else words
    total = StreamReport(0.0)
    for recording in recordings:
        events = decide(metadata, recording.hops, settings, words)
        total += evaluate(events, recording.words, recording.seconds, labels)
    return total


def weigh(
    metadata: Metadata,
    positives: Iterable[Traced],
    negatives: Iterable[Traced],
    settings: StreamSettings,
    words: Collection[str] | None = None,
) -> Point:
    """What some settings give on recordings with words, and on each of those without."""
    reports = {n.name: assess(metadata, [n], settings, words) for n in negatives}
    return Point(settings, assess(metadata, positives, settings, words), reports)


def candidates(
    metadata: Metadata,
    positives: Sequence[Traced],
    negatives: Sequence[Traced],
    settings: StreamSettings,
    scores: Sequence[Score],
    words: Collection[str] | None = None,
) -> list[dict[str, float]]:
    """Thresholds worth trying, rising: at most 2 CANDIDATES + 1, each for all of the scores.

    Half of them are spread evenly over the scores of hops at words, which moves the misses; half over the lowest
    scores where no word is said, ever closer to the lowest, which moves the false accepts. The first accepts nothing
    that was seen without words. A second score gets the threshold that accepts as many hops at words as the first.

    Parameters
    ----------
    settings : all but the thresholds.
    words : the labels that give events; hops at which another is the best do not count. None for all.

    Raises
    ------
    SettingError : none of the words is heard.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kws_edge import KeywordModel, StreamSettings
    >>> from kws_edge.tuning import candidates, trace_negatives, trace_words
    >>> model = KeywordModel.load()
    >>> said = [trace_words(model, [("yes", Path("kws_edge/samples/yes.flac"))])]
    >>> quiet = [trace_negatives(model, "kws_edge/samples/noise.flac")]
    >>> thresholds = candidates(model.metadata, said, quiet, StreamSettings({"entropy": 1.0}), ["entropy"])
    >>> thresholds == sorted(thresholds, key=lambda t: t["entropy"])
    True
    """
    wanted = np.array([label in (metadata.labels if words is None else words) for label in metadata.labels])
    recordings = (*positives, *negatives)
    smoothed = {r: [now for _, now in Decision(metadata, settings, r.hops.hop).each(r.hops)] for r in recordings}

    def hops_of(some: Sequence[Traced], score: Score, *, at_words: bool) -> F32:
        found = [np.empty(0, np.float32)]
        for recording in some:
            hops = recording.hops
            values = np.array([now.score(score) for now in smoothed[recording]], np.float32)
            chosen = hops.heard & wanted[[now.guess for now in smoothed[recording]]]
            near = np.zeros(len(hops), np.bool_)
            for word in recording.words:
                span = (word.end, word.end + 0.5) if at_words else (word.start, word.end + 1.0)  # whole, or in part
                near[slice(*np.searchsorted(hops.time, span))] = True
            found.append(values[chosen & (near if at_words else ~near)])
        return np.sort(np.concatenate(found))

    leading, *others = scores
    with_words, without = hops_of(positives, leading, at_words=True), hops_of(negatives, leading, at_words=False)
    if not len(with_words):
        raise SettingError(
            "none of the words is the most probable where it is said; expected recordings of words that the "
            "model knows, above the noise"
        )
    chosen = [np.quantile(with_words, np.linspace(0, 1, CANDIDATES))]
    if len(without):
        ranks = np.geomspace(1, len(without), CANDIDATES).round().astype(np.int64) - 1
        chosen += [without[ranks], without[:1] * np.float32(0.999)]
    thresholds = np.unique(np.concatenate(chosen).astype(np.float32))
    accepted = np.searchsorted(with_words, thresholds, side="right") / len(with_words)
    columns: dict[str, F32] = {leading: thresholds}
    for score in others:
        columns[score] = np.quantile(hops_of(positives, score, at_words=True), accepted)
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def trade_off(
    metadata: Metadata,
    positives: Sequence[Traced],
    negatives: Sequence[Traced],
    settings: StreamSettings,
    thresholds: Iterable[Mapping[str, float]],
    words: Collection[str] | None = None,
    *,
    until: float = math.inf,
    progress: Callable[[], None] = lambda: None,
) -> list[Point]:
    """Decide on all recordings at each of the thresholds.

    Parameters
    ----------
    positives, negatives : recordings with words, and without.
    settings : all but the thresholds, which are replaced; those of single labels are dropped.
    thresholds : rising, as `candidates` gives them.
    words : the labels that give events; None for all.
    until : false accepts per hour after which the rest is left out: what is beyond interests nobody.
    progress : called for each of the thresholds.

    Raises
    ------
    SettingError : there are no words to find, or no recordings without words.
    """
    labels = metadata.labels if words is None else words
    if not negatives or not any(word.label in labels for recording in positives for word in recording.words):
        raise SettingError("nothing to weigh; expected recordings with words of the model, and recordings without")
    points: list[Point] = []
    for candidate in thresholds:
        if not points or points[-1].false_accepts_per_hour <= until:
            changed = replace(settings, thresholds=dict(candidate), labels={})
            points.append(weigh(metadata, positives, negatives, changed, words))
        progress()
    return points


def sweep(
    metadata: Metadata,
    positives: Sequence[Traced],
    negatives: Sequence[Traced],
    tries: Iterable[tuple[Sequence[Mapping[str, float]], StreamSettings]],
    words: Collection[str] | None = None,
    *,
    own: bool = False,
    until: float = math.inf,
    progress: Callable[[], None] = lambda: None,
) -> Iterator[list[Point]]:
    """All curves of which `choose` takes a point.

    Parameters
    ----------
    tries : thresholds, rising, and the settings to which they belong.
    own : try thresholds for single labels, too.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kws_edge import KeywordModel, StreamSettings
    >>> from kws_edge.tuning import candidates, sweep, trace_negatives, trace_words
    >>> model = KeywordModel.load()
    >>> said = [trace_words(model, [("yes", Path("kws_edge/samples/yes.flac"))])]
    >>> quiet = [trace_negatives(model, "kws_edge/samples/noise.flac")]
    >>> bases = [StreamSettings({"entropy": 1.0}, smoothing=seconds) for seconds in (0.3, 0.5)]
    >>> tries = [(candidates(model.metadata, said, quiet, base, ["entropy"]), base) for base in bases]
    >>> len(list(sweep(model.metadata, said, quiet, tries)))
    2
    """
    for thresholds, base in tries:
        points = trade_off(metadata, positives, negatives, base, thresholds, words, until=until, progress=progress)
        yield points
        if own:
            yield [weigh(metadata, positives, negatives, settings, words) for settings in per_label(points)]


def per_label(points: Sequence[Point]) -> list[StreamSettings]:
    """Share the false accepts out among the labels: settings with thresholds for each, false accepts rising.

    For each price λ of a false accept, in hits, every label gets the thresholds, among those of the points, at which
    its hits less λ times its false accepts are most. What is seen of one label's false accepts is little, and where it
    is none that shows next to nothing, so it is drawn towards the average label: `PRIOR` is added to the count of each
    before the total is shared out.

    Parameters
    ----------
    points : what one `trade_off` gave, thresholds rising.
    """
    labels = sorted(set().union(*(p.words.words_of.keys() for p in points)))
    hits = np.array([[p.words.hits_of[label] for label in labels] for p in points])
    counts = [sum((n.false_accepts_of for n in p.negatives.values()), Counter[str]()) for p in points]
    fired = np.maximum.accumulate([[count[label] for label in labels] for count in counts])
    total = fired.sum(axis=1, keepdims=True)
    # At a total of 0 the next one would be the first.
    cost = (total + 1) * (fired + PRIOR) / (total + PRIOR * len(labels))
    found: dict[tuple[int, ...], StreamSettings] = {}
    for price in np.geomspace(1e3, 1e-3, PRICES):
        best = (hits - price * cost).argmax(axis=0).tolist()
        common = points[int((hits - price * cost).sum(axis=1).argmax())].settings
        own = {label: points[i].settings.thresholds for label, i in zip(labels, best, strict=True)}
        differing = {label: dict(t) for label, t in own.items() if t != common.thresholds}
        found.setdefault(tuple(best), replace(common, labels=differing))
    return list(found.values())


def best(points: Iterable[Point], false_accepts_per_hour: float) -> Point | None:
    """The point with the most hits of those that hold the limit on every recording without words.

    Of points with equal hits, the one with the fewest false accepts, and of those the one with the fewest wrong labels
    on or between the words. None where no point holds the limit and finds a word.
    """
    held = [p for p in points if p.false_accepts_per_hour <= false_accepts_per_hour and p.words.hits]
    return min(held, key=_order, default=None)


def choose(curves: Sequence[Iterable[Point]], false_accepts_per_hour: float) -> Point:
    """The best point of several curves, such as one for each smoothing and score.

    Longer smoothing answers later, and more thresholds are fitted to more chance; so of the curves that come within one
    standard error of the most hits, the one with the shortest smoothing is taken, of these one with the same thresholds
    for all labels, and of these the one with the least crowding.

    Raises
    ------
    SettingError : no point holds the limit and finds a word.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kws_edge import KeywordModel, Spotter, StreamSettings
    >>> from kws_edge.tuning import candidates, choose, sweep, trace_negatives, trace_words
    >>> model = KeywordModel.load()
    >>> said = [trace_words(model, [("yes", Path("kws_edge/samples/yes.flac"))])]
    >>> quiet = [trace_negatives(model, "kws_edge/samples/noise.flac")]
    >>> base = StreamSettings({"entropy": 1.0}, smoothing=0.3)
    >>> tries = [(candidates(model.metadata, said, quiet, base, ["entropy"]), base)]
    >>> best = choose(list(sweep(model.metadata, said, quiet, tries)), 1.0)
    >>> Spotter(model, settings=best.settings).settings.smoothing
    0.3
    """
    curves = [list(points) for points in curves]
    found = [point for points in curves if (point := best(points, false_accepts_per_hour))]
    if not found:
        raise SettingError(_cause([point for points in curves for point in points], false_accepts_per_hour))
    most = max(found, key=lambda p: p.words.hits)
    least = most.words.hits - math.sqrt(most.words.hits * most.miss_rate)
    close = [p for p in found if p.words.hits >= least]
    return min(close, key=lambda p: (p.settings.smoothing, bool(p.settings.labels), p.settings.crowding, *_order(p)))


def _cause(points: Sequence[Point], limit: float) -> str:
    """Why no threshold will do, from all that were tried."""
    finding = [point for point in points if point.words.hits]
    if not finding:
        wrong = max((point.words.wrong for point in points), default=0)
        heard = f"it names {wrong} of them wrong" if wrong else "it names none of them"
        return (
            f"no word is found at any threshold: {heard}; expected a model that learnt these words, and clips that say "
            "them"
        )
    nearest = min(finding, key=lambda point: (point.false_accepts_per_hour, -point.words.hits))
    name, _ = max(nearest.negatives.items(), key=lambda item: item[1].false_accepts / item[1].seconds)
    return (
        f"no threshold finds a word with {limit:g} false accepts per hour or fewer: the nearest finds "
        f"{1 - nearest.miss_rate:.1%} of the words with {nearest.false_accepts_per_hour:.1f} an hour, on {name}; "
        "expected a higher limit, more training on what fires there, or recordings without words that hold none"
    )


def at_rates(points: Sequence[Point], rates: Iterable[float]) -> list[Point | None]:
    """For each rate, the point of the loosest thresholds at which the recordings without words, joined, hold it.

    Parameters
    ----------
    points : what one `trade_off` gave, thresholds rising.
    rates : false accepts per hour. None for those that even the strictest thresholds exceed.
    """
    most = np.maximum.accumulate([point.joined.false_accepts_per_hour.value for point in points])
    held = [int(np.searchsorted(most, rate + 1e-9, side="right")) for rate in rates]
    return [points[n - 1] if n else None for n in held]


def frontier(points: Iterable[Point]) -> list[Point]:
    """The trade-off curve: the points that none beats in both hits and false accepts, false accepts rising."""
    curve: list[Point] = []
    for p in sorted(points, key=lambda p: (p.false_accepts_per_hour, *_order(p))):
        if not curve or p.words.hits > curve[-1].words.hits:
            curve.append(p)
    return curve


def _order(point: Point) -> tuple[int, float, int]:
    """Rises from better to worse: more hits, fewer false accepts, fewer wrong labels on or between the words."""
    return -point.words.hits, point.false_accepts_per_hour, point.words.wrong + point.words.false_accepts
