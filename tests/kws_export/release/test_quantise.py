"""`kws-export quantise`: an int8 file that keeps the contract, and that is written only where it answers as well."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import soundfile as sf
import tone_words
from click.testing import CliRunner, Result
from onnx import numpy_helper

from kws_edge.errors import ModelError
from kws_edge.model.features import mfcc, pad
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.shipped import MODELS, shipped_models
from kws_edge.tuning.record import FORMS
from kws_export.cli import main
from kws_export.data.splits import UNKNOWN
from kws_export.evaluation.scoring import calibrate, score_clips
from kws_export.graph.build import load_model
from kws_export.release import quantise as quantise_module
from kws_export.release.equalise import equalise
from kws_export.release.package import ExportSource, package
from kws_export.release.quantise import calibration_features, quantised_model

WORDS = tuple(tone_words.SWEEPS)
INT8 = sorted(name for name in shipped_models() if name.endswith("-int8"))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with tone_words.one_thread():
        yield


@dataclass
class Made:
    """What one command was given and what it left behind."""

    source: Path
    file: Path
    output: str

    @property
    def model(self) -> onnx.ModelProto:
        return load_model(self.file)[0]

    @property
    def card(self) -> str:
        return self.file.with_suffix(".md").read_text(encoding="utf-8")


def run(tones: Path, source: Path, *options: object, cache: Path | None = None) -> Result:
    common = ["--data", tones, "--cache", cache or tones.parent / "cache", "--clips", 48]
    return CliRunner().invoke(main, ["quantise", str(source), *map(str, [*common, *options])])


@pytest.fixture(scope="module")
def source(tones: Path, tone_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("models") / "four-tones.onnx"
    package(ExportSource.open(tone_run / "best.pt"), tones, file, cache=tones.parent / "cache")
    return file


@pytest.fixture(scope="module")
def made(tones: Path, source: Path) -> Made:
    result = run(tones, source)
    assert result.exit_code == 0, result.output
    return Made(source, source.with_name("four-tones-int8.onnx"), result.output)


@pytest.fixture(scope="module")
def again(tones: Path, made: Made, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The same for a script, into another folder, with a looser limit; its source says something of streams."""
    folder = tmp_path_factory.mktemp("again")
    model, metadata = load_model(made.source)
    onnx.helper.set_model_props(model, {"kws_edge": replace(metadata, stream={"settings": {}}).to_json()})
    onnx.save(model, folder / made.source.name)
    result = run(tones, folder / made.source.name, "--json", "--max-loss", "50", "--out", folder / made.file.name)
    assert result.exit_code == 0, result.output
    return Made(folder / made.source.name, folder / made.file.name, result.stdout)


