"""The training losses: from logits to Dirichlet parameters, four data losses on those, and the KL regulariser.

Everything here runs in float64, whatever the network computes in and whether or not autocast is on. The arrays are a
batch by a few dozen classes, so it costs next to nothing, and it is what keeps values and gradients finite and right
over the whole range of α, e^-80 to e^80. float64 needs a CPU or CUDA device.

Arrays are [B, K]: B clips, K classes. Labels are int64 [B]. Data losses return one value a clip, [B].

Source: B. Hayta, H. Laus, S. Mittermaier, F. Krahmer, "Plug-in Losses for Evidential Deep Learning: A Simplified
Framework for Uncertainty Estimation that Includes the Softmax Classifier", arXiv:2605.22746, 2026.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot, softplus

from kws_edge.errors import SettingError
from kws_edge.model.evidence import LOGIT_LIMIT
from kws_edge.model.variants import PAPER_EPOCHS, Loss, Variant

_SERIES_FROM = 20.0  # above it, asymptotic series truncated as below are exact to float64
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def evidence(logits: Tensor, variant: Variant) -> Tensor:
    """e = τ(z) with z clamped as `kws_edge.model.evidence` does. Floating [B, K] → float64 [B, K], finite and above 0.

    The clamp acts on the value only: the gradient passes as if z were at the limit, so a logit that has run away is
    still pulled back. Equals `kws_edge.model.evidence.evidence`.
    """
    z = logits.double()
    highest = LOGIT_LIMIT if variant.activation == "exp" else None
    z = z.detach().clamp(-LOGIT_LIMIT, highest) + (z - z.detach())
    # With the default threshold torch returns x itself above 20, which is only good to float32.
    return z.exp() if variant.activation == "exp" else softplus(z, threshold=LOGIT_LIMIT)


def alpha(logits: Tensor, variant: Variant) -> Tensor:
    """Dirichlet parameters α = φ(τ(z)). Floating [B, K] → float64 [B, K], differentiable; see `evidence`."""
    return evidence(logits, variant) + variant.alpha_offset


def dirichlet_ce(alpha: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy expected under Dir(α): ψ(α₀) − ψ(α_y). [B, K], [B] → [B].

    Where α_y is small it is about 1/α_y, so with φ(e) = e a very negative logit of the true class gives a very
    large loss and gradient: finite (at most 6e34), but steep by nature.
    """
    return torch.digamma(alpha.sum(-1)) - torch.digamma(_of_label(alpha, labels))


def dirichlet_mse(alpha: Tensor, labels: Tensor) -> Tensor:
    """Squared error expected under Dir(α): ‖y − p̂‖² + Σ p̂(1−p̂)/(α₀+1). [B, K], [B] → [B]."""
    alpha0 = alpha.sum(-1, keepdim=True)
    p = alpha / alpha0
    return plugin_mse(alpha, labels) + (p * (1 - p) / (alpha0 + 1)).sum(-1)


