"""From a trained network to one self-describing ONNX file: network, evidential head, optionally the front end.

The graph is written node by node rather than traced, so that it holds what the contract says and nothing else: standard
operators of a pinned opset, batch normalisation folded into the convolutions, weights inside the file. Convolutions
are two-dimensional with a height of 1, for which ONNX Runtime has its fast blocked kernels; in one dimension a
depthwise convolution falls back to a slow general path.
"""

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import TensorProto, checker, helper, numpy_helper

from kws_edge.arrays import F32
from kws_edge.errors import ModelError, SettingError
from kws_edge.files import read_model, replace_file
from kws_edge.model.evidence import LOGIT_LIMIT
from kws_edge.model.features import FrontEnd, dct_matrix, mel_filterbank
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import KEY, Metadata
from kws_edge.model.runtime import OUTPUTS
from kws_edge.model.variants import Variant, get_variant
from kws_export.network.matchboxnet import Conv, MatchboxNet, ResidualBlock

OPSET = 17
IR_VERSION = 8
"""Both from 2022: ONNX Runtime 1.14 and later load them."""


class _Graph:
    """Nodes and weights in the making."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def weight(self, name: str, value: npt.ArrayLike, dtype: Any = np.float32) -> str:
        """Store a constant once, by name."""
        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(np.asarray(value, dtype=dtype), name)
        return name

    def add(self, operator: str, *inputs: str, name: str, **attributes: Any) -> str:
        """Append a node; its output is called `name`."""
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name


def build_model(network: MatchboxNet, metadata: Metadata, *, with_front_end: bool = False) -> onnx.ModelProto:
    """Write the whole graph, from a window to the head's outputs.

    Parameters
    ----------
    network : in any mode; the running statistics are what is folded.
    metadata : goes into the file; its variant decides the head.
    with_front_end : the input is `audio` float32 [batch, samples] at the front end's rate, full scale ±1, of 1 to
        `frames` complete frames, instead of `mfcc` float32 [batch, coefficients, frames].
    """
    fe, g = metadata.front_end, _Graph()
    if with_front_end:
        source = helper.make_tensor_value_info("audio", TensorProto.FLOAT, ["batch", "samples"])
        features = _centred(g, _mfcc(g, "audio", fe), fe)
    else:
        source = helper.make_tensor_value_info("mfcc", TensorProto.FLOAT, ["batch", fe.n_mfcc, fe.frames])
        features = g.add("Unsqueeze", "mfcc", g.weight("axis_height", [2], np.int64), name="mfcc_2d")
    _network(g, features, network, metadata, _Padded() if network.padding == "same" else _Unpadded())
    return _finish(g, metadata, [source])


def build_step_model(network: MatchboxNet, metadata: Metadata, *, with_front_end: bool = False) -> onnx.ModelProto:
    """Write the graph of a stream's next frames, which carries what it still needs of the earlier ones as states.

    Inputs are `mfcc` float32 [batch, coefficients, new frames] and, for each convolution over time and the pool, a
    `state_NAME` float32 [batch, channels, 1, frames], zeros at a stream's start; each comes out as `next_NAME`. The
    other outputs are those of `build_model` for the window that ends with the last new frame; they are equal to its
    once `frames` frames have been given, whether one by one or all at once, whatever the states then held.

    Parameters
    ----------
    with_front_end : instead of `mfcc`, the input is `audio` float32 [batch, new samples], a multiple of the front end's
        hop, and one more state, `state_audio` float32 [batch, samples], holds the last of the samples before. A frame
        starts at every hop from the stream's first sample, as in `kws_edge.stream`.

    Raises
    ------
    SettingError : the network's padding is "same", so that its windows depend on their edges.
    """
    if network.padding != "valid":
        raise SettingError('a network with padding "same"; only one trained with padding "valid" has a step form')
    fe, g, states = metadata.front_end, _Graph(), _States()
    if with_front_end:
        source = helper.make_tensor_value_info("audio", TensorProto.FLOAT, ["batch", "new_samples"])
        features = _mfcc(g, states.samples(g, "audio", fe.hop * math.ceil(fe.window / fe.hop - 1)), fe)
    else:
        source = helper.make_tensor_value_info("mfcc", TensorProto.FLOAT, ["batch", fe.n_mfcc, "new_frames"])
        features = g.add("Unsqueeze", "mfcc", g.weight("axis_height", [2], np.int64), name="mfcc_2d")
    _network(g, features, network, metadata, states)
    return _finish(g, metadata, [source, *states.inputs], states.outputs)


def _finish(
    g: _Graph, metadata: Metadata, inputs: list[onnx.ValueInfoProto], states: Sequence[onnx.ValueInfoProto] = ()
) -> onnx.ModelProto:
    types = (TensorProto.INT64, TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT)
    shapes: tuple[list[str | int], ...] = (["batch"], ["batch", len(metadata.labels)], ["batch"], ["batch"])
    sinks = [helper.make_tensor_value_info(*spec) for spec in zip(OUTPUTS, types, shapes, strict=True)]
    weights = list(g.weights.values())
    graph = helper.make_graph(g.nodes, metadata.name, inputs, [*sinks, *states], initializer=weights)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="kws-edge",
    )
    helper.set_model_props(model, {KEY: metadata.to_json()})
    checker.check_model(model, full_check=True)
    return model


def save_model(model: onnx.ModelProto, path: Path) -> None:
    """Write one file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, model.SerializeToString())