def features(tones: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    names = sorted(
        (tones / {"validation": "validation_list.txt", "test": "testing_list.txt"}[split]).read_text().split()
    )
    clips = [sf.read(tones / name, dtype="float32")[0] for name in names]
    return np.stack([pad(mfcc(x)) for x in clips]), np.array([WORDS.index(name.split("/")[0]) for name in names])


# --- the file


def test_it_holds_standard_operators_of_the_pinned_opset(made: Made) -> None:
    model = made.model
    assert (model.ir_version, [(o.domain, o.version) for o in model.opset_import]) == (8, [("", 17)])
    assert {node.domain for node in model.graph.node} == {""}


def test_convolutions_but_for_the_first_are_integer_and_the_head_is_float(made: Made) -> None:
    graph = made.model.graph
    by_output = {node.output[0]: node for node in graph.node}
    first, *others = [node for node in graph.node if node.op_type == "Conv"]
    assert by_output[first.input[0]].op_type == "Unsqueeze"
    for conv in others:
        assert {by_output[name].op_type for name in conv.input} == {"DequantizeLinear"}
    (classifier,) = (node for node in graph.node if node.op_type == "Gemm")
    weights = {w.name: w.data_type for w in graph.initializer}
    assert weights[classifier.input[1]] == onnx.TensorProto.FLOAT
    behind = graph.node[list(graph.node).index(classifier) :]
    assert not [node for node in behind if node.op_type in ("QuantizeLinear", "DequantizeLinear")]


def test_weights_use_seven_bits_so_that_pairs_of_products_fit_in_sixteen(made: Made) -> None:
    int8 = [numpy_helper.to_array(w) for w in made.model.graph.initializer if w.data_type == onnx.TensorProto.INT8]
    weights = [w.astype(int) for w in int8 if w.ndim == 4]
    assert len(weights) == len([n for n in made.model.graph.node if n.op_type == "Conv"]) - 1
    assert max(abs(w).max() for w in weights) == 64
    assert 2 * 255 * 64 < 2**15


def test_the_integer_kernels_of_this_machine_compute_what_the_file_says(made: Made, tones: Path) -> None:
    as_float = ort.SessionOptions()
    as_float.add_session_config_entry("session.disable_quant_qdq", "1")  # rounds as the file says, multiplies floats
    session = ort.InferenceSession(made.file, as_float, providers=["CPUExecutionProvider"])
    x, _ = features(tones, "test")
    label, _, vacuity, entropy = session.run(["class", "alpha", "vacuity", "entropy"], {"mfcc": x})
    outputs = KeywordModel.load(made.file).run(x)
    np.testing.assert_array_equal(outputs.labels, label)
    np.testing.assert_allclose(outputs.vacuity, vacuity, atol=0.01)  # a value between two steps may go to either
    np.testing.assert_allclose(outputs.entropy, entropy, atol=0.01)


def test_it_is_smaller_and_answers_like_its_source(made: Made, tones: Path) -> None:
    assert made.file.stat().st_size < 0.5 * made.source.stat().st_size
    x, _ = features(tones, "test")
    a, b = KeywordModel.load(made.source).run(x), KeywordModel.load(made.file).run(x)
    assert (a.labels == b.labels).mean() >= 0.9
    assert np.corrcoef(a.entropy, b.entropy)[0, 1] > 0.98


def test_the_same_command_gives_the_same_file(again: Made, made: Made) -> None:
    assert again.file.read_bytes() == made.file.read_bytes()


# --- what it says of itself


def test_it_says_how_it_was_made_and_from_what(made: Made) -> None:
    metadata, before = KeywordModel.load(made.file).metadata, KeywordModel.load(made.source).metadata
    assert metadata.name == "four-tones-int8"
    about = metadata.training["quantisation"]
    assert about["source"] == "four-tones"
    assert "48 training clips, seed 0" in about["ranges"]
    assert {k: v for k, v in metadata.training.items() if k != "quantisation"} == before.training
    assert (metadata.labels, metadata.front_end, metadata.score) == (before.labels, before.front_end, before.score)


def test_thresholds_and_accuracy_are_those_of_its_own_answers(made: Made, tones: Path) -> None:
    model = KeywordModel.load(made.file)
    own = {split: score_clips(model, *features(tones, split)) for split in ("validation", "test")}
    assert {split: s.accuracy() for split, s in own.items()} == model.metadata.accuracy
    for score, points in calibrate(own["validation"]).items():
        for expected, point in zip(points, model.metadata.thresholds[score], strict=True):
            assert (point.accepted, point.target) == (expected.accepted, expected.target)
            assert point.threshold == pytest.approx(expected.threshold, abs=0.01)


def test_settings_for_streams_are_not_carried_over(again: Made) -> None:
    assert load_model(again.source)[1].stream is not None
    assert load_model(again.file)[1].stream is None


def test_the_card_has_the_comparison_and_the_command(made: Made) -> None:
    assert "# four-tones-int8\n" in made.card
    assert "## Against four-tones\n" in made.card
    assert "| accuracy, test |" in made.card
    assert "| vacuity 99.9 %: background withheld |" in made.card
    assert "| quantised, source | four-tones |" in made.card
    assert (
        "    kws-export quantise models/four-tones.onnx --data data --out models/four-tones-int8.onnx "
        "--clips 48 --seed 0\n"
    ) in made.card
    assert str(made.file.parent) not in made.card


def test_a_limit_of_ones_own_is_part_of_the_cards_command(again: Made) -> None:
    assert "--seed 0 --max-loss 50\n" in again.card


def test_the_command_prints_the_comparison_as_a_table_or_as_json(made: Made, again: Made) -> None:
    assert "four-tones  four-tones-int8" in made.output
    parity = json.loads(again.output)
    assert (parity["before"], parity["after"]) == ("four-tones", "four-tones-int8")
    assert parity["sizes"] == [file.stat().st_size for file in (again.source, again.file)]


def test_a_closed_task_is_measured_on_its_list_alone(tones: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(tones, tmp_path / "data"))
    tests = (root / "testing_list.txt").read_text().split()
    (root / "official.txt").write_text("\n".join(name for name in tests if name.split("/")[0] in ("low", "rise")))
    recipe = tone_words.recipe(labels=["low", UNKNOWN], test_list="official.txt", epochs=1)
    tone_words.run(tone_words.trainer(root, tmp_path / "run", recipe, cache=tmp_path / "cache"))
    closed = tmp_path / "closed.onnx"
    package(ExportSource.open(tmp_path / "run" / "best.pt"), root, closed, cache=tmp_path / "cache")
    result = run(root, closed, "--max-loss", "100", "--json", cache=tmp_path / "cache")
    assert result.exit_code == 0, result.output
    metadata = KeywordModel.load(tmp_path / "closed-int8.onnx").metadata
    assert metadata.accuracy["test"]["clips"] == KeywordModel.load(closed).metadata.accuracy["test"]["clips"] == 16
    assert metadata.accuracy["validation"]["clips"] == 24
    assert not [f for f in json.loads(result.stdout)["figures"] if "other words" in f["name"]]


def test_other_forms_of_a_model_that_it_writes_over_are_removed(made: Made, tones: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.onnx"
    forms = [out.with_suffix(form) for form in FORMS]
    for path in (out, *forms, tmp_path / "xy.step.onnx"):
        path.write_bytes(b"another network")
    result = run(tones, made.source, "--out", out, "--force")
    assert result.exit_code == 0, result.output
    assert KeywordModel.load(out).metadata.name == "x"
    assert not [path for path in forms if path.exists()]
    assert (tmp_path / "xy.step.onnx").exists()


# --- what is refused


def test_a_model_that_is_a_form_of_the_target_is_not_removed(made: Made, tones: Path, tmp_path: Path) -> None:
    source = Path(shutil.copy(made.source, tmp_path / "x.step.onnx"))
    result = run(tones, source, "--out", tmp_path / "x.onnx")
    assert result.exit_code == 1
    assert "is the model itself" in result.stderr
    assert source.exists()


@pytest.mark.parametrize("name", ["x.onnx", "x.step.onnx"])
def test_a_file_that_exists_is_written_over_by_force_alone(made: Made, tones: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"another network")
    result = run(tones, made.source, "--out", tmp_path / "x.onnx")
    assert result.exit_code == 1
    assert f"{name} exists; expected a new name, or --force" in result.stderr
    assert (tmp_path / name).read_bytes() == b"another network"


def test_a_file_that_answers_worse_is_not_written(
    made: Made, tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def far_too_quiet(*arguments: object) -> np.ndarray:
        return 0.01 * calibration_features(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(quantise_module, "calibration_features", far_too_quiet)
    out = tmp_path / "x.onnx"
    result = run(tones, made.source, "--out", out, "--max-loss", "1")
    assert result.exit_code == 1
    assert "accuracy, test" in result.stdout
    assert "x: test accuracy falls from " in result.stderr
    assert "expected at most 1: " in result.stderr
    assert not out.exists()


def test_a_quantised_file_is_not_quantised_again(made: Made, tones: Path) -> None:
    result = run(tones, made.file)
    assert result.exit_code == 1
    assert "four-tones-int8.onnx is quantised already; expected a float model" in result.stderr


@pytest.mark.parametrize(("out", "says"), [("card.md", "ends in .onnx"), (None, "is the model itself")])
def test_a_name_that_cannot_be_written_is_refused(made: Made, tones: Path, out: str | None, says: str) -> None:
    result = run(tones, made.source, "--out", made.source.parent / out if out else made.source)
    assert result.exit_code == 1
    assert says in result.stderr


def test_where_there_are_fewer_clips_all_are_calibrated_on(made: Made, tones: Path, tmp_path: Path) -> None:
    result = run(tones, made.source, "--clips", 1000, "--out", tmp_path / "all.onnx")
    assert result.exit_code == 0
    training = KeywordModel.load(tmp_path / "all.onnx").metadata.training
    assert training["quantisation"]["ranges"] == "smallest and largest value on 80 training clips, seed 0"


def test_what_is_no_model_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"x\.onnx is not an ONNX file"):
        quantised_model(tmp_path / "x.onnx", KeywordModel.load().metadata, np.zeros((1, 64, 128), np.float32))


# --- equalisation


def test_equalising_evens_out_the_channels_and_changes_no_answer(made: Made, tones: Path) -> None:
    x, _ = features(tones, "test")
    tensor = "prologue_depthwise"

    def answers(model: onnx.ModelProto) -> tuple[np.ndarray, np.ndarray]:
        model.graph.output.append(onnx.helper.make_tensor_value_info(tensor, onnx.TensorProto.FLOAT, None))
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        values, alpha = session.run([tensor, "alpha"], {"mfcc": x})
        return np.abs(values).max((0, 2, 3)), alpha

    equal = load_model(made.source)[0]
    equalise(equal, x)
    (before, alpha), (after, same) = answers(load_model(made.source)[0]), answers(equal)
    np.testing.assert_allclose(same, alpha, rtol=1e-3)
    assert after.max() / np.median(after) == pytest.approx(np.sqrt(before.max() / np.median(before)), rel=1e-3)


# --- the shipped files


@pytest.mark.skipif(not INT8, reason=f"no int8 model in {MODELS.name}")
@pytest.mark.parametrize("name", INT8)
def test_a_shipped_int8_model_answers_real_words_like_its_source(name: str, data: Path) -> None:
    folder = data / "speech_commands"
    int8, source = KeywordModel.load(name), KeywordModel.load(name.removesuffix("-int8"))
    listed = [n for n in (folder / "testing_list.txt").read_text().split() if n.split("/")[0] in int8.labels][::50]
    answers = [[model.classify(folder / n).label for model in (int8, source)] for n in listed]
    assert len(answers) > 100
    assert np.mean([a == b for a, b in answers]) >= 0.95


@pytest.mark.skipif(not INT8, reason=f"no int8 model in {MODELS.name}")
@pytest.mark.parametrize("name", INT8)
def test_a_shipped_int8_model_names_no_silence_and_no_noise(name: str) -> None:
    model = KeywordModel.load(name)
    rng = np.random.default_rng(0)
    for level in (0.0, 1e-4, 1e-3, 1e-2, 0.1):
        noise = (level * rng.standard_normal(16_000)).astype(np.float32)
        assert model.classify(noise, 16_000).abstained
