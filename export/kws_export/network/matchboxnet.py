"""MatchboxNet-3xRxC: the network from MFCC to logits, in plain torch.

Source: S. Majumdar and B. Ginsburg, "MatchboxNet: 1D Time-Channel Separable Convolutional Neural Network Architecture
for Speech Commands Recognition", 2020. Prologue, three residual blocks of R sub-blocks, two epilogue layers, average
pool, linear; prologue and epilogue have 2C channels. 77,214 parameters at R = 1, C = 64 and 30 classes; 92,766 at
R = 2.

On a CPU, fast.py computes the same several times as fast.
"""

import itertools
import math
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn

from kws_edge.model.metadata import Padding

Initialisation: TypeAlias = Literal["fan_in", "xavier"]

BN_EPS = 1e-3
BN_MOMENTUM = 0.1
BLOCK_KERNELS = (13, 15, 17)
WINDOW_STEP = 8
"""Frames between the windows of `window_logits`: 80 ms, about a stream's hop; the compiled kernels take eights."""


class Norm(nn.Module):
    """Batch normalisation of [B, C, T]; torch's own without the count of batches, which an average cannot take."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        """Start as the identity."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, T] → [B, C, T]; in training, by the batch's statistics, which also update the running ones."""
        statistics = self.running_mean, self.running_var
        return F.batch_norm(x, *statistics, self.weight, self.bias, self.training, BN_MOMENTUM, BN_EPS)

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

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, T] → [B, outputs, T]."""
        if self.kernel > 1:
            taps = self.depthwise[:, None]
            x = F.conv1d(x, taps, padding=self.reach, dilation=self.dilation, groups=len(taps))
        return self.norm(F.conv1d(x, self.pointwise[:, :, None]))


class ResidualBlock(nn.Module):
    """R separable convolutions, the last one added to a 1×1 projection of the block's input before its ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int, repeat: int) -> None:
        """Only the first sub-block changes the number of channels."""
        super().__init__()
        self.convs = nn.ModuleList(Conv(inputs if i == 0 else outputs, outputs, kernel) for i in range(repeat))
        self.residual = Conv(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, T] → [B, outputs, T]."""
        residual = self.residual(x)
        *first, last = self.convs
        for conv in first:
            x = conv(x).relu()
        return (last(x) + residual).relu()


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
            ResidualBlock(wide if i == 0 else channels, channels, kernel, repeat)
            for i, kernel in enumerate(BLOCK_KERNELS)
        )
        self.epilogue = nn.ModuleList([Conv(channels, wide, 29, dilation=2), Conv(wide, wide)])
        self.classifier = nn.Linear(wide, classes)

    @property
    def reach(self) -> int:
        """How many frames to either side an activation before the pool depends on: 54 at R = 1."""
        blocks = (block.convs for block in self.blocks if isinstance(block, ResidualBlock))
        convs = [self.prologue, *itertools.chain(*blocks), *self.epilogue]
        return sum(conv.reach for conv in convs if isinstance(conv, Conv))

    @property
    def edge(self) -> int:
        """The frames at each end that the pool leaves out."""
        return self.reach if self.padding == "valid" else 0

    def forward(self, mfcc: Tensor) -> Tensor:
        """float32 [B, 64, T] → float32 [B, classes]; with padding "valid", T is above 2 * reach."""
        return self.classifier(self.pooled(mfcc))

    def pooled(self, mfcc: Tensor) -> Tensor:
        """What the classifier takes in, float32 [B, 64, T] → [B, 2C]."""
        return self.window_means(mfcc, 1).squeeze(1)

    def window_logits(self, mfcc: Tensor, windows: int) -> Tensor:
        """What a stream answers in succession: float32 [B, 64, T] → [B, windows, classes], `WINDOW_STEP` frames apart.

        Each of the windows has T - (windows - 1) * WINDOW_STEP frames. With padding "valid" its logits are those that
        the network gives for these frames alone.
        """
        return self.classifier(self.window_means(mfcc, windows))

    def window_means(self, mfcc: Tensor, windows: int) -> Tensor:
        """What the classifier takes in for each window of `window_logits`, float32 [B, 64, T] → [B, windows, 2C]."""
        x = self.activations(mfcc)
        frames = x.shape[2] - 2 * self.edge - (windows - 1) * WINDOW_STEP
        starts = [self.edge + i * WINDOW_STEP for i in range(windows)]
        return torch.stack([x[:, :, start : start + frames].mean(2) for start in starts], 1)

    def activations(self, mfcc: Tensor) -> Tensor:
        """What the pool takes in, float32 [B, 64, T] → [B, 2C, T]; those within `reach` of an end depend on zeros."""
        x = self.prologue(mfcc).relu()
        for block in self.blocks:
            x = block(x)
        for conv in self.epilogue:
            x = conv(x).relu()
        return x


def parameter_count(model: nn.Module) -> int:
    """Trainable parameters."""
    return sum(p.numel() for p in model.parameters())


@torch.no_grad()
def initialise_xavier(network: MatchboxNet) -> None:
    """New random weights, uniform within ±√(6/(fan in + fan out)) as a Conv1d's tensors count them; biases stay.

    Source: Glorot and Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks".
    """
    for layer in network.modules():
        if isinstance(layer, Conv):
            nn.init.xavier_uniform_(layer.pointwise)
            if layer.kernel > 1:
                nn.init.xavier_uniform_(layer.depthwise[:, None])  # a view, [channels, 1, taps]
    nn.init.xavier_uniform_(network.classifier.weight)


def _uniform(fan_in: int, *shape: int) -> Tensor:
    bound = 1 / math.sqrt(fan_in)
    return torch.empty(*shape).uniform_(-bound, bound)
