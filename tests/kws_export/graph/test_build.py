"""The ONNX file: the same numbers as torch and numpy, standard operators only, and everything inside one file."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import tiny_model
import tone_words
import torch

from kws_edge.audio.load import load
from kws_edge.errors import ModelError, SettingError
from kws_edge.model import evidence
from kws_edge.model.evidence import LOGIT_LIMIT
from kws_edge.model.features import FrontEnd, mfcc, pad
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import Metadata
from kws_edge.model.runtime import OUTPUTS, zero_states
from kws_edge.model.shipped import MODELS
from kws_edge.model.variants import VARIANTS, Variant
from kws_edge.stream.trace import trace
from kws_export.graph.build import build_model, build_step_model, load_model, save_model
from kws_export.network.head import evidential_head
from kws_export.network.matchboxnet import MatchboxNet

FE = FrontEnd()
LABELS = tuple("abcdefg")
METADATA = replace(tiny_model.METADATA, labels=LABELS)
OPERATORS = {
    "Abs", "Add", "ArgMax", "Atanh", "Clip", "Conv", "Div", "Exp", "Flatten", "Gemm", "GlobalAveragePool", "Log",
    "Max", "Mul", "Neg", "ReduceSum", "Relu", "Squeeze", "Unsqueeze",
}  # fmt: skip
FRONT_END_OPERATORS = {"Concat", "Pad", "Reshape", "Shape", "Sub"}

EXPORTED = sorted([*MODELS.glob("*.onnx"), *MODELS.parent.glob("research/*/models/*.onnx")])

every_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with tone_words.one_thread():
        yield


@pytest.fixture(scope="module")
def clips(data: Path) -> list[np.ndarray]:
    """Real clips of ten words: float32, of 1 s and less."""
    words = ("yes", "no", "up", "left", "stop", "zero", "two", "bed", "cat", "marvin")
    paths = [path for word in words for path in sorted((data / "speech_commands" / word).iterdir())[:20:4]]
    return [load(path).samples for path in paths]


@pytest.fixture(scope="module")
def features(clips: list[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.stack([pad(mfcc(samples)) for samples in clips]))


def as_trained(model: MatchboxNet, features: torch.Tensor) -> MatchboxNet:
    """Random weights, statistics of real speech, and logits that spread over about ±10 as after training."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.add_(torch.randn_like(p), alpha=0.3)
        model.train()
        for _ in range(20):
            model(features)
        model.eval()
        logits = model(features)
        model.classifier.bias -= logits.mean(0)
        scale = 5 / (logits - logits.mean(0)).std()
        model.classifier.weight *= scale
        model.classifier.bias *= scale
    return model


@pytest.fixture(scope="module", params=[1, 2], ids=["3x1x64", "3x2x64"])
def network(request: pytest.FixtureRequest, features: torch.Tensor) -> MatchboxNet:
    return as_trained(MatchboxNet(len(LABELS), repeat=request.param), features)


def saved(network: MatchboxNet, folder: Path, variant: Variant, **options: Any) -> Path:
    path = folder / f"{variant.name}.onnx"
    save_model(build_model(network, replace(METADATA, variant=variant.name), **options), path)
    return path


