"""The evidential variants, as data: the nine of the paper, two that complete its matched pairs, and one for streams.

A variant is a map from logits z to Dirichlet parameters α = φ(τ(z)) and the loss that trained it. The device needs
only τ and φ; the loss and the KL schedule are here too, so that one table says everything.

The paper compares classical EDL with a KL term against plug-in losses without one. `plugin_ce_kl` and `plugin_mse_kl`
have the KL term of `edl_ce` and `edl_mse`, so that nothing but the data loss differs within a pair.

`belief_ce` is ours too. It learns windows without a word as one more outcome of the same cross-entropy, that of the
belief masses b_k = e_k/(Σe + K) and the vacuity u = K/(Σe + K), which sum to 1. With τ = exp a confident mistake about
such a window has a gradient of about 1; with softplus it would have 1/Σe, and what is hardest would hardly be learned.

Source: B. Hayta, H. Laus, S. Mittermaier, F. Krahmer, "Plug-in Losses for Evidential Deep Learning: A Simplified
Framework for Uncertainty Estimation that Includes the Softmax Classifier", arXiv:2605.22746, 2026,
the table of variants.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from kws_edge.errors import SettingError

Activation = Literal["softplus", "exp"]
Loss = Literal["dirichlet_ce", "dirichlet_mse", "plugin_ce", "plugin_mse", "belief_ce"]

PAPER_EPOCHS = 200
"""The length of run for which `Variant.kl_ramp_epochs` is stated; shorter runs scale it."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One row of the table.

    Attributes
    ----------
    name : the name in code and in model files.
    activation : τ, from logits to evidence e = τ(z) ≥ 0.
    alpha_offset : φ, as the number added to the evidence: α = e + alpha_offset, 0 or 1.
    loss : what the network was trained on, without the KL term.
    kl_ramp_epochs : T of λ_t = min(1, t/T) in a run of 200 epochs; None where there is no KL term.
    """

    name: str
    activation: Activation
    alpha_offset: Literal[0, 1]
    loss: Loss
    kl_ramp_epochs: int | None = None


VARIANTS = MappingProxyType(
    {
        v.name: v
        for v in (
            Variant("edl_ce", "softplus", 1, "dirichlet_ce", kl_ramp_epochs=400),
            Variant("edl_ce_no_kl", "softplus", 1, "dirichlet_ce"),
            Variant("edl_mse", "softplus", 1, "dirichlet_mse", kl_ramp_epochs=600),
            Variant("plugin_ce", "softplus", 1, "plugin_ce"),
            Variant("plugin_ce_kl", "softplus", 1, "plugin_ce", kl_ramp_epochs=400),
            Variant("plugin_mse", "softplus", 1, "plugin_mse"),
            Variant("plugin_mse_kl", "softplus", 1, "plugin_mse", kl_ramp_epochs=600),
            Variant("softmax", "exp", 0, "plugin_ce"),
            Variant("softplus", "softplus", 0, "plugin_ce"),
            Variant("softmax_kl", "exp", 0, "plugin_ce", kl_ramp_epochs=400),
            Variant("softmax_edl_ce", "exp", 0, "dirichlet_ce"),
            Variant("belief_ce", "exp", 1, "belief_ce"),
        )
    }
)


COMPARED = tuple(name for name in VARIANTS if name != "belief_ce")
"""The variants that a comparison on clips alone is of: without windows that hold no word, `belief_ce` is `softmax`."""


def get_variant(name: str) -> Variant:
    """Look a variant up by name.

    Raises
    ------
    SettingError : there is no such variant; the message lists those that exist.
    """
    try:
        return VARIANTS[name]
    except KeyError:
        raise SettingError(f"unknown variant {name!r}; expected one of {', '.join(VARIANTS)}") from None
