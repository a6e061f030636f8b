"""Studies beyond the paper: hand-made cases, exhaustive search, independent sources."""

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, gaussian_kde

from kws_edge.errors import SettingError
from kws_edge.model.selection import TOLERANCE, WITHHOLD_ALL
from kws_export.evaluation import studies
from kws_export.evaluation.studies import TwoThresholds, two_thresholds
from kws_export.evaluation.thresholds import conservative_operating_point, operating_point, point_at

Clips = tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64], npt.NDArray[np.float64]]

clips: st.SearchStrategy[Clips] = st.lists(
    st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=25
).map(
    lambda rows: (
        np.array([r[0] for r in rows]),
        np.array([r[1] / 6 for r in rows]),
        np.array([r[2] / 6 for r in rows]),
    )
)
targets = st.sampled_from([0.5, 0.75, 0.9, 1.0])


# ---- two thresholds


def test_two_thresholds_cut_two_errors_that_neither_score_ranks_last() -> None:
    correct = np.array([True, True, True, True, False, False])
    entropy = np.array([0.1, 0.2, 0.5, 0.6, 0.9, 0.3])
    vacuity = np.array([0.1, 0.5, 0.2, 0.6, 0.3, 0.9])
    pair = two_thresholds(correct, entropy, vacuity, 1.0)
    assert pair.accepted(entropy, vacuity).tolist() == [True, True, True, True, False, False]
    assert pair == pytest.approx(TwoThresholds(0.75, 0.75))  # halfway between the last accepted and the first withheld
    assert operating_point(correct, entropy, 1.0).coverage == pytest.approx(2 / 6)
    assert operating_point(correct, vacuity, 1.0).coverage == pytest.approx(2 / 6)


def test_two_thresholds_withhold_all_where_no_pair_reaches_the_target() -> None:
    pair = two_thresholds(np.array([False, False]), np.array([0.1, 0.2]), np.array([0.1, 0.2]), 0.5)
    assert pair == (WITHHOLD_ALL, WITHHOLD_ALL)
    assert not pair.accepted(np.array([0.0, 0.1]), np.array([0.0, 0.1])).any()


def test_two_thresholds_accept_all_where_all_is_right() -> None:
    u = np.array([0.3, 0.1, 0.2])
    assert two_thresholds(np.array([True] * 3), u, u[::-1], 1.0).accepted(u, u[::-1]).all()


@given(clips, targets)
def test_two_thresholds_are_the_best_of_all_pairs(case: Clips, target: float) -> None:
    correct, entropy, vacuity = case
    best = (0, 0)
    for t1, t2 in product(np.unique(entropy), np.unique(vacuity)):
        kept = (entropy <= t1) & (vacuity <= t2)
        if kept.any() and correct[kept].mean() >= target - TOLERANCE:
            best = max(best, (int(kept.sum()), int(correct[kept].sum())))
    kept = two_thresholds(correct, entropy, vacuity, target).accepted(entropy, vacuity)
    assert (kept.sum(), correct[kept].sum()) == best


@given(clips, targets)
def test_two_thresholds_cover_no_less_than_one_on_the_clips_that_chose_them(case: Clips, target: float) -> None:
    correct, entropy, vacuity = case
    coverage = two_thresholds(correct, entropy, vacuity, target).accepted(entropy, vacuity).mean()
    for u in (entropy, vacuity):
        assert coverage >= operating_point(correct, u, target).coverage - 1e-12


@given(clips, targets)
def test_two_thresholds_keep_their_decisions_under_monotone_maps(case: Clips, target: float) -> None:
    correct, entropy, vacuity = case
    kept = two_thresholds(correct, entropy, vacuity, target).accepted(entropy, vacuity)
    e, v = entropy**3, np.exp(vacuity)
    again = two_thresholds(correct, e, v, target).accepted(e, v)
    assert (again.sum(), correct[again].sum()) == (kept.sum(), correct[kept].sum())


