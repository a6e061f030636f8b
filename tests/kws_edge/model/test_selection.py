"""Selective prediction: what is withheld, what a threshold gives, and how one is chosen for a target."""

import json

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kws_edge.errors import SettingError
from kws_edge.model.selection import (
    TOLERANCE,
    WITHHOLD_ALL,
    OperatingPoint,
    operating_point,
    point_at,
    selective_curve,
    withheld,
)

Clips = tuple[npt.NDArray[np.bool_], npt.NDArray[np.float32]]

# Five clips by rising uncertainty: right, right, wrong, right, wrong. Accepted accuracy falls and rises again.
CORRECT = np.array([True, True, False, True, False])
SCORE = np.array([0.1, 0.2, 0.3, 0.4, 0.5], np.float32)

targets = st.floats(0.01, 1)


@st.composite
def clips(draw: st.DrawFn) -> Clips:
    """1 to 40 clips with scores from a few neighbouring float32 values and from everywhere: ties and close calls."""
    start = np.float32(draw(st.floats(2**-20, 1, width=32)))
    near = [start]
    for _ in range(3):
        near.append(np.nextafter(near[-1], np.float32(2)))
    score = st.sampled_from([float(v) for v in near]) | st.floats(-(2.0**100), 2.0**100, width=32)
    pairs = draw(st.lists(st.tuples(st.booleans(), score), min_size=1, max_size=40))
    return np.array([c for c, _ in pairs]), np.array([u for _, u in pairs], np.float32)


# ---- withheld


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
        withheld(SCORE, threshold)


# ---- the curve


def test_the_curve_of_five_clips() -> None:
    curve = selective_curve(CORRECT, SCORE)
    np.testing.assert_allclose(curve.coverage, [0.2, 0.4, 0.6, 0.8, 1.0])
    np.testing.assert_allclose(curve.accepted_accuracy, [1, 1, 2 / 3, 3 / 4, 3 / 5])
    np.testing.assert_allclose(curve.total_accuracy, [0.2, 0.4, 0.4, 0.6, 0.6])
    np.testing.assert_allclose(curve.thresholds, [0.15, 0.25, 0.35, 0.45, 0.5], rtol=1e-6)


def test_clips_with_equal_scores_are_accepted_together() -> None:
    curve = selective_curve(np.array([True, False, True]), np.array([0.5, 0.5, 0.1]))
    np.testing.assert_allclose(curve.coverage, [1 / 3, 1])
    np.testing.assert_allclose(curve.accepted_accuracy, [1, 2 / 3])


def test_scores_that_differ_only_beyond_float32_are_equal() -> None:
    assert selective_curve(np.array([True, False]), np.array([0.3, 0.3 + 1e-12])).coverage.tolist() == [1.0]


@settings(deadline=None)
@given(clips())
def test_every_point_of_the_curve_is_what_its_threshold_gives(sample: Clips) -> None:
    correct, u = sample
    curve = selective_curve(correct, u)
    points = [point_at(correct, u, float(t), target=1) for t in curve.thresholds]
    assert [p.coverage for p in points] == curve.coverage.tolist()
    assert [p.accepted_accuracy for p in points] == curve.accepted_accuracy.tolist()
    assert [p.total_accuracy for p in points] == curve.total_accuracy.tolist()
    assert len(points) == len(np.unique(u))


@settings(deadline=None)
@given(clips())
def test_coverage_and_total_accuracy_never_fall_along_the_curve(sample: Clips) -> None:
    curve = selective_curve(*sample)
    assert (np.diff(curve.thresholds) > 0).all()
    assert (np.diff(curve.coverage) > 0).all()
    assert (np.diff(curve.total_accuracy) >= 0).all()
    assert curve.coverage[-1] == 1


@settings(deadline=None)
@given(clips())
def test_total_accuracy_is_accepted_accuracy_times_coverage(sample: Clips) -> None:
    curve = selective_curve(*sample)
    np.testing.assert_allclose(curve.total_accuracy, curve.accepted_accuracy * curve.coverage, rtol=1e-12)


