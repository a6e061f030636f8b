"""The configuration for a reduced build of onnxruntime holds every operator that runs."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from paths import ROOT

from kws_edge.cli import main
from kws_edge.errors import ModelError
from kws_edge.model.operators import Operator, file_operators, needed_operators, to_config
from kws_edge.model.runtime import CPU, open_session

FORMS = sorted((ROOT / "models").glob("*.onnx"))
SHIPPED = ROOT / "deploy" / "operators.config"


def names(config: str) -> set[str]:
    return {name for line in config.splitlines() for name in line.split(";")[2].split(",")}


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_the_operators_of_a_file_are_those_that_the_onnx_package_reads(path: Path) -> None:
    model = onnx.load(path)
    versions = {opset.domain or "ai.onnx": opset.version for opset in model.opset_import}
    expected = {(n.domain or "ai.onnx", versions[n.domain or "ai.onnx"], n.op_type) for n in model.graph.node}
    assert file_operators(path.read_bytes()) == expected


@pytest.mark.parametrize("layouts", [True, False], ids=["laid out for this processor", "as on any"])
@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_the_shipped_configuration_holds_every_operator_that_runs(path: Path, layouts: bool, tmp_path: Path) -> None:
    session = open_session(path.read_bytes(), CPU, 1, profile=tmp_path / "profile", layouts=layouts)
    free = {"new_frames": 10, "new_samples": 1600, "samples": 16_000}
    feeds = {
        node.name: np.zeros([d if isinstance(d, int) else free.get(d, 1) for d in node.shape], np.float32)
        for node in session.get_inputs()
    }
    session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_text())
    ran = {event["args"]["op_name"] for event in events if event.get("cat") == "Node" and "op_name" in event["args"]}
    assert len(ran) > 5
    assert ran - names(SHIPPED.read_text()) == set()


def test_the_shipped_configuration_holds_what_the_command_finds_here() -> None:
    done = CliRunner().invoke(main, ["models", "--operators"])
    assert done.exit_code == 0, done.output
    shipped = {line.rsplit(";", 1)[0]: set(line.split(";")[2].split(",")) for line in SHIPPED.read_text().splitlines()}
    for line in done.stdout.splitlines():
        assert set(line.split(";")[2].split(",")) <= shipped[line.rsplit(";", 1)[0]]


def test_one_model_needs_less_than_all() -> None:
    one = CliRunner().invoke(main, ["models", "softmax", "--operators"]).stdout
    assert "QLinearConv" not in one
    assert "Conv" in one


def test_all_forms_of_a_model_count_whatever_it_is_called(tmp_path: Path) -> None:
    for name in ("[1].a", "stream"):
        for form in FORMS:
            if form.name.startswith("stream."):
                (tmp_path / form.name.replace("stream", name, 1)).write_bytes(form.read_bytes())
    (tmp_path / "stream.other.onnx").write_bytes(b"no form")
    told = [
        CliRunner().invoke(main, ["models", str(tmp_path / f"{name}.onnx"), "--operators"])
        for name in ("stream", "[1].a")
    ]
    assert told[0].exit_code == 0, told[0].output
    assert told[0].stdout == told[1].stdout


def test_a_line_is_domain_opset_and_names_in_order() -> None:
    found = [Operator("ai.onnx", 17, "Relu"), Operator("com.microsoft", 1, "FusedConv"), Operator("ai.onnx", 17, "Add")]
    assert to_config(found) == "ai.onnx;17;Add,Relu\ncom.microsoft;1;FusedConv\n"


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError, match="expected an undamaged model"):
        needed_operators([tmp_path / "no.onnx"])


def test_a_function_of_the_file_writes_no_line_of_the_configuration(tmp_path: Path) -> None:
    model = onnx.load(FORMS[0])
    name, domain, opset = "Op\nai.onnx;1;X", "own", onnx.helper.make_opsetid("", 17)
    body = [onnx.helper.make_node("Identity", ["a"], ["b"])]
    model.functions.append(onnx.helper.make_function(domain, name, ["a"], ["b"], body, [opset]))
    model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    model.graph.node.append(onnx.helper.make_node(name, [model.graph.input[0].name], ["c"], domain=domain))
    onnx.save(model, tmp_path / "own.onnx")
    with pytest.raises(ModelError, match=r"operator 'Op\\nai"):
        needed_operators([tmp_path / "own.onnx"])