def session(path: Path | bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def outputs_of(run: Any) -> dict[str, np.ndarray]:
    return dict(zip(OUTPUTS, run, strict=True))


def reference(logits: torch.Tensor, variant: Variant) -> dict[str, np.ndarray]:
    """The four outputs by kws_edge.model.evidence in float64."""
    z = logits.double().numpy()
    a = evidence.alpha(z, variant)
    return outputs_of((evidence.label(z), a, evidence.vacuity(a, variant), evidence.entropy(a)))


def assert_close(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float = 1e-4) -> None:
    np.testing.assert_array_equal(actual["class"], expected["class"])
    for name in ("alpha", "vacuity", "entropy"):
        np.testing.assert_allclose(actual[name], expected[name], atol=tolerance, rtol=tolerance, err_msg=name)


class StepRunner:
    """The step form at work: a stream's frames in, float32 [n, coefficients], the outputs after the last one out."""

    def __init__(self, network: MatchboxNet, metadata: Metadata = METADATA) -> None:
        self.session = session(build_step_model(network, metadata).SerializeToString())
        self.states = {
            node.name: np.zeros([1, *node.shape[1:]], np.float32)
            for node in self.session.get_inputs()
            if node.name.startswith("state_")
        }

    def push(self, frames: np.ndarray) -> dict[str, np.ndarray]:
        names = [node.name for node in self.session.get_outputs()]
        feed = {"mfcc": frames.T[np.newaxis].copy(), **self.states}
        outputs = dict(zip(names, self.session.run(names, feed), strict=True))
        self.states = {name: outputs[name.replace("state_", "next_")] for name in self.states}
        return {name: outputs[name] for name in OUTPUTS}


# --- the same numbers everywhere


@every_variant
def test_torch_onnx_runtime_and_numpy_agree_for_batches_of_1_to_10(
    network: MatchboxNet, features: torch.Tensor, tmp_path: Path, variant: Variant
) -> None:
    onnx_session = session(saved(network, tmp_path, variant))
    for size in range(1, 11):
        part = features[::3][:size]
        with torch.inference_mode():
            logits = network(part)
            in_torch = outputs_of(t.numpy() for t in evidential_head(logits, variant))
        in_onnx = outputs_of(onnx_session.run(list(OUTPUTS), {"mfcc": part.numpy()}))
        assert_close(in_onnx, in_torch)
        assert_close(in_onnx, reference(logits, variant))
        assert_close(in_torch, reference(logits, variant))


def test_the_clips_get_different_answers(network: MatchboxNet, features: torch.Tensor) -> None:
    with torch.inference_mode():
        logits = network(features)
    assert len(set(logits.argmax(1).tolist())) > 2
    assert logits.std() == pytest.approx(5, abs=0.5)


@every_variant
def test_extreme_logits_give_finite_outputs_in_their_ranges(tmp_path: Path, variant: Variant) -> None:
    network = MatchboxNet(len(LABELS)).eval()
    patterns = {
        "all low": [-1e4] * 7,
        "all high": [1e4] * 7,
        "one high": [-1e4, -1e4, -1e4, 1e4, -1e4, -1e4, -1e4],
        "one low": [1e4, 1e4, -1e4, 1e4, 1e4, 1e4, 1e4],
        "just within the clamp": [79.9, -79.9, 0.0, 30.0, -30.0, 79.9, -79.9],
    }
    for name, pattern in patterns.items():
        logits = torch.tensor([pattern])
        with torch.no_grad():
            network.classifier.weight.zero_()
            network.classifier.bias.copy_(logits[0])
        path = saved(network, tmp_path, variant)
        in_onnx = outputs_of(session(path).run(list(OUTPUTS), {"mfcc": np.zeros((1, 64, 128), np.float32)}))
        in_torch = outputs_of(t.numpy() for t in evidential_head(logits, variant))
        for outputs in (in_onnx, in_torch):
            alpha = outputs["alpha"]
            assert np.isfinite(alpha).all(), name
            assert (alpha >= np.finfo(np.float32).tiny).all(), name
            np.testing.assert_allclose(alpha, reference(logits, variant)["alpha"], rtol=1e-4, err_msg=name)
            assert evidence.probability(alpha).sum() == pytest.approx(1, abs=1e-6)
            assert 0 < outputs["vacuity"][0] <= 1, name
            assert 0 <= outputs["entropy"][0] <= 1, name
            assert_close(outputs, reference(logits, variant))


LOW = [-30.0, -30.0, -29.0, -18.0, -17.5, -90.0, -100.0]
"""Logits so low that in float32 every α = e + 1 is 1; the fifth is the largest."""


@every_variant
def test_the_class_is_that_of_the_largest_logit_where_every_alpha_rounds_to_the_same(
    tmp_path: Path, variant: Variant
) -> None:
    network = MatchboxNet(len(LABELS), padding="valid").eval()
    with torch.no_grad():
        network.classifier.weight.zero_()
        network.classifier.bias.copy_(torch.tensor(LOW))
    metadata = replace(METADATA, variant=variant.name, padding="valid")
    window = np.zeros((1, 64, 128), np.float32)
    in_onnx = outputs_of(session(saved(network, tmp_path, variant)).run(list(OUTPUTS), {"mfcc": window}))
    in_torch = evidential_head(torch.tensor([LOW]), variant)
    in_steps = StepRunner(network, metadata).push(window[0].T)
    assert [int(in_onnx["class"][0]), int(in_torch.label[0]), int(in_steps["class"][0])] == [4, 4, 4]
    assert int(evidence.label(LOW)) == 4
    if variant.alpha_offset:
        assert (in_onnx["alpha"] == 1).all()
        assert (evidence.alpha(np.float32([LOW]), variant) == 1).all()


@pytest.mark.parametrize("path", EXPORTED, ids=[path.name for path in EXPORTED])
def test_every_file_of_the_project_takes_its_class_from_the_logits(path: Path) -> None:
    model, _ = load_model(path)
    assert [list(node.input) for node in model.graph.node if "class" in node.output] == [["logits"]]


@every_variant
def test_the_head_in_torch_clamps_where_numpy_does(variant: Variant) -> None:
    a = evidential_head(torch.tensor([[1e4, -1e4, LOGIT_LIMIT, -LOGIT_LIMIT]]), variant).alpha[0]
    assert a[0] == (a[2] if variant.activation == "exp" else 1e4 + variant.alpha_offset)
    assert a[1] == a[3]


def test_a_network_in_training_mode_is_exported_as_in_evaluation(
    network: MatchboxNet, features: torch.Tensor, tmp_path: Path
) -> None:
    path = saved(network, tmp_path, VARIANTS["softmax"])
    before = path.read_bytes()
    network.train()
    assert saved(network, tmp_path, VARIANTS["softmax"]).read_bytes() == before
    network.eval()


# --- one file, standard operators


@every_variant
@pytest.mark.parametrize("with_front_end", [False, True])
def test_the_graph_is_valid_with_standard_operators_of_the_pinned_versions(
    variant: Variant, with_front_end: bool
) -> None:
    model = build_model(
        MatchboxNet(len(LABELS)), replace(METADATA, variant=variant.name), with_front_end=with_front_end
    )
    onnx.checker.check_model(model, full_check=True)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]
    assert model.ir_version == 8
    assert {node.domain for node in model.graph.node} == {""}
    found = {node.op_type for node in model.graph.node}
    assert found <= OPERATORS | (FRONT_END_OPERATORS if with_front_end else set())
    assert not model.functions
    assert all(w.data_location == onnx.TensorProto.DEFAULT for w in model.graph.initializer)


