"""What each threshold gives, and how one is chosen for a target: on these clips, and shown for others."""

import json

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kws_edge.errors import SettingError
from kws_edge.model.selection import TOLERANCE, WITHHOLD_ALL, OperatingPoint, withheld
from kws_export.evaluation.metrics import accuracy_interval
from kws_export.evaluation.scoring import _promises
from kws_export.evaluation.thresholds import (
    conservative_operating_point,
    fewest_to_promise,
    operating_point,
    point_at,
    selective_curve,
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


# ---- the conservative operating point


def population(
    rng: np.random.Generator, n: int, steps: int | None = None
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Clips with u uniform on [0, 1) and error rate 0.001 + 0.5 u²⁰; `steps` rounds u down into that many ties."""
    u = rng.random(n)
    correct = rng.random(n) >= 0.001 + 0.5 * u**20
    return correct, u if steps is None else np.floor(u * steps) / steps


def true_accuracy(threshold: float, steps: int | None) -> float:
    """Accepted accuracy of u ≤ threshold in the population: one minus the mean of the error rate from 0 to t."""
    t = threshold if steps is None else (np.floor(threshold * steps + 1e-4) + 1) / steps
    return 1 - (0.001 + 0.5 * min(t, 1) ** 20 / 21)


@pytest.mark.parametrize("steps", [None, 100], ids=["continuous", "ties"])
def test_the_promise_is_kept_where_the_plain_rule_breaks_it(steps: int | None) -> None:
    rng, trials, target = np.random.default_rng(0), 200, 0.99
    broken = {conservative_operating_point: 0, operating_point: 0}
    coverage = []
    for _ in range(trials):
        correct, u = population(rng, 2000, steps)
        for rule in broken:
            point = rule(correct, u, target)
            broken[rule] += point.accepted > 0 and true_accuracy(point.threshold, steps) < target
        coverage.append(conservative_operating_point(correct, u, target).coverage)
    assert broken[conservative_operating_point] <= 0.05 * trials
    assert broken[operating_point] > 0.2 * trials
    assert np.mean(coverage) > 0.75  # 0.95 has exactly 99 % in the population


@pytest.mark.parametrize(("n", "accepted"), [(529, 528), (528, 0)])
def test_without_errors_528_accepted_clips_show_99_percent(n: int, accepted: int) -> None:
    # 0.99^528 ≤ 0.05 / 10 < 0.99^527; one clip more marks the end of the accepted ones.
    point = conservative_operating_point(np.ones(n, bool), np.arange(n), target=0.99)
    assert point.accepted == accepted


def test_what_cannot_be_promised_is_withheld() -> None:
    n = 4000
    scattered = np.arange(n) % 20 != 0  # 95 % right at every coverage
    point = conservative_operating_point(scattered, np.arange(n), target=0.99)
    assert (point.threshold, point.coverage, point.accepted_accuracy) == (WITHHOLD_ALL, 0, None)


def test_clips_that_are_withheld_with_a_tie_show_nothing() -> None:
    # Every rank from 528 up falls among the equal scores, which only 500 clips lie below: too few for 99 %.
    score = np.repeat([0.1, 0.2], [500, 1500])
    assert conservative_operating_point(np.ones(2000, bool), score, target=0.99).accepted == 0


def test_a_constant_score_promises_nothing() -> None:
    point = conservative_operating_point(np.ones(2000, bool), np.full(2000, 0.5), target=0.9)
    assert point.accepted == 0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.9, 0.98))
def test_the_bound_holds_for_what_is_accepted(seed: int, target: float) -> None:
    correct, u = population(np.random.default_rng(seed), 1500)
    point = conservative_operating_point(correct, u, target)
    hits = round(point.total_accuracy * point.total)
    assert stats.binom.sf(hits - 1, point.accepted, target) <= 0.05 / 10 + 1e-9
    assert point.coverage <= operating_point(correct, u, target).coverage


@pytest.mark.parametrize("target", [0.99, 0.995, 0.999])
def test_a_point_is_shown_from_as_many_clips_on_as_the_rule_takes(target: float) -> None:
    fewest = fewest_to_promise(target)
    for n, told in ((fewest - 1, False), (fewest, True)):
        low, high = accuracy_interval(n, n)
        assert OperatingPoint(target, 0.5, 1.0, 1.0, 1.0, n, n, low, high).is_shown is told


@pytest.mark.parametrize("n", [860, 1100, 4000])
@pytest.mark.parametrize("errors", [0, 8, 40])
def test_what_is_shown_is_what_the_conservative_rule_accepts(n: int, errors: int) -> None:
    correct, u = np.ones(n, bool), np.linspace(0, 1, n).astype(np.float32)
    correct[n - errors :] = False
    for point in _promises(correct, u):
        assert point.is_shown is (conservative_operating_point(correct, u, point.target).accepted > 0)


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


@pytest.mark.parametrize(("target", "levels", "message"), [(1, 10, "target=1"), (0.9, 0, "levels=0")])
def test_what_no_number_of_clips_can_promise_is_refused(target: float, levels: int, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        conservative_operating_point(CORRECT, SCORE, target, levels=levels)