def plugin_ce(alpha: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the mean: −log p̂_y = log α₀ − log α_y. [B, K], [B] → [B].

    With τ = exp and φ(e) = e this is the usual softmax cross-entropy of the logits.
    """
    return alpha.sum(-1).log() - _of_label(alpha, labels).log()


def plugin_mse(alpha: Tensor, labels: Tensor) -> Tensor:
    """Squared error of the mean: ‖p̂ − y‖². [B, K], [B] → [B]."""
    p = alpha / alpha.sum(-1, keepdim=True)
    return (p - one_hot(labels, alpha.shape[-1])).square().sum(-1)


def alpha_tilde(evidence: Tensor, labels: Tensor) -> Tensor:
    """α̃ = y + (1−y)⊙(e+1): the parameters with the true class's evidence removed. [B, K], [B] → [B, K].

    It takes the evidence, not α, because e + 1 is meant for every variant, also where φ(e) = e.
    """
    return (evidence + 1).scatter(-1, labels.unsqueeze(-1), 1.0)


def kl_to_uniform(alpha_tilde: Tensor) -> Tensor:
    """KL(Dir(α̃) ‖ Dir(1)), for float64 α̃ above 0. [B, K] → [B].

    The textbook form, ln Γ(α₀) − Σ ln Γ(α_k) − ln Γ(K) + Σ (α_k−1)(ψ(α_k) − ψ(α₀)), is a small difference of terms
    of size α log α, and nothing is left of it in float64 from α of about 1e15. With Stirling's parts taken out,
    ln Γ(x) = (x−½) log x − x + ½ log 2π + R(x) and ψ(x) = log x + D(x), those terms cancel on paper instead.
    """
    a, a0, K = alpha_tilde, alpha_tilde.sum(-1), alpha_tilde.shape[-1]
    logs = (K - 0.5) * a0.log() - 0.5 * a.log().sum(-1)
    remainders = _log_gamma_remainder(a0) - _log_gamma_remainder(a).sum(-1)
    slopes = ((a - 1) * _digamma_remainder(a)).sum(-1) - (a0 - K) * _digamma_remainder(a0)
    return logs + remainders + slopes - (K - 1) * _HALF_LOG_2PI - math.lgamma(K)


DATA_LOSSES: dict[Loss, Callable[[Tensor, Tensor], Tensor]] = {
    "dirichlet_ce": dirichlet_ce,
    "dirichlet_mse": dirichlet_mse,
    "plugin_ce": plugin_ce,
    "plugin_mse": plugin_mse,
}
"""The losses of α by the name that `Variant.loss` gives them; `belief_ce` is one of the evidence."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What teachers say of a batch: the mean of their p̂, float64 [B, K], and how it counts (`recipe.Distillation`)."""

    means: Tensor
    share: float
    temperature: float


def distillation_loss(alpha: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² times the cross-entropy of two means, each softened: −T² Σ q_k log p_k. [B, K], [B, K] → [B].

    q ∝ α_teacher^(1/T) and p ∝ α^(1/T). With τ = exp and φ(e) = e, α^(1/T) = exp(z/T): the loss of Hinton et al., whose
    T² keeps the gradient's size whatever T is. At T = 1 q and p are the means, for every variant.
    """
    p, q = (torch.log_softmax(a.log() / temperature, dim=-1) for a in (alpha, teacher))
    return -(temperature**2) * (q.exp() * p).sum(-1)


def belief_ce(evidence: Tensor, labels: Tensor) -> Tensor:
    """−log b_y, where b_k = e_k/(Σe + K) are the belief masses: log(Σe + K) − log e_y. [B, K], [B] → [B].

    With `no_word_loss` for windows without a word it is one cross-entropy, of K words and "none of them", whose mass is
    the vacuity. With τ = exp that is the usual softmax cross-entropy of K + 1 classes, the last with the logit log K: a
    window that is wrong with confidence has a gradient near 1, where with τ = softplus it has 1/Σe.
    """
    return torch.log(evidence.sum(-1) + evidence.shape[-1]) - _of_label(evidence, labels).log()


def smoothed_belief_ce(evidence: Tensor, labels: Tensor) -> Tensor:
    """−log of the mass that W windows in succession give on average to what was said. [B, W, K], [B] → [B].

    The masses are those of `belief_ce`: b_k of each word, and the vacuity for none of them, whose label is negative. A
    stream decides by the mean of its last answers, so single windows may be unsure as long as the mean is right. With
    W = 1 it is `belief_ce`, or `no_word_loss`.
    """
    K = evidence.shape[-1]
    masses = torch.cat([evidence, torch.full_like(evidence[..., :1], K)], -1)
    means = (masses / masses.sum(-1, keepdim=True)).mean(1)
    return -_of_label(means, torch.where(labels < 0, K, labels)).log()


def no_word_loss(evidence: Tensor) -> Tensor:
    """−log u = log(1 + Σe/K), for windows that hold no word: 0 where there is no evidence. [n, K] → [n].

    In subjective logic the belief masses e_k/(Σe + K) and the vacuity u = K/(Σe + K) sum to 1; this is the plug-in
    cross-entropy of the outcome "none of them", whose mass is u.
    """
    return torch.log1p(evidence.sum(-1) / evidence.shape[-1])


def kl_weight(variant: Variant, epoch: int, epochs: int, end: float | None = None) -> float:
    """λ_t = min(1, t/T) for t = `epoch`, counted from 0, in a run of `epochs`; 0 for a variant without KL.

    With `end`, λ_t = end · t/epochs instead: the ramp climbs to another weight, to see what the weight does.

    T is stated for a run of PAPER_EPOCHS and scales with the run's length, so a run of any length climbs to about the
    same weight: T = 400 ends near 0.5, T = 600 near 0.33. The first epoch has no KL at all.

    Raises
    ------
    SettingError : the epoch is negative or the run is empty.
    """
    if epoch < 0 or epochs < 1:
        raise SettingError(f"epoch {epoch} of a run of {epochs}; expected an epoch from 0 and a run of at least 1")
    if variant.kl_ramp_epochs is None:
        return 0.0
    if end is not None:
        return end * epoch / epochs
    return min(1.0, epoch / (variant.kl_ramp_epochs * epochs / PAPER_EPOCHS))


def evidential_loss(
    logits: Tensor, labels: Tensor, variant: Variant, kl_weight: float = 0.0, lesson: Lesson | None = None
) -> Tensor:
    """The variant's loss, averaged over the batch: its data loss + kl_weight · KL(Dir(α̃) ‖ Dir(1)).

    Parameters
    ----------
    logits : floating [B, K], any finite values; or [B, W, K] for W windows in succession, whose answers are averaged
        (`smoothed_belief_ce`), for a variant whose loss is `belief_ce`. NaN or infinity gives NaN.
    labels : int64 [B], 0 to K-1, or negative for a window that holds no word, whose loss is `no_word_loss`.
    kl_weight : λ_t of this epoch, from the function `kl_weight`; at least 0.
    lesson : a teacher's answers, whose `distillation_loss` takes its share of the data loss, for windows with a word.

    Returns
    -------
    float64 scalar; the gradient with respect to the logits has the logits' dtype.

    Raises
    ------
    SettingError : the weight is negative, or positive for a variant without a KL term; or there are several windows for
        another loss than `belief_ce`, or with a lesson.
    """
    if kl_weight < 0 or (kl_weight > 0 and variant.kl_ramp_epochs is None):
        expected = "0, as it has no KL term" if variant.kl_ramp_epochs is None else "at least 0"
        raise SettingError(f"kl_weight={kl_weight} for variant {variant.name}; expected {expected}")
    e = evidence(logits, variant)
    if logits.dim() == 3:
        if variant.loss != "belief_ce" or lesson:
            raise SettingError(f"windows in succession for variant {variant.name}; expected belief_ce, and no lesson")
        return smoothed_belief_ce(e, labels).mean()
    word = labels >= 0
    e_word, y = e[word], labels[word]
    a = e_word + variant.alpha_offset
    losses = belief_ce(e_word, y) if variant.loss == "belief_ce" else DATA_LOSSES[variant.loss](a, y)
    if lesson:
        losses = torch.lerp(losses, distillation_loss(a, lesson.means[word], lesson.temperature), lesson.share)
    loss = losses.sum()
    if kl_weight > 0:
        loss = loss + kl_weight * kl_to_uniform(alpha_tilde(e_word, y)).sum()
    return (loss + no_word_loss(e[~word]).sum()) / len(labels)


def _of_label(alpha: Tensor, labels: Tensor) -> Tensor:
    return alpha.gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def _log_gamma_remainder(x: Tensor) -> Tensor:
    """R(x) = ln Γ(x) − [(x−½) log x − x + ½ log 2π], to float64 accuracy (Binet; Abramowitz & Stegun 6.1.41)."""
    s = x.clamp(max=_SERIES_FROM)
    direct = torch.lgamma(s) - ((s - 0.5) * s.log() - s + _HALF_LOG_2PI)
    i = 1 / x.clamp(min=_SERIES_FROM)
    i2 = i * i
    series = i * (1 / 12 - i2 * (1 / 360 - i2 * (1 / 1260 - i2 / 1680)))
    return torch.where(x < _SERIES_FROM, direct, series)


def _digamma_remainder(x: Tensor) -> Tensor:
    """D(x) = ψ(x) − log x, to float64 accuracy (Abramowitz & Stegun 6.3.18)."""
    s = x.clamp(max=_SERIES_FROM)
    direct = torch.digamma(s) - s.log()
    i = 1 / x.clamp(min=_SERIES_FROM)
    i2 = i * i
    series = -0.5 * i - i2 * (1 / 12 - i2 * (1 / 120 - i2 * (1 / 252 - i2 * (1 / 240 - i2 / 132))))
    return torch.where(x < _SERIES_FROM, direct, series)
