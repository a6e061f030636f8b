"""Choose among the points of trade-off curves: the most hits within a limit of false accepts per hour."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from kws_edge.errors import SettingError
from kws_edge.tuning.points import Point


def best(points: Iterable[Point], false_accepts_per_hour: float) -> Point | None:
    """The point with the most hits of those that hold the limit on every recording without words.

    Of points with equal hits, the one with the fewest false accepts, and of those the one with the fewest wrong labels
    on or between the words. None where no point holds the limit and finds a word.
    """
    held = [p for p in points if p.false_accepts_per_hour <= false_accepts_per_hour and p.words.hits]
    return min(held, key=_order, default=None)


def choose(curves: Sequence[Iterable[Point]], false_accepts_per_hour: float) -> Point:
    """The best point within the limit on several curves, such as one for each smoothing and score.

    Longer smoothing answers later, and more thresholds fit more chance. So among the curves within one standard error
    of the most hits, it takes the shortest smoothing, then equal thresholds for all labels, then the least crowding.

    Raises
    ------
    SettingError : no point is within the limit and finds a word.

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
