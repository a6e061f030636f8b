"""The network's two expensive operations in torch: depthwise convolution and batch normalisation.

For a GPU, other precisions than float32, or a machine without a compiler; elsewhere trunk.py takes the whole network.

Activations are [C, B, T], channels first and time last. In that layout a 1×1 convolution is one plain matrix product
over all clips and frames, the statistics of a channel are sums over contiguous memory, and a depthwise convolution
is a batch of products with a narrow banded matrix: more multiplications than the sliding sum, but at the speed of the
BLAS. bench/training.py measures it against Conv1d.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 32  # output frames per banded product: the band wastes (BLOCK + k - 1) / k of the multiplications


def depthwise(x: Tensor, weight: Tensor, dilation: int = 1) -> Tensor:
    """Depthwise convolution over time with 'same' zero padding.

    Parameters
    ----------
    x : [C, B, T], T a multiple of BLOCK · dilation.
    weight : [C, k], k odd; the correlation form, as in torch.nn.functional.conv1d.
    dilation : 1 or a divisor of T. A dilated convolution is one over each of the interleaved sub-sequences.

    Returns
    -------
    [C, B, T].
    """
    if dilation == 1:
        return _Depthwise.apply(x, weight)  # type: ignore[no-untyped-call]
    C, B, T = x.shape
    phases = x.reshape(C, B, T // dilation, dilation).transpose(2, 3).reshape(C, B * dilation, T // dilation)
    y: Tensor = _Depthwise.apply(phases, weight)  # type: ignore[no-untyped-call]
    return y.reshape(C, B, dilation, T // dilation).transpose(2, 3).reshape(C, B, T)


def batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, *, residual: Tensor | None = None, relu: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise each channel over the batch, add a residual, apply ReLU: one pass each way instead of three.

    Parameters
    ----------
    x : [C, N]; weight, bias : [C]; residual : [C, N], added after the normalisation and before the ReLU.

    Returns
    -------
    y [C, N], and the batch's mean and biased variance, [C] each, for the running statistics (no gradient).
    """
    return _BatchNorm.apply(x, weight, bias, residual, eps, relu)  # type: ignore[no-untyped-call]


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        blocks = _overlapping_blocks(x, weight.shape[1])
        ctx.save_for_backward(blocks, weight)
        return torch.bmm(blocks, _banded(weight)).view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor]:
        blocks, weight = ctx.saved_tensors
        C, k = weight.shape
        dx = None
        if ctx.needs_input_grad[0]:
            dx = torch.bmm(_overlapping_blocks(dy, k), _banded(weight.flip(1))).view(dy.shape)
        # The gradient of the banded matrix, then the sum along its diagonals, one per tap.
        band = torch.bmm(dy.reshape(C, -1, BLOCK).transpose(1, 2), blocks)
        length = BLOCK + k - 1
        taps = band.as_strided((C, BLOCK, k), (BLOCK * length, length + 1, 1)).sum(1)
        return dx, taps


def _overlapping_blocks(x: Tensor, k: int) -> Tensor:
    """[C, B, T] → [C, B · T/BLOCK, BLOCK + k - 1]: what each block of outputs looks at, zeros beyond the edges."""
    C, B, T = x.shape
    padded = torch.nn.functional.pad(x, (k // 2, k // 2))
    return padded.unfold(2, BLOCK + k - 1, BLOCK).reshape(C, B * (T // BLOCK), BLOCK + k - 1)


def _banded(weight: Tensor) -> Tensor:
    """[C, k] → [C, BLOCK + k - 1, BLOCK] with M[c, i, j] = weight[c, i - j]."""
    C, k = weight.shape
    length = BLOCK + k - 1
    # Rows one longer than `length`, read back with rows of `length`: each row shifts by one.
    rows = torch.nn.functional.pad(weight, (0, length + 1 - k)).unsqueeze(1).expand(C, BLOCK, length + 1)
    return rows.reshape(C, -1)[:, : BLOCK * length].reshape(C, BLOCK, length).transpose(1, 2)


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, eps: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean = x.mean(1)
        var = (_row_dot(x, x) / x.shape[1] - mean * mean).clamp_min_(0)
        inv_std = torch.rsqrt(var + eps)
        scale = weight * inv_std
        y = torch.addcmul((bias - mean * scale)[:, None], x, scale[:, None])
        if residual is not None:
            y += residual
        if relu:
            y.relu_()
        ctx.save_for_backward(x, y, mean, inv_std, weight)
        ctx.relu, ctx.has_residual = relu, residual is not None
        ctx.mark_non_differentiable(mean, var)
        return y, mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, _mean: Tensor, _var: Tensor) -> tuple[Tensor | None, ...]:
        x, y, mean, inv_std, weight = ctx.saved_tensors
        if ctx.relu:
            dy = torch.ops.aten.threshold_backward(dy, y, 0)
        d_bias = dy.sum(1)
        d_weight = (_row_dot(dy, x) - mean * d_bias) * inv_std
        # dx = scale · (dy - mean(dy) - x̂ · mean(dy · x̂)), expanded into one multiply-add of x and one of dy.
        scale = weight * inv_std
        slope = -scale * inv_std * d_weight / x.shape[1]
        offset = -scale * d_bias / x.shape[1] - slope * mean
        dx = torch.addcmul(offset[:, None], x, slope[:, None]).addcmul_(dy, scale[:, None])
        return dx, d_weight, d_bias, dy if ctx.has_residual else None, None, None


def _row_dot(a: Tensor, b: Tensor) -> Tensor:
    """Row-wise dot products of two [C, N] tensors, without the temporary that (a * b).sum(1) makes."""
    return torch.bmm(a[:, None, :], b[:, :, None])[:, 0, 0]
