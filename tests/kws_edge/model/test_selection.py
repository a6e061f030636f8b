"""Selective prediction: what is withheld, and what a model's file may say that a threshold gives."""

import numpy as np
import pytest

from kws_edge.errors import SettingError
from kws_edge.model.selection import OperatingPoint, withheld


def test_a_label_is_withheld_only_above_the_threshold() -> None:
    u = np.array([0.2, np.nextafter(np.float32(0.2), np.float32(1))], np.float32)
    assert withheld(u, 0.2).tolist() == [False, True]


def test_a_score_that_is_not_a_number_is_withheld() -> None:
    assert withheld(np.array([np.nan, np.inf, 0.1]), 0.5).tolist() == [True, True, False]


def test_withheld_keeps_the_shape() -> None:
    assert withheld(np.zeros((2, 3)), 0.5).shape == (2, 3)
    assert not withheld(np.float32(0.5), 0.5)


@pytest.mark.parametrize("threshold", [np.nan, np.inf, 1e300])
def test_a_threshold_that_float32_cannot_hold_is_refused(threshold: float) -> None:
    with pytest.raises(SettingError, match="finite float32"):
        withheld(np.array([0.1, 0.2]), threshold)


POINT = {
    "target": 0.75,
    "threshold": 0.45,
    "accepted_accuracy": 0.75,
    "coverage": 0.8,
    "total_accuracy": 0.6,
    "accepted": 4,
    "total": 5,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"total_accuracy": 0.7}, "total_accuracy=0.7"),
        ({"coverage": 0.9, "total_accuracy": 0.675}, "coverage=0.9"),
        ({"accepted_accuracy": 1.5, "total_accuracy": 1.2}, "accepted_accuracy=1.5"),
        ({"accepted_accuracy": None}, "accepted_accuracy=None with 4 accepted"),
        ({"accepted": 0, "coverage": 0.0, "total_accuracy": 0.0}, "accepted_accuracy=0.75 with 0 accepted"),
        ({"accepted": 6}, "accepted=6"),
        ({"accepted": 4.0}, "accepted=4.0"),
        ({"accepted": True}, "accepted=True"),
        ({"threshold": float("nan")}, "threshold=nan"),
        ({"threshold": "0.45"}, "threshold='0.45'"),
        ({"threshold": 1e300}, "threshold=1e"),
        ({"target": 75}, "target=75"),
        ({"low": 0.8, "high": 0.9}, "low=0.8"),
        ({"low": -0.1, "high": 0.9}, "low=-0.1"),
        ({"low": 0.5, "high": 0.7}, "high=0.7"),
        ({"low": 0.5, "high": 1.1}, "high=1.1"),
        ({"colour": 1}, "unknown \\['colour'\\]"),
    ],
)
def test_values_that_contradict_each_other_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        OperatingPoint.from_dict({**POINT, **change})


def test_a_missing_value_is_named() -> None:
    with pytest.raises(SettingError, match="missing \\['coverage'\\]"):
        OperatingPoint.from_dict({k: v for k, v in POINT.items() if k != "coverage"})
