"""From logits to Dirichlet parameters, and from those to probability, vacuity and entropy; numpy only.

This is the reference for the head that is fused into every ONNX file: the graph computes the same formulas in the
same order, and tests hold the two to 1e-4. Arrays are [..., K], the last axis is the class.

Source: B. Hayta, H. Laus, S. Mittermaier, F. Krahmer, "Plug-in Losses for Evidential Deep Learning: A Simplified
Framework for Uncertainty Estimation that Includes the Softmax Classifier", arXiv:2605.22746, 2026,
section on evidential classifiers; subjective logic for vacuity.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32
from kws_edge.model.variants import Variant, get_variant

Array = npt.NDArray[Any]
"""A float array; results have the floating dtype of what was given (float64 for integers)."""

LOGIT_LIMIT = 80.0
"""Logits are clamped from below at -80, and from above at 80 where τ is exp: then e and K · e^80 are finite, normal
float32 numbers for K up to 6000. Softplus grows with its logit, not exponentially, and needs no upper clamp; one at 80
would cap p̂ itself at 81/100 for K = 20."""


def softplus(x: npt.ArrayLike) -> Array:
    """log(1 + eˣ), accurate over the whole range, positive down to x = -80.

    max(x, 0) + 2·atanh(u / (2 + u)) with u = e^-|x|, which is log1p(u) written with operators that ONNX has.
    """
    x = np.asarray(x)
    u = np.exp(-np.abs(x))
    return np.maximum(x, 0) + 2 * np.arctanh(u / (2 + u))


def evidence(logits: npt.ArrayLike, variant: Variant) -> Array:
    """e = τ(z), with z clamped as LOGIT_LIMIT says so that e is finite and positive. [..., K] → [..., K]."""
    z = np.maximum(np.asarray(logits), -LOGIT_LIMIT)
    return np.exp(np.minimum(z, LOGIT_LIMIT)) if variant.activation == "exp" else softplus(z)


def alpha(logits: npt.ArrayLike, variant: Variant) -> Array:
    """Dirichlet parameters α = φ(τ(z)), each finite and above 0. [..., K] → [..., K]."""
    return evidence(logits, variant) + variant.alpha_offset


def label(logits: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The class, argmax z. [..., K] → int64 [...].

    From the logits and never from α, although both rise with z: with φ(e) = e + 1, float32 has no room for evidence
    below 6e-8, so that where every logit is below about -17 every α is 1, a tie.
    """
    return np.asarray(np.argmax(np.asarray(logits), axis=-1), np.int64)


def dirichlet(p: F32, vacuity: float, variant: Variant) -> F32:
    """The α, float32 [K], of a mean p̂ and a vacuity u = K/(Σe + K), which gives Σα; each above 0."""
    K = len(p)
    strength = K / vacuity - K * (1 - variant.alpha_offset)
    return np.maximum(p * np.float32(strength), np.finfo(np.float32).tiny)


def probability(alpha: npt.ArrayLike) -> Array:
    """The Dirichlet's mean p̂ = α / Σα. [..., K] → [..., K], sums to 1."""
    a = np.asarray(alpha)
    return a / np.add.reduce(a, axis=-1, keepdims=True)


def vacuity(alpha: npt.ArrayLike, variant: Variant) -> Array:
    """u = K / (Σe + K), in (0, 1]: 1 where there is no evidence at all. [..., K] → [...].

    For φ(e) = e + 1 this is K/α₀; for φ(e) = e it is the shifted form, since K/α₀ could exceed 1.
    """
    a = np.asarray(alpha)
    K = a.shape[-1]
    strength = a.sum(axis=-1, keepdims=True) + K * (1 - variant.alpha_offset)
    return (K / strength)[..., 0]  # divided as an array: numpy 1 widens a float32 scalar


def entropy(alpha: npt.ArrayLike) -> Array:
    """Entropy of p̂ = α / Σα over its maximum, in [0, 1]. [..., K] → [...]. Needs K ≥ 2."""
    return entropy_of(probability(alpha))


def entropy_of(p: Array) -> Array:
    """Entropy of a distribution over its maximum, -Σ p log p / log K, in [0, 1]. [..., K] → [...]. Needs K ≥ 2."""
    tiny = np.finfo(p.dtype).tiny  # p log p → 0 as p → 0, without a log of zero
    h = np.add.reduce(p * np.log(np.maximum(p, tiny)), axis=-1, keepdims=True) / -math.log(p.shape[-1])
    return np.minimum(np.maximum(h, 0), 1)[..., 0]


@lru_cache(maxsize=4)
def no_evidence(K: int, variant: str) -> F32:
    """The α of every logit at its lowest, float32 [K], where the network is not asked. Read-only."""
    a = alpha(np.full(K, -LOGIT_LIMIT, np.float32), get_variant(variant)).astype(np.float32)
    a.flags.writeable = False
    return a