def run_model(model: onnx.ModelProto) -> KeywordModel:
    """A model that has no file yet, as the device runs it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{model.graph.name}.onnx"
        save_model(model, path)
        return KeywordModel.load(path)


def load_model(path: Path) -> tuple[onnx.ModelProto, Metadata]:
    """Read a file of either input, and what it says of itself. Raises ModelError where it is not one of ours."""
    try:
        read_model(path)  # which refuses what has no end
        model = onnx.load(path)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}; expected an ONNX file") from None
    except Exception as error:  # protobuf has no common error for what it cannot parse
        raise ModelError(f"{path} is not an ONNX file: {error}") from None
    properties = {entry.key: entry.value for entry in model.metadata_props}
    if KEY not in properties:
        raise ModelError(f"{path} has no metadata under {KEY}; expected a file of kws-export export")
    return model, Metadata.from_json(properties[KEY])


class _Padded:
    """A window with zeros beyond its edges: every layer gives as many frames as it takes."""

    padded = True

    def extended(self, g: _Graph, x: str, channels: int, frames: int, name: str) -> str:
        """What a layer takes in that needs so many frames besides those that it gives."""
        return x

    def pooled(self, g: _Graph, x: str, channels: int, frames: int) -> str:
        """What the pool takes in, of a window in which it takes so many frames."""
        return x


class _Unpadded(_Padded):
    """A window and nothing else: every convolution over time gives fewer frames than it takes."""

    padded = False


class _States(_Unpadded):
    """A stream's next frames: what earlier ones a layer needs comes in as its state, and goes out as the next."""

    def __init__(self) -> None:
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def extended(self, g: _Graph, x: str, channels: int, frames: int, name: str) -> str:
        return self._joined(g, x, ["batch", channels, 1, frames], name)

    def samples(self, g: _Graph, audio: str, kept: int) -> str:
        """New samples [batch, samples] after those that were kept of the ones before."""
        return self._joined(g, audio, ["batch", kept], "audio")

    def _joined(self, g: _Graph, x: str, shape: list[str | int], name: str) -> str:
        """What is new behind the state of this name and shape, whose last axis is time."""
        for kind, prefix in ((self.inputs, "state"), (self.outputs, "next")):
            kind.append(helper.make_tensor_value_info(f"{prefix}_{name}", TensorProto.FLOAT, shape))
        axis, kept = len(shape) - 1, int(shape[-1])
        joined = g.add("Concat", f"state_{name}", x, name=f"{name}_joined", axis=axis)
        _last(g, joined, kept, f"next_{name}", axis)
        return joined

    def pooled(self, g: _Graph, x: str, channels: int, frames: int) -> str:
        return _last(g, self.extended(g, x, channels, frames - 1, "pool"), frames, "pool_window")


def _last(g: _Graph, x: str, kept: int, name: str, axis: int = 3) -> str:
    """The last entries of an axis; 3 is that of the frames in [batch, channels, 1, frames]."""
    bounds = g.weight(f"last_{kept}", [-kept], np.int64), g.weight("end", [np.iinfo(np.int64).max], np.int64)
    axes = g.weight("axis_frames" if axis == 3 else "axis_samples", [axis], np.int64)
    return g.add("Slice", x, *bounds, axes, name=name)


