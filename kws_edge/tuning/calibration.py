"""The trade-off curves of a stream's decision: how many words are found, and how often it fires where none is said.

The network runs once over each recording (`traced.trace_stream`); its output is then decided on under every candidate.
That gives a curve of points, from strict thresholds to loose ones, of which `choice.choose` takes one.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from kws_edge.arrays import F32
from kws_edge.errors import SettingError
from kws_edge.model.metadata import Metadata
from kws_edge.model.score import Score
from kws_edge.stream.decision import Decision
from kws_edge.stream.settings import StreamSettings
from kws_edge.tuning.points import Point, weigh
from kws_edge.tuning.traced import Traced

CANDIDATES: Final = 24
"""Half of the thresholds that are tried for each score and smoothing: enough for steps of 4 % of the words."""
CROWDINGS: Final = (0.0, 8.0)
"""What is tried of `StreamSettings.crowding` where nothing else is asked for."""
PRIOR: Final = 5.0
"""False accepts that every label is taken to have had before any was seen (`per_label`)."""
PRICES: Final = 40
"""Prices of a false accept that are tried there, from a thousand hits to a thousandth of one."""


def candidates(
    metadata: Metadata,
    positives: Sequence[Traced],
    negatives: Sequence[Traced],
    settings: StreamSettings,
    scores: Sequence[Score],
    words: Collection[str] | None = None,
) -> list[dict[str, float]]:
    """Thresholds to try, in rising order: at most 49, each for all scores.

    Half of them are spread evenly over the scores of hops at words, where they change the misses. The other half are
    among the lowest scores without a word, more densely towards the lowest, where they change the false accepts. The
    first accepts nothing that occurred without a word. A second score gets the threshold that accepts as many hops at
    words as the first.

    Parameters
    ----------
    settings : all settings but the thresholds.
    words : the labels that give events, None for all; hops at which another label is the best do not count.

    Raises
    ------
    SettingError : none of the words is recognised anywhere.

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
        raise SettingError(
            "nothing to choose from; expected recordings with words of the model, and recordings without"
        )
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
    """All trade-off curves, from which `choose` takes a point.

    Parameters
    ----------
    tries : thresholds in rising order, and the settings to which they belong.
    own : also try thresholds for single labels.

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
