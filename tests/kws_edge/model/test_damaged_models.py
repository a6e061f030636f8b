"""A model file may be damaged or made to do harm: it gives an error of the package, not one of Python."""

import json
from collections.abc import Callable
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
    kind: Any = np.int64 if name == "class" else np.float32

    def instead(model: Any, before: str) -> None:
        constants = {"nothing": kind(0), "constant": kind(value)}
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items())
        zero = onnx.helper.make_node("Mul", [before, "nothing"], ["zero"])
        model.graph.node.extend([zero, onnx.helper.make_node("Add", ["zero", "constant"], [name])])

    return with_instead(tmp_path, name, instead)


def with_instead(tmp_path: Path, name: str, instead: Callable[[Any, str], None]) -> Path:
    """A model whose output of that name is made by other nodes, from what it would have been."""
    model: Any = onnx.load_from_string(build())
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [f"{name}_before" if n == name else n for n in names]
    instead(model, f"{name}_before")
    path = tmp_path / "damaged.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("output", "value"),
    [
        ("vacuity", 0.0), ("vacuity", -1.0), ("vacuity", 2.0), ("vacuity", 1e-40), ("alpha", -1.0), ("alpha", 0.0),
        ("entropy", -1.0), ("entropy", 2.0), ("entropy", 3e38), ("class", -1), ("class", 3), ("class", 2**40),
    ],
)  # fmt: skip
def test_a_number_that_cannot_be_is_an_error_of_the_model(tmp_path: Path, output: str, value: float) -> None:
    model = KeywordModel.load(with_output(tmp_path, output, value))
    spotter = Spotter(model)
    with pytest.raises(ModelError, match="out of its range; expected an undamaged model"):
        spotter.push(speech())
    with pytest.raises(ModelError, match="out of its range; expected an undamaged model"):
        model.classify(speech()[:16_000], 16_000)


@pytest.mark.parametrize("output", ["class", "alpha", "vacuity", "entropy"])
@pytest.mark.parametrize("rows", [0, 2])
def test_more_or_fewer_answers_than_windows_are_an_error_of_the_model(tmp_path: Path, output: str, rows: int) -> None:
    def instead(model: Any, before: str) -> None:
        copies = onnx.helper.make_node("Concat", [before, before], [output], axis=0)
        none = onnx.helper.make_node("Slice", [before, "nought", "nought"], [output])
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.int64), "nought"))
        model.graph.node.append(copies if rows else none)

    model = KeywordModel.load(with_instead(tmp_path, output, instead))
    with pytest.raises(ModelError, match="for 1 windows; expected one answer for each"):
        model.classify(speech()[:16_000], 16_000)


def test_metadata_that_are_nested_without_end_are_an_error_of_the_model(tmp_path: Path) -> None:
    nested = json.loads(METADATA.to_json()) | {"training": None}
    text = json.dumps(nested).replace('"training": null', '"training": ' + "[" * 100_000 + "]" * 100_000)
    with pytest.raises(ModelError, match="metadata: not JSON"):
        KeywordModel.load(save(tmp_path, metadata=text))


SETTINGS = {
    "thresholds": {"entropy": 0.5}, "labels": {}, "probability": 0, "smoothing": 0.3, "hysteresis": 0.25, "rearm": 0.3,
    "refractory": 0.8,
}  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        {"smoothing": 1e300}, {"smoothing": "x"}, {"smoothing": []}, {"smoothing": True}, {"smoothing": 10**400},
        {"thresholds": {"entropy": "x"}}, {"thresholds": {"entropy": None}}, {"thresholds": {"entropy": 10**400}},
    ],
)  # fmt: skip
def test_stream_settings_that_cannot_be_are_an_error_wherever_they_are_used(tmp_path: Path, changed: Any) -> None:
    text = json.dumps({**json.loads(METADATA.to_json()), "stream": {"settings": {**SETTINGS, **changed}}})
    model = KeywordModel.load(save(tmp_path, metadata=text))
    for use in (lambda: model.classify(speech()[:48_000], 16_000), lambda: Spotter(model)):
        with pytest.raises(ModelError, match=r"stream: .*expected") as refused:
            use()
        assert len(str(refused.value)) < 400


@pytest.mark.parametrize("field", ["labels", "name", "licence", "attribution"])
@pytest.mark.parametrize("text", ["a\nb", "a\x1b[2Jb", "a\u202eb", "a\0b", "\ud800", "a" * 20_000])
def test_a_text_that_cannot_be_shown_on_a_line_is_refused(tmp_path: Path, field: str, text: str) -> None:
    value = [text, "mid", "high"] if field == "labels" else text
    with pytest.raises(ModelError, match=f"{field}: .*expected") as refused:
        KeywordModel.load(save(tmp_path, metadata=json.dumps({**json.loads(METADATA.to_json()), field: value})))
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400


def test_words_of_other_scripts_may_have_their_joiners(tmp_path: Path) -> None:
    labels = ["می\u200cخواهم", "क्\u200dष", "Küche"]
    written = json.dumps({**json.loads(METADATA.to_json()), "labels": labels})
    assert list(KeywordModel.load(save(tmp_path, metadata=written)).labels) == labels


@pytest.mark.parametrize("changed", [{f"field{i}": 1 for i in range(9999)}, {"front_end": {"a" * 9999: 1}}])
def test_an_error_about_a_model_is_not_as_long_as_the_file_makes_it(tmp_path: Path, changed: Any) -> None:
    with pytest.raises(ModelError) as refused:
        KeywordModel.load(save(tmp_path, metadata=json.dumps({**json.loads(METADATA.to_json()), **changed})))
    assert len(str(refused.value)) < 1000


def test_an_error_about_a_graph_is_not_as_long_as_the_file_makes_it(tmp_path: Path) -> None:
    model: Any = onnx.load_from_string(build())
    for i in range(500):
        model.graph.node.append(onnx.helper.make_node("Identity", ["vacuity"], [f"more{i}"]))
        model.graph.output.append(onnx.helper.make_tensor_value_info(f"more{i}", onnx.TensorProto.FLOAT, None))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="outputs for 3 labels") as refused:
        KeywordModel.load(tmp_path / "m.onnx")
    assert len(str(refused.value)) < 1000
