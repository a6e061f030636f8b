"""The training losses, against torch.distributions, scipy, Monte-Carlo expectations and numerical gradients."""

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence
from torch.nn.functional import cross_entropy, nll_loss, one_hot

from kws_edge.arrays import F64
from kws_edge.errors import SettingError
from kws_edge.model import evidence as reference
from kws_edge.model.variants import PAPER_EPOCHS, VARIANTS, Loss, Variant, get_variant
from kws_export.training import losses

ALL = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
WITH_KL = [v for v in VARIANTS.values() if v.kl_ramp_epochs is not None]
WITHOUT_KL = [v for v in VARIANTS.values() if v.kl_ramp_epochs is None]


def full_weight(variant: Variant) -> float:
    """The largest KL weight that the variant may have."""
    return 1.0 if variant.kl_ramp_epochs is not None else 0.0


def random_logits(batch: int, classes: int, scale: float = 3.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(batch, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(classes, (batch,), generator=generator)


# From logits to α


@ALL
def test_alpha_equals_the_devices_reference(variant: Variant) -> None:
    logits = torch.linspace(-200, 200, 4001, dtype=torch.float64).reshape(-1, 1)
    expected = reference.alpha(logits.numpy(), variant)
    np.testing.assert_allclose(losses.alpha(logits, variant).numpy(), expected, rtol=1e-12)


@ALL
def test_a_runaway_logit_has_the_gradient_of_the_limit(variant: Variant) -> None:
    z = torch.tensor([[-1e4, -80.0, 80.0, 1e4]], requires_grad=True)
    losses.alpha(z, variant).log().sum().backward()
    assert z.grad is not None
    assert torch.equal(z.grad[0, 0], z.grad[0, 1])
    if variant.activation == "exp":
        assert torch.equal(z.grad[0, 3], z.grad[0, 2])
    else:  # d log α / dz = 1/α: softplus has no upper limit
        assert z.grad[0, 3] == pytest.approx(1 / (1e4 + variant.alpha_offset))
    assert (z.grad > 0).all()


# The four data losses


def test_golden_values() -> None:
    """From scipy.special.digamma and gammaln, for α = (2.5, 1, 0.25, 40) and true class 2."""
    alpha, label = torch.tensor([[2.5, 1.0, 0.25, 40.0]], dtype=torch.float64), torch.tensor([2])
    golden: dict[Loss, float] = {
        "dirichlet_ce": 7.994473039610393,
        "dirichlet_mse": 1.8318914604948124,
        "plugin_ce": 5.1647859739235145,
        "plugin_mse": 1.8283102040816326,
    }
    for name, expected in golden.items():
        assert losses.DATA_LOSSES[name](alpha, label).item() == pytest.approx(expected, rel=1e-12), name
    assert losses.kl_to_uniform(alpha).item() == pytest.approx(8.457447716209586, rel=1e-12)


@pytest.mark.parametrize("alpha", [[0.3, 0.7, 2.0], [1.0, 1.0, 1.0], [12.0, 3.0, 1.5], [1.0, 2.0, 60.0]])
def test_dirichlet_losses_are_expectations_over_the_dirichlet(alpha: list[float]) -> None:
    a, n, label = np.array(alpha), 200_000, 1
    p = np.random.default_rng(0).dirichlet(a, size=n)
    sampled: dict[Loss, F64] = {
        "dirichlet_ce": -np.log(p[:, label]),
        "dirichlet_mse": ((p - np.eye(3)[label]) ** 2).sum(-1),
    }
    for name, values in sampled.items():
        loss = losses.DATA_LOSSES[name](torch.tensor(a)[None], torch.tensor([label])).item()
        assert abs(loss - values.mean()) < 4 * values.std() / np.sqrt(n), name


def test_belief_and_vacuity_losses_are_one_cross_entropy_with_a_class_for_no_word() -> None:
    logits, labels = random_logits(20, 7)
    e = losses.evidence(logits, get_variant("belief_ce"))
    with_none = torch.cat([logits, torch.full((20, 1), np.log(7))], dim=1)
    torch.testing.assert_close(losses.belief_ce(e, labels), cross_entropy(with_none, labels, reduction="none"))
    none = cross_entropy(with_none, torch.full((20,), 7), reduction="none")
    torch.testing.assert_close(losses.no_word_loss(e), none)


def test_loss_of_windows_is_the_cross_entropy_of_their_mean_masses() -> None:
    logits, labels = random_logits(18, 7)
    labels[::4] = -1
    windows = logits.view(6, 3, 7)
    with_none = torch.cat([windows, torch.full((6, 3, 1), np.log(7))], dim=2)
    said = torch.where(labels[:6] < 0, 7, labels[:6])
    expected = nll_loss(with_none.softmax(2).mean(1).log(), said)
    torch.testing.assert_close(losses.evidential_loss(windows, labels[:6], get_variant("belief_ce")), expected)


def test_one_window_in_succession_is_a_window() -> None:
    logits, labels = random_logits(20, 7)
    labels[::4] = -1
    variant = get_variant("belief_ce")
    one = losses.evidential_loss(logits[:, None], labels, variant)
    torch.testing.assert_close(one, losses.evidential_loss(logits, labels, variant))


def test_windows_in_succession_have_no_kl_term_either() -> None:
    with pytest.raises(SettingError, match=r"kl_weight=0\.5 for variant belief_ce; expected 0, as it has no KL term"):
        losses.evidential_loss(torch.zeros(2, 3, 7), torch.zeros(2, dtype=torch.int64), get_variant("belief_ce"), 0.5)


def test_windows_in_succession_need_the_belief_masses() -> None:
    with pytest.raises(SettingError, match="windows in succession for variant softmax; expected belief_ce"):
        losses.evidential_loss(torch.zeros(2, 3, 7), torch.zeros(2, dtype=torch.int64), get_variant("softmax"))


def test_a_confident_mistake_about_a_window_without_a_word_has_a_full_gradient() -> None:
    gradients = {}
    for name, logit in (("belief_ce", np.log(200.0)), ("plugin_ce", 200.0)):  # both are an evidence of 200
        z = torch.full((1, 20), -10.0, dtype=torch.float64)
        z[0, 3] = logit
        z.requires_grad_()
        losses.evidential_loss(z, torch.tensor([-1]), get_variant(name)).backward()
        assert z.grad is not None
        gradients[name] = z.grad[0, 3].item()
    assert gradients["belief_ce"] == pytest.approx(200 / 220, rel=1e-3)
    assert gradients["plugin_ce"] == pytest.approx(1 / 220, rel=1e-3)


def test_dirichlet_ce_is_the_expected_log_of_torchs_dirichlet() -> None:
    """E[log p] is the gradient of the log-normaliser with respect to the natural parameters, here by autograd."""
    logits, labels = random_logits(20, 7)
    a = losses.alpha(logits, get_variant("edl_ce")).requires_grad_()
    # log density = Σ (α−1) log p − log B(α), so log B is minus the density at p where Σ (α−1) log p is known.
    p = torch.full_like(a, 1 / 7)
    log_beta = ((a - 1) * p.log()).sum(-1) - Dirichlet(a).log_prob(p)
    (expected_log_p,) = torch.autograd.grad(log_beta.sum(), a)
    torch.testing.assert_close(
        losses.dirichlet_ce(a, labels), -expected_log_p.gather(1, labels[:, None])[:, 0], rtol=1e-10, atol=1e-10
    )


def test_dirichlet_mse_is_bias_plus_variance_of_torchs_dirichlet() -> None:
    logits, labels = random_logits(20, 7)
    a = losses.alpha(logits, get_variant("edl_mse"))
    d = Dirichlet(a)
    expected = (d.mean - one_hot(labels, 7)).square().sum(-1) + d.variance.sum(-1)
    torch.testing.assert_close(losses.dirichlet_mse(a, labels), expected)


def test_plug_in_losses_are_those_of_torchs_dirichlet_mean() -> None:
    logits, labels = random_logits(20, 7)
    a = losses.alpha(logits, get_variant("plugin_ce"))
    y, mean = one_hot(labels, 7), Dirichlet(a).mean
    torch.testing.assert_close(losses.plugin_ce(a, labels), -(y * mean.log()).sum(-1))
    torch.testing.assert_close(losses.plugin_mse(a, labels), (y - mean).square().sum(-1))


@pytest.mark.parametrize("scale", [1.0, 20.0, 79.0])
def test_softmax_is_torchs_cross_entropy_in_value_and_gradient(scale: float) -> None:
    z, labels = random_logits(64, 30)
    z = (scale * z.tanh()).requires_grad_()  # the whole range within the clamp
    ours, torchs = losses.evidential_loss(z, labels, get_variant("softmax")), cross_entropy(z, labels)
    torch.testing.assert_close(ours, torchs, rtol=1e-12, atol=1e-12)
    (a,), (b,) = torch.autograd.grad(ours, z), torch.autograd.grad(torchs, z)
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-15)


# The KL term

ALPHAS = arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(2, 8)), elements=st.floats(0.01, 1e4))


