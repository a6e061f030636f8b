"""Mixup: each clip of a batch is blended with another one of it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kws_export.training.mixup import blended

STRENGTHS = st.floats(1e-6, 10)


@given(clips=st.integers(1, 20), strength=STRENGTHS, seed=st.integers(0, 10**18))
def test_a_blend_holds_its_own_clip_and_the_one_whose_label_stands_beside_it(
    clips: int, strength: float, seed: int
) -> None:
    features, labels = torch.eye(clips)[:, :, None], torch.arange(clips)  # each clip is told by its one coefficient
    blend = blended(features, labels, strength, (seed, 0, 0))
    assert 0.5 <= blend.weight <= 1
    expected = blend.weight * features + (1 - blend.weight) * features[blend.others]
    torch.testing.assert_close(blend.features, expected)
    assert sorted(blend.others.tolist()) == labels.tolist()


def test_the_share_of_the_other_clip_is_that_of_the_beta_distribution() -> None:
    features, labels = torch.zeros(2, 1, 1), torch.arange(2)
    weights = torch.tensor([blended(features, labels, 0.2, (1, step, 0)).weight for step in range(4000)])
    # The larger of w and 1 - w, w from Beta(a, a): its mean is 1/2 + 4^-a Γ(2a)/(a Γ(a)^2).
    gamma = torch.lgamma(torch.tensor([0.4, 0.2], dtype=torch.float64)).exp()
    expected = 0.5 + 4**-0.2 * gamma[0] / (0.2 * gamma[1] ** 2)
    assert weights.double().mean().item() == pytest.approx(float(expected), abs=0.01)


def test_the_same_seed_gives_the_same_blend_and_another_step_another() -> None:
    features, labels = torch.randn(32, 4, 5, generator=torch.Generator().manual_seed(1)), torch.arange(32)
    first, again, other = (blended(features, labels, 0.2, (1, step, 0)) for step in (7, 7, 8))
    assert torch.equal(first.features, again.features)
    assert torch.equal(first.others, again.others)
    assert not torch.equal(first.others, other.others)
