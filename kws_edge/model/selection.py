"""Selective prediction: withhold a label where the uncertainty u is above a threshold t, and choose t for a target.

With n clips, of which n_c are accepted and right and n_f accepted and wrong:
    Acc_th = n_c / (n_c + n_f)      accuracy of what is accepted
    coverage = (n_c + n_f) / n      share that is accepted
    Acc_total = n_c / n             share that is accepted and right, = Acc_th · coverage

Scores are compared in float32, because that is what the ONNX graph gives; other dtypes are rounded to it first. Every
threshold chosen here is a float32 number, so it survives JSON and any wider float type without changing a decision.

Source: B. Hayta, H. Laus, S. Mittermaier, F. Krahmer, "Plug-in Losses for Evidential Deep Learning: A Simplified
Framework for Uncertainty Estimation that Includes the Softmax Classifier", arXiv:2605.22746, 2026,
section on selective prediction.
"""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32, F64, Bools
from kws_edge.errors import SettingError, check_names
from kws_edge.text import shown

DEFAULT_TARGET: Final = 0.995
"""The accuracy of accepted clips for which a threshold is taken unless another is asked for."""

TOLERANCE = 1e-6
"""A target counts as reached from this far below, so that 0.995 is reached by 199 of 200 whatever the rounding."""

SHOWN_LEVEL: Final = 0.05 / 10
"""Of the bound of a threshold that is shown: ten are looked at, and all ten bounds are to hold with 95 % confidence."""

MOST_COUNTED: Final = 100_000
"""Clips whose wrong answers are summed over one by one; a file may claim any number."""

_OPTIONAL = {"accepted_accuracy", "low", "high"}

WITHHOLD_ALL = -float(np.finfo(np.float32).max)
"""The threshold below every score: finite, so that JSON can hold it."""


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A threshold and what it gives on one set of clips. Shares are fractions from 0 to 1.

    Attributes
    ----------
    target : the accepted accuracy that was asked for, in (0, 1].
    threshold : t; a label is withheld where u > t.
    accepted_accuracy : Acc_th; None where nothing is accepted, since it is then neither kept nor broken.
    coverage : accepted / total.
    total_accuracy : Acc_total; 0 where nothing is accepted.
    accepted, total : counts of clips.
    low, high : 95 % interval of the accepted accuracy, which so many clips leave open; None where it was not computed,
        or nothing is accepted.
    """

    target: float
    threshold: float
    accepted_accuracy: float | None
    coverage: float
    total_accuracy: float
    accepted: int
    total: int
    low: float | None = None
    high: float | None = None

    @property
    def is_shown(self) -> bool:
        """Whether these clips show that the target is reached, rather than just reach it.

        So many right ones would be accepted with a probability of `SHOWN_LEVEL` at most if the accuracy were below it.
        Of more than `MOST_COUNTED`, which no model here is calibrated on, the interval decides.
        """
        if self.low is None or self.accepted_accuracy is None or self.accepted_accuracy <= self.target:
            return False
        if self.accepted > MOST_COUNTED:
            return self.low >= self.target
        wrong = self.accepted - round(self.accepted_accuracy * self.accepted)
        return _fewer_wrong(wrong, self.accepted, self.target) <= SHOWN_LEVEL

    def __post_init__(self) -> None:
        """Refuse numbers that contradict each other; in particular Acc_total = Acc_th · coverage must hold."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in _OPTIONAL:
                continue
            kinds = int if field.type is int else (int, float)
            if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
                raise SettingError(f"operating point: {field.name}={shown(value)}; expected a finite number")
        check_target(self.target)
        _check_threshold(self.threshold)
        if not (self.total > 0 and 0 <= self.accepted <= self.total):
            raise SettingError(f"operating point: accepted={self.accepted}, total={self.total}; expected 0 to total")
        if (self.accepted_accuracy is None) != (self.accepted == 0):
            raise SettingError(
                f"operating point: accepted_accuracy={self.accepted_accuracy} with {self.accepted} accepted; "
                "expected None exactly where nothing is accepted"
            )
        accuracy = 0.0 if self.accepted_accuracy is None else self.accepted_accuracy
        for name, value, expected in (
            ("accepted_accuracy", accuracy, min(max(accuracy, 0.0), 1.0)),
            ("coverage", self.coverage, self.accepted / self.total),
            ("total_accuracy", self.total_accuracy, accuracy * self.coverage),
            ("low", self.low, accuracy if self.low is None else min(max(self.low, 0.0), accuracy)),
            ("high", self.high, accuracy if self.high is None else max(min(self.high, 1.0), accuracy)),
        ):
            if value is None:
                continue
            if abs(value - expected) > TOLERANCE:
                raise SettingError(f"operating point: {name}={value} does not fit the rest; expected {expected}")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, without infinities or NaN."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "OperatingPoint":
        """Rebuild from `to_dict`. Raises SettingError for missing, unknown or contradictory values."""
        values = {"low": None, "high": None, **values}  # a file from before they were kept
        check_names("operating point", values, [f.name for f in fields(cls)])
        return cls(**values)


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


def withheld(uncertainty: npt.ArrayLike, threshold: float) -> Bools:
    """Where u > t, compared in float32; any shape in, bool of the same shape out. A NaN score is withheld.

    Raises
    ------
    SettingError : the threshold is NaN, infinite or beyond float32's range.
    """
    _check_threshold(threshold)
    return np.asarray(~(_float32(uncertainty) <= np.float32(threshold)))


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


def _fewer_wrong(wrong: int, total: int, accuracy: float) -> float:
    """The probability of so many wrong answers or fewer of `total`, each right with the same probability below 1."""
    ways, right, error = math.lgamma(total + 1), math.log(accuracy), math.log1p(-accuracy)
    return math.fsum(
        math.exp(ways - math.lgamma(k + 1) - math.lgamma(total - k + 1) + k * error + (total - k) * right)
        for k in range(wrong + 1)
    )


def check_target(target: float) -> None:
    """Raise SettingError unless the target is a fraction in (0, 1]."""
    if not 0 < target <= 1:
        raise SettingError(f"target={target}; expected a fraction above 0 and at most 1, such as 0.995")


def check_scores(scores: npt.ArrayLike, name: str = "uncertainty") -> F32:
    """Scores as float32 [n]. Raises SettingError where there are none, or one is NaN or beyond float32's range."""
    u = _float32(scores)
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


def _check_threshold(threshold: float) -> None:
    if not abs(threshold) <= -WITHHOLD_ALL:
        raise SettingError(f"threshold={threshold}; expected a finite float32 number")


def _float32(scores: npt.ArrayLike) -> F32:
    with np.errstate(over="ignore"):  # to infinity, which the callers refuse or withhold
        return np.asarray(scores, dtype=np.float32)