@given(alpha=ALPHAS)
def test_kl_equals_torchs(alpha: F64) -> None:
    a = torch.from_numpy(alpha)
    expected = kl_divergence(Dirichlet(a), Dirichlet(torch.ones_like(a)))
    torch.testing.assert_close(losses.kl_to_uniform(a), expected, rtol=1e-9, atol=1e-9)


def test_kl_is_the_expected_log_ratio_of_densities() -> None:
    d, uniform = Dirichlet(torch.tensor([1.0, 4.0, 2.5], dtype=torch.float64)), Dirichlet(torch.ones(3).double())
    torch.manual_seed(0)
    p = d.sample((200_000,))
    ratio = d.log_prob(p) - uniform.log_prob(p)
    error = losses.kl_to_uniform(d.concentration).item() - ratio.mean().item()
    assert abs(error) < 4 * ratio.std().item() / np.sqrt(len(ratio))


@pytest.mark.parametrize("K", [2, 12, 35])
def test_kl_of_the_uniform_itself_is_zero_and_flat(K: int) -> None:
    a = torch.ones(1, K, dtype=torch.float64, requires_grad=True)
    kl = losses.kl_to_uniform(a)
    (slope,) = torch.autograd.grad(kl.sum(), a)
    assert abs(kl.item()) < 1e-12
    assert slope.abs().max() < 1e-12


