"""A trained network made wider, so that a larger one need not start from random weights.

Source: T. Chen, I. Goodfellow and J. Shlens, "Net2Net: Accelerating Learning via Knowledge Transfer", 2016.
"""

import torch
from torch import Tensor

from kws_export.network.matchboxnet import Conv, MatchboxNet

NOISE = 0.2
"""Relative standard deviation by which each weight is changed: copies that are equal would learn the same for ever."""


@torch.no_grad()
def widen(network: MatchboxNet, factor: int, noise: float = NOISE) -> MatchboxNet:
    """A network with `factor` times the channels, which without noise computes the same.

    Every channel stands there `factor` times, and whoever reads it takes each copy's share. The noise, torch's global
    generator's, makes the copies differ.
    """
    sizes = network.classes, network.repeat, network.coefficients, network.padding, factor * network.channels
    wide = type(network)(*sizes)
    weights = network.state_dict()
    for name, module in network.named_modules():
        if isinstance(module, Conv):
            inputs = 1 if module is network.prologue else factor  # which reads the coefficients
            weights[f"{name}.pointwise"] = _noisy(module.pointwise.tile(factor, inputs) / inputs, noise)
            if module.kernel > 1:
                weights[f"{name}.depthwise"] = _noisy(module.depthwise.tile(inputs, 1), noise)
            for key, value in module.norm.state_dict().items():
                weights[f"{name}.norm.{key}"] = value.tile(factor)
    weights["classifier.weight"] = _noisy(network.classifier.weight.tile(1, factor) / factor, noise)
    wide.load_state_dict(weights)
    return wide.train(network.training)


def _noisy(weight: Tensor, noise: float) -> Tensor:
    return weight * (1 + noise * torch.randn_like(weight))
