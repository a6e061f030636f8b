"""A stream step by step: the numbers of the windows, whatever the hop, the gaps and the silences."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_model
import tone_words
import torch

from kws_edge.errors import ModelError
from kws_edge.model.features import mfcc
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.stream.incremental import Steps, has_steps, keep_steps, step_file
from kws_edge.stream.settings import StreamSettings
from kws_edge.stream.spotter import Spotter
from kws_edge.stream.state import State
from kws_edge.stream.trace import trace
from kws_export.graph.build import build_model, build_step_model, save_model
from kws_export.network.matchboxnet import MatchboxNet

RATE = 16_000
LABELS = ("a", "b", "c")
METADATA = replace(tiny_model.METADATA, name="steps", labels=LABELS, variant="plugin_ce", padding="valid")
BY_THE_LAST_WINDOW = StreamSettings({"entropy": 1.0}, smoothing=0.0)
WINDOW = 20_720


def room(seconds: float, amplitude: float = 1e-4, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(round(seconds * RATE))
    return (amplitude * noise).astype(np.float32)


def sounds(*seconds: float, pause: float = 2.0) -> np.ndarray:
    """Bursts of noise of different colours in a quiet room."""
    parts = [room(0.5)]
    for i, length in enumerate(seconds):
        parts += [np.cumsum(room(length, 0.02, seed=i + 1)) * np.float32(0.2) + room(length, 0.05), room(pause)]
    return np.clip(np.concatenate(parts), -1, 1).astype(np.float32)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with tone_words.one_thread():
        yield


@pytest.fixture(scope="module")
def network() -> MatchboxNet:
    """Random weights, with the statistics of such sounds, so that every frame matters to the answer."""
    torch.manual_seed(3)
    model = MatchboxNet(len(LABELS), padding="valid").train()
    frames = mfcc(sounds(0.5, 1.0, 0.3, pause=0.5))
    windows = np.stack([frames[i : i + 128].T for i in range(0, len(frames) - 128, 7)])
    with torch.no_grad():
        for _ in range(20):
            logits = model(torch.from_numpy(windows))
        model.classifier.weight *= 3 / logits.std()
    return model.eval()


def save(network: MatchboxNet, folder: Path, name: str = "steps") -> Path:
    path = folder / f"{name}.onnx"
    save_model(build_model(network, METADATA), path)
    save_model(build_step_model(network, METADATA), path.with_suffix(".step.onnx"))
    return path


@pytest.fixture(scope="module")
def model(network: MatchboxNet, tmp_path_factory: pytest.TempPathFactory) -> KeywordModel:
    return KeywordModel.load(save(network, tmp_path_factory.mktemp("model")))


def numbers(spotter: Spotter, samples: np.ndarray, hop: float) -> np.ndarray:
    """Vacuity and entropy of every hop that these samples complete: [hops, 2]."""
    step, rows = round(hop * RATE), []
    for start in range(0, len(samples) - step + 1, step):
        spotter.push(samples[start : start + step])
        assert spotter.last is not None
        rows.append((spotter.last.vacuity, spotter.last.entropy))
    return np.array(rows)


@pytest.mark.parametrize("hop", [0.01, 0.02, 0.1, 0.35])
def test_every_hop_gets_the_numbers_of_its_window(model: KeywordModel, hop: float) -> None:
    sound = sounds(0.6, 1.8, 0.3)
    first = (WINDOW - 1) % round(hop * RATE) + 1  # the first hop ends where the first window does
    spotter = Spotter(model, hop=hop, settings=BY_THE_LAST_WINDOW)
    spotter.push(sound[:first])
    stepped = numbers(spotter, sound[first:], hop)
    windowed = trace(model, [sound], hop)
    assert windowed.heard.any()
    assert not windowed.heard.all()
    np.testing.assert_allclose(stepped[:, 0], windowed.vacuity[-len(stepped) :], atol=1e-4)
    assert np.ptp(stepped[:, 0][windowed.heard[-len(stepped) :]]) > 0.02


@pytest.mark.parametrize("chunk", [1, 160, 1000, 1280, 4096, 16_001])
def test_events_do_not_depend_on_the_chunks(model: KeywordModel, chunk: int) -> None:
    sound = sounds(0.6, 0.4)[: 40_000 if chunk == 1 else None]
    whole = [event.to_dict() for event in Spotter(model).push(sound)]
    spotter = Spotter(model)
    parts = [spotter.push(sound[start : start + chunk]) for start in range(0, len(sound), chunk)]
    assert [event.to_dict() for part in parts for event in part] == whole


def test_a_gap_or_a_reset_leaves_nothing_of_what_was_before(model: KeywordModel) -> None:
    sound = sounds(0.6)
    fresh = numbers(Spotter(model, settings=BY_THE_LAST_WINDOW), sound, 0.1)
    for forget in (Spotter.reset, lambda s: s.gap(0)):
        used = Spotter(model, settings=BY_THE_LAST_WINDOW)
        used.push(sounds(1.0, 0.7, pause=0.5)[:30_001])
        forget(used)
        used._decision.reset()
        used._hops._floor = Spotter(model)._hops._floor
        np.testing.assert_array_equal(numbers(used, sound, 0.1), fresh)


@pytest.mark.parametrize("seconds", [0.1, 0.25, 0.5])
def test_the_end_of_a_stream_shorter_than_its_window_is_seen(model: KeywordModel, seconds: float) -> None:
    spotter = Spotter(model)
    spotter.push(room(seconds, 0.05))
    spotter.finish()
    assert spotter.last is not None
    assert spotter.last.state == State.LISTENING


def test_streams_of_one_model_do_not_mix_also_in_threads(model: KeywordModel) -> None:
    recordings = [sounds(0.5 + 0.1 * i, 0.4, pause=0.4) for i in range(4)]
    alone = [numbers(Spotter(model, settings=BY_THE_LAST_WINDOW), sound, 0.1) for sound in recordings]
    together: dict[int, np.ndarray] = {}

    def run(i: int) -> None:
        together[i] = numbers(Spotter(model, settings=BY_THE_LAST_WINDOW), recordings[i], 0.1)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, expected in enumerate(alone):
        np.testing.assert_array_equal(together[i], expected)


@pytest.mark.parametrize("new", [10, 3])
def test_numbers_that_are_not_finite_are_refused(model: KeywordModel, new: int) -> None:
    with pytest.raises(ModelError, match="not finite"):
        Steps(model, 10).push(np.full((new, 64), np.inf, np.float32))


def test_without_its_step_file_a_model_is_run_on_windows(network: MatchboxNet, tmp_path: Path) -> None:
    path = save(network, tmp_path)
    stepped = numbers(Spotter(KeywordModel.load(path), settings=BY_THE_LAST_WINDOW), sounds(0.6), 0.1)
    step_file(KeywordModel.load(path)).unlink()
    bare = KeywordModel.load(path)
    assert not has_steps(bare)
    np.testing.assert_allclose(
        numbers(Spotter(bare, settings=BY_THE_LAST_WINDOW), sounds(0.6), 0.1), stepped, atol=1e-4
    )


def test_steps_that_were_kept_are_of_the_file_as_it_was(network: MatchboxNet, tmp_path: Path) -> None:
    model = KeywordModel.load(save(network, tmp_path))
    keep_steps(model)
    step_file(model).write_bytes(b"another model")
    assert has_steps(model)
    Steps(model, 10)
    step_file(model).unlink()
    assert has_steps(model)
    Steps(model, 10)


def test_a_padded_model_has_no_steps(tmp_path: Path) -> None:
    assert not has_steps(KeywordModel.load(tiny_model.save(tmp_path)))


def test_a_step_file_of_other_weights_is_refused(network: MatchboxNet, tmp_path: Path) -> None:
    path = save(network, tmp_path)
    other = MatchboxNet(len(LABELS), padding="valid").eval()
    save_model(build_step_model(other, METADATA), path.with_suffix(".step.onnx"))
    with pytest.raises(ModelError, match=r"steps\.step\.onnx: answers differently from steps\.onnx"):
        Spotter(KeywordModel.load(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "cannot load it"), (b"not a model", "cannot load it"), (tiny_model.build(), "other words or features")],
)
def test_a_damaged_step_file_is_refused(network: MatchboxNet, tmp_path: Path, content: bytes, message: str) -> None:
    path = save(network, tmp_path)
    path.with_suffix(".step.onnx").write_bytes(content)
    with pytest.raises(ModelError, match=rf"steps\.step\.onnx: .*{message}") as caught:
        Steps(KeywordModel.load(path), 10)
    assert "\n" not in str(caught.value)
