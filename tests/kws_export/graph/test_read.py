"""Training on from an exported file: the network that is read back is the file's, and so is a training step's start."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_model
import tone_words
import torch
from paths import ROOT

from kws_edge.errors import ModelError, SettingError
from kws_edge.model.metadata import Padding
from kws_export.graph.build import build_model, save_model
from kws_export.graph.read import load_network, measure_statistics
from kws_export.network.matchboxnet import MatchboxNet, Norm

MODELS = ROOT / "models"
LABELS = ("a", "b", "c", "d")
FEATURES = torch.from_numpy(np.random.default_rng(0).normal(0, 10, (64, 64, 128)).astype(np.float32))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with tone_words.one_thread():
        yield


def trained(repeat: int, padding: Padding) -> MatchboxNet:
    """A network whose normalisations have seen data, and whose scales and shifts are no longer 1 and 0."""
    torch.manual_seed(3)
    network = MatchboxNet(len(LABELS), repeat, padding=padding).train()
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, Norm):
                module.weight.uniform_(0.5, 1.5)
                module.bias.uniform_(-0.5, 0.5)
        for _ in range(20):
            network(FEATURES)
    return network.eval()


def saved(network: MatchboxNet, folder: Path, *, with_front_end: bool = False) -> Path:
    metadata = replace(tiny_model.METADATA, labels=LABELS, padding=network.padding)
    save_model(build_model(network, metadata, with_front_end=with_front_end), folder / "model.onnx")
    return folder / "model.onnx"


@torch.no_grad()
@pytest.mark.parametrize(("repeat", "padding"), [(1, "same"), (2, "same"), (1, "valid")])
@pytest.mark.parametrize("with_front_end", [False, True])
def test_the_network_that_is_read_back_gives_the_files_answers(
    tmp_path: Path, repeat: int, padding: Padding, with_front_end: bool
) -> None:
    network = trained(repeat, padding)
    back, metadata = load_network(saved(network, tmp_path, with_front_end=with_front_end))
    assert (metadata.labels, back.repeat, back.padding) == (LABELS, repeat, padding)
    torch.testing.assert_close(back.eval()(FEATURES), network(FEATURES), rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_measured_statistics_change_no_answer_and_make_training_start_from_it(tmp_path: Path, padding: Padding) -> None:
    network, _ = load_network(saved(trained(1, padding), tmp_path))
    before = network.eval()(FEATURES)
    assert (network.train()(FEATURES) - before).abs().max() > 0.1  # as it is read, a batch's statistics are not its own
    network, _ = load_network(tmp_path / "model.onnx")
    measure_statistics(network, FEATURES)
    torch.testing.assert_close(network.eval()(FEATURES), before, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(network.train()(FEATURES), before, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_statistics_do_not_depend_on_the_size_of_their_parts(tmp_path: Path) -> None:
    path = saved(trained(1, "same"), tmp_path)
    networks = [load_network(path)[0] for _ in range(2)]
    for network, batch in zip(networks, (64, 7), strict=True):
        measure_statistics(network, FEATURES, batch)
    for one, other in zip(*(network.buffers() for network in networks), strict=True):
        torch.testing.assert_close(one, other)


def test_files_without_the_float_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("no model")
    for path, reason in {
        MODELS / "softmax-int8.onnx": "lacks float weights",
        tiny_model.save(tmp_path): "lacks float weights",
        tmp_path / "text.onnx": "not an ONNX file",
        tmp_path / "none.onnx": "no file",
    }.items():
        with pytest.raises(ModelError, match=reason):
            load_network(path)


def test_a_run_starts_from_an_exported_model(tones: Path, tmp_path: Path) -> None:
    first = tone_words.trainer(tones, tmp_path / "first", tone_words.recipe())
    accuracy = tone_words.run(first)[-1].validation_accuracy
    metadata = replace(tiny_model.METADATA, labels=first.data.labels)
    save_model(build_model(first.model, metadata), tmp_path / "first.onnx")
    recipe = tone_words.recipe(start=str(tmp_path / "first.onnx"), peak_lr=1e-4, final_lr=0.0, epochs=1)
    second = tone_words.run(tone_words.trainer(tones, tmp_path / "second", recipe))
    assert accuracy > 0.9
    assert second[0].validation_accuracy >= accuracy - 0.05
    assert second[0].train_accuracy > 0.8


def test_words_in_common_keep_their_outputs_and_the_others_start_anew(
    tones: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = tone_words.trainer(tones, tmp_path / "first", tone_words.recipe(labels=["fall", "high", "low"]))
    tone_words.run(first)
    start = str(tmp_path / "first" / "last.pt")
    second = tone_words.trainer(
        tones, tmp_path / "second", tone_words.recipe(start=start, labels=["rise", "low", "fall"])
    )
    old, new = first.model.classifier, second.model.classifier
    for row, label in enumerate(("rise", "low", "fall")):
        kept = label in first.data.labels and torch.equal(new.weight[row], old.weight[first.data.labels.index(label)])
        assert kept == (label != "rise")
    assert torch.equal(second.model.prologue.pointwise, first.model.prologue.pointwise)
    assert "does not know rise: these outputs start from random weights" in caplog.text


def test_a_model_of_another_size_is_refused(tones: Path, tmp_path: Path) -> None:
    start = str(saved(trained(2, "same"), tmp_path))
    with pytest.raises(SettingError, match="repeat=2; expected 1"):
        tone_words.trainer(tones, tmp_path / "run", tone_words.recipe(start=start))
