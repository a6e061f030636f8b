"""Choose a threshold of the uncertainty for a target accuracy, on clips of which it is known whether they are right.

`operating_point` takes the largest coverage that reaches the target on these clips, which is the paper's rule, and
`conservative_operating_point` the largest that shows it for others. What a threshold means is in
kws_edge.model.selection.

Source: B. Hayta, H. Laus, S. Mittermaier, F. Krahmer, "Plug-in Losses for Evidential Deep Learning: A Simplified
Framework for Uncertainty Estimation that Includes the Softmax Classifier", arXiv:2605.22746, 2026,
section on selective prediction.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from kws_edge.arrays import F32, F64, Bools
from kws_edge.errors import SettingError
from kws_edge.model.selection import (
    TOLERANCE,
    WITHHOLD_ALL,
    OperatingPoint,
    as_float32,
    check_target,
    withheld,
)


@dataclass(frozen=True, slots=True, eq=False)
class SelectiveCurve:
    """What each threshold gives, from the strictest to the one that accepts every clip; arrays of [m] distinct scores.

    Attributes
    ----------
    thresholds : float32, strictly increasing.
    coverage, accepted_accuracy, total_accuracy : float64. Coverage and total accuracy never fall along the curve;
        accepted accuracy may go either way.
    """

    thresholds: F32
    coverage: F64
    accepted_accuracy: F64
    total_accuracy: F64


def selective_curve(correct: npt.ArrayLike, uncertainty: npt.ArrayLike) -> SelectiveCurve:
    """Coverage and accuracies at every threshold that makes a difference.

    Parameters
    ----------
    correct : bool [n], whether the label given to the clip is right.
    uncertainty : [n], finite, higher means less sure; any range.

    Returns
    -------
    One point per distinct score: clips with equal scores are accepted together. A threshold lies halfway between the
    last accepted and the first withheld score, as far as it can be from both, so that a score which differs in its
    last bits on another processor is treated alike. The last threshold is the largest score itself: a clip less
    certain than every one that was seen is withheld.

    Raises
    ------
    SettingError : arrays that are empty, not of one dimension, of unequal length, or scores that are not finite.
    """
    right, u = check_scored(correct, uncertainty)
    order = np.argsort(u)
    score, hits = u[order], np.cumsum(right[order])
    last = np.append(np.flatnonzero(score[1:] > score[:-1]), u.size - 1)  # of each run of equal scores
    level = score[last]
    halfway = ((level[:-1].astype(np.float64) + level[1:]) / 2).astype(np.float32)
    # Between neighbouring float32 numbers there is none halfway; rounding up would accept the next score too.
    between = np.where(halfway < level[1:], halfway, level[:-1])
    accepted = last + 1
    return SelectiveCurve(
        thresholds=np.append(between, level[-1]),
        coverage=accepted / u.size,
        accepted_accuracy=hits[last] / accepted,
        total_accuracy=hits[last] / u.size,
    )


def operating_point(correct: npt.ArrayLike, uncertainty: npt.ArrayLike, target: float) -> OperatingPoint:
    """The threshold of largest coverage with Acc_th ≥ target - TOLERANCE, and what it gives on the same clips.

    Where no threshold reaches the target the result is WITHHOLD_ALL: coverage 0, total accuracy 0 and no accepted
    accuracy, here and on any other clips.

    Parameters are those of `selective_curve`, and target in (0, 1].

    Raises
    ------
    SettingError : as in `selective_curve`, or the target is outside its range.
    """
    check_target(target)
    curve = selective_curve(correct, uncertainty)
    reached = np.flatnonzero(curve.accepted_accuracy >= target - TOLERANCE)
    threshold = float(curve.thresholds[reached[-1]]) if reached.size else WITHHOLD_ALL
    return point_at(correct, uncertainty, threshold, target)


def point_at(correct: npt.ArrayLike, uncertainty: npt.ArrayLike, threshold: float, target: float) -> OperatingPoint:
    """What a threshold that was chosen elsewhere gives on these clips; `target` is what it was chosen for.

    Raises
    ------
    SettingError : as in `selective_curve`, or the threshold is no finite float32, or the target is outside (0, 1].
    """
    right, u = check_scored(correct, uncertainty)
    keep = ~withheld(u, threshold)
    accepted, hits = int(keep.sum()), int(right[keep].sum())
    return OperatingPoint(
        target=target,
        threshold=threshold,
        accepted_accuracy=hits / accepted if accepted else None,
        coverage=accepted / u.size,
        total_accuracy=hits / u.size,
        accepted=accepted,
        total=u.size,
    )


def fewest_to_promise(target: float, confidence: float = 0.95, levels: int = 10) -> int:
    """How many accepted clips, all of them right, `conservative_operating_point` needs to show a target in (0, 1)."""
    return math.ceil(math.log((1 - confidence) / levels) / math.log(target))  # of n right the bound is level^(1/n)


def conservative_operating_point(
    correct: npt.ArrayLike,
    uncertainty: npt.ArrayLike,
    target: float,
    confidence: float = 0.95,
    levels: int = 10,
) -> OperatingPoint:
    """The threshold of largest coverage whose true accepted accuracy is shown to reach the target.

    The guarantee: if the clips given here and those to come are independent draws from one population, then with
    probability at least `confidence` over the draw of the clips given here, the threshold's accepted accuracy in the
    population is at least `target`, or it withholds all. It holds for any n and any score, ties included. It says
    nothing of other populations (more noise, unknown words), and clips that share a speaker are not quite
    independent. On a second finite set the accuracy still scatters about the true one.

    How: ranks k_1 < … < k_m are fixed beforehand, evenly from the fewest clips that could show the target without one
    error up to n - 1. Rank k accepts u < u_(k+1), the (k+1)-th smallest score. Given u_(k+1), and how many clips lie
    below it, those clips are independent draws from the accepted population, so their errors are binomial and the
    one-sided Clopper-Pearson bound holds, although the threshold came from the data. At level (1 - confidence) / m
    each, all m bounds hold together (Bonferroni), so the largest rank whose bound reaches the target may be taken.

    Source: Geifman and El-Yaniv 2017, "Selective classification for deep neural networks" (guaranteed risk), with
    fixed ranks in place of its binary search.

    Parameters
    ----------
    correct, uncertainty : as in `selective_curve`, n clips that the model was not trained on.
    target : in (0, 1); no finite number of clips shows 1.
    levels : m. More make finer steps of coverage but a stricter bound.

    Returns
    -------
    What the threshold gives on these clips; WITHHOLD_ALL where nothing can be promised. At 95 %, ten levels and no
    error, 0.99 takes 528 accepted clips, 0.995 takes 1058 and 0.999 takes 5296.
    """
    right, u = check_scored(correct, uncertainty)
    check_target(target)
    check_confidence(confidence)
    if target == 1:
        raise SettingError("target=1; expected below 1, since no finite number of clips can promise it")
    if levels < 1:
        raise SettingError(f"levels={levels}; expected at least 1")
    level = (1 - confidence) / levels
    fewest = fewest_to_promise(target, confidence, levels)
    if fewest > u.size - 1:
        return point_at(right, u, WITHHOLD_ALL, target)
    ranks = np.linspace(fewest, u.size - 1, levels).astype(np.int64)
    order = np.argsort(u)
    first_withheld = u[order][ranks]
    accepted = np.searchsorted(u[order], first_withheld)  # below the rank where scores are equal
    hits = np.append(0, np.cumsum(right[order]))[accepted]
    bound = stats.beta.ppf(level, hits, accepted - hits + 1)  # Clopper-Pearson; NaN, hence not shown, for no hits
    shown = np.flatnonzero(bound >= target)
    if not shown.size:
        return point_at(right, u, WITHHOLD_ALL, target)
    # The largest float32 below u_(k+1), not halfway to the last accepted score: u > t is then exactly the tested rule.
    threshold = np.nextafter(first_withheld[shown[-1]], np.float32(-np.inf))
    return point_at(right, u, float(threshold), target)


def check_scores(scores: npt.ArrayLike, name: str = "uncertainty") -> F32:
    """Scores as float32 [n]. Raises SettingError where there are none, or one is NaN or beyond float32's range."""
    u = as_float32(scores)
    if u.ndim != 1 or u.size == 0:
        raise SettingError(f"{name} of shape {u.shape}; expected one dimension and at least one score")
    usable = np.abs(u) < -WITHHOLD_ALL
    if not usable.all():
        at = int(np.argmin(usable))
        raise SettingError(f"{name}[{at}]={u[at]}; expected finite float32 scores")
    return u


def check_scored(correct: npt.ArrayLike, scores: npt.ArrayLike, name: str = "uncertainty") -> tuple[Bools, F32]:
    """Clips as (bool [n], float32 [n]). Raises SettingError as `check_scores` does, and for arrays that do not pair."""
    u, right = check_scores(scores, name), np.asarray(correct)
    if right.dtype != np.bool_:
        raise SettingError(f"correct of dtype {right.dtype}; expected bool: predicted == label")
    if right.shape != u.shape:
        raise SettingError(f"correct of shape {right.shape}, {name} of shape {u.shape}; expected equal shapes")
    return right, u


def check_confidence(confidence: float) -> None:
    """Raise SettingError unless it is a fraction in (0, 1)."""
    if not 0 < confidence < 1:
        raise SettingError(f"confidence={confidence}; expected a fraction above 0 and below 1, such as 0.95")
