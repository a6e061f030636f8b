"""How far a Dirichlet-expected loss can be from the plug-in loss at the Dirichlet's mean: corrections and bounds.

For p ~ Dir(α) with mean p̂ = α/α₀, the gap E[ℓ(p)] − ℓ(p̂) is small where there is much evidence. The functions here
give it exactly for the two losses that have a closed form, and bound it for the rest, so that a user can check on
their own model's α how much the cheaper plug-in loss leaves out. numpy and scipy; α is [..., K], above 0.

Source: B. Hayta, H. Laus, S. Mittermaier, F. Krahmer, "Plug-in Losses for Evidential Deep Learning: A Simplified
Framework for Uncertainty Estimation that Includes the Softmax Classifier", arXiv:2605.22746, 2026,
section on the bounds.
"""

import numpy as np
import numpy.typing as npt
from scipy.special import digamma

from kws_edge.arrays import F64
from kws_edge.errors import SettingError
from kws_edge.model.evidence import probability


def lipschitz_gap_bound(alpha0: npt.ArrayLike, lipschitz: float) -> F64:
    """|E[ℓ(p)] − ℓ(p̂)| ≤ L/√(α₀+1) for a loss that is L-Lipschitz in p under the Euclidean norm. [...] → [...].

    The gap is at most L·E‖p − p̂‖, and E‖p − p̂‖² = (1 − ‖p̂‖²)/(α₀+1) for a Dirichlet.

    Raises
    ------
    SettingError : α₀ is not above 0 or L is negative.
    """
    alpha0 = _positive(alpha0, "alpha0")
    if not lipschitz >= 0:
        raise SettingError(f"lipschitz={lipschitz}; expected a constant of at least 0")
    return np.asarray(lipschitz / np.sqrt(alpha0 + 1))


def tight_lipschitz_gap_bound(alpha: npt.ArrayLike, lipschitz: float) -> F64:
    """L·√((1 − ‖p̂‖²)/(α₀+1)): the same with E‖p − p̂‖² as it is, not at its largest. [..., K] → [...].

    Raises
    ------
    SettingError : an α is not above 0 or L is negative.
    """
    alpha = _positive(alpha, "alpha")
    spread = np.maximum(1 - np.square(probability(alpha)).sum(axis=-1), 0)
    return np.asarray(lipschitz_gap_bound(alpha.sum(axis=-1), lipschitz) * np.sqrt(spread))


def remainder_bound(alpha0: npt.ArrayLike, third: npt.ArrayLike) -> F64:
    """|R| ≤ G/(3(α₀+1)): what the gap has beyond its second-order term, G bounding the third derivative. [...] → [...].

    By Taylor |R| ≤ G/6 · E‖p − p̂‖³, and ‖p − p̂‖ ≤ 2 and E‖p − p̂‖² ≤ 1/(α₀+1). Of the squared error G is 0: its gap is
    the second-order term. Of −log p_y no G holds on the whole simplex; where p_y ≥ δ it is 2/δ³.

    Raises
    ------
    SettingError : α₀ is not above 0 or G is negative.
    """
    alpha0, third = _positive(alpha0, "alpha0"), np.asarray(third, np.float64)
    if not (third >= 0).all():
        raise SettingError(f"third={third.min()}; expected a bound of at least 0")
    return np.asarray(third / (3 * (alpha0 + 1)))


def ce_second_order(alpha: npt.ArrayLike, labels: npt.ArrayLike) -> F64:
    """The second-order term of `ce_correction`, ½·Var(p_y)/p̂_y² = (1 − p̂_y)/(2 p̂_y (α₀+1)). [..., K], [...] → [...].

    Raises
    ------
    SettingError : an α is not above 0, or a label is not in 0 to K−1.
    """
    alpha = _positive(alpha, "alpha")
    p = _at_labels(probability(alpha), labels)
    return np.asarray((1 - p) / (2 * p * (alpha.sum(axis=-1) + 1)))


def ce_correction(alpha: npt.ArrayLike, labels: npt.ArrayLike) -> F64:
    """Dirichlet-expected CE minus plug-in CE: (ψ(α₀) − log α₀) − (ψ(α_y) − log α_y). [..., K], int [...] → [...].

    Never negative: the expected cross-entropy is the larger (Jensen).

    Raises
    ------
    SettingError : an α is not above 0, or a label is not in 0 to K−1.

    Examples
    --------
    >>> float(ce_correction([1.0, 1.0], 0).round(4))  # ψ(2) − ψ(1) − log 2 = 1 − log 2
    0.3069
    """
    alpha = _positive(alpha, "alpha")
    return np.asarray(_digamma_minus_log(alpha.sum(axis=-1)) - _digamma_minus_log(_at_labels(alpha, labels)))


def ce_correction_bound(alpha0: npt.ArrayLike, delta: npt.ArrayLike) -> F64:
    """(1 + 1/δ)/α₀: no `ce_correction` is above it where p̂_y ≥ δ. [...] and δ in (0, 1] → [...].

    From 1/(2x) < log x − ψ(x) < 1/x for x > 0, with α_y = α₀·p̂_y ≥ α₀·δ.

    Raises
    ------
    SettingError : α₀ is not above 0 or δ is outside (0, 1].
    """
    alpha0, delta = _positive(alpha0, "alpha0"), _positive(delta, "delta")
    if not (delta <= 1).all():
        raise SettingError(f"delta up to {delta.max()}; expected probabilities, at most 1")
    return np.asarray((1 + 1 / delta) / alpha0)


def mse_correction(alpha: npt.ArrayLike) -> F64:
    """Dirichlet-expected MSE minus plug-in MSE: Σ p̂(1−p̂)/(α₀+1), the Dirichlet's total variance. [..., K] → [...].

    At most (1 − 1/K)/(α₀+1); no label enters.

    Raises
    ------
    SettingError : an α is not above 0.
    """
    alpha = _positive(alpha, "alpha")
    p = probability(alpha)
    return np.asarray((p * (1 - p)).sum(axis=-1) / (alpha.sum(axis=-1) + 1))


def _positive(values: npt.ArrayLike, name: str) -> F64:
    array = np.asarray(values, dtype=np.float64)
    if not (array > 0).all():
        raise SettingError(f"{name} down to {array.min()}; expected every value above 0")
    return array


def _at_labels(values: F64, labels: npt.ArrayLike) -> F64:
    """The value of each label: [..., K], int [...] → [...]."""
    y = np.asarray(labels)
    if not ((y >= 0) & (y < values.shape[-1])).all():
        raise SettingError(f"labels from {y.min()} to {y.max()}; expected 0 to {values.shape[-1] - 1}")
    return np.take_along_axis(values, y[..., None], axis=-1)[..., 0]


def _digamma_minus_log(x: F64) -> F64:
    """ψ(x) − log x; where x is large, by its asymptotic series, since the difference has lost its digits there."""
    i = 1 / np.maximum(x, 1e3)
    series = -i / 2 - i**2 / 12 + i**4 / 120
    return np.where(x < 1e3, digamma(x) - np.log(x), series)