@pytest.mark.parametrize("a", [1e2, 1e6, 1e12, 1e20, 5e34])
def test_kl_keeps_its_digits_where_the_textbook_form_has_none(a: float) -> None:
    """For α = (1, a) the density is Beta(1, a), whose KL to the uniform is log a + 1/a − 1 in closed form."""
    kl = losses.kl_to_uniform(torch.tensor([1.0, a], dtype=torch.float64))
    assert kl.item() == pytest.approx(np.log(a) + 1 / a - 1, rel=1e-12)


@ALL
def test_alpha_tilde_is_shifted_for_every_variant_and_drops_the_true_class(variant: Variant) -> None:
    z = torch.tensor([[0.0, 2.0, -1.0]])
    e = losses.evidence(z, variant)
    tilde = losses.alpha_tilde(e, torch.tensor([1]))
    torch.testing.assert_close(tilde, torch.stack([e[0, 0] + 1, torch.ones(()).double(), e[0, 2] + 1])[None])


@pytest.mark.parametrize("variant", WITH_KL, ids=lambda v: v.name)
def test_the_whole_loss_is_data_loss_plus_weighted_kl(variant: Variant) -> None:
    logits, labels = random_logits(16, 5)
    tilde = losses.alpha(logits, variant) + 1 - variant.alpha_offset
    tilde[torch.arange(16), labels] = 1.0
    kl = kl_divergence(Dirichlet(tilde), Dirichlet(torch.ones_like(tilde))).mean()
    without = losses.evidential_loss(logits, labels, variant)
    torch.testing.assert_close(losses.evidential_loss(logits, labels, variant, kl_weight=0.3), without + 0.3 * kl)


