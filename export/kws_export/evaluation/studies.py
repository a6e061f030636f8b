"""Studies beyond the paper, as pure functions on arrays.

`correct` is bool [n]; scores are [n], higher is less sure, compared in float32 as on the device. Bad input raises
SettingError, as in thresholds.py.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F64, Bools
from kws_edge.errors import SettingError
from kws_edge.model.selection import TOLERANCE, WITHHOLD_ALL, OperatingPoint, check_target, withheld
from kws_export.evaluation.metrics import Interval, accuracy_interval, bootstrap_interval
from kws_export.evaluation.thresholds import check_scored, check_scores, point_at, selective_curve

Choice = Callable[[npt.ArrayLike, npt.ArrayLike, float], OperatingPoint]
"""(correct, uncertainty, target) → a threshold and what it gives there, such as thresholds.operating_point."""


# ---- two thresholds


class TwoThresholds(NamedTuple):
    """Accept where entropy ≤ the one and vacuity ≤ the other."""

    entropy: float
    vacuity: float

    def accepted(self, entropy: npt.ArrayLike, vacuity: npt.ArrayLike) -> Bools:
        """Which clips both thresholds let through, bool [n]."""
        return np.asarray(~(withheld(entropy, self.entropy) | withheld(vacuity, self.vacuity)))


def two_thresholds(
    correct: npt.ArrayLike, entropy: npt.ArrayLike, vacuity: npt.ArrayLike, target: float
) -> TwoThresholds:
    """The pair of largest coverage with accepted accuracy ≥ target - TOLERANCE; of such pairs the most accurate.

    The search is exact. A pair's thresholds need only be looked at where the next clip that the entropy's would let
    in, or clips of equal entropy among them, holds an error: up to there, raising it adds right answers alone, which
    lowers neither coverage nor accuracy. So there are as many thresholds of entropy to try as there are errors and
    one; for each, every threshold of vacuity is tried in one pass over the clips.

    Both thresholds lie halfway between two scores, as those of `selective_curve` do. WITHHOLD_ALL twice where no pair
    reaches the target.
    """
    right, e = check_scored(correct, entropy)
    _, v = check_scored(right, vacuity, "vacuity")
    check_target(target)
    entropies, vacuities = selective_curve(right, e).thresholds, selective_curve(right, v).thresholds
    below_error = np.searchsorted(entropies, np.unique(e[~right])) - 1
    order = np.argsort(v)
    ends = np.searchsorted(v[order], vacuities, side="right")  # how many clips each threshold of vacuity accepts
    best, found = (0, 0), TwoThresholds(WITHHOLD_ALL, WITHHOLD_ALL)
    for t in entropies[np.append(below_error[below_error >= 0], len(entropies) - 1)]:
        inside = ~withheld(e[order], float(t))
        accepted = np.cumsum(inside)[ends - 1]
        hits = np.cumsum(inside & right[order])[ends - 1]
        reached = np.flatnonzero((accepted > 0) & (hits >= (target - TOLERANCE) * accepted))
        if reached.size and (accepted[reached[-1]], hits[reached[-1]]) > best:
            at = reached[-1]
            best = (int(accepted[at]), int(hits[at]))
            found = TwoThresholds(float(t), float(vacuities[at]))
    return found


# ---- differences between two rules on the same clips


class Difference(NamedTuple):
    """What the first rule has more than the second, and the ends of its bootstrap interval."""

    value: float
    low: float
    high: float


def coverage_difference(first: Bools, second: Bools) -> Difference:
    """Coverage of one rule less that of another.

    Parameters
    ----------
    first, second : bool [n, runs], what each accepts of the same n clips; the difference is the mean over the runs.
        Clips are redrawn alike for both rules and all runs, so the interval speaks of other clips, not of other runs.
    """
    return _difference(lambda a, b: float(a.mean() - b.mean()), first, second)


def accepted_accuracy_difference(correct: Bools, first: Bools, second: Bools) -> Difference | None:
    """Accepted accuracy of one rule less that of another, as `coverage_difference`; correct is bool [n, runs] too.

    None where a rule accepts nothing in some run, or might in a resample of the clips.
    """

    def accuracy(right: Bools, kept: Bools) -> float:
        return float(np.mean((right & kept).sum(axis=0) / kept.sum(axis=0)))

    if min(first.sum(axis=0).min(), second.sum(axis=0).min()) < 30:  # then a resample of none has odds below e^-30
        return None
    return _difference(lambda r, a, b: accuracy(r, a) - accuracy(r, b), correct, first, second)


def _difference(statistic: Callable[..., float], *arrays: Bools) -> Difference:
    shapes = {a.shape for a in arrays}
    if len(shapes) != 1 or arrays[0].ndim != 2:
        raise SettingError(f"arrays of shapes {[a.shape for a in arrays]}; expected one shape, [n, runs]")
    return Difference(statistic(*arrays), *bootstrap_interval(statistic, *arrays))


# ---- what was promised, and what came


def is_kept(seen: OperatingPoint) -> bool:
    """Whether the accepted accuracy reached the target, or nothing was accepted."""
    return seen.accepted_accuracy is None or seen.accepted_accuracy >= seen.target - TOLERANCE


def accepted_interval(accepted: float, accepted_accuracy: float) -> Interval | None:
    """95 % Clopper-Pearson interval of an accepted accuracy; None where nothing is accepted.

    Both may be means over runs: all runs see the same clips, so more of them do not make the interval narrower.
    """
    n = round(accepted)
    return accuracy_interval(round(accepted_accuracy * n), n) if n else None


class Halves(NamedTuple):
    """Over many splits of one set of clips in two halves at random; shares of the splits, coverage of the mean one.

    Attributes
    ----------
    kept : accepted accuracy on the second half reached the target, or nothing was accepted.
    promised : the first half gave a threshold at all.
    coverage : mean on the second half.
    """

    kept: float
    promised: float
    coverage: float


def promise_in_halves(
    choose: Choice,
    correct: npt.ArrayLike,
    uncertainty: npt.ArrayLike,
    target: float,
    *,
    splits: int = 100,
) -> Halves:
    """How often a threshold keeps its promise where both sets are drawn from one population.

    One half chooses, the other looks. A promise that fails between validation and test, and holds here, failed because
    the two splits differ, not because of how the threshold was chosen. The second half is finite: a threshold whose
    true accuracy is exactly the target would be seen below it in about half of the splits.
    """
    right, u = check_scored(correct, uncertainty)
    if right.size < 2 or splits < 1:
        raise SettingError(f"{right.size} clips, splits={splits}; expected 2 clips or more and a split")
    rng, half = np.random.default_rng(0), right.size // 2
    kept, promised, coverage = [], [], []
    for _ in range(splits):
        order = rng.permutation(right.size)
        a, b = order[:half], order[half:]
        threshold = choose(right[a], u[a], target).threshold
        seen = point_at(right[b], u[b], threshold, target)
        kept.append(is_kept(seen))
        promised.append(threshold != WITHHOLD_ALL)
        coverage.append(seen.coverage)
    return Halves(float(np.mean(kept)), float(np.mean(promised)), float(np.mean(coverage)))


# ---- curves and densities


class CurveAt(NamedTuple):
    """What given thresholds give: float64 [m] each; accepted accuracy is NaN where nothing is accepted."""

    coverage: F64
    accepted_accuracy: F64
    total_accuracy: F64


def curve_at(correct: npt.ArrayLike, uncertainty: npt.ArrayLike, thresholds: npt.ArrayLike) -> CurveAt:
    """Coverage and accuracies at thresholds of one's choice, so that curves of several runs can be averaged."""
    right, u = check_scored(correct, uncertainty)
    order = np.argsort(u)
    accepted = np.searchsorted(u[order], check_scores(thresholds, "thresholds"), side="right")
    hits = np.append(0, np.cumsum(right[order]))[accepted]
    accuracy = np.divide(hits, accepted, out=np.full(accepted.shape, np.nan), where=accepted > 0)
    return CurveAt(accepted / u.size, accuracy, hits / u.size)


