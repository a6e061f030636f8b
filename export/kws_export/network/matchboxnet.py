"""MatchboxNet-3xRxC: the network from MFCC to logits.

Source: S. Majumdar and B. Ginsburg, "MatchboxNet: 1D Time-Channel Separable Convolutional Neural Network Architecture
for Speech Commands Recognition", 2020. Prologue, three residual blocks of R sub-blocks, two epilogue layers, average
pool, linear; prologue and epilogue have 2C channels. 77,214 parameters at R = 1, C = 64 and 30 classes; 92,766 at
R = 2.

On a CPU trunk.py computes it with compiled kernels, else ops.py with torch, where activations are [C, B, T]; the public
input and output are batch-first.
"""

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from kws_edge.model.metadata import Padding
from kws_export.kernels import trunk
from kws_export.network.ops import batch_norm, depthwise

BN_EPS = 1e-3
BN_MOMENTUM = 0.1
BLOCK_KERNELS = (13, 15, 17)


class Norm(nn.Module):
    """Batch normalisation of [C, N], with an optional residual and ReLU in the same pass."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        """Start as the identity."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor, *, residual: Tensor | None = None, relu: bool = True) -> Tensor:
        """[C, N] → [C, N]; in training, by the batch's statistics, which also update the running ones."""
        if self.training:
            y, mean, var = batch_norm(x, self.weight, self.bias, BN_EPS, residual=residual, relu=relu)
            self.record(mean, var, x.shape[1])
            return y
        scale, shift = self.affine()
        y = x * scale[:, None] + shift[:, None]
        if residual is not None:
            y = y + residual
        return y.relu() if relu else y

    @torch.no_grad()
    def record(self, mean: Tensor, var: Tensor, n: int) -> None:
        """Move the running statistics towards a batch's mean and biased variance, [C] each, over n values."""
        self.running_mean.lerp_(mean, BN_MOMENTUM)
        self.running_var.lerp_(var * (n / (n - 1)), BN_MOMENTUM)

    def affine(self) -> tuple[Tensor, Tensor]:
        """Scale and shift, [C] each, that evaluation applies; export folds them into the convolution before."""
        scale = self.weight * torch.rsqrt(self.running_var + BN_EPS)
        return scale, self.bias - self.running_mean * scale


class Conv(nn.Module):
    """A convolution without bias: depthwise over time where `kernel` > 1, then 1×1; batch-normalised."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, dilation: int = 1) -> None:
        """Initialise uniformly by fan-in, as torch's convolutions."""
        super().__init__()
        self.kernel, self.dilation = kernel, dilation
        if kernel > 1:
            self.depthwise = nn.Parameter(_uniform(kernel, inputs, kernel))
        self.pointwise = nn.Parameter(_uniform(inputs, outputs, inputs))
        self.norm = Norm(outputs)

    @property
    def reach(self) -> int:
        """How many frames to either side an output depends on."""
        return self.kernel // 2 * self.dilation

    def forward(self, x: Tensor, *, residual: Tensor | None = None, relu: bool = True) -> Tensor:
        """[inputs, B, T] → [outputs, B, T]."""
        _, B, T = x.shape
        if self.kernel > 1:
            x = depthwise(x, self.depthwise, self.dilation)
        y = self.pointwise @ x.reshape(len(x), -1)
        flat = None if residual is None else residual.reshape(len(residual), -1)
        return self.norm(y, residual=flat, relu=relu).view(-1, B, T)

    def layer(self) -> trunk.Layer:
        """The same for the compiled kernels."""
        norm = self.norm
        return trunk.Layer(
            taps=self.depthwise if self.kernel > 1 else None,
            dilation=self.dilation,
            weight=self.pointwise,
            gamma=norm.weight,
            beta=norm.bias,
            affine=None if self.training else norm.affine(),
            record=norm.record,
        )

    def stages(self) -> Iterator[trunk.Stage]:
        """The same for the compiled kernels."""
        yield trunk.Stage(self.layer())


