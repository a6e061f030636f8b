"""The network from MFCC to pooled features in one autograd function, on the kernels of kernels.c.

Between layers only a convolution's output before its normalisation is stored. Whoever reads it normalises, adds the
residual and applies ReLU on the way in; the backward pass does so again. bench/training.py has the figures.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kws_export.kernels import compiled as kernels
from kws_export.kernels.compiled import LANES, run


@dataclass(frozen=True)
class Layer:
    """A convolution without bias and its batch normalisation.

    taps : [in, k] depthwise weights, or None; weight : [out, in]; gamma, beta : [out].
    affine : (scale, shift), [out] each, to apply instead of the batch's statistics, or None.
    record : called with the batch's mean and biased variance, float32 [out] each, and the number of frames.
    """

    taps: Tensor | None
    dilation: int
    weight: Tensor
    gamma: Tensor
    beta: Tensor
    affine: tuple[Tensor, Tensor] | None
    record: Callable[[Tensor, Tensor, int], None]

    def parameters(self) -> tuple[Tensor, ...]:
        """The trained tensors, in the order of the gradients."""
        tail = (self.weight, self.gamma, self.beta)
        return tail if self.taps is None else (self.taps, *tail)


@dataclass(frozen=True)
class Stage:
    """What reads one activation: a convolution, and perhaps a 1x1 projection beside it.

    adds : the stage's own activation is relu(norm(conv) + norm(projection)), with the latest projection so far.
    """

    conv: Layer
    projection: Layer | None = None
    adds: bool = False


@dataclass(frozen=True)
class Pool:
    """Over which frames the last activation's means go.

    edge : frames at each end that do not count; at least one must be left in a window.
    windows, step : how many means, and by how many frames each begins after the one before; together they cover all.
    """

    edge: int = 0
    windows: int = 1
    step: int = 1

    def frames(self, length: int) -> int:
        """Of one window, where there are `length` in all."""
        return length - 2 * self.edge - (self.windows - 1) * self.step


def available(mfcc: Tensor, stages: Sequence[Stage], pool: Pool) -> bool:
    """Whether `pooled` can take these tensors: float32 on the CPU, sizes in whole panels, and a compiler.

    There must be a clip, with frames for each of the pool's windows: the kernels write where those would be.

    In evaluation only without gradients: the kernels know the gradient by the batch's statistics alone.
    """
    layers = _layers(stages)
    tensors = [mfcc, *(p for layer in layers for p in layer.parameters())]
    return (
        all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors)
        and not torch.is_autocast_enabled("cpu")
        and not (torch.is_grad_enabled() and (mfcc.requires_grad or any(layer.affine for layer in layers)))
        and mfcc.shape[2] % 8 == 0
        and len(mfcc) > 0
        and pool.frames(mfcc.shape[2]) > 0
        and all(n % LANES == 0 for layer in layers for n in layer.weight.shape)
        and kernels.library() is not None
    )


def pooled(mfcc: Tensor, stages: Sequence[Stage], eps: float, pool: Pool) -> Tensor:
    """MFCC float32 [B, coefficients, T] → the last activation's means, float32 [B, windows, channels]."""
    parameters = [p for layer in _layers(stages) for p in layer.parameters()]
    return _Trunk.apply(mfcc, tuple(stages), eps, pool, *parameters)  # type: ignore[no-untyped-call]