@pytest.mark.parametrize("variant", WITH_KL, ids=lambda v: v.name)
def test_the_kl_pulls_the_strongest_wrong_class_down_and_leaves_the_true_class_alone(variant: Variant) -> None:
    logits, labels = random_logits(16, 5)
    logits.requires_grad_()
    kl = losses.kl_to_uniform(losses.alpha_tilde(losses.evidence(logits, variant), labels)).sum()
    (slope,) = torch.autograd.grad(kl, logits)
    true = one_hot(labels, 5).bool()
    strongest = logits.masked_fill(true, -torch.inf).argmax(-1, keepdim=True)
    assert (slope[true] == 0).all()
    assert (slope.gather(1, strongest) > 0).all()


# The KL schedule


@pytest.mark.parametrize("variant", WITH_KL, ids=lambda v: v.name)
def test_in_a_run_as_long_as_the_papers_the_weight_is_t_over_t_max(variant: Variant) -> None:
    assert variant.kl_ramp_epochs is not None
    weights = [losses.kl_weight(variant, t, PAPER_EPOCHS) for t in range(PAPER_EPOCHS)]
    assert weights == pytest.approx([t / variant.kl_ramp_epochs for t in range(PAPER_EPOCHS)])


def test_the_weight_depends_on_the_part_of_the_run_that_is_done() -> None:
    variant = get_variant("edl_ce")
    assert losses.kl_weight(variant, 20, 40) == pytest.approx(losses.kl_weight(variant, 100, 200))


def test_the_weight_stops_at_one() -> None:
    assert losses.kl_weight(Variant("steep", "softplus", 1, "dirichlet_ce", kl_ramp_epochs=20), 50, 200) == 1.0


def test_the_kl_weight_climbs_to_another_end_where_one_is_given() -> None:
    variant = get_variant("plugin_ce_kl")
    assert [losses.kl_weight(variant, t, 10, end=1.0) for t in (0, 5, 9)] == pytest.approx([0, 0.5, 0.9])
    assert losses.kl_weight(variant, 9, 10, end=0.0) == 0


@pytest.mark.parametrize("variant", WITHOUT_KL, ids=lambda v: v.name)
def test_a_variant_without_kl_has_no_weight_and_refuses_one(variant: Variant) -> None:
    assert losses.kl_weight(variant, 100, 200) == 0.0
    with pytest.raises(SettingError, match="no KL term"):
        losses.evidential_loss(*random_logits(2, 3), variant, kl_weight=0.1)


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(SettingError, match=r"kl_weight=-0\.1"):
        losses.evidential_loss(*random_logits(2, 3), get_variant("edl_ce"), kl_weight=-0.1)


@pytest.mark.parametrize(("epoch", "epochs"), [(-1, 10), (0, 0)])
def test_an_impossible_epoch_is_refused(epoch: int, epochs: int) -> None:
    with pytest.raises(SettingError, match="expected an epoch"):
        losses.kl_weight(get_variant("edl_ce"), epoch, epochs)


# Gradients, extremes, precision


@ALL
def test_gradients_equal_numerical_ones(variant: Variant) -> None:
    logits, labels = random_logits(4, 5)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z: losses.evidential_loss(z, labels, variant, full_weight(variant)), logits, eps=1e-5, rtol=1e-4
    )


@ALL
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_value_and_gradient_are_finite_at_the_extremes(variant: Variant, dtype: torch.dtype) -> None:
    corners = [-1e4, -100.0, -80.0, -20.0, 0.0, 20.0, 80.0, 100.0, 1e4]
    z = torch.tensor(list(product(corners, repeat=3)), dtype=dtype, requires_grad=True)
    for label in range(3):
        labels = torch.full((len(z),), label)
        loss = losses.evidential_loss(z, labels, variant, full_weight(variant))
        (gradient,) = torch.autograd.grad(loss, z)
        assert loss.isfinite()
        assert loss >= 0
        assert gradient.dtype == dtype
        assert gradient.isfinite().all()