class Block(nn.Module):
    """R separable convolutions, the last one added to a 1×1 projection of the block's input before its ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int, repeat: int) -> None:
        """Only the first sub-block changes the number of channels."""
        super().__init__()
        self.convs = nn.ModuleList(Conv(inputs if i == 0 else outputs, outputs, kernel) for i in range(repeat))
        self.residual = Conv(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """[inputs, B, T] → [outputs, B, T]."""
        residual = self.residual(x, relu=False)
        *first, last = self.convs
        for conv in first:
            x = conv(x)
        return last(x, residual=residual)

    def stages(self) -> Iterator[trunk.Stage]:
        """The same for the compiled kernels: the projection is made beside the first sub-block, added to the last."""
        end = len(self.convs) - 1
        for i, conv in enumerate(self.convs):
            projection = self.residual.layer() if i == 0 else None
            yield trunk.Stage(conv.layer(), projection, adds=i == end)  # type: ignore[operator]


class MatchboxNet(nn.Module):
    """MFCC [B, 64, 128] → logits [B, classes]."""

    def __init__(
        self, classes: int, repeat: int = 1, coefficients: int = 64, padding: Padding = "same", channels: int = 64
    ) -> None:
        """Build the network; `repeat` is R and `channels` C in 3xRxC.

        With `padding` "same" the pool takes every frame, and those near the edges have seen zeros beyond the window.
        With "valid" it takes only frames that have not: what a window gives is then a mean over frames that each
        depend on their own `2 * reach + 1` frames of MFCC alone, so that in a stream they are computed once.
        """
        super().__init__()
        self.classes, self.repeat, self.coefficients, self.padding = classes, repeat, coefficients, padding
        self.channels, wide = channels, 2 * channels
        self.prologue = Conv(coefficients, wide, 11)
        self.blocks = nn.ModuleList(
            Block(wide if i == 0 else channels, channels, kernel, repeat) for i, kernel in enumerate(BLOCK_KERNELS)
        )
        self.epilogue = nn.ModuleList([Conv(channels, wide, 29, dilation=2), Conv(wide, wide)])
        self.classifier = nn.Linear(wide, classes)

    @property
    def reach(self) -> int:
        """How many frames to either side an activation before the pool depends on: 54 at R = 1."""
        blocks = (block.convs for block in self.blocks if isinstance(block, Block))
        convs = [self.prologue, *itertools.chain(*blocks), *self.epilogue]
        return sum(conv.reach for conv in convs if isinstance(conv, Conv))

    def layers(self) -> Iterator[nn.Module]:
        """The modules between input and pooling, in order."""
        yield self.prologue
        yield from self.blocks
        yield from self.epilogue

    def forward(self, mfcc: Tensor) -> Tensor:
        """float32 [B, 64, T] → float32 [B, classes]; T a multiple of 64, with padding "valid" above 2 * reach."""
        stages = [stage for layer in self.layers() for stage in layer.stages()]  # type: ignore[operator]
        if trunk.available(mfcc, stages):
            return self.classifier(trunk.pooled(mfcc, stages, BN_EPS, self._edge))
        return self.layerwise(mfcc)

    def layerwise(self, mfcc: Tensor) -> Tensor:
        """The same through each layer's own `forward`, which hooks can watch, in place of the compiled kernels."""
        x = mfcc.transpose(0, 1).contiguous()
        for layer in self.layers():
            x = layer(x)
        return self.classifier(x[:, :, self._edge : x.shape[2] - self._edge].mean(2).T)

    @property
    def _edge(self) -> int:
        """The frames at each end that the pool leaves out."""
        return self.reach if self.padding == "valid" else 0


def parameter_count(model: nn.Module) -> int:
    """Trainable parameters."""
    return sum(p.numel() for p in model.parameters())


def _uniform(fan_in: int, *shape: int) -> Tensor:
    bound = 1 / math.sqrt(fan_in)
    return torch.empty(*shape).uniform_(-bound, bound)
