"""MatchboxNet on the compiled kernels, for training on a CPU: the same weights and numbers, several times as fast.

Where the kernels cannot serve (a GPU, other precisions than float32, no C compiler) it is the plain network.
bench/training.py has the figures.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from kws_export.kernels import trunk
from kws_export.network.matchboxnet import BN_EPS, BN_MOMENTUM, WINDOW_STEP, Conv, MatchboxNet, Norm, ResidualBlock


class FastMatchboxNet(MatchboxNet):
    """MFCC [B, 64, 128] → logits [B, classes], by compiled kernels where they can serve."""

    def window_means(self, mfcc: Tensor, windows: int) -> Tensor:
        """As `MatchboxNet.window_means`."""
        layers, pool = list(stages(self)), trunk.Pool(self.edge, windows, WINDOW_STEP)
        if trunk.available(mfcc, layers, pool):
            return trunk.pooled(mfcc, layers, BN_EPS, pool)
        return super().window_means(mfcc, windows)


def stages(network: MatchboxNet) -> Iterator[trunk.Stage]:
    """The network for the compiled kernels, in order.

    A block's projection is made beside its first sub-block, as both read the same, and added to the last.
    """
    yield trunk.Stage(_layer(network.prologue))
    for block in network.blocks:
        assert isinstance(block, ResidualBlock)
        end = len(block.convs) - 1
        for i, conv in enumerate(block.convs):
            assert isinstance(conv, Conv)
            yield trunk.Stage(_layer(conv), _layer(block.residual) if i == 0 else None, adds=i == end)
    for conv in network.epilogue:
        assert isinstance(conv, Conv)
        yield trunk.Stage(_layer(conv))


def _layer(conv: Conv) -> trunk.Layer:
    norm = conv.norm
    return trunk.Layer(
        taps=conv.depthwise if conv.kernel > 1 else None,
        dilation=conv.dilation,
        weight=conv.pointwise,
        gamma=norm.weight,
        beta=norm.bias,
        affine=None if conv.training else norm.affine(),
        record=_recorder(norm),
    )


def _recorder(norm: Norm) -> Callable[[Tensor, Tensor, int], None]:
    @torch.no_grad()
    def record(mean: Tensor, var: Tensor, n: int) -> None:
        """Move the running statistics towards a batch's mean and biased variance, [C] each, over n values."""
        norm.running_mean.lerp_(mean, BN_MOMENTUM)
        norm.running_var.lerp_(var * (n / (n - 1)), BN_MOMENTUM)

    return record
