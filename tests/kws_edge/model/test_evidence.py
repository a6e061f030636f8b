"""From logits to α, p̂, vacuity and entropy: golden values, and what holds for every logit."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.special
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from kws_edge.model.evidence import (
    LOGIT_LIMIT,
    alpha,
    entropy,
    evidence,
    label,
    no_evidence,
    probability,
    softplus,
    vacuity,
)
from kws_edge.model.variants import VARIANTS, Variant

Logits = npt.NDArray[Any]
SHIFTED = VARIANTS["plugin_ce"]  # α = e + 1
SOFTMAX = VARIANTS["softmax"]  # α = e = exp(z)
FORMS = ["plugin_ce", "softmax", "softplus"]  # every pair of τ and φ that the table has


@pytest.fixture(params=FORMS)
def variant(request: pytest.FixtureRequest) -> Variant:
    return VARIANTS[request.param]


variants = st.sampled_from([VARIANTS[name] for name in FORMS])


@st.composite
def logits(draw: st.DrawFn, limit: float = 1e4) -> Logits:
    """Logits of any batch shape, 2 to 40 classes, float32 or float64."""
    shape = (*draw(array_shapes(min_dims=0, max_dims=2, max_side=5)), draw(st.integers(2, 40)))
    width = draw(st.sampled_from([32, 64]))
    return draw(arrays(f"float{width}", shape, elements=st.floats(-limit, limit, width=width)))


def rounding(z: Logits, operations: int) -> Any:
    """The factor by which so many roundings in the dtype of z can change a positive number."""
    return 1 + operations * np.finfo(z.dtype).eps


# Golden values


def test_the_class_is_argmax_of_the_logits_where_single_precision_leaves_no_difference_in_alpha() -> None:
    z = np.float32([[-18, -19, -17.5, -30], [-99, -98, -100, -97]])
    assert (alpha(z, SHIFTED) == 1).all()
    assert label(z).tolist() == [2, 3]


@pytest.mark.parametrize("x", [-700.0, -100.0, -80.0, -37.0, -20.0, -1.0, -1e-8, 0.0, 1e-8, 1.0, 20.0, 37.0, 80.0, 1e4])
def test_softplus_is_accurate_to_a_few_roundings(x: float) -> None:
    np.testing.assert_allclose(softplus(x), -scipy.special.log_expit(-x), rtol=1e-15)


def test_softplus_in_single_precision_is_accurate_to_a_few_roundings() -> None:
    x = np.linspace(-80, 80, 100_001, dtype=np.float32)
    expected = -scipy.special.log_expit(-x.astype(np.float64))
    np.testing.assert_allclose(softplus(x), expected, rtol=5e-7)


def test_softmax_evidence_gives_the_softmax() -> None:
    z = np.array([[2.0, -1.0, 0.5], [0.0, 0.0, 30.0]])
    np.testing.assert_allclose(probability(alpha(z, SOFTMAX)), scipy.special.softmax(z, axis=1), rtol=1e-14)


def test_alpha_is_the_evidence_plus_the_offset() -> None:
    z = np.array([-2.0, 0.0, 3.0])
    np.testing.assert_allclose(alpha(z, SOFTMAX), np.exp(z), rtol=1e-15)
    np.testing.assert_allclose(alpha(z, VARIANTS["softplus"]), np.logaddexp(0, z), rtol=1e-15)
    np.testing.assert_allclose(alpha(z, SHIFTED), np.logaddexp(0, z) + 1, rtol=1e-15)


@pytest.mark.parametrize("a", [[0.3, 2.0, 11.0], [1.0, 1.0], [1e-3, 5.0, 1e3, 7.0]])
def test_probability_is_the_mean_of_the_dirichlet(a: list[float]) -> None:
    np.testing.assert_allclose(probability(a), scipy.stats.dirichlet(a).mean(), rtol=1e-14)


@pytest.mark.parametrize("a", [[0.3, 2.0, 11.0], [1.0, 1.0], [1e-3, 5.0, 1e3, 7.0]])
def test_entropy_is_that_of_the_mean_over_its_maximum(a: list[float]) -> None:
    expected = scipy.stats.entropy(scipy.stats.dirichlet(a).mean(), base=len(a))
    np.testing.assert_allclose(entropy(a), expected, rtol=1e-14)


def test_vacuity_is_classes_over_strength() -> None:
    a = np.array([4.0, 1.0, 2.5, 2.5])
    assert vacuity(a, SHIFTED) == pytest.approx(4 / 10)


def test_vacuity_of_unshifted_evidence_uses_the_shifted_strength() -> None:
    evidence_ = np.array([3.0, 0.0, 1.5, 1.5])
    assert vacuity(evidence_, SOFTMAX) == pytest.approx(4 / (6 + 4))


def test_no_evidence_at_all_is_full_vacuity_and_full_entropy(variant: Variant) -> None:
    a = alpha(np.full(20, -1e4), variant)
    assert vacuity(a, variant) == 1
    assert entropy(a) == pytest.approx(1, abs=1e-15)


def test_where_the_network_is_not_asked_there_is_no_evidence(variant: Variant) -> None:
    a = no_evidence(20, variant.name)
    assert (vacuity(a, variant), a.dtype, a.flags.writeable) == (1, np.float32, False)
    np.testing.assert_allclose(probability(a), np.full(20, 1 / 20), rtol=1e-6)


# What holds for every logit


def assert_sound(z: Logits, variant: Variant) -> None:
    """Every range that is promised, in the dtype and shape of the logits."""
    a = alpha(z, variant)
    p, u, h = probability(a), vacuity(a, variant), entropy(a)
    assert {x.dtype for x in (a, p, u, h)} == {z.dtype}
    assert (a.shape, p.shape, u.shape, h.shape) == (z.shape, z.shape, z.shape[:-1], z.shape[:-1])
    assert (np.isfinite(a) & (a > 0)).all()
    assert ((u > 0) & (u <= 1)).all()
    assert ((h >= 0) & (h <= 1)).all()
    np.testing.assert_allclose(p.sum(axis=-1), 1, atol=4 * z.shape[-1] * np.finfo(z.dtype).eps)


@given(z=logits(), variant=variants)
def test_results_are_in_range_for_any_logits(z: Logits, variant: Variant) -> None:
    assert_sound(z, variant)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 20, 6_000])
def test_results_are_in_range_for_extreme_logits(variant: Variant, dtype: type, classes: int) -> None:
    one_hot = np.full(classes, -1e4)
    one_hot[0] = 1e4
    z = np.stack([one_hot, -one_hot, np.full(classes, -1e4), np.full(classes, 1e4)])
    assert_sound(z.astype(dtype), variant)


@given(z=logits(limit=LOGIT_LIMIT), variant=variants, more=st.floats(0, 10), data=st.data())
def test_more_evidence_never_raises_vacuity(z: Logits, variant: Variant, more: float, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, z.shape[-1] - 1))
    stronger = z.copy()
    stronger[..., k] += more
    slack = rounding(z, operations=z.shape[-1])
    assert (vacuity(alpha(stronger, variant), variant) <= vacuity(alpha(z, variant), variant) * slack).all()


@given(z=logits(limit=LOGIT_LIMIT), variant=variants, data=st.data())
def test_the_order_of_classes_does_not_matter(z: Logits, variant: Variant, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(z.shape[-1])))
    a, permuted = alpha(z, variant), alpha(z[..., order], variant)
    tolerance: Any = {"rtol": 100 * np.finfo(z.dtype).eps, "atol": 100 * np.finfo(z.dtype).eps}
    np.testing.assert_array_equal(permuted, a[..., order])
    np.testing.assert_allclose(probability(permuted), probability(a)[..., order], **tolerance)
    np.testing.assert_allclose(vacuity(permuted, variant), vacuity(a, variant), **tolerance)
    np.testing.assert_allclose(entropy(permuted), entropy(a), **tolerance)


@given(z=logits(), variant=variants)
def test_evidence_grows_with_the_logit(z: Logits, variant: Variant) -> None:
    e = evidence(np.sort(z, axis=-1), variant)
    assert (e[..., 1:] >= e[..., :-1] * rounding(z, operations=-4)).all()


def test_the_limit_leaves_a_sum_of_six_thousand_classes_finite_in_single_precision() -> None:
    assert 6_000 * math.exp(LOGIT_LIMIT) < np.finfo(np.float32).max
    assert math.exp(-LOGIT_LIMIT) > np.finfo(np.float32).tiny


def test_integer_logits_give_double_precision(variant: Variant) -> None:
    assert alpha([1, 2, 3], variant).dtype == np.float64


def test_softplus_evidence_is_not_capped() -> None:
    # A cap on the logit would cap p̂: at 80, with K = 20 and α = e + 1, no word could be surer than 81/100.
    z = np.zeros((1, 20))
    z[0, 3] = 2000.0
    a = alpha(z, VARIANTS["plugin_ce"])
    assert a[0, 3] == 2001
    assert probability(a)[0, 3] > 0.98
