"""The variants are those of the table, and an unknown one is refused."""

from dataclasses import replace

import pytest

from kws_edge.errors import SettingError
from kws_edge.model.variants import COMPARED, PAPER_EPOCHS, VARIANTS, get_variant

# name, activation τ, offset φ, loss, T of the KL ramp
DESIGN = [
    ("edl_ce", "softplus", 1, "dirichlet_ce", 400),
    ("edl_ce_no_kl", "softplus", 1, "dirichlet_ce", None),
    ("edl_mse", "softplus", 1, "dirichlet_mse", 600),
    ("plugin_ce", "softplus", 1, "plugin_ce", None),
    ("plugin_ce_kl", "softplus", 1, "plugin_ce", 400),
    ("plugin_mse", "softplus", 1, "plugin_mse", None),
    ("plugin_mse_kl", "softplus", 1, "plugin_mse", 600),
    ("softmax", "exp", 0, "plugin_ce", None),
    ("softplus", "softplus", 0, "plugin_ce", None),
    ("softmax_kl", "exp", 0, "plugin_ce", 400),
    ("softmax_edl_ce", "exp", 0, "dirichlet_ce", None),
    ("belief_ce", "exp", 1, "belief_ce", None),
]


def test_the_table_holds_the_variants_in_the_designs_order() -> None:
    assert list(VARIANTS) == [row[0] for row in DESIGN]


@pytest.mark.parametrize(("name", "activation", "offset", "loss", "ramp"), DESIGN)
def test_each_variant_is_the_designs_row(name: str, activation: str, offset: int, loss: str, ramp: int | None) -> None:
    variant = get_variant(name)
    assert variant.name == name
    assert variant.activation == activation
    assert variant.alpha_offset == offset
    assert variant.loss == loss
    assert variant.kl_ramp_epochs == ramp


@pytest.mark.parametrize(("ours", "classical"), [("plugin_ce_kl", "edl_ce"), ("plugin_mse_kl", "edl_mse")])
def test_a_plugin_variant_with_kl_differs_from_classical_edl_in_its_data_loss_alone(ours: str, classical: str) -> None:
    a, b = get_variant(ours), get_variant(classical)
    assert replace(a, name=b.name, loss=b.loss) == b
    assert (a.loss, b.loss) in {("plugin_ce", "dirichlet_ce"), ("plugin_mse", "dirichlet_mse")}


def test_the_variant_for_streams_is_not_compared_on_clips_alone() -> None:
    assert set(VARIANTS) - set(COMPARED) == {"belief_ce"}


def test_ramps_are_stated_for_200_epochs() -> None:
    assert PAPER_EPOCHS == 200


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        VARIANTS["mine"] = VARIANTS["softmax"]


def test_an_unknown_variant_is_refused_with_the_list_of_those_that_exist() -> None:
    with pytest.raises(SettingError, match=r"'sofmax'.*expected one of edl_ce, .*softmax_edl_ce"):
        get_variant("sofmax")
