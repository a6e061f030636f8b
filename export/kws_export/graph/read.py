"""From an exported file back to a network that can be trained further: what build.py folded, unfolded.

A file holds each layer's weights with the batch normalisation in them, and no statistics. In evaluation the network
that is read back gives the file's answers as it is; before training, `measure_statistics` gives each normalisation the
mean and variance of what it takes in, and the weight and bias that undo them, so that a training step by a batch's own
statistics starts from about the same answers.
"""

import itertools
from pathlib import Path

import numpy as np
import torch
from onnx import numpy_helper
from torch import Tensor

from kws_edge.arrays import F32
from kws_edge.errors import ModelError
from kws_edge.model.metadata import Metadata
from kws_export.graph.build import load_model
from kws_export.network.fast import FastMatchboxNet
from kws_export.network.matchboxnet import BN_EPS, Conv, MatchboxNet, Norm, ResidualBlock


def load_network(path: Path) -> tuple[MatchboxNet, Metadata]:
    """Read a file of `kws-export export`, with or without front end, into a network.

    Raises
    ------
    ModelError : no such file, not one of ours, or one without the float weights, such as an int8 file.
    """
    if not path.is_file():
        raise ModelError(f"no file {path}; expected a model of kws-export export")
    model, metadata = load_model(path)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    repeat = next(i for i in itertools.count() if f"block1_{i + 1}_weight" not in weights)
    try:
        channels = len(weights["block1_1_bias"])
        network = FastMatchboxNet(len(metadata.labels), repeat, metadata.front_end.n_mfcc, metadata.padding, channels)
        _fill(network, weights)
    except (KeyError, RuntimeError) as error:
        raise ModelError(f"{path} lacks float weights ({error}); expected an fp32 file of kws-export export") from None
    return network, metadata


@torch.no_grad()
def measure_statistics(network: MatchboxNet, features: Tensor, batch: int = 256) -> None:
    """Give every normalisation the statistics of what it takes in, without changing what the network computes.

    Parameters
    ----------
    features : float32 [n, coefficients, frames], such as some hundred training clips.
    """
    norms = [module for module in network.modules() if isinstance(module, Norm)]
    moments = {norm: torch.zeros(3, len(norm.bias), dtype=torch.float64) for norm in norms}

    def add(norm: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(norm, Norm)
        x = inputs[0].double().transpose(0, 1).flatten(1)
        moments[norm] += torch.stack([torch.full((len(x),), x.shape[1]), x.sum(1), x.square().sum(1)])

    hooks = [norm.register_forward_pre_hook(add) for norm in norms]
    network.eval()
    for part in torch.split(features, batch):
        MatchboxNet.window_means(network, part, 1)  # layer by layer, which hooks can watch
    for hook in hooks:
        hook.remove()
    for norm, (n, total, squares) in moments.items():
        mean = total / n
        variance = squares / n - mean.square()
        scale, shift = norm.affine()
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(variance)
        norm.weight.copy_(scale * torch.sqrt(norm.running_var + BN_EPS))
        norm.bias.copy_(shift + norm.running_mean * scale)


def _fill(network: MatchboxNet, weights: dict[str, F32]) -> None:
    """The inverse of build._network. KeyError or RuntimeError where a weight is missing or of another shape."""
    _fill_conv(network.prologue, "prologue", weights)
    for i, block in enumerate(network.blocks, 1):
        assert isinstance(block, ResidualBlock)
        last = len(block.convs)
        for j, conv in enumerate(block.convs, 1):
            assert isinstance(conv, Conv)
            _fill_conv(conv, f"block{i}_{j}", weights, block.residual if j == last else None)
    for i, conv in enumerate(network.epilogue, 1):
        assert isinstance(conv, Conv)
        _fill_conv(conv, f"epilogue{i}", weights)
    _copy(network.classifier.weight, weights["classifier_weight"])
    _copy(network.classifier.bias, weights["classifier_bias"])


def _fill_conv(conv: Conv, name: str, weights: dict[str, F32], residual: Conv | None = None) -> None:
    weight, bias = weights[f"{name}_weight"][:, :, 0, 0], weights[f"{name}_bias"]
    inputs = conv.pointwise.shape[1]
    if residual is not None:
        if f"{name}_residual_weight" in weights:
            _fill_conv(residual, f"{name}_residual", weights)
        else:  # without padding, the residual goes through the layer's own convolutions
            _set(residual, weight[:, inputs:], np.zeros_like(bias))
    _set(conv, weight[:, :inputs], bias)
    if conv.kernel > 1:
        _copy(conv.depthwise, weights[f"{name}_depthwise_weight"][:inputs, 0, 0])


def _set(conv: Conv, weight: F32, bias: F32) -> None:
    """The folded weights, with a normalisation that only adds the bias."""
    _copy(conv.pointwise, weight)
    _copy(conv.norm.running_mean, np.zeros_like(bias))
    _copy(conv.norm.running_var, np.full_like(bias, 1 - BN_EPS))
    _copy(conv.norm.weight, np.ones_like(bias))
    _copy(conv.norm.bias, bias)


@torch.no_grad()
def _copy(target: Tensor, values: F32) -> None:
    if target.shape != values.shape:
        raise RuntimeError(f"a weight of shape {list(values.shape)} for {list(target.shape)}")
    target.copy_(torch.from_numpy(values.copy()))