@torch.no_grad()
def _network(g: _Graph, x: str, network: MatchboxNet, metadata: Metadata, edges: _Padded) -> None:
    """From features [batch, coefficients, 1, frames] to the head's outputs."""
    x = _conv(g, x, network.prologue, "prologue", edges)
    for i, block in enumerate(network.blocks, 1):
        assert isinstance(block, ResidualBlock)
        *first, last = block.convs
        shortcut = x
        for j, conv in enumerate(first, 1):
            assert isinstance(conv, Conv)
            x = _conv(g, x, conv, f"block{i}_{j}", edges)
        assert isinstance(last, Conv)
        x = _conv(g, x, last, f"block{i}_{len(block.convs)}", edges, block.residual, shortcut)
    for i, conv in enumerate(network.epilogue, 1):
        assert isinstance(conv, Conv)
        x = _conv(g, x, conv, f"epilogue{i}", edges)
    x = edges.pooled(g, x, network.classifier.in_features, metadata.front_end.frames - 2 * network.reach)
    flat = g.add("Flatten", g.add("GlobalAveragePool", x, name="pooled"), name="pooled_flat", axis=1)
    weight = g.weight("classifier_weight", network.classifier.weight.numpy(force=True))
    bias = g.weight("classifier_bias", network.classifier.bias.numpy(force=True))
    logits = g.add("Gemm", flat, weight, bias, name="logits", transB=1)
    _head(g, logits, get_variant(metadata.variant), network.classes)


