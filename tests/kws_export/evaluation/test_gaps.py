"""The gap between the losses: what the functions say of α drawn at random is what sampling the Dirichlet says."""

import numpy as np
import pytest
from scipy.special import digamma

from kws_edge.errors import SettingError
from kws_export.evaluation import bounds
from kws_export.evaluation.gaps import MSE_LIPSCHITZ, Gaps
from kws_export.evaluation.score_file import KeptAnswers

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 3, (500, 6)).astype(np.float32)
TRUTH = RNG.integers(6, size=500).astype(np.int16)


def answers(logits: np.ndarray | None = LOGITS) -> KeptAnswers:
    nothing = np.zeros(len(TRUTH), np.float32)
    return KeptAnswers(TRUTH, TRUTH, nothing, nothing, logits=logits)


@pytest.mark.parametrize("variant", ["plugin_ce", "softmax", "softplus"])
def test_every_bound_holds_on_every_clip(variant: str) -> None:
    g = Gaps.of(answers(), variant)
    assert (g.ce >= 0).all()
    assert (g.ce <= g.ce_bound).all()
    assert (g.mse <= g.mse_tight).all()
    assert (g.mse_tight <= g.mse_loose).all()


def test_the_gap_is_the_expected_loss_less_the_plugin_loss() -> None:
    g = Gaps.of(answers(), "plugin_ce")
    alpha = np.log1p(np.exp(LOGITS.astype(np.float64))) + 1
    of_truth = alpha[np.arange(500), TRUTH]
    np.testing.assert_allclose(g.ce, digamma(alpha.sum(1)) - digamma(of_truth) - g.plugin_ce, atol=1e-9)
    np.testing.assert_allclose(g.plugin_ce, np.log(alpha.sum(1)) - np.log(of_truth))


@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_the_remainder_of_a_much_observed_word_is_within_its_bound(scale: float) -> None:
    alpha, y = np.array([[8.0, 1.0, 1.0]]) * scale, np.array([0])
    rest = bounds.ce_correction(alpha, y) - bounds.ce_second_order(alpha, y)
    assert abs(rest[0]) <= bounds.remainder_bound(alpha.sum(), 2 / 0.8**3)
    draws = np.random.default_rng(1).dirichlet(alpha[0], 400_000)
    gap = float(-np.log(draws[:, 0]).mean() + np.log(0.8))
    assert gap == pytest.approx(float(bounds.ce_correction(alpha, y)[0]), abs=2e-3)


def test_the_tight_bound_follows_how_peaked_the_mean_is() -> None:
    flat, peaked = np.array([5.0, 5.0]), np.array([9.9, 0.1])
    assert bounds.tight_lipschitz_gap_bound(peaked, 1) < 0.3 * bounds.tight_lipschitz_gap_bound(flat, 1)
    assert bounds.tight_lipschitz_gap_bound(flat, 1) == pytest.approx(np.sqrt(0.5 / 11))
    assert bounds.lipschitz_gap_bound(10, MSE_LIPSCHITZ) == pytest.approx(2 * np.sqrt(2) / np.sqrt(11))


def test_the_summary_is_of_all_clips() -> None:
    g = Gaps.of(answers(), "softmax")
    s = g.summary()
    assert s["alpha0_median"] == np.median(np.exp(LOGITS.astype(np.float64)).sum(1))
    assert s["alpha0_ten"] == pytest.approx((np.exp(LOGITS.astype(np.float64)).sum(1) >= 10).mean())
    assert 0 < s["ce_gap_share"] < 1


def test_scores_without_logits_are_refused() -> None:
    with pytest.raises(SettingError, match="no logits"):
        Gaps.of(answers(None), "softmax")


def test_a_third_derivative_below_zero_is_refused() -> None:
    with pytest.raises(SettingError, match="third=-1"):
        bounds.remainder_bound(1.0, -1.0)
