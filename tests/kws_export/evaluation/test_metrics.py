"""Measures of a classifier that may abstain: hand-made cases, independent sources, and the calibration's promise."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from sklearn.calibration import calibration_curve

from kws_edge.errors import SettingError
from kws_edge.model.selection import WITHHOLD_ALL, OperatingPoint, operating_point
from kws_export.evaluation import metrics
from kws_export.evaluation.scoring import _promises

Clips = tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]

CORRECT = np.array([True, True, False, True, False])
SCORE = np.array([0.1, 0.2, 0.3, 0.4, 0.5])

clips: st.SearchStrategy[Clips] = st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=1, max_size=30).map(
    lambda pairs: (np.array([c for c, _ in pairs]), np.array([u for _, u in pairs]))
)


# ---- ranking


def test_aurc_of_five_clips() -> None:
    assert metrics.aurc(CORRECT, SCORE) == pytest.approx((0 + 0 + 1 / 3 + 1 / 4 + 2 / 5) / 5)


def test_aurc_of_a_constant_score_is_the_error_rate() -> None:
    assert metrics.aurc(CORRECT, np.full(5, 0.5)) == pytest.approx(2 / 5)


@settings(deadline=None)
@given(clips)
def test_aurc_is_the_mean_risk_at_each_clips_own_score(sample: Clips) -> None:
    correct, u = sample
    assert metrics.aurc(correct, u) == pytest.approx(np.mean([1 - correct[u <= t].mean() for t in u]))


@settings(deadline=None)
@given(clips)
def test_auroc_is_the_share_of_pairs_in_order(sample: Clips) -> None:
    correct, u = sample
    if correct.all() or not correct.any():
        with pytest.raises(SettingError, match="at least one right and one wrong"):
            metrics.auroc_errors(correct, u)
        return
    right, wrong = u[correct][:, None], u[~correct][None, :]
    share = ((right < wrong) + 0.5 * (right == wrong)).mean()
    assert metrics.auroc_errors(correct, u) == pytest.approx(share)
    assert metrics.auroc_ood(inside=u[correct], outside=u[~correct]) == pytest.approx(share)


def test_auroc_ood_is_one_where_every_outsider_is_more_uncertain() -> None:
    assert metrics.auroc_ood(inside=[0.1, 0.2, 0.3], outside=[0.4, 0.9]) == 1


# ---- probabilities


def test_calibration_error_of_two_bins() -> None:
    confidence, correct = [0.6, 0.7, 0.9, 1.0], np.array([True, False, True, True])
    # (0.5, 0.75] holds confidence 0.65 at accuracy 0.5; (0.75, 1] holds 0.95 at 1.
    assert metrics.expected_calibration_error(correct, confidence, bins=4) == pytest.approx((0.15 + 0.05) / 2)


def test_a_confidence_on_an_edge_belongs_to_the_bin_below() -> None:
    table = metrics.reliability_table(np.array([True, True, False]), [0.0, 0.5, 0.51], bins=2)
    assert table.lower.tolist() == [0.0, 0.5]
    assert table.upper.tolist() == [0.5, 1.0]
    assert table.count.tolist() == [2, 1]


@settings(deadline=None)
@given(hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1)), st.integers(1, 20), st.data())
def test_the_reliability_table_is_scikit_learns_curve(
    confidence: npt.NDArray[np.float64], bins: int, data: st.DataObject
) -> None:
    correct = data.draw(hnp.arrays(np.bool_, confidence.shape))
    table = metrics.reliability_table(correct, confidence, bins)
    if correct.all() or not correct.any():  # scikit-learn wants both
        assert set(table.accuracy) == {float(correct[0])}
    else:
        accuracy, mean = calibration_curve(correct, confidence, n_bins=bins)
        np.testing.assert_allclose(table.accuracy, accuracy)
        np.testing.assert_allclose(table.confidence, mean)
    assert table.count.sum() == len(confidence)


def test_confidence_that_is_always_right_by_its_own_measure_has_no_calibration_error() -> None:
    correct = np.arange(10) < 8
    assert metrics.expected_calibration_error(correct, np.full(10, 0.8)) == pytest.approx(0)


# ---- intervals


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [(10, 10, 0.025**0.1, 1), (0, 10, 0, 1 - 0.025**0.1), (8, 10, 0.4439, 0.9748)],  # 8 of 10: the textbook's pair
)
def test_accuracy_interval(hits: int, total: int, low: float, high: float) -> None:
    assert metrics.accuracy_interval(hits, total) == pytest.approx((low, high), abs=5e-5)


def test_bootstrap_of_a_mean_agrees_with_scipy() -> None:
    x = np.random.default_rng(1).normal(size=200)
    ours = metrics.bootstrap_interval(np.mean, x, resamples=2000)
    theirs = stats.bootstrap((x,), np.mean, method="percentile", n_resamples=2000).confidence_interval
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.03)


def test_bootstrap_redraws_clips_alike_in_all_arrays() -> None:
    label = np.arange(50) % 3
    p = np.eye(3)[label]

    def off(p: np.ndarray, label: np.ndarray) -> float:
        return float((p.argmax(axis=1) != label).mean())

    assert metrics.bootstrap_interval(off, p, label, resamples=20) == (0, 0)


def test_bootstrap_is_repeatable() -> None:
    x = np.arange(30.0)
    first, second = (metrics.bootstrap_interval(np.mean, x, resamples=50, seed=7) for _ in range(2))
    assert first == second


def test_mean_and_two_sigma_over_three_seeds() -> None:
    assert metrics.mean_2sigma([0.95, 0.96, 0.97]) == pytest.approx((0.96, 0.02))


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
    broken = {metrics.conservative_operating_point: 0, operating_point: 0}
    coverage = []
    for _ in range(trials):
        correct, u = population(rng, 2000, steps)
        for rule in broken:
            point = rule(correct, u, target)
            broken[rule] += point.accepted > 0 and true_accuracy(point.threshold, steps) < target
        coverage.append(metrics.conservative_operating_point(correct, u, target).coverage)
    assert broken[metrics.conservative_operating_point] <= 0.05 * trials
    assert broken[operating_point] > 0.2 * trials
    assert np.mean(coverage) > 0.75  # 0.95 has exactly 99 % in the population


@pytest.mark.parametrize(("n", "accepted"), [(529, 528), (528, 0)])
def test_without_errors_528_accepted_clips_show_99_percent(n: int, accepted: int) -> None:
    # 0.99^528 ≤ 0.05 / 10 < 0.99^527; one clip more marks the end of the accepted ones.
    point = metrics.conservative_operating_point(np.ones(n, bool), np.arange(n), target=0.99)
    assert point.accepted == accepted


def test_what_cannot_be_promised_is_withheld() -> None:
    n = 4000
    scattered = np.arange(n) % 20 != 0  # 95 % right at every coverage
    point = metrics.conservative_operating_point(scattered, np.arange(n), target=0.99)
    assert (point.threshold, point.coverage, point.accepted_accuracy) == (WITHHOLD_ALL, 0, None)


def test_clips_that_are_withheld_with_a_tie_show_nothing() -> None:
    # Every rank from 528 up falls among the equal scores, which only 500 clips lie below: too few for 99 %.
    score = np.repeat([0.1, 0.2], [500, 1500])
    assert metrics.conservative_operating_point(np.ones(2000, bool), score, target=0.99).accepted == 0


def test_a_constant_score_promises_nothing() -> None:
    point = metrics.conservative_operating_point(np.ones(2000, bool), np.full(2000, 0.5), target=0.9)
    assert point.accepted == 0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.9, 0.98))
def test_the_bound_holds_for_what_is_accepted(seed: int, target: float) -> None:
    correct, u = population(np.random.default_rng(seed), 1500)
    point = metrics.conservative_operating_point(correct, u, target)
    hits = round(point.total_accuracy * point.total)
    assert stats.binom.sf(hits - 1, point.accepted, target) <= 0.05 / 10 + 1e-9
    assert point.coverage <= operating_point(correct, u, target).coverage


# ---- refused input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.aurc([], []), "at least one score"),
        (lambda: metrics.auroc_errors(CORRECT, SCORE[:4]), "equal shapes"),
        (lambda: metrics.auroc_ood([0.1, np.nan], [0.2]), "inside\\[1\\]=nan"),
        (lambda: metrics.auroc_ood([0.1], []), "outside of shape"),
        (lambda: metrics.reliability_table(CORRECT, SCORE + 0.6), "confidence from"),
        (lambda: metrics.reliability_table(CORRECT, [np.nan] * 5), "confidence\\[0\\]=nan"),
        (lambda: metrics.reliability_table(CORRECT, SCORE, bins=0), "bins=0"),
        (lambda: metrics.accuracy_interval(0, 0), "0 hits of 0"),
        (lambda: metrics.accuracy_interval(1, 2, confidence=95), "confidence=95"),
        (lambda: metrics.bootstrap_interval(np.mean, []), "equal lengths above 0"),
        (lambda: metrics.bootstrap_interval(metrics.aurc, CORRECT, SCORE[:3]), "\\[5, 3\\] rows"),
        (lambda: metrics.bootstrap_interval(np.mean, SCORE, resamples=0), "resamples=0"),
        (lambda: metrics.mean_2sigma([0.9]), "two or more"),
        (lambda: metrics.mean_2sigma([0.9, np.nan]), "finite"),
        (lambda: metrics.conservative_operating_point(CORRECT, SCORE, target=1), "target=1"),
        (lambda: metrics.conservative_operating_point(CORRECT, SCORE, target=0.9, levels=0), "levels=0"),
    ],
)
def test_unusable_input_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        call()


@pytest.mark.parametrize("target", [0.99, 0.995, 0.999])
def test_a_point_is_shown_from_as_many_clips_on_as_the_rule_takes(target: float) -> None:
    fewest = metrics.fewest_to_promise(target)
    for n, told in ((fewest - 1, False), (fewest, True)):
        low, high = metrics.accuracy_interval(n, n)
        assert OperatingPoint(target, 0.5, 1.0, 1.0, 1.0, n, n, low, high).is_shown is told


@pytest.mark.parametrize("n", [860, 1100, 4000])
@pytest.mark.parametrize("errors", [0, 8, 40])
def test_what_is_shown_is_what_the_conservative_rule_accepts(n: int, errors: int) -> None:
    correct, u = np.ones(n, bool), np.linspace(0, 1, n).astype(np.float32)
    correct[n - errors :] = False
    for point in _promises(correct, u):
        assert point.is_shown is (metrics.conservative_operating_point(correct, u, point.target).accepted > 0)
