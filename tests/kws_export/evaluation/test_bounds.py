"""The corrections are the difference between the losses, and the bounds hold, for random α."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kws_edge.arrays import F64
from kws_edge.errors import SettingError
from kws_export.evaluation import bounds
from kws_export.training import losses

# Evenly spread in the exponent: mass near 0 and far out, where the formulas differ most.
EXPONENTS = st.lists(st.floats(-3, 12), min_size=2, max_size=12)
ALPHAS = EXPONENTS.map(lambda exponents: 10.0 ** np.array(exponents))


@given(alpha=ALPHAS, data=st.data())
def test_ce_correction_is_dirichlet_ce_minus_plug_in_ce(alpha: F64, data: st.DataObject) -> None:
    label = data.draw(st.integers(0, len(alpha) - 1))
    a, y = torch.from_numpy(alpha)[None], torch.tensor([label])
    gap = (losses.dirichlet_ce(a, y) - losses.plugin_ce(a, y)).item()
    assert bounds.ce_correction(alpha, label) == pytest.approx(gap, rel=1e-9, abs=1e-12)


@given(alpha=ALPHAS, data=st.data())
def test_mse_correction_is_dirichlet_mse_minus_plug_in_mse(alpha: F64, data: st.DataObject) -> None:
    label = data.draw(st.integers(0, len(alpha) - 1))
    a, y = torch.from_numpy(alpha)[None], torch.tensor([label])
    gap = (losses.dirichlet_mse(a, y) - losses.plugin_mse(a, y)).item()
    assert bounds.mse_correction(alpha) == pytest.approx(gap, rel=1e-9, abs=1e-12)


@given(alpha=ALPHAS, data=st.data())
def test_ce_correction_is_within_its_bound(alpha: F64, data: st.DataObject) -> None:
    label = data.draw(st.integers(0, len(alpha) - 1))
    p_y = alpha[label] / alpha.sum()
    delta = p_y * data.draw(st.floats(0.01, 1))
    correction = bounds.ce_correction(alpha, label)
    assert 0 <= correction <= bounds.ce_correction_bound(alpha.sum(), delta)


@given(alpha=ALPHAS)
def test_mse_correction_is_the_dirichlets_variance_and_vanishes_as_one_over_alpha0(alpha: F64) -> None:
    variance = torch.distributions.Dirichlet(torch.from_numpy(alpha)).variance.sum().item()
    correction = bounds.mse_correction(alpha)
    assert correction == pytest.approx(variance, rel=1e-9)
    assert correction <= (1 - 1 / len(alpha)) / (alpha.sum() + 1) * (1 + 1e-12)


def distance_to_a_corner(p: F64) -> F64:
    return np.asarray(np.linalg.norm(p - np.eye(p.shape[-1])[0], axis=-1))


def most_probable(p: F64) -> F64:
    return np.asarray(p.max(axis=-1))


def weighted_sum(p: F64) -> F64:
    return np.asarray(np.abs(p @ np.linspace(-1, 1, p.shape[-1])))


@settings(max_examples=25)
@given(alpha=st.lists(st.floats(0.05, 200), min_size=2, max_size=6).map(np.array))
@pytest.mark.parametrize(
    ("loss", "constant"),
    [
        (distance_to_a_corner, lambda K: 1.0),
        (most_probable, lambda K: 1.0),
        (weighted_sum, lambda K: float(np.linalg.norm(np.linspace(-1, 1, K)))),
    ],
)
def test_the_gap_of_a_lipschitz_loss_is_within_its_bound(
    loss: Callable[[F64], F64], constant: Callable[[int], float], alpha: F64
) -> None:
    values = loss(np.random.default_rng(0).dirichlet(alpha, size=4000))
    gap = abs(values.mean() - loss(alpha / alpha.sum()))
    sampling_error = 5 * values.std() / np.sqrt(len(values))
    assert gap <= bounds.lipschitz_gap_bound(alpha.sum(), constant(len(alpha))) + sampling_error


def test_lipschitz_bound_is_the_designs_formula() -> None:
    np.testing.assert_allclose(bounds.lipschitz_gap_bound([3.0, 24.0], lipschitz=2.0), [1.0, 0.4])


def test_ce_bound_is_the_designs_formula() -> None:
    np.testing.assert_allclose(bounds.ce_correction_bound([10.0, 10.0], [1.0, 0.25]), [0.2, 0.5])


def test_ce_correction_keeps_its_digits_where_both_losses_have_rounded_to_the_same() -> None:
    """By ψ(x) − log x = −1/(2x) − 1/(12x²) + 1/(120x⁴) − …, with x = 2a and x = a for α = (a, a)."""
    for a in (1e3, 1e6, 1e20, 5e34):
        expected = 1 / (4 * a) + 1 / (16 * a**2) - 1 / (128 * a**4)
        assert bounds.ce_correction([a, a], 1) == pytest.approx(expected, rel=1e-12)


def test_batches_give_what_single_rows_give() -> None:
    alpha = np.random.default_rng(0).gamma(2.0, size=(4, 3, 5))
    labels = np.random.default_rng(1).integers(5, size=(4, 3))
    ce, mse = bounds.ce_correction(alpha, labels), bounds.mse_correction(alpha)
    for i in np.ndindex(4, 3):
        assert ce[i] == bounds.ce_correction(alpha[i], labels[i])
        assert mse[i] == bounds.mse_correction(alpha[i])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.lipschitz_gap_bound(0.0, 1.0), "alpha0 down to 0.0"),
        (lambda: bounds.lipschitz_gap_bound(1.0, -1.0), "lipschitz=-1.0"),
        (lambda: bounds.ce_correction([1.0, 0.0], 0), "alpha down to 0.0"),
        (lambda: bounds.ce_correction([1.0, np.nan], 0), "alpha down to nan"),
        (lambda: bounds.ce_correction([1.0, 2.0], 2), "expected 0 to 1"),
        (lambda: bounds.ce_correction([1.0, 2.0], -1), "expected 0 to 1"),
        (lambda: bounds.ce_correction_bound(-1.0, 0.5), "alpha0 down to -1.0"),
        (lambda: bounds.ce_correction_bound(1.0, 1.5), "delta up to 1.5"),
        (lambda: bounds.ce_correction_bound(1.0, 0.0), "delta down to 0.0"),
        (lambda: bounds.mse_correction([-1.0, 2.0]), "alpha down to -1.0"),
    ],
)
def test_values_out_of_range_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        call()


@pytest.mark.parametrize("label", [-1, 2])
@pytest.mark.parametrize("correction", [bounds.ce_correction, bounds.ce_second_order])
def test_a_label_that_there_is_not_is_refused(correction: Callable[..., F64], label: int) -> None:
    with pytest.raises(SettingError, match=f"labels from {label} to {label}; expected 0 to 1"):
        correction([1.0, 2.0], label)