def _conv(
    g: _Graph, x: str, conv: Conv, name: str, edges: _Padded, residual: Conv | None = None, shortcut: str = ""
) -> str:
    """A layer, with the 1×1 `residual` of `shortcut` added where there is one, and its ReLU.

    Without padding the shortcut, which then is x, must lose the frames that the layer's output lacks. So it goes
    through the layer: beside each channel's taps stands a channel that picks the middle frame, and the pointwise
    convolution has the residual's weights for those.
    """
    weight, bias = _folded(conv)
    if conv.kernel > 1:
        taps = conv.depthwise.numpy(force=True)
        x = edges.extended(g, x, len(taps), 2 * conv.reach, name)
        if residual is not None and not edges.padded:
            x = g.add("Concat", x, x, name=f"{name}_twice", axis=1)
            middle = np.eye(1, conv.kernel, conv.kernel // 2, dtype=np.float32)
            taps = np.concatenate([taps, middle.repeat(len(taps), axis=0)])
            weight, bias = np.concatenate([weight, _folded(residual)[0]], axis=1), bias + _folded(residual)[1]
        pads = [0, conv.reach, 0, conv.reach] if edges.padded else [0, 0, 0, 0]
        x = g.add(
            "Conv", x, g.weight(f"{name}_depthwise_weight", taps[:, None, None, :]),
            name=f"{name}_depthwise", group=len(taps), kernel_shape=[1, conv.kernel],
            dilations=[1, conv.dilation], pads=pads,
        )  # fmt: skip
    y = _pointwise(g, x, name, weight, bias)
    if residual is not None and edges.padded:
        y = g.add("Add", y, _pointwise(g, shortcut, f"{name}_residual", *_folded(residual)), name=f"{name}_sum")
    return g.add("Relu", y, name=f"{name}_relu")


def _pointwise(g: _Graph, x: str, name: str, weight: F32, bias: F32) -> str:
    parameters = g.weight(f"{name}_weight", weight[:, :, None, None]), g.weight(f"{name}_bias", bias)
    return g.add("Conv", x, *parameters, name=f"{name}_pointwise", kernel_shape=[1, 1])


def _folded(conv: Conv) -> tuple[F32, F32]:
    """A layer's pointwise weights [out, in] and bias [out] with its normalisation in them."""
    scale, shift = conv.norm.affine()
    return (conv.pointwise * scale[:, None]).numpy(force=True), shift.numpy(force=True)


def _head(g: _Graph, logits: str, variant: Variant, K: int) -> None:
    """The formulas of kws_edge.model.evidence, in the same order; the class is argmax of the logits."""
    g.add("ArgMax", logits, name="class", axis=1, keepdims=0)
    bounds = [g.weight("logit_low", -LOGIT_LIMIT)]
    if variant.activation == "exp":
        bounds.append(g.weight("logit_high", LOGIT_LIMIT))
    z = g.add("Clip", logits, *bounds, name="logits_clamped")
    if variant.activation == "exp":
        evidence = g.add("Exp", z, name="evidence_exp")
    else:
        two = g.weight("two", 2.0)
        u = g.add("Exp", g.add("Neg", g.add("Abs", z, name="z_abs"), name="z_neg_abs"), name="u")
        ratio = g.add("Div", u, g.add("Add", u, two, name="u_plus_two"), name="u_ratio")
        log1p = g.add("Mul", g.add("Atanh", ratio, name="half_log1p"), two, name="log1p")
        evidence = g.add("Add", g.add("Relu", z, name="z_positive"), log1p, name="evidence_softplus")
    alpha = g.add("Add", evidence, g.weight("alpha_offset", float(variant.alpha_offset)), name="alpha")
    axis = g.weight("axis_class", [1], np.int64)
    alpha0 = g.add("ReduceSum", alpha, axis, name="alpha0", keepdims=1)
    p = g.add("Div", alpha, alpha0, name="p")
    log_p = g.add("Log", g.add("Max", p, g.weight("tiny", np.finfo(np.float32).tiny), name="p_floor"), name="log_p")
    h = g.add("ReduceSum", g.add("Mul", p, log_p, name="p_log_p"), axis, name="minus_h", keepdims=0)
    h = g.add("Mul", h, g.weight("minus_one_over_log_k", -1 / math.log(K)), name="h")
    g.add("Clip", h, g.weight("zero", 0.0), g.weight("one", 1.0), name="entropy")
    flat = g.add("Squeeze", alpha0, axis, name="alpha0_flat")
    denominator = g.add("Add", flat, g.weight("k_shift", float(K * (1 - variant.alpha_offset))), name="strength")
    g.add("Div", g.weight("k", float(K)), denominator, name="vacuity")


def _mfcc(g: _Graph, audio: str, fe: FrontEnd) -> str:
    """MFCC as convolutions: windowed Fourier basis with the hop as stride, mel filters and DCT as 1×1.

    A convolution runs everywhere that ONNX does; the DFT and STFT operators do not. Returns [batch, n_mfcc, 1, frames],
    all complete frames.
    """
    angle = 2 * np.pi * np.outer(np.arange(fe.n_fft // 2 + 1), np.arange(fe.window)) / fe.n_fft
    basis = np.concatenate([np.cos(angle), np.sin(angle)]) * np.hanning(fe.window)  # [2 · bins, window]
    mel = np.concatenate([mel_filterbank(fe)] * 2).T / fe.n_fft  # [n_mels, 2 · bins]: re² and im² add up
    x = g.add("Unsqueeze", audio, g.weight("axes_audio", [1, 2], np.int64), name="audio_2d")
    basis_weight = g.weight("fourier_basis", basis[:, None, None, :])
    spectrum = g.add("Conv", x, basis_weight, name="spectrum", kernel_shape=[1, fe.window], strides=[1, fe.hop])
    squares = g.add("Mul", spectrum, spectrum, name="squares")
    energies = g.add("Conv", squares, g.weight("mel_weight", mel[:, :, None, None]), name="mel", kernel_shape=[1, 1])
    log_mel = g.add("Log", g.add("Max", energies, g.weight("log_floor", fe.log_floor), name="floored"), name="log_mel")
    dct = dct_matrix(fe.n_mels, fe.n_mfcc).T[:, :, None, None]
    return g.add("Conv", log_mel, g.weight("dct_weight", dct), name="mfcc_frames", kernel_shape=[1, 1])


def _centred(g: _Graph, mfcc: str, fe: FrontEnd) -> str:
    """Zero padding on both sides to fe.frames, an odd frame to the right; more frames than fit make the run fail."""
    shape = g.add("Shape", mfcc, name="mfcc_shape", start=3, end=4)
    room = g.add("Sub", g.weight("frames", [fe.frames], np.int64), shape, name="room")
    room = g.add("Max", room, g.weight("no_room", [0], np.int64), name="room_positive")
    left = g.add("Div", room, g.weight("halves", [2], np.int64), name="left")
    right = g.add("Sub", room, left, name="right")
    none = g.weight("three_zeros", [0, 0, 0], np.int64)
    pads = g.add("Concat", none, left, none, right, name="pads", axis=0)
    padded = g.add("Pad", mfcc, pads, name="mfcc_padded")
    # Zeros copy the input's size: only a window of exactly fe.frames fits this shape.
    return g.add("Reshape", padded, g.weight("window_shape", [0, 0, 0, fe.frames], np.int64), name="mfcc_window")
