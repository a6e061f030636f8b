"""The gap between the Dirichlet-expected and the plug-in loss on a trained model's answers, beside what bounds it."""

from dataclasses import dataclass

import numpy as np

from kws_edge.arrays import F64
from kws_edge.errors import SettingError
from kws_edge.model import evidence
from kws_edge.model.variants import get_variant
from kws_export.evaluation import bounds
from kws_export.evaluation.score_file import KeptAnswers

MSE_LIPSCHITZ = 2 * np.sqrt(2)
"""Of ‖p − y‖² on the simplex, whose gradient is 2(p − y), and ‖p − y‖ at most √2."""
MUCH = 10.0
"""From this α₀ on, the loose bound L/√(α₀+1) is below a third of L."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """Of n clips, float64 [n] each; the losses are those at the true class.

    Attributes
    ----------
    alpha0 : Σα.
    plugin_ce : −log p̂_y.
    ce, ce_bound : the exact correction of the cross-entropy, and (1 + 1/p̂_y)/α₀.
    ce_second, ce_remainder, ce_remainder_bound : its second-order term, the rest of it, and G/(3(α₀+1)) with
        G = 2/p̂_y³.
    mse, mse_tight, mse_loose : the exact correction of the squared error, and both Lipschitz bounds on it.
    """

    alpha0: F64
    plugin_ce: F64
    ce: F64
    ce_bound: F64
    ce_second: F64
    ce_remainder: F64
    ce_remainder_bound: F64
    mse: F64
    mse_tight: F64
    mse_loose: F64

    @classmethod
    def of(cls, answers: KeptAnswers, variant: str) -> "Gaps":
        """Compute them from the logits. Raises SettingError where these were not kept."""
        if answers.logits is None:
            raise SettingError("no logits in the score file; run `kws-export score` again, into another folder")
        alpha = evidence.alpha(answers.logits.astype(np.float64), get_variant(variant))
        y = answers.truth.astype(np.int64)
        alpha0, p = alpha.sum(axis=1), evidence.probability(alpha)[np.arange(len(y)), y]
        ce, second = bounds.ce_correction(alpha, y), bounds.ce_second_order(alpha, y)
        return cls(
            alpha0=alpha0,
            plugin_ce=-np.log(p),
            ce=ce,
            ce_bound=bounds.ce_correction_bound(alpha0, p),
            ce_second=second,
            ce_remainder=np.abs(ce - second),
            ce_remainder_bound=bounds.remainder_bound(alpha0, 2 / p**3),
            mse=bounds.mse_correction(alpha),
            mse_tight=bounds.tight_lipschitz_gap_bound(alpha, MSE_LIPSCHITZ),
            mse_loose=bounds.lipschitz_gap_bound(alpha0, MSE_LIPSCHITZ),
        )

    def summary(self) -> dict[str, float]:
        """Figures of the whole set; shares are fractions."""
        return {
            "alpha0_median": float(np.median(self.alpha0)),
            "alpha0_ten": float((self.alpha0 >= MUCH).mean()),
            "ce_gap": float(self.ce.mean()),
            "ce_gap_share": float(self.ce.mean() / (self.ce + self.plugin_ce).mean()),
            "ce_half": float((self.ce_remainder <= self.ce / 2).mean()),
            "ce_remainder": float((self.ce_remainder <= self.ce_remainder_bound).mean()),
            "mse_gap": float(self.mse.mean()),
            "mse_gap_tight": float(self.mse_tight.mean()),
        }
