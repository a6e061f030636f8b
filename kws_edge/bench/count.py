"""The work of a decision, counted instead of timed: it is the same on every machine.

Multiply-adds and bytes are counted in the graph. The shape of every tensor is read off one run in which each of them is
an output, so that no rule about shapes has to be known here. Operator calls are those that onnxruntime makes, after it
has fused what it can.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kws_edge.bench.graph import feed, nodes_by_provider
from kws_edge.model.features import FrontEnd
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.onnx_fields import (
    GRAPH,
    INITIALIZER,
    INPUT,
    NODE,
    NODE_INPUT,
    NODE_OUTPUT,
    OPERATOR,
    OUTPUT,
    TENSOR_NAME,
    VALUE_NAME,
)
from kws_edge.model.protobuf import bytes_field, fields, values
from kws_edge.model.runtime import CPU, open_session
from kws_edge.stream.framing import DEFAULT_HOP, check_hop
from kws_edge.stream.incremental import has_steps, step_file

CONVOLUTIONS: Final[Mapping[str, int]] = {"Conv": 1, "QLinearConv": 3, "ConvInteger": 1}
"""Convolutions → which of their inputs holds the weights, [out, in / group, kernel...]."""

PRODUCTS: Final = frozenset({"Gemm", "MatMul", "MatMulInteger", "QLinearMatMul"})


Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What one piece of work takes.

    Attributes
    ----------
    what : "window", the network on a whole window; "hop", what a stream computes each hop; "clip", a clip of a second.
    front_end : multiply-adds of the MFCC.
    multiply_adds : of the network, one for each product in a convolution or a product of matrices.
    weight_bytes : the network's constants, each read once.
    edge_bytes : its inputs and outputs, states among them.
    inner_bytes : every tensor between two operators of the graph, written once and read by each that takes it; what
        onnxruntime fuses is never written, so that this is the most.
    calls : operators that onnxruntime runs.
    """

    what: str
    front_end: int
    multiply_adds: int
    weight_bytes: int
    edge_bytes: int
    inner_bytes: int
    calls: int

    @property
    def total(self) -> int:
        """All multiply-adds."""
        return self.front_end + self.multiply_adds

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


def count(model: KeywordModel, hop: float = DEFAULT_HOP) -> list[Work]:
    """A window, a hop and a clip of a model.

    Parameters
    ----------
    hop : seconds between two decisions of a stream.

    Raises SettingError where the hop is impossible, ModelError where a file is damaged.
    """
    settings = model.metadata.front_end
    window = np.zeros((1, settings.n_mfcc, settings.frames), np.float32)
    data = model.path.read_bytes()
    whole = graph_work("window", data, window, 0)
    frames = check_hop(hop, settings) // settings.hop
    new = frames * frame_multiply_adds(settings)
    if has_steps(model):
        step = graph_work("hop", step_file(model).read_bytes(), window[..., :frames], new)
    else:
        step = replace(whole, what="hop", front_end=new)
    clip = frame_multiply_adds(settings) * settings.frame_count(settings.sample_rate)
    return [whole, step, replace(whole, what="clip", front_end=clip)]


def frame_multiply_adds(settings: FrontEnd) -> int:
    """Multiply-adds of one frame of MFCC: window, FFT, power, mel filters and cosine transform.

    A real FFT of N counts as 5/4 N log2 N, half of the usual 5/2 N log2 N operations; the products of matrices are
    dense, as they are computed here.
    """
    bins = settings.n_fft // 2 + 1
    fft = round(1.25 * settings.n_fft * math.log2(settings.n_fft))
    return settings.window + fft + 2 * bins + bins * settings.n_mels + settings.n_mels * settings.n_mfcc


def graph_work(what: str, data: bytes, features: npt.NDArray[np.float32], front_end: int) -> Work:
    """Count one run of a graph on features [1, n_mfcc, frames]. Raises ModelError where the file is damaged."""
    graph = values(data, GRAPH)[-1]
    nodes = values(graph, NODE)
    constants = {values(tensor, TENSOR_NAME)[0].decode() for tensor in values(graph, INITIALIZER)}
    inputs = [values(value, VALUE_NAME)[0].decode() for value in values(graph, INPUT)]
    outputs = [values(value, VALUE_NAME)[0].decode() for value in values(graph, OUTPUT)]
    tensors = _run_all(data, graph, features)
    sizes = {name: array.nbytes for name, array in tensors.items()}
    ends = {*inputs, *outputs} - constants
    total = inner = 0
    for node in nodes:
        taken = [name.decode() for name in values(node, NODE_INPUT)]
        given = [name.decode() for name in values(node, NODE_OUTPUT)]
        shapes = [tensors[name].shape if name else () for name in taken]
        total += multiply_adds(values(node, OPERATOR)[0].decode(), shapes, tensors[given[0]].shape)
        inner += sum(sizes[name] for name in (*taken, *given) if name and name not in ends and name not in constants)
    calls = sum(nodes_by_provider(data, "cpu", 1, features).values())
    weights = sum(sizes[name] for name in constants)
    return Work(what, front_end, total, weights, sum(sizes[name] for name in ends), inner, calls)


def multiply_adds(operator: str, inputs: Sequence[Shape], output: Shape) -> int:
    """Of one operator: an element of its output is a sum of as many products as a filter or a row has elements."""
    if operator in CONVOLUTIONS:
        return math.prod(output) * math.prod(inputs[CONVOLUTIONS[operator]][1:])
    return math.prod(inputs[0]) * output[-1] if operator in PRODUCTS else 0


def _run_all(data: bytes, graph: bytes, features: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[Any]]:
    """Every tensor of a graph in one run, by name: inputs, constants and what its operators give."""
    known = {values(output, VALUE_NAME)[0] for output in values(graph, OUTPUT)}
    made = [name for node in values(graph, NODE) for name in values(node, NODE_OUTPUT) if name and name not in known]
    named = [values(tensor, TENSOR_NAME)[0] for tensor in values(graph, INITIALIZER)]
    extra = b"".join(bytes_field(OUTPUT, bytes_field(VALUE_NAME, name)) for name in (*made, *named))
    rest = b"".join(data[start:end] for number, start, _, end in fields(data) if number != GRAPH)
    session = open_session(rest + bytes_field(GRAPH, graph + extra), CPU, 1)
    given = feed(session, features)
    found = session.run(None, given)
    return {**given, **dict(zip((o.name for o in session.get_outputs()), found, strict=True))}
