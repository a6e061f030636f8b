"""The work of a decision is counted in the graph, and what it would take on a board is estimated from that."""

import json
import math

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from kws_edge import KeywordModel
from kws_edge.bench import counters
from kws_edge.bench.boards import BOARDS, Board
from kws_edge.bench.count import Work, count, frame_multiply_adds, graph_work
from kws_edge.cli import main as kws_edge
from kws_edge.errors import SettingError
from kws_edge.model.features import FrontEnd


def separable() -> bytes:
    """A depthwise filter of 5 over 8 channels and 20 frames, and a pointwise one to 16."""
    info = helper.make_tensor_value_info
    weights = {"depthwise": (8, 1, 5), "pointwise": (16, 8, 1)}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["mfcc", "depthwise"], ["h"], group=8, pads=[2, 2]),
            helper.make_node("Conv", ["h", "pointwise"], ["y"]),
        ],
        "graph",
        [info("mfcc", TensorProto.FLOAT, ["batch", 8, "frames"])],
        [info("y", TensorProto.FLOAT, ["batch", 16, "frames"])],
        [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_a_graphs_multiply_adds_bytes_and_calls_are_counted() -> None:
    assert graph_work("window", separable(), np.zeros((1, 8, 20), np.float32), 7) == Work(
        "window",
        front_end=7,
        multiply_adds=8 * 20 * 5 + 16 * 20 * 8,
        weight_bytes=4 * (8 * 5 + 16 * 8),
        edge_bytes=4 * (8 * 20 + 16 * 20),
        inner_bytes=2 * 4 * 8 * 20,  # what lies between the two, written and read
        calls=2,
    )


def test_twice_the_frames_are_twice_the_work() -> None:
    once, twice = (graph_work("", separable(), np.zeros((1, 8, n), np.float32), 0) for n in (20, 40))
    assert twice.multiply_adds == 2 * once.multiply_adds
    assert twice.weight_bytes == once.weight_bytes


def test_a_frame_of_the_front_end_is_its_window_fft_power_and_two_products() -> None:
    assert frame_multiply_adds(FrontEnd()) == 400 + 5760 + 2 * 257 + 257 * 64 + 64 * 64


def test_the_shipped_models_count_is_that_of_independent_shape_inference() -> None:
    model = KeywordModel.load("stream")
    graph = onnx.load(model.path)
    for value in (*graph.graph.input, *graph.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    graph = onnx.shape_inference.infer_shapes(graph, strict_mode=True, data_prop=True)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in graph.graph.value_info}
    weights = {t.name: list(t.dims) for t in graph.graph.initializer}
    convolutions = [node for node in graph.graph.node if node.op_type == "Conv"]
    expected = sum(math.prod(shapes[n.output[0]]) * math.prod(weights[n.input[1]][1:]) for n in convolutions)
    expected += sum(math.prod(weights[n.input[1]]) for n in graph.graph.node if n.op_type in ("Gemm", "MatMul"))
    assert count(model)[0].multiply_adds == expected


def test_a_stream_with_a_step_form_computes_its_new_frames_alone() -> None:
    window, hop, clip = count(KeywordModel.load("stream"), 0.1)
    _, short, _ = count(KeywordModel.load("stream"), 0.05)
    assert hop.multiply_adds < window.multiply_adds / 5
    assert short.front_end * 2 == hop.front_end == 10 * frame_multiply_adds(FrontEnd())
    assert (clip.multiply_adds, clip.front_end) == (window.multiply_adds, 98 * frame_multiply_adds(FrontEnd()))


def test_a_stream_without_one_computes_the_window_again() -> None:
    window, hop, _ = count(KeywordModel.load("softmax"))
    assert hop.multiply_adds == window.multiply_adds


def test_a_hop_that_cannot_be_is_refused() -> None:
    with pytest.raises(SettingError, match="hop"):
        count(KeywordModel.load("stream"), 0.0)


def test_an_estimate_is_never_faster_than_the_peak_allows() -> None:
    for work in count(KeywordModel.load("stream")):
        assert all(board.seconds(work) > 2 * board.least_seconds(work) > 0 for board in BOARDS)


def test_the_estimates_formula_gives_what_was_measured_where_its_constants_come_from() -> None:
    server = Board("EPYC, 3rd generation", "Zen 3", 3.4e9, 16, 1.0, 0)
    hop = count(KeywordModel.load("stream"), 0.1)[1]
    assert server.seconds(hop) == pytest.approx(0.18e-3, rel=0.3)  # docs/measurements/speed.md


def test_twice_the_work_takes_about_twice_the_instructions() -> None:
    numbers = list(range(20_000))
    once, twice = (counters.measure(work) for work in (lambda: sum(numbers), lambda: (sum(numbers), sum(numbers))))
    if isinstance(once, str) or isinstance(twice, str):
        pytest.skip(f"instructions: {once}")
    assert twice.instructions == pytest.approx(2 * once.instructions, rel=0.1)


def test_counters_that_are_not_there_are_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert counters.measure(lambda: None) == "not known how to ask on riscv64"


def test_the_command_gives_counts_and_estimates_as_json() -> None:
    done = CliRunner().invoke(kws_edge, ["bench", "--count", "--model", "stream", "--json"])
    assert done.exit_code == 0, done.output
    (model,) = json.loads(done.stdout)["models"]
    assert [work["what"] for work in model["work"]] == ["window", "hop", "clip"]
    assert (model["hop_counters"] is None) != (model["hop_counters_missing"] is None)
    assert [e["board"] for e in model["estimates"]] == [board.name for board in BOARDS]


def test_the_command_marks_estimates_as_such() -> None:
    done = CliRunner().invoke(kws_edge, ["bench", "--count"])
    assert "Estimates, not measured" in done.stdout
    assert "Raspberry Pi 5" in done.stdout


@pytest.mark.parametrize("option", [("--out", "x.json"), ("--threads", "2"), ("--seconds", "5"), ("--fallback",)])
def test_counting_goes_with_no_option_for_times(option: tuple[str, ...]) -> None:
    done = CliRunner().invoke(kws_edge, ["bench", "--count", *option])
    assert done.exit_code == 2
    assert "--count measures no time" in done.stderr