def test_inputs_and_outputs_are_those_of_the_contract() -> None:
    graph = build_model(MatchboxNet(len(LABELS)), METADATA).graph

    def described(value: onnx.ValueInfoProto) -> tuple[str, int, list[str | int]]:
        tensor = value.type.tensor_type
        return value.name, tensor.elem_type, [d.dim_param or d.dim_value for d in tensor.shape.dim]

    floats, integers = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    assert [described(v) for v in graph.input] == [("mfcc", floats, ["batch", 64, 128])]
    assert [described(v) for v in graph.output] == [
        ("class", integers, ["batch"]),
        ("alpha", floats, ["batch", 7]),
        ("vacuity", floats, ["batch"]),
        ("entropy", floats, ["batch"]),
    ]


def test_normalisation_is_folded_into_the_convolutions() -> None:
    network = MatchboxNet(len(LABELS))
    weights = {w.name: w for w in build_model(network, METADATA).graph.initializer}
    floats = sum(int(np.prod(w.dims)) for w in weights.values() if w.data_type == onnx.TensorProto.FLOAT and w.dims)
    norms = [p for name, p in network.named_parameters() if "norm" in name]
    # Of a scale and a shift for every channel, one bias is left.
    assert floats == sum(p.numel() for p in network.parameters()) - sum(p.numel() for p in norms) // 2


def test_the_file_alone_in_another_folder_loads_with_its_metadata(tmp_path: Path) -> None:
    path = saved(MatchboxNet(len(LABELS)), tmp_path / "from", VARIANTS["plugin_ce"])
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    (tmp_path / "to").mkdir()
    copy = shutil.move(path, tmp_path / "to" / "copy.onnx")
    shutil.rmtree(path.parent)
    model = KeywordModel.load(copy)
    assert model.metadata == replace(METADATA, variant="plugin_ce")
    assert model.labels == LABELS
    assert len(model.run(np.zeros((2, 64, 128), np.float32)).labels) == 2


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(MatchboxNet(len(LABELS)), tmp_path, VARIANTS["softmax"])
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        saved(MatchboxNet(len(LABELS)), tmp_path, VARIANTS["softmax"])
    assert path.read_bytes() == before


