"""Measures of a classifier that may abstain: hand-made cases and independent sources."""

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
from kws_export.evaluation import metrics

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
    ],
)
def test_unusable_input_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        call()
