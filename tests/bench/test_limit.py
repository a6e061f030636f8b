"""Counting a graph's work and dividing a profile, as bench/limit.py does."""

import limit
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from paths import ROOT

from kws_edge.bench.count import multiply_adds


def graph(*nodes: onnx.NodeProto, weights: dict[str, tuple[int, ...]], frames: int | str = 20) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    return helper.make_model(
        helper.make_graph(
            list(nodes),
            "graph",
            [info("x", TensorProto.FLOAT, ["batch", 8, frames])],
            [info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )


def depthwise_separable(frames: int | str = 20) -> onnx.ModelProto:
    return graph(
        helper.make_node("Conv", ["x", "depthwise"], ["h"], group=8, pads=[2, 2]),
        helper.make_node("Conv", ["h", "pointwise"], ["y"]),
        weights={"depthwise": (8, 1, 5), "pointwise": (16, 8, 1)},
        frames=frames,
    )


def test_multiply_adds_are_counted_by_kind() -> None:
    work = limit.count(depthwise_separable(), {})
    assert set(work.nodes.values()) == {("depthwise convolution", 8 * 20 * 5), ("pointwise convolution", 16 * 20 * 8)}
    assert work.total_macs == 8 * 20 * 5 + 16 * 20 * 8


def test_bytes_are_those_of_constants_of_the_graphs_ends_and_of_what_is_between() -> None:
    work = limit.count(depthwise_separable(), {})
    assert work.weight_bytes == 4 * (8 * 5 + 16 * 8)
    assert work.edge_bytes == 4 * (8 * 20 + 16 * 20)
    assert work.inner_bytes == 2 * 4 * 8 * 20  # h, written and read


def test_a_free_dimension_is_one_unless_it_is_given() -> None:
    free = depthwise_separable("frames")
    assert limit.count(free, {"frames": 40}).total_macs == 2 * limit.count(depthwise_separable(), {}).total_macs
    assert ("pointwise convolution", 16 * 8) in limit.count(free, {}).nodes.values()


@pytest.mark.parametrize(
    ("operator", "inputs", "output", "expected"),
    [
        ("Gemm", [(1, 128), (20, 128), (20,)], (1, 20), 128 * 20),
        ("MatMul", [(3, 4, 5), (5, 6)], (3, 4, 6), 3 * 4 * 5 * 6),
        ("QLinearConv", [(1, 8, 20), (), (), (8, 1, 5)], (1, 8, 20), 8 * 20 * 5),
        ("Relu", [(1, 8)], (1, 8), 0),
    ],
)
def test_products_and_quantised_convolutions_count_too(
    operator: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], expected: int
) -> None:
    assert multiply_adds(operator, inputs, output) == expected


def test_the_shipped_model_has_the_multiply_adds_of_its_network() -> None:
    frames, total, inputs = 128, 0, 64
    for kernel, outputs, residual in (
        (11, 128, False),
        (13, 64, True),
        (15, 64, True),
        (17, 64, True),
        (29, 128, False),
    ):
        total += frames * inputs * (kernel + outputs + residual * outputs)
        inputs = outputs
    total += frames * 128 * 128 + 128 * 20
    assert limit.count(onnx.load(ROOT / "models" / "softmax.onnx"), {}).total_macs == total


def test_a_profile_is_summed_by_kind_of_operator_at_each_ones_median() -> None:
    def event(name: str, operator: str, inputs: list[list[int]], us: float) -> dict[str, object]:
        shapes = {"input_type_shape": [{"float": shape} for shape in inputs], "output_type_shape": [{"float": [1, 8]}]}
        return {"cat": "Node", "name": f"{name}_kernel_time", "dur": us, "args": {"op_name": operator, **shapes}}

    events = [event("a", "Gemm", [[1, 4], [4, 8]], us) for us in (10, 20, 900)]
    events += [event("b", "Relu", [[1, 8]], us) for us in (1, 2, 3)] + [
        event("c", "Relu", [[1, 8]], us) for us in (4, 4, 4)
    ]
    events += [{"cat": "Session", "name": "model_run", "dur": 1000}]
    parts = limit.by_kind(events, {}, runs=3)
    assert parts == {"Gemm": limit.Operators(0.02, 1.0, 32), "Relu": limit.Operators(0.006, 2.0, 0)}


def test_a_convolution_whose_weights_are_packed_is_known_by_its_name() -> None:
    shapes = {"input_type_shape": [{"uint8": [1, 8, 20]}, *[{"float": []}] * 2, {"int8": [16]}]}
    arguments = {"op_name": "QLinearConv", **shapes, "output_type_shape": [{"uint8": [1, 16, 20]}]}
    event = {"cat": "Node", "name": "block1_token_3_kernel_time", "dur": 5, "args": arguments}
    nodes = {"block": ("depthwise convolution", 1), "block1": ("pointwise convolution", 2560)}
    assert limit.by_kind([event], nodes, runs=1) == {"pointwise convolution": limit.Operators(0.005, 1.0, 2560)}


def test_time_outside_of_the_package_counts_to_the_module_that_called_it() -> None:
    push, mfcc, fft = (
        ("/p/kws_edge/stream/spotter.py", 1, "push"),
        ("/p/kws_edge/model/features.py", 1, "mfcc"),
        ("/np/fft.py", 1, "rfft"),
    )
    stats = {
        push: (1, 1, 1.0, 10.0, {}),
        mfcc: (2, 2, 2.0, 8.0, {push: (2, 2, 2.0, 8.0)}),
        fft: (3, 3, 7.0, 7.0, {mfcc: (2, 2, 6.0, 6.0), push: (1, 1, 1.0, 1.0)}),
    }
    assert limit.shares_by_module(stats) == pytest.approx({"features": 0.8, "spotter": 0.2})