# --- reading a file back


@pytest.mark.parametrize("with_front_end", [False, True])
def test_a_file_says_what_it_is(tmp_path: Path, with_front_end: bool) -> None:
    path = saved(MatchboxNet(len(LABELS)), tmp_path, VARIANTS["softmax"], with_front_end=with_front_end)
    model, metadata = load_model(path)
    assert isinstance(metadata, Metadata)
    assert metadata == METADATA
    assert model.graph.input[0].name == ("audio" if with_front_end else "mfcc")


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x08garbage"])
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"x\.onnx (is not an ONNX file|has no metadata under kws_edge)"):
        load_model(path)


# --- with the front end inside


@pytest.mark.parametrize("variant", ["softmax", "edl_ce"])
def test_the_front_end_inside_the_graph_agrees_with_the_one_outside(
    network: MatchboxNet, clips: list[np.ndarray], tmp_path: Path, variant: str
) -> None:
    inside = session(saved(network, tmp_path / "a", VARIANTS[variant], with_front_end=True))
    outside = session(saved(network, tmp_path / "b", VARIANTS[variant]))
    for samples in clips:
        from_audio = outputs_of(inside.run(list(OUTPUTS), {"audio": samples[None]}))
        from_mfcc = outputs_of(outside.run(list(OUTPUTS), {"mfcc": pad(mfcc(samples))[None]}))
        assert_close(from_audio, from_mfcc, tolerance=1e-3)


@pytest.mark.parametrize("n", [400, 559, 560, 5_000, 15_999, 16_000, 16_001, FE.max_samples])
def test_clips_of_any_length_that_fits_are_centred_alike(tmp_path: Path, n: int) -> None:
    network = MatchboxNet(len(LABELS)).eval()
    rng = np.random.default_rng(n)
    samples = (0.1 * rng.standard_normal((3, n))).astype(np.float32)
    inside = session(saved(network, tmp_path / "a", VARIANTS["softmax"], with_front_end=True))
    outside = session(saved(network, tmp_path / "b", VARIANTS["softmax"]))
    from_audio = outputs_of(inside.run(list(OUTPUTS), {"audio": samples}))
    windows = np.stack([pad(mfcc(x)) for x in samples])
    assert_close(from_audio, outputs_of(outside.run(list(OUTPUTS), {"mfcc": windows})), tolerance=1e-3)


def test_the_graphs_mfcc_are_the_front_ends(clips: list[np.ndarray]) -> None:
    model = build_model(MatchboxNet(len(LABELS)), METADATA, with_front_end=True)
    model.graph.output.append(onnx.helper.make_tensor_value_info("mfcc_window", onnx.TensorProto.FLOAT, None))
    onnx_session = session(model.SerializeToString())
    worst = [
        np.abs(onnx_session.run(["mfcc_window"], {"audio": x[None]})[0][0, :, 0] - pad(mfcc(x))).max() for x in clips
    ]
    assert np.median(worst) < 1e-3


@pytest.mark.parametrize("n", [399, FE.max_samples + 1, 32_000])
def test_audio_that_does_not_fit_makes_the_run_fail(tmp_path: Path, n: int) -> None:
    path = saved(MatchboxNet(len(LABELS)), tmp_path, VARIANTS["softmax"], with_front_end=True)
    with pytest.raises(Exception, match=r"Conv|Reshape|mfcc_window|spectrum"):
        session(path).run(None, {"audio": np.zeros((1, n), np.float32)})


# --- a stream, step by step


@pytest.fixture(scope="module")
def unpadded(features: torch.Tensor) -> MatchboxNet:
    return as_trained(MatchboxNet(len(LABELS), padding="valid"), features)


@pytest.fixture(scope="module")
def speech(clips: list[np.ndarray]) -> np.ndarray:
    """A stream of some seconds: float32 [frames, coefficients]."""
    return mfcc(np.concatenate(clips[:4]))