@pytest.mark.parametrize(
    ("vacuity", "target", "message"),
    [([0.1], 0.9, "equal shapes"), ([0.1, np.nan], 0.9, "finite"), ([0.1, 0.2], 1.5, "target=1.5")],
)
def test_two_thresholds_refuse_what_does_not_pair(vacuity: list[float], target: float, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        two_thresholds(np.array([True, False]), np.array([0.1, 0.2]), np.array(vacuity), target)


# ---- differences


def test_a_rule_does_not_differ_from_itself() -> None:
    kept = np.arange(200)[:, None] % 3 > 0
    correct = np.arange(200)[:, None] % 7 > 0
    assert studies.coverage_difference(kept, kept) == (0, 0, 0)
    assert studies.accepted_accuracy_difference(correct, kept, kept) == (0, 0, 0)


def test_differences_are_means_over_the_runs_with_an_interval_around_them() -> None:
    n = np.arange(1000)
    first = np.stack([n < 900, n < 800], axis=1)
    second = np.stack([n < 800, n < 600], axis=1)
    correct = np.stack([n < 850, n < 1000], axis=1)
    value, low, high = studies.coverage_difference(first, second)
    assert value == pytest.approx((0.1 + 0.2) / 2)
    assert low < value < high
    assert high - low == pytest.approx(
        2 * 1.96 * np.std(first.mean(1) * 1.0 - second.mean(1)) / np.sqrt(1000), rel=0.15
    )
    found = studies.accepted_accuracy_difference(correct, first, second)
    assert found is not None
    assert found.value == pytest.approx(((850 / 900 - 1) + 0) / 2)
    assert found.low < found.value < found.high < 0


def test_no_accepted_accuracy_is_compared_where_a_rule_accepts_next_to_nothing() -> None:
    many, few = np.ones((100, 1), bool), np.arange(100)[:, None] < 29
    assert studies.accepted_accuracy_difference(many, many, few) is None


def test_rules_on_different_clips_are_not_compared() -> None:
    with pytest.raises(SettingError, match=r"\[\(5, 1\), \(4, 1\)\]|\(4, 1\)"):
        studies.coverage_difference(np.ones((5, 1), bool), np.ones((4, 1), bool))
    with pytest.raises(SettingError, match=r"expected one shape, \[n, runs\]"):
        studies.coverage_difference(np.ones(5, bool), np.ones(5, bool))


# ---- promises


def test_an_accepted_accuracys_interval_is_that_of_clopper_and_pearson() -> None:
    interval = studies.accepted_interval(400, 0.99)
    assert interval is not None
    assert interval == pytest.approx((beta.ppf(0.025, 396, 5), beta.ppf(0.975, 397, 4)))
    assert studies.accepted_interval(0, 0.0) is None


@pytest.mark.parametrize(("hits", "kept"), [(199, True), (198, False)])
def test_a_promise_is_kept_from_the_target_on(hits: int, kept: bool) -> None:
    correct = np.arange(200) < hits
    assert studies.is_kept(point_at(correct, np.zeros(200), 0.5, 0.995)) is kept


def test_what_accepts_nothing_keeps_its_promise() -> None:
    assert studies.is_kept(point_at(np.array([False]), np.array([0.1]), WITHHOLD_ALL, 0.99))


def population(n: int, seed: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Clips whose error rate rises with their score, from 0 to 5 %."""
    rng = np.random.default_rng(seed)
    u = rng.random(n)
    return rng.random(n) >= 0.05 * u, u


def test_in_halves_the_papers_rule_keeps_about_half_of_its_promises_and_the_conservative_one_nearly_all() -> None:
    correct, u = population(6000, seed=1)
    plain = studies.promise_in_halves(operating_point, correct, u, 0.98)
    careful = studies.promise_in_halves(conservative_operating_point, correct, u, 0.98)
    assert plain.promised == 1
    assert 0.25 < plain.kept < 0.75
    assert careful.kept >= 0.95
    assert 0.2 < careful.coverage < plain.coverage


def test_in_halves_what_cannot_be_promised_is_counted_and_covers_nothing() -> None:
    correct, u = population(1000, seed=1)
    assert studies.promise_in_halves(conservative_operating_point, correct, u, 0.999) == (1.0, 0.0, 0.0)


def test_in_halves_all_is_kept_and_covered_where_all_is_right() -> None:
    assert studies.promise_in_halves(operating_point, np.ones(10, bool), np.zeros(10), 0.99) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(("n", "splits"), [(1, 10), (10, 0)])
def test_halves_need_two_clips_and_a_split(n: int, splits: int) -> None:
    with pytest.raises(SettingError, match=f"{n} clips, splits={splits}"):
        studies.promise_in_halves(operating_point, np.ones(n, bool), np.zeros(n), 0.9, splits=splits)


# ---- curves


@given(clips, st.lists(st.floats(0, 1, width=32), min_size=1, max_size=5))
def test_a_curve_is_what_each_threshold_gives(case: Clips, thresholds: list[float]) -> None:
    correct, u, _ = case
    curve = studies.curve_at(correct, u, thresholds)
    for i, t in enumerate(thresholds):
        point = point_at(correct, u, t, 0.9)
        assert curve.coverage[i] == pytest.approx(point.coverage)
        assert curve.total_accuracy[i] == pytest.approx(point.total_accuracy)
        if point.accepted_accuracy is None:
            assert np.isnan(curve.accepted_accuracy[i])
        else:
            assert curve.accepted_accuracy[i] == pytest.approx(point.accepted_accuracy)


def test_risk_at_coverage_of_five_clips() -> None:
    correct = np.array([True, True, False, True, False])
    u = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    assert studies.risk_at_coverage(correct, u, [0.2, 0.4, 0.5, 0.6, 1.0]) == pytest.approx([0, 0, 1 / 3, 1 / 3, 2 / 5])


def test_risk_at_coverage_accepts_equal_scores_together() -> None:
    assert studies.risk_at_coverage(np.array([True, False]), np.array([0.5, 0.5]), [0.1]) == pytest.approx([0.5])


@pytest.mark.parametrize("share", [0.0, 1.1])
def test_there_is_no_risk_of_no_clips_or_of_more_than_all(share: float) -> None:
    with pytest.raises(SettingError, match="above 0, at most 1"):
        studies.risk_at_coverage(np.array([True]), np.array([0.1]), [share])


# ---- densities

GRID = np.linspace(0, 1, 1001)


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40), st.sampled_from([0.01, 0.05, 0.2]))
def test_a_density_has_area_1_wherever_the_values_are(values: list[float], bandwidth: float) -> None:
    density = studies.bounded_density(values, GRID, bandwidth)
    assert np.trapezoid(density, GRID) == pytest.approx(1, abs=2e-3)


def test_evenly_spread_values_have_density_1_up_to_the_ends() -> None:
    assert studies.bounded_density((np.arange(2000) + 0.5) / 2000, GRID, 0.05) == pytest.approx(np.ones(1001), abs=0.01)


def test_far_from_the_ends_a_density_is_scipys() -> None:
    values = np.random.default_rng(0).uniform(0.4, 0.6, 50)
    kde = gaussian_kde(values, bw_method=0.02 / values.std(ddof=1))
    assert studies.bounded_density(values, GRID, 0.02) == pytest.approx(kde(GRID), abs=1e-5)


def test_a_density_is_mirrored_with_its_values() -> None:
    values = np.random.default_rng(0).random(30) ** 4
    mirrored = studies.bounded_density(1 - values, GRID, 0.03)
    assert mirrored == pytest.approx(studies.bounded_density(values, GRID, 0.03)[::-1], rel=1e-4)


@pytest.mark.parametrize(
    ("values", "bandwidth", "message"),
    [
        ([1.2], 0.1, "expected 0 to 1"),
        ([-0.1], 0.1, "expected 0 to 1"),
        ([0.5], 0.0, "bandwidth=0.0"),
        ([0.5], 0.5, "bandwidth=0.5"),
    ],
)
def test_a_density_needs_values_within_the_bounds_and_a_bandwidth(
    values: list[float], bandwidth: float, message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        studies.bounded_density(values, GRID, bandwidth)