@settings(deadline=None)
@given(clips())
def test_only_the_order_of_scores_matters(sample: Clips) -> None:
    correct, u = sample
    rank = np.unique(u, return_inverse=True)[1]  # every strictly increasing map gives these ranks
    for mapped in (rank, rank**3 - 7, np.exp(rank / 8)):
        a, b = selective_curve(correct, u), selective_curve(correct, mapped)
        np.testing.assert_array_equal(a.coverage, b.coverage)
        np.testing.assert_array_equal(a.accepted_accuracy, b.accepted_accuracy)


# ---- the operating point


def test_the_largest_coverage_is_taken_even_behind_a_dip() -> None:
    point = operating_point(CORRECT, SCORE, target=0.75)
    assert (point.accepted, point.total) == (4, 5)
    assert point.accepted_accuracy == pytest.approx(0.75)
    assert point.total_accuracy == pytest.approx(0.6)


def test_the_threshold_lies_halfway_to_the_first_withheld_score() -> None:
    assert operating_point(CORRECT, SCORE, target=0.75).threshold == pytest.approx(0.45)


def test_where_all_is_accepted_the_threshold_is_the_largest_score_seen() -> None:
    assert operating_point(CORRECT, SCORE, target=0.6).threshold == float(SCORE[-1])


@pytest.mark.parametrize(("shortfall", "coverage"), [(TOLERANCE / 2, 1.0), (TOLERANCE * 2, 199 / 200)])
def test_a_target_is_reached_within_the_tolerance(shortfall: float, coverage: float) -> None:
    correct = np.arange(200) < 199
    assert operating_point(correct, np.arange(200), target=199 / 200 + shortfall).coverage == coverage


def test_an_unreachable_target_withholds_everything_here_and_elsewhere() -> None:
    point = operating_point(np.array([False, True]), np.array([0.1, 0.2]), target=0.9)
    assert point == OperatingPoint(0.9, WITHHOLD_ALL, None, 0.0, 0.0, 0, 2)
    assert withheld(np.array([0.0, -1e38, 1e-45]), point.threshold).all()


@settings(deadline=None)
@given(clips(), targets)
def test_no_threshold_does_better(sample: Clips, target: float) -> None:
    correct, u = sample
    best = 0
    for t in u:
        accept = u <= t
        if correct[accept].mean() >= target - TOLERANCE:
            best = max(best, int(accept.sum()))
    assert operating_point(correct, u, target).accepted == best


@settings(deadline=None)
@given(clips(), targets)
def test_a_higher_target_never_covers_more(sample: Clips, target: float) -> None:
    assert operating_point(*sample, target=1.0).coverage <= operating_point(*sample, target=target).coverage


def test_a_threshold_chosen_elsewhere_is_judged_on_these_clips() -> None:
    point = point_at(CORRECT, SCORE, threshold=0.3, target=0.99)
    assert point == OperatingPoint(0.99, 0.3, 2 / 3, 3 / 5, 2 / 5, 3, 5)


# ---- kept in a model file


@settings(deadline=None)
@given(clips(), targets)
def test_json_changes_no_decision(sample: Clips, target: float) -> None:
    correct, u = sample
    point = operating_point(correct, u, target)
    kept = OperatingPoint.from_dict(json.loads(json.dumps(point.to_dict(), allow_nan=False)))
    assert kept == point
    in_float32 = withheld(u, kept.threshold)
    np.testing.assert_array_equal(in_float32, u.astype(np.float64) > kept.threshold)
    assert (~in_float32).sum() == point.accepted


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


# ---- refused input


@pytest.mark.parametrize(
    ("correct", "uncertainty", "message"),
    [
        ([], [], "at least one score"),
        ([True], [[0.1]], "one dimension"),
        ([True, False], [0.1], "equal shapes"),
        ([True, False], [0.1, np.nan], "uncertainty\\[1\\]=nan"),
        ([True, False], [np.inf, 0.1], "uncertainty\\[0\\]=inf"),
        ([True, False], [1e39, 0.1], "uncertainty\\[0\\]=inf"),
        ([1, 0], [0.1, 0.2], "expected bool"),
    ],
)
def test_unusable_arrays_are_refused(correct: list[bool], uncertainty: list[float], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        operating_point(correct, uncertainty, target=0.9)


@pytest.mark.parametrize("target", [0, -0.1, 99.5, np.nan])
def test_a_target_that_is_no_fraction_is_refused(target: float) -> None:
    with pytest.raises(SettingError, match="target="):
        operating_point(CORRECT, SCORE, target)
