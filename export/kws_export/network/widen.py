"""A trained network made wider, so that a larger one need not start from random weights.

Source: T. Chen, I. Goodfellow and J. Shlens, "Net2Net: Accelerating Learning via Knowledge Transfer", 2016.
"""

import torch
from torch import Tensor

from kws_export.network.matchboxnet import Conv, MatchboxNet

NOISE = 0.2
"""Relative standard deviation by which each weight is changed: copies that are equal would learn the same for ever."""


@torch.no_grad()
def widen(network: MatchboxNet, channels: int, noise: float = NOISE) -> MatchboxNet:
    """A network with more channels, which without noise computes the same.

    The channels are repeated in order until there are enough, so that some stand there once more often than others;
    whoever reads one takes each copy's share. The noise, torch's global generator's, makes the copies differ.

    Parameters
    ----------
    channels : of the new network, at least as many as `network.channels`.
    """
    sizes = network.classes, network.repeat, network.coefficients, network.padding, channels
    wide = type(network)(*sizes)
    weights = network.state_dict()
    for name, module in network.named_modules():
        if isinstance(module, Conv):
            outputs, inputs = module.pointwise.shape
            from_outside = module is network.prologue  # which reads the coefficients
            source, share = _copies(inputs, inputs if from_outside else inputs * channels // network.channels)
            kept, _ = _copies(outputs, outputs * channels // network.channels)
            weights[f"{name}.pointwise"] = _noisy(module.pointwise[kept][:, source] * share, noise)
            if module.kernel > 1:
                weights[f"{name}.depthwise"] = _noisy(module.depthwise[source], noise)
            for key, value in module.norm.state_dict().items():
                weights[f"{name}.norm.{key}"] = value[kept]
    source, share = _copies(2 * network.channels, 2 * channels)
    weights["classifier.weight"] = _noisy(network.classifier.weight[:, source] * share, noise)
    wide.load_state_dict(weights)
    return wide.train(network.training)


def _copies(old: int, new: int) -> tuple[Tensor, Tensor]:
    """For each of `new` channels, which of the `old` it repeats, and its share of that one's copies."""
    source = torch.arange(new) % old
    return source, 1 / torch.bincount(source, minlength=old)[source]


def _noisy(weight: Tensor, noise: float) -> Tensor:
    return weight * (1 + noise * torch.randn_like(weight))
