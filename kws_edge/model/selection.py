"""Selective prediction: withhold a label where the uncertainty u is above a threshold t, chosen for a target.

With n clips, of which n_c are accepted and right and n_f accepted and wrong:
    Acc_th = n_c / (n_c + n_f)      accuracy of what is accepted
    coverage = (n_c + n_f) / n      share that is accepted
    Acc_total = n_c / n             share that is accepted and right, = Acc_th · coverage

Scores are compared in float32, because that is what the ONNX graph gives; other dtypes are rounded to it first. Every
threshold is a float32 number, so it survives JSON and any wider float type without changing a decision.

Source: B. Hayta, H. Laus, S. Mittermaier, F. Krahmer, "Plug-in Losses for Evidential Deep Learning: A Simplified
Framework for Uncertainty Estimation that Includes the Softmax Classifier", arXiv:2605.22746, 2026,
section on selective prediction.
"""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32, Bools
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


def withheld(uncertainty: npt.ArrayLike, threshold: float) -> Bools:
    """Where u > t, compared in float32; any shape in, bool of the same shape out. A NaN score is withheld.

    Raises
    ------
    SettingError : the threshold is NaN, infinite or beyond float32's range.
    """
    _check_threshold(threshold)
    return np.asarray(~(as_float32(uncertainty) <= np.float32(threshold)))


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


def _check_threshold(threshold: float) -> None:
    if not abs(threshold) <= -WITHHOLD_ALL:
        raise SettingError(f"threshold={threshold}; expected a finite float32 number")


def as_float32(scores: npt.ArrayLike) -> F32:
    """Scores as they are compared; one beyond the range of float32 becomes infinite."""
    with np.errstate(over="ignore"):  # what is infinite is refused or withheld
        return np.asarray(scores, dtype=np.float32)
