"""What of a training is released: weights between those that were trained and those that it began with."""

import pytest
import torch

from kws_export.network.matchboxnet import MatchboxNet
from kws_export.wake.training import between


@pytest.fixture
def networks() -> tuple[MatchboxNet, MatchboxNet]:
    torch.manual_seed(1)
    return MatchboxNet(2, 1, 64, "valid", 8), MatchboxNet(20, 1, 64, "valid", 8)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_weights_and_statistics_lie_between_and_the_outputs_are_the_trained_ones(
    networks: tuple[MatchboxNet, MatchboxNet], share: float
) -> None:
    trained, first = networks
    first.train()(torch.randn(4, 64, 128))  # other statistics
    found, ours, theirs = between(trained, first, share).state_dict(), trained.state_dict(), first.state_dict()
    for name, value in found.items():
        expected = ours[name]
        if not name.startswith("classifier.") and value.is_floating_point():
            expected = (1 - share) * ours[name] + share * theirs[name]
        assert torch.allclose(value, expected, atol=1e-6), name


def test_the_trained_network_stays_as_it_is(networks: tuple[MatchboxNet, MatchboxNet]) -> None:
    trained, first = networks
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    between(trained, first, 0.5)
    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())