class _Conv:
    """A layer at work: its weights in panels, and its normalisation once the batch's sums are known."""

    def __init__(self, layer: Layer) -> None:
        outputs, inputs = layer.weight.shape
        taps, weight = layer.taps, layer.weight.detach()
        forward = weight.view(outputs // LANES, LANES, inputs).transpose(1, 2).contiguous()
        backward = weight.view(outputs, inputs // LANES, LANES).transpose(0, 1).contiguous()
        if taps is not None:
            taps = taps.detach().view(inputs // LANES, LANES, -1).transpose(1, 2).contiguous()
        self.inputs, self.outputs, self.kernel = inputs, outputs, 1 if taps is None else taps.shape[1]
        sizes = (inputs, outputs, self.kernel, layer.dilation)
        self.struct = kernels.struct(kernels.Convolution, *sizes, taps, forward, backward)
        self.gamma = layer.gamma.detach().double()
        self.scale: Tensor
        self.shift: Tensor
        self.mean: Tensor
        self.inv_std: Tensor

    def normalise(self, sums: Tensor, frames: int, layer: Layer, eps: float) -> None:
        """From the sums of raw and raw² over the batch, double [2, out]."""
        if layer.affine is not None:
            self.scale, self.shift = (t.detach().contiguous() for t in layer.affine)
            return
        self.mean, square = sums / frames
        var = (square - self.mean * self.mean).clamp_min_(0)
        self.inv_std = torch.rsqrt(var + eps)
        scale = self.gamma * self.inv_std
        self.scale, self.shift = scale.float(), (layer.beta.detach() - self.mean * scale).float()
        layer.record(self.mean.float(), var.float(), frames)

    def norm_gradient(
        self, raw: Tensor, grad: Tensor, d_beta: Tensor, dot: Tensor
    ) -> tuple[kernels.NormGradient, Tensor, Tensor]:
        """From grad and its sums d_beta = Σ grad and dot = Σ grad · raw: the kernels' NormGradient, d_gamma, d_beta.

        d_raw = scale · (grad - mean(grad) - x̂ · mean(grad · x̂)), expanded into one multiple each of grad and raw.
        """
        frames = raw.numel() // self.outputs
        d_gamma = (dot - self.mean * d_beta) * self.inv_std
        scale = self.gamma * self.inv_std
        slope = -scale * self.inv_std * d_gamma / frames
        offset = -scale * d_beta / frames - slope * self.mean
        struct = kernels.struct(kernels.NormGradient, grad, raw, self.scale, slope.float(), offset.float())
        return struct, d_gamma.float(), d_beta.float()

    def weight_gradient(self, panels: Tensor) -> Tensor:
        """[out/16, in, 16] → [out, in]."""
        return panels.transpose(1, 2).reshape(self.outputs, self.inputs)

    def taps_gradient(self, panels: Tensor) -> Tensor:
        """[in/16, k, 16] → [in, k]."""
        return panels.transpose(1, 2).reshape(self.inputs, self.kernel)


class _Trunk(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mfcc: Tensor, stages: tuple[Stage, ...], eps: float, pool: Pool, *_parameters: Tensor
    ) -> Tensor:
        B, channels, T = mfcc.shape
        threads = min(torch.get_num_threads(), B)

        x = torch.empty(B, channels // LANES, T, LANES)
        run("to_panels", B, threads, T, channels, mfcc.contiguous(), x)
        convs: list[list[_Conv]] = []
        raws: list[list[Tensor]] = []
        for i, stage in enumerate(stages):
            layers = [layer for layer in (stage.conv, stage.projection) if layer]
            pair = [_Conv(layer) for layer in layers]
            outputs = [torch.empty(B, conv.outputs // LANES, T, LANES) for conv in pair]
            sums = [torch.zeros(threads, 2, conv.outputs, dtype=torch.float64) for conv in pair]
            arguments = [
                a for conv, raw, s in zip(pair, outputs, sums, strict=True) for a in (conv.struct, raw, list(s))
            ]
            activation = _activation(i, stages, convs, x, raws)
            run("stage_forward", B, threads, T, activation, *arguments, *[None] * (6 - len(arguments)))
            for conv, s, layer in zip(pair, sums, layers, strict=True):
                conv.normalise(s.sum(0), B * T, layer, eps)
            convs.append(pair)
            raws.append(outputs)
        result = torch.empty(B, pool.windows, convs[-1][0].outputs)
        activation = _activation(len(stages), stages, convs, x, raws)
        run("pool_forward", B, threads, T, result.shape[2], pool.edge, pool.windows, pool.step, activation, result)
        ctx.save_for_backward(x, *itertools.chain(*raws))
        ctx.stages, ctx.convs, ctx.threads, ctx.pool = stages, convs, threads, pool
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_pooled: Tensor) -> tuple[Tensor | None, ...]:
        stages, convs, threads, pool = ctx.stages, ctx.convs, ctx.threads, ctx.pool
        x, *flat = ctx.saved_tensors
        B, _, T, _ = x.shape
        following = iter(flat)
        raws = [[next(following) for _ in pair] for pair in convs]

        def buffers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(threads, *shape, dtype=dtype)

        channels = d_pooled.shape[2]
        grad = torch.empty(B, channels // LANES, T, LANES)
        sums = buffers(3, channels, dtype=torch.float64)
        d_pooled = (d_pooled / pool.frames(T)).contiguous()
        activation = _activation(len(stages), stages, convs, x, raws)
        run(
            "pool_backward", B, threads, T, channels, pool.edge, pool.windows, pool.step,
            activation, d_pooled, grad, list(sums),
        )  # fmt: skip

        gradients: list[Tensor] = []  # last parameter first
        projected: tuple[Tensor, Tensor, Tensor]
        for i in reversed(range(len(stages))):
            conv, *beside = convs[i]
            raw, *raw_beside = raws[i]
            d_beta, dot, dot2 = sums.sum(0)
            if stages[i].adds:
                projected = (grad, d_beta, dot2)
            output, *d_norm = conv.norm_gradient(raw, grad, d_beta, dot)
            d_taps = buffers(conv.inputs // LANES, conv.kernel, LANES)
            d_weight = buffers(conv.outputs // LANES, conv.inputs, LANES)
            second: list[Any] = [None] * 3
            if beside:
                output2, *d_norm2 = beside[0].norm_gradient(raw_beside[0], *projected)
                d_weight2 = torch.zeros_like(d_weight)
                second = [beside[0].struct, output2, list(d_weight2)]
            d_input, input_sums = None, None
            if i > 0:
                d_input = torch.empty(B, conv.inputs // LANES, T, LANES)
                input_sums = buffers(3, conv.inputs, dtype=torch.float64)
            activation = _activation(i, stages, convs, x, raws)
            run(
                "stage_backward", B, threads, T, activation, conv.struct, output, list(d_taps), list(d_weight),
                *second, d_input, None if input_sums is None else list(input_sums),
            )  # fmt: skip
            if beside:
                gradients += [*reversed(d_norm2), beside[0].weight_gradient(d_weight2.sum(0))]
            gradients += [*reversed(d_norm), conv.weight_gradient(d_weight.sum(0))]
            if conv.kernel > 1:
                gradients.append(conv.taps_gradient(d_taps.sum(0)))
            if d_input is not None and input_sums is not None:
                grad, sums = d_input, input_sums
        return None, None, None, None, *reversed(gradients)


def _layers(stages: Sequence[Stage]) -> list[Layer]:
    return [layer for stage in stages for layer in (stage.conv, stage.projection) if layer]


def _activation(
    i: int, stages: Sequence[Stage], convs: list[list[_Conv]], x: Tensor, raws: list[list[Tensor]]
) -> kernels.Activation:
    """What stage i reads: the input where i = 0, else the activation of stage i - 1. The pool reads len(stages)."""
    if i == 0:
        return kernels.struct(kernels.Activation, x, *[None] * 5)
    conv = convs[i - 1][0]
    members = [raws[i - 1][0], conv.scale, conv.shift]
    if stages[i - 1].adds:
        latest = max(j for j in range(i) if stages[j].projection)
        projection = convs[latest][1]
        members += [raws[latest][1], projection.scale, projection.shift]
    return kernels.struct(kernels.Activation, *members, *[None] * (6 - len(members)))
