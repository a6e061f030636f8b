"""Measures of a classifier that may abstain, as pure functions on arrays; one meaning per name.

`correct` is bool [n]; `uncertainty` is [n], higher is less sure, compared in float32 as on the device; `probability`
is [n, K], each row a distribution; `label` is int [n]. Everything returns plain floats. Bad input (empty, NaN, unequal
lengths, one class where two are needed) raises SettingError.

Coverage, accuracies and operating points are in thresholds.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn.metrics import roc_auc_score

from kws_edge.arrays import F64, I64
from kws_edge.errors import SettingError
from kws_export.evaluation.thresholds import check_confidence, check_scored, check_scores, selective_curve


class Interval(NamedTuple):
    """Lower and upper end, both included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityTable:
    """Confidence against accuracy, one entry per bin that holds a clip; bins are (lower, upper], the first from 0.

    Attributes
    ----------
    lower, upper : float64 [b], edges of the bin.
    count : int64 [b], clips in the bin, at least 1.
    confidence, accuracy : float64 [b], means over the bin's clips.
    """

    lower: F64
    upper: F64
    count: I64
    confidence: F64
    accuracy: F64


# ---- ranking: does the score put the errors last?


def aurc(correct: npt.ArrayLike, uncertainty: npt.ArrayLike) -> float:
    """Area under the risk-coverage curve, in [0, 1], lower is better.

    The mean, over the n clips, of the error rate among the clips at most as uncertain as it. Clips with equal scores
    are accepted together; a constant score gives the plain error rate.

    Source: Geifman, Uziel and El-Yaniv 2019, "Bias-reduced uncertainty estimation for deep neural classifiers".
    """
    curve = selective_curve(correct, uncertainty)
    return float(np.diff(curve.coverage, prepend=0.0) @ (1 - curve.accepted_accuracy))


def auroc_errors(correct: npt.ArrayLike, uncertainty: npt.ArrayLike) -> float:
    """Probability that a wrong answer is more uncertain than a right one, ties counted half. Needs one of each."""
    right, u = check_scored(correct, uncertainty)
    if right.all() or not right.any():
        raise SettingError(f"{right.sum()} of {right.size} correct; expected at least one right and one wrong answer")
    return float(roc_auc_score(~right, u))


def auroc_ood(inside: npt.ArrayLike, outside: npt.ArrayLike) -> float:
    """Probability that a clip from outside the vocabulary is more uncertain than one inside, ties counted half.

    Parameters
    ----------
    inside, outside : uncertainties, [n] and [m].
    """
    a, b = check_scores(inside, "inside"), check_scores(outside, "outside")
    return float(roc_auc_score(np.repeat([False, True], [a.size, b.size]), np.concatenate([a, b])))


# ---- probabilities: are they right?


def reliability_table(correct: npt.ArrayLike, confidence: npt.ArrayLike, bins: int = 15) -> ReliabilityTable:
    """Sort clips into `bins` equal bins of confidence between 0 and 1; what a reliability diagram draws.

    Parameters
    ----------
    confidence : [n] in [0, 1], the probability given to the predicted class.
    """
    right, _ = check_scored(correct, confidence, "confidence")
    c = np.asarray(confidence, dtype=np.float64)
    if not ((c >= 0) & (c <= 1)).all():
        raise SettingError(f"confidence from {c.min()} to {c.max()}; expected 0 to 1")
    if bins < 1:
        raise SettingError(f"bins={bins}; expected at least 1")
    edges = np.linspace(0, 1, bins + 1)
    of = np.searchsorted(edges[1:-1], c, side="left")
    count = np.bincount(of, minlength=bins)
    used = count > 0
    return ReliabilityTable(
        lower=edges[:-1][used],
        upper=edges[1:][used],
        count=count[used],
        confidence=np.bincount(of, weights=c, minlength=bins)[used] / count[used],
        accuracy=np.bincount(of, weights=right, minlength=bins)[used] / count[used],
    )


def expected_calibration_error(correct: npt.ArrayLike, confidence: npt.ArrayLike, bins: int = 15) -> float:
    """Mean over clips of |accuracy - confidence| of the clip's bin, bins as in `reliability_table`; in [0, 1].

    Source: Guo, Pleiss, Sun and Weinberger 2017, "On calibration of modern neural networks", with its 15 bins.
    """
    table = reliability_table(correct, confidence, bins)
    return float(np.average(np.abs(table.accuracy - table.confidence), weights=table.count))


# ---- how sure are the figures themselves?


def accuracy_interval(hits: int, total: int, confidence: float = 0.95) -> Interval:
    """Clopper-Pearson interval of a proportion, of which `hits` of `total` independent trials were seen."""
    check_confidence(confidence)
    if not (total > 0 and 0 <= hits <= total):
        raise SettingError(f"{hits} hits of {total}; expected 0 to total, and a total above 0")
    interval = stats.binomtest(int(hits), int(total)).proportion_ci(confidence, method="exact")
    return Interval(float(interval.low), float(interval.high))


def bootstrap_interval(
    statistic: Callable[..., float],
    *arrays: npt.ArrayLike,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of statistic(*arrays); clips (first axis) are redrawn alike in all the arrays.

    What the statistic raises on a resample (an AUROC without an error in it, say) is passed on.

    Source: Efron and Tibshirani 1993, "An Introduction to the Bootstrap", chapter 13.
    """
    check_confidence(confidence)
    columns = [np.asarray(a) for a in arrays]
    lengths = {len(c) for c in columns}
    if len(lengths) != 1 or 0 in lengths:
        raise SettingError(f"arrays of {[len(c) for c in columns]} rows; expected equal lengths above 0")
    if resamples < 1:
        raise SettingError(f"resamples={resamples}; expected at least 1")
    rng, n = np.random.default_rng(seed), lengths.pop()
    draws = (rng.integers(n, size=n) for _ in range(resamples))
    values = [statistic(*(c[draw] for c in columns)) for draw in draws]
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))


def mean_2sigma(values: npt.ArrayLike) -> tuple[float, float]:
    """Mean and twice the sample standard deviation (n - 1 in the denominator) over seeds; needs two or more."""
    v = np.asarray(values, dtype=np.float64)
    if v.ndim != 1 or v.size < 2 or not np.isfinite(v).all():
        raise SettingError(f"values {v.tolist()}; expected a list of two or more finite numbers, one per seed")
    return float(v.mean()), float(2 * v.std(ddof=1))
