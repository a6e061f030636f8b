"""A model file may be damaged or made to do harm: it gives an error of the package, not one of Python."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from made_audio import speech
from onnx import numpy_helper
from tiny_model import METADATA, build, save

from kws_edge import KeywordModel, Spotter
from kws_edge.errors import ModelError


def with_output(tmp_path: Path, name: str, value: float) -> Path:
    """A model whose output of that name is a constant, of whatever comes."""
    model: Any = onnx.load_from_string(build())
    node = next(node for node in model.graph.node if node.output[0] == name)
    node.output[0] = f"{name}_before"
    model.graph.initializer.extend(
        [
            numpy_helper.from_array(np.float32(0), "nothing"),
            numpy_helper.from_array(np.float32(value), "constant"),
        ]
    )
    model.graph.node.extend(
        [
            onnx.helper.make_node("Mul", [f"{name}_before", "nothing"], [f"{name}_zero"]),
            onnx.helper.make_node("Add", [f"{name}_zero", "constant"], [name]),
        ]
    )
    path = tmp_path / "damaged.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(("output", "value"), [("vacuity", 0.0), ("vacuity", -1.0), ("vacuity", 2.0)])
def test_a_vacuity_that_cannot_be_is_an_error_of_the_model(tmp_path: Path, output: str, value: float) -> None:
    model = KeywordModel.load(with_output(tmp_path, output, value))
    spotter = Spotter(model)
    with pytest.raises(ModelError, match="cannot be; expected a sound model"):
        spotter.push(speech())


def test_metadata_that_are_nested_without_end_are_an_error_of_the_model(tmp_path: Path) -> None:
    nested = json.loads(METADATA.to_json()) | {"training": None}
    text = json.dumps(nested).replace('"training": null', '"training": ' + "[" * 100_000 + "]" * 100_000)
    with pytest.raises(ModelError, match="metadata: not JSON"):
        KeywordModel.load(save(tmp_path, metadata=text))
