"""A wider network starts from what a trained one knows."""

from pathlib import Path

import pytest
import tone_words
import torch
from torch import nn

from kws_export.network.matchboxnet import MatchboxNet, Norm
from kws_export.network.widen import widen


def trained(repeat: int = 1) -> MatchboxNet:
    """A network whose statistics and affine weights are those of no fresh one."""
    torch.manual_seed(0)
    network = MatchboxNet(5, repeat, channels=32)
    for module in network.modules():
        if isinstance(module, Norm):
            for tensor in (module.running_mean, module.bias):
                nn.init.normal_(tensor, std=0.2)
            for tensor in (module.running_var, module.weight):
                nn.init.uniform_(tensor, 0.5, 2.0)
    return network.eval()


@pytest.mark.parametrize("repeat", [1, 2])
@pytest.mark.parametrize("channels", [32, 40, 64, 96])
def test_without_noise_it_computes_the_same(repeat: int, channels: int) -> None:
    network, mfcc = trained(repeat), torch.randn(4, 64, 128)
    wide = widen(network, channels, noise=0)
    assert wide.channels == channels
    torch.testing.assert_close(wide(mfcc), network(mfcc), rtol=1e-4, atol=1e-4)


def test_noise_makes_the_copies_differ() -> None:
    rows = widen(trained(), 64).blocks[0].convs[0].pointwise.detach()
    assert not torch.isclose(rows[:32], rows[32:]).any()


def test_a_run_of_more_channels_starts_from_a_narrow_one(tone_run: Path, tones: Path, tmp_path: Path) -> None:
    recipe = tone_words.recipe(start=str(tone_run / "best.pt"), channels=128, epochs=1, peak_lr=1e-4, final_lr=1e-4)
    (first,) = tone_words.run(tone_words.trainer(tones, tmp_path, recipe))
    assert first.validation_accuracy > 0.6