def window_at(model: MatchboxNet, frames: np.ndarray, end: int) -> dict[str, np.ndarray]:
    window = torch.from_numpy(frames[end - FE.frames : end].T.copy())[None]
    with torch.inference_mode():
        return reference(model(window), VARIANTS[METADATA.variant])


def test_without_padding_the_file_is_the_network_too(
    unpadded: MatchboxNet, features: torch.Tensor, tmp_path: Path
) -> None:
    run = session(saved(unpadded, tmp_path, VARIANTS["plugin_ce"])).run(list(OUTPUTS), {"mfcc": features.numpy()})
    with torch.inference_mode():
        assert_close(outputs_of(run), reference(unpadded(features), VARIANTS["plugin_ce"]))


@pytest.mark.parametrize("step", [1, 3, 10, 128, 200])
def test_steps_give_what_the_window_gives(unpadded: MatchboxNet, speech: np.ndarray, step: int) -> None:
    steps = StepRunner(unpadded)
    for end in range(step, len(speech) + 1, step):
        outputs = steps.push(speech[end - step : end])
        if end >= FE.frames and end % 50 < step:
            assert_close(outputs, window_at(unpadded, speech, end))


def test_a_whole_window_at_once_forgets_all_before_it(unpadded: MatchboxNet, speech: np.ndarray) -> None:
    steps = StepRunner(unpadded)
    steps.push(1e3 * np.random.default_rng(0).standard_normal((300, FE.n_mfcc)).astype(np.float32))
    assert_close(steps.push(speech[: FE.frames]), window_at(unpadded, speech, FE.frames))


def test_the_step_form_is_self_contained_and_standard(unpadded: MatchboxNet) -> None:
    model = build_step_model(unpadded, METADATA)
    assert {node.op_type for node in model.graph.node} <= OPERATORS | {"Concat", "Slice"}
    assert {node.domain for node in model.graph.node} == {""}


def test_a_padded_network_has_no_step_form(network: MatchboxNet) -> None:
    with pytest.raises(SettingError, match='padding "same"'):
        build_step_model(network, METADATA)


# --- the same, from samples


def audio_steps(model: bytes, samples: np.ndarray, step: int) -> dict[int, np.ndarray]:
    """α after each step: how many samples were given so far → float32 [K].

    The first step is of the size that makes windows end where those of `kws_edge.stream` do.
    """
    running = session(model)
    states = zero_states(running)
    found = {}
    start, end = 0, (20_720 + 80) % step or step
    while end <= len(samples):
        inputs = {"audio": samples[None, start:end], **states}
        alpha, *following = running.run(["alpha", *(name.replace("state_", "next_", 1) for name in states)], inputs)
        states = dict(zip(states, following, strict=True))
        found[end] = alpha[0]
        start, end = end, end + step
    return found


@pytest.mark.parametrize("step", [160, 480, 1600])
def test_steps_of_samples_give_what_a_stream_of_the_device_gives(
    unpadded: MatchboxNet, clips: list[np.ndarray], tmp_path: Path, step: int
) -> None:
    sound = np.concatenate(clips[:4]) + np.float32(0.05)  # a constant is no sound, and must not matter to the gate
    path = tmp_path / "unpadded.onnx"
    save_model(build_model(unpadded, replace(METADATA, padding="valid")), path)
    hops = trace(KeywordModel.load(path), [sound], step / 16_000)
    steps = audio_steps(build_step_model(unpadded, METADATA, with_front_end=True).SerializeToString(), sound, step)
    whole = hops.time > 1.4  # a window and more: what lies before the start is filled in by the device alone
    heard = np.flatnonzero(hops.heard & whole)
    assert len(heard) > 5
    for i in heard[:: max(1, len(heard) // 50)]:
        end = round(float(hops.time[i]) * 16_000) + 80  # the last 80 samples are not yet in a frame
        np.testing.assert_allclose(steps[end], hops.alpha[i], rtol=2e-3, atol=1e-3)


def test_the_step_form_with_front_end_is_standard_too(unpadded: MatchboxNet) -> None:
    model = build_step_model(unpadded, METADATA, with_front_end=True)
    assert {node.op_type for node in model.graph.node} <= OPERATORS | {"Concat", "Slice"}
    assert {node.domain for node in model.graph.node} == {""}