@ALL
def test_the_true_class_is_always_pulled_up(variant: Variant) -> None:
    """No data loss gets stuck where the true class has lost all evidence and another holds a little."""
    z = torch.tensor([[-60.0, 3.0, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(losses.evidential_loss(z, torch.tensor([0]), variant), z)
    assert gradient[0, 0] < 0


@settings(max_examples=25)
@given(
    logits=arrays(np.float32, (3, 4), elements=st.floats(-1e4, 1e4, width=32)),
    variant=st.sampled_from(list(VARIANTS.values())),
)
def test_a_float32_network_gets_the_float64_loss(logits: npt.NDArray[np.float32], variant: Variant) -> None:
    z, labels = torch.from_numpy(logits), torch.tensor([0, 1, 3])
    single = losses.evidential_loss(z, labels, variant, full_weight(variant))
    double = losses.evidential_loss(z.double(), labels, variant, full_weight(variant))
    assert torch.equal(single, double)


@ALL
def test_autocast_does_not_change_the_loss(variant: Variant) -> None:
    logits, labels = random_logits(8, 5)
    z = logits.bfloat16()
    plain = losses.evidential_loss(z, labels, variant, full_weight(variant))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = losses.evidential_loss(z, labels, variant, full_weight(variant))
    assert torch.equal(plain, mixed)


@ALL
def test_following_the_gradient_learns_the_labels(variant: Variant) -> None:
    _, labels = random_logits(30, 5)
    z = torch.zeros(30, 5, requires_grad=True)
    optimiser = torch.optim.SGD([z], lr=100.0)
    first = losses.evidential_loss(z, labels, variant).item()
    for _ in range(50):
        optimiser.zero_grad()
        loss = losses.evidential_loss(z, labels, variant)
        loss.backward()
        optimiser.step()
    assert loss.item() < first / 2
    assert torch.equal(z.argmax(-1), labels)


# Learning from a teacher


def lesson(batch: int, classes: int, share: float, temperature: float = 1.0) -> losses.Lesson:
    logits, _ = random_logits(batch, classes, seed=1)
    return losses.Lesson(logits.softmax(-1), share, temperature)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_for_softmax_the_distance_to_a_teacher_is_hintons(temperature: float) -> None:
    (student, _), (teacher, _) = random_logits(6, 5, seed=1), random_logits(6, 5, seed=2)
    soft = torch.softmax(teacher / temperature, dim=-1)
    expected = temperature**2 * cross_entropy(student / temperature, soft, reduction="none")
    torch.testing.assert_close(losses.distillation_loss(student.exp(), teacher.exp(), temperature), expected)


@ALL
def test_without_softening_the_distance_is_the_cross_entropy_of_the_means(variant: Variant) -> None:
    (student, _), (teacher, _) = random_logits(6, 5, seed=1), random_logits(6, 5, seed=2)
    a, b = (losses.alpha(z, variant) for z in (student, teacher))
    expected = [cross_entropy(p.log(), q) for p, q in zip(Dirichlet(a).mean, Dirichlet(b).mean, strict=True)]
    torch.testing.assert_close(losses.distillation_loss(a, b, 1.0), torch.stack(expected))


@ALL
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_nothing_is_nearer_to_a_teacher_than_its_own_answer(variant: Variant, temperature: float) -> None:
    teacher = losses.alpha(random_logits(4, 5)[0], variant)
    z = random_logits(4, 5)[0].requires_grad_()
    (gradient,) = torch.autograd.grad(losses.distillation_loss(losses.alpha(z, variant), teacher, temperature).sum(), z)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0)


@ALL
def test_a_lesson_takes_its_share_of_the_data_loss_alone(variant: Variant) -> None:
    logits, labels = random_logits(6, 4)
    taught = lesson(6, 4, share=0.25, temperature=2.0)
    weight = full_weight(variant)
    data = losses.evidential_loss(logits, labels, variant)
    kl = losses.evidential_loss(logits, labels, variant, weight) - data
    distance = losses.distillation_loss(losses.alpha(logits, variant), taught.means, 2.0).mean()
    expected = 0.75 * data + 0.25 * distance + kl
    torch.testing.assert_close(losses.evidential_loss(logits, labels, variant, weight, taught), expected)


def test_a_lesson_says_nothing_of_a_window_without_a_word() -> None:
    variant = get_variant("plugin_ce")
    logits, _ = random_logits(6, 4)
    none = torch.full((6,), -1)
    plain = losses.evidential_loss(logits, none, variant)
    assert losses.evidential_loss(logits, none, variant, lesson=lesson(6, 4, share=1.0)) == plain