def risk_at_coverage(correct: npt.ArrayLike, uncertainty: npt.ArrayLike, coverages: npt.ArrayLike) -> F64:
    """Error rate among the surest clips, for shares of the clips in (0, 1]: float64 [m].

    A share is met by the smallest set of at least that share; clips with equal scores are accepted together.
    """
    curve = selective_curve(correct, uncertainty)
    shares = np.asarray(coverages, np.float64)
    if not ((shares > 0) & (shares <= 1)).all():
        raise SettingError(f"coverages from {shares.min()} to {shares.max()}; expected above 0, at most 1")
    return np.asarray(1 - curve.accepted_accuracy[np.searchsorted(curve.coverage, shares - 1e-12)])


def bounded_density(values: npt.ArrayLike, grid: npt.ArrayLike, bandwidth: float) -> F64:
    """Kernel density on [0, 1], Gaussian, mirrored at both ends so that none of it leaks out.

    Parameters
    ----------
    values : [n] in [0, 1].
    grid : [m] in [0, 1], where the density is wanted.
    bandwidth : standard deviation of the kernel, well below 1 (one mirror image at each end is used).

    Returns
    -------
    float64 [m]; its integral over [0, 1] is 1.

    Source: Silverman 1986, "Density estimation for statistics and data analysis", section 2.10 (reflection).
    """
    x, at = check_scores(values, "values").astype(np.float64), np.asarray(grid, np.float64)
    if x.min() < 0 or x.max() > 1:
        raise SettingError(f"values from {x.min()} to {x.max()}; expected 0 to 1")
    if not 0 < bandwidth <= 0.2:
        raise SettingError(f"bandwidth={bandwidth}; expected above 0 and at most 0.2")
    images = np.concatenate([x, -x, 2 - x])
    images = images[np.abs(images - 0.5) < 0.5 + 8 * bandwidth]  # beyond, a kernel reaches the interval by e^-32
    kernels = np.exp(-0.5 * np.square((at[:, None] - images) / bandwidth))
    return kernels.sum(axis=1) / (x.size * bandwidth * np.sqrt(2 * np.pi))
