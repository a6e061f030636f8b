"""Graphs taken apart and put together without the onnx package are what the onnx package says they are."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from kws_edge.errors import ModelError
from kws_edge.model.graph_edit import Graph, Node, float_value, tensor
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.shipped import shipped_models


def test_a_model_put_together_again_is_the_same_model(tmp_path: Path) -> None:
    path = shipped_models()["stream"]
    again = tmp_path / "stream.onnx"
    again.write_bytes(Graph.parse(path.read_bytes()).assemble("stream"))
    onnx.checker.check_model(onnx.load(again), full_check=True)
    x = np.random.default_rng(0).standard_normal((2, 64, 128)).astype(np.float32)
    assert np.array_equal(KeywordModel.load(again).run(x).alpha, KeywordModel.load(path).run(x).alpha)


def test_a_node_is_what_onnx_makes() -> None:
    made = onnx.NodeProto.FromString(
        Node.make("AveragePool", ["x"], "y", kernel_shape=[1, 10], strides=[1, 11], ceil_mode=1).data
    )
    wanted = onnx.helper.make_node("AveragePool", ["x"], ["y"], "y", kernel_shape=[1, 10], strides=[1, 11], ceil_mode=1)
    assert made.SerializeToString(deterministic=True) == wanted.SerializeToString(deterministic=True) or (
        {a.name: onnx.helper.get_attribute_value(a) for a in made.attribute}
        == {a.name: onnx.helper.get_attribute_value(a) for a in wanted.attribute}
    )


@pytest.mark.parametrize("value", [np.float32(2.5), np.arange(6, dtype=np.float32).reshape(2, 3)])
def test_a_tensor_is_read_by_onnx_as_it_was(value: np.ndarray) -> None:
    read = numpy_helper.to_array(onnx.TensorProto.FromString(tensor("t", value)))
    assert read.shape == value.shape
    assert np.array_equal(read, value)


def test_a_value_says_its_type_and_shape() -> None:
    made = onnx.ValueInfoProto.FromString(float_value("alpha", "batch", 2))
    assert made == onnx.helper.make_tensor_value_info("alpha", onnx.TensorProto.FLOAT, ["batch", 2])


def test_a_value_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ModelError, match="no value 'nothing'"):
        Graph.parse(shipped_models()["stream"].read_bytes()).before("nothing")
