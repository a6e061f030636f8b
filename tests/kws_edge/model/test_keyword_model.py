"""A model file: what is refused on loading, and what a loaded model answers."""

import io
import json
import multiprocessing
import os
import pickle
import re
import shutil
import subprocess
import sys
import textwrap
import tracemalloc
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT
from tiny_model import METADATA, TONES

from kws_edge.audio.level import measure
from kws_edge.audio.load import load
from kws_edge.errors import AudioError, ModelError, ProviderError, SettingError
from kws_edge.model import evidence
from kws_edge.model.clips import cut
from kws_edge.model.features import FrontEnd, mfcc, pad
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.prediction import Reason, worth_naming
from kws_edge.model.shipped import shipped_models
from kws_edge.model.variants import VARIANTS

RATE = 16_000


def tone(word: str, seconds: float = 1.0, amplitude: float = 0.3) -> Any:
    return (amplitude * np.sin(2 * np.pi * TONES[word] * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def noise(seconds: float = 1.0, amplitude: float = 0.05) -> Any:
    return (amplitude * np.random.default_rng(1).standard_normal(round(seconds * RATE))).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> KeywordModel:
    return KeywordModel.load(tiny_model.save(tmp_path_factory.mktemp("model")))


def refused(folder: Path, content: bytes) -> str:
    path = folder / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError) as refusal:
        KeywordModel.load(path)
    message = str(refusal.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


# Loading


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "0 bytes"),
        (b"not a model", "cannot load it"),
        (tiny_model.build()[:500], "cannot load it"),
        (bytes(1000), "cannot load it"),
    ],
    ids=["empty", "text", "cut off", "zeros"],
)
def test_what_is_not_a_model_is_refused(content: bytes, found: str, tmp_path: Path) -> None:
    message = refused(tmp_path, content)
    assert found in message
    assert "expected an ONNX file" in message


@pytest.mark.parametrize(
    ("what", "content"),
    [("IR version", tiny_model.build(ir_version=99)), ("opset", tiny_model.build(opset=99))],
    ids=["IR version", "opset"],
)
def test_a_model_from_the_future_is_refused_found_against_supported(what: str, content: bytes, tmp_path: Path) -> None:
    message = refused(tmp_path, content)
    assert f"found {what} 99, supported up to " in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (tiny_model.build(None), "no metadata under 'kws_edge'"),
        (tiny_model.build("{}"), "schema: found None; expected 1"),
        (tiny_model.build(METADATA.to_json().replace('"schema": 1', '"schema": 7')), "schema: found 7; expected 1"),
        (tiny_model.build(labels=4), r"alpha tensor(float) [*, 4]"),
        (tiny_model.build(frames=98), "mfcc tensor(float) [*, 64, 98]"),
        (tiny_model.build(n_mfcc=40), "mfcc tensor(float) [*, 40, 128]"),
        (tiny_model.build(input_name="audio"), "audio tensor(float)"),
        (tiny_model.build(outputs=("class", "alpha", "vacuity")), "expected ['class tensor(int64) [*]'"),
        (tiny_model.build(replace(METADATA, front_end=FrontEnd(sample_rate=32_000, n_fft=1024))), "made for 32000 Hz"),
    ],
    ids=["no metadata", "no schema", "schema", "labels", "frames", "features", "input", "outputs", "rate"],
)
def test_metadata_that_disagree_with_the_graph_are_refused(content: bytes, problem: str, tmp_path: Path) -> None:
    message = refused(tmp_path, content)
    assert problem in message
    assert "expected" in message


@pytest.mark.parametrize("form", ["step", "audio"])
def test_another_form_of_a_model_names_the_file_that_is_meant(form: str, tmp_path: Path) -> None:
    path = tiny_model.save(tmp_path, f"tiny.{form}", input_name="audio")
    with pytest.raises(ModelError, match=rf"tiny\.{form}\.onnx: the form of tiny\.onnx .*expected .*/tiny\.onnx$"):
        KeywordModel.load(path)


@pytest.mark.parametrize("path", ["gone.onnx", "", "nul\0.onnx"])
def test_a_file_that_cannot_be_read_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="expected an ONNX file"):
        KeywordModel.load(tmp_path / path)


def test_a_name_that_is_not_shipped_is_refused() -> None:
    with pytest.raises(SettingError, match=r"no shipped model 'sofmax'; expected one of"):
        KeywordModel.load("sofmax")


@pytest.mark.parametrize("given", [5, b"stream", ["stream"], {}])
def test_what_is_no_name_or_path_is_refused_with_what_would_be(given: Any) -> None:
    with pytest.raises(SettingError, match=f"a model of type {type(given).__name__}; expected the name"):
        KeywordModel.load(given)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True])
def test_an_impossible_number_of_threads_is_refused(threads: Any, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="threads="):
        KeywordModel.load(tiny_model.save(tmp_path), threads=threads)


def test_a_copy_in_another_folder_is_the_same_model(model: KeywordModel, tmp_path: Path) -> None:
    original = tiny_model.save(tmp_path)
    elsewhere = tmp_path / "elsewhere" / "renamed.onnx"
    elsewhere.parent.mkdir()
    shutil.move(original, elsewhere)
    copy = KeywordModel.load(elsewhere)
    assert copy.metadata == METADATA
    np.testing.assert_array_equal(copy.classify(tone("mid"), RATE).alpha, model.classify(tone("mid"), RATE).alpha)


def test_the_file_is_not_needed_once_it_is_loaded(tmp_path: Path) -> None:
    path = tiny_model.save(tmp_path)
    loaded = KeywordModel.load(path)
    path.unlink()
    assert loaded.classify(tone("low"), RATE).label == "low"


def test_every_shipped_model_loads_and_is_called_what_its_file_is_called() -> None:
    names = {name: KeywordModel.load(name).name for name in shipped_models()}
    assert names == {name: name for name in names}


# Execution providers


def test_a_provider_that_is_missing_is_replaced_with_one_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = KeywordModel.load(tiny_model.save(tmp_path), provider="coreml")
    assert [str(w.message).split(";")[0] for w in caught] == ["execution provider coreml: cpu is what runs"]
    assert caught[0].filename == __file__
    assert loaded.provider == "cpu"
    assert loaded.classify(tone("mid"), RATE).label == "mid"


def test_a_provider_that_is_missing_is_an_error_when_strict(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="execution provider coreml: cpu is what runs"):
        KeywordModel.load(tiny_model.save(tmp_path), provider="coreml", strict=True)


@pytest.mark.parametrize("provider", ["gpu", None, 1, ["cpu"]])
def test_a_provider_that_exists_nowhere_is_refused(tmp_path: Path, provider: Any) -> None:
    with pytest.raises(SettingError, match=rf"provider {re.escape(repr(provider))}; expected one of .*cuda.*cpu"):
        KeywordModel.load(tiny_model.save(tmp_path), provider=provider)


def test_a_score_that_is_no_text_is_refused(tmp_path: Path) -> None:
    model = KeywordModel.load(tiny_model.save(tmp_path))
    with pytest.raises(SettingError, match=r"no threshold for score \['entropy'\]"):
        model.classify(np.zeros(16_000, np.float32), 16_000, score=["entropy"])  # type: ignore[arg-type]


def test_the_cpu_is_asked_for_without_a_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert KeywordModel.load(tiny_model.save(tmp_path), provider="CPU", strict=True).provider == "cpu"


# One forward pass


def test_the_outputs_are_those_of_the_numpy_reference(model: KeywordModel) -> None:
    clips = [tone("low"), tone("high"), noise(), noise(0.4), tone("mid", 0.2)]
    outputs = model.run(np.stack([pad(mfcc(clip)) for clip in clips]))
    variant = VARIANTS[METADATA.variant]
    assert outputs.labels.tolist()[:2] == [0, 2]
    np.testing.assert_array_equal(outputs.labels, evidence.label(np.log(outputs.alpha)))
    np.testing.assert_allclose(outputs.vacuity, evidence.vacuity(outputs.alpha, variant), atol=1e-5)
    np.testing.assert_allclose(outputs.entropy, evidence.entropy(outputs.alpha), atol=1e-5)


@pytest.mark.parametrize(
    "features",
    [np.zeros((0, 64, 128), "f4"), np.zeros((64, 128), "f4"), np.zeros((1, 128, 64), "f4"), np.zeros((1, 64, 128))],
    ids=["no batch", "no batch axis", "transposed", "float64"],
)
def test_features_of_another_shape_or_type_are_refused(model: KeywordModel, features: Any) -> None:
    with pytest.raises(SettingError, match=r"expected float32 \[batch, 64, 128\], batch >= 1"):
        model.run(features)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_refused(model: KeywordModel, value: float) -> None:
    features = np.zeros((2, 64, 128), np.float32)
    features[1, 3, 7] = value
    with pytest.raises(SettingError, match="NaN or infinite"):
        model.run(features)


def test_a_model_that_gives_nan_is_refused_instead_of_believed(tmp_path: Path) -> None:
    broken = KeywordModel.load(tiny_model.save(tmp_path, bias=np.nan))
    with pytest.raises(ModelError, match="not finite"):
        broken.classify(tone("mid"), RATE)


# Answers


@pytest.mark.parametrize("word", TONES)
def test_a_word_is_named(model: KeywordModel, word: str) -> None:  # "low" has index 0
    p = model.classify(tone(word), RATE)
    assert (p.label, p.guess, p.abstained, p.reason) == (word, word, False, None)
    assert (p.start, p.end) == (0.0, 1.0)
    assert p.probability == pytest.approx(float(p.alpha.max() / p.alpha.sum()))
    assert (p.score, p.target, p.threshold, p.model) == ("entropy", 0.995, 0.5, "tiny")
    assert p.uncertainty == p.entropy < p.threshold


def test_an_uncertain_answer_has_a_guess_but_no_label(model: KeywordModel) -> None:
    p = model.classify(noise(), RATE)
    assert (p.label, p.abstained, p.reason) == (None, True, Reason.UNCERTAIN)
    assert p.guess in TONES
    assert p.uncertainty > p.threshold


def test_clipping_is_given_as_the_reason_only_where_the_answer_is_uncertain(model: KeywordModel) -> None:
    clipped = model.classify(np.clip(noise(amplitude=5.0), -1, 1), RATE)
    assert (clipped.label, clipped.reason) == (None, Reason.CLIPPED)
    sure = np.clip(tone("low", amplitude=1.02), -1, 1)
    assert measure(sure).is_clipped
    assert model.classify(sure, RATE).label == "low"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> KeywordModel:
    """The tiny model, for which a mid tone is another word and a high one is silence."""
    metadata = replace(METADATA, labels=("low", "_unknown_", "_silence_"))
    return KeywordModel.load(tiny_model.save(tmp_path_factory.mktemp("closed"), metadata=metadata))


@pytest.mark.parametrize(
    ("heard", "label", "guess", "reason"),
    [
        ("low", "low", "low", None),
        ("mid", None, "_unknown_", Reason.UNKNOWN_WORD),
        ("high", None, "_silence_", Reason.SILENCE),
    ],
)
def test_a_class_that_is_no_word_is_never_the_answer(
    closed: KeywordModel, heard: str, label: str | None, guess: str, reason: Reason | None
) -> None:
    p = closed.classify(tone(heard), RATE)
    assert (p.label, p.guess, p.reason) == (label, guess, reason)
    assert p.uncertainty < p.threshold
    assert closed.classify(noise(), RATE).reason is Reason.UNCERTAIN


def test_in_a_long_recording_a_word_answers_before_what_is_surely_none(closed: KeywordModel) -> None:
    word = tone("low") + noise(amplitude=0.0003)  # less sure than the mid tone
    p = closed.classify(np.concatenate([tone("mid", 2.0), word, tone("mid", 2.0)]), RATE)
    surest = closed.classify(tone("mid", 2.0), RATE)
    assert (p.label, surest.guess) == ("low", "_unknown_")
    assert p.uncertainty > surest.uncertainty


@pytest.mark.parametrize("level", [0.0, 0.2, -1.0], ids=lambda dc: f"dc {dc}")
@pytest.mark.parametrize("seconds", [0.1, 1.0, 3.0])
def test_silence_and_a_constant_are_abstained_from_without_asking(
    model: KeywordModel, level: float, seconds: float
) -> None:
    p = model.classify(np.full(round(seconds * RATE), level, np.float32), RATE)
    assert (p.label, p.guess, p.reason) == (None, None, Reason.SILENCE)
    assert (p.vacuity, p.entropy) == (1.0, 1.0)
    assert p.probability == pytest.approx(1 / 3)
    assert (p.alpha > 0).all()


@pytest.mark.parametrize("samples", [400, 4_800, 15_999, 16_000, 16_001, 20_879])
def test_a_clip_of_one_frame_to_one_input_is_seen_in_one_pass(model: KeywordModel, samples: int) -> None:
    clip = tone("mid", samples / RATE)
    p = model.classify(clip, RATE)
    np.testing.assert_array_equal(p.alpha, model.run(pad(mfcc(clip))[np.newaxis]).alpha[0])
    assert (p.start, p.end) == (0.0, samples / RATE)


@pytest.mark.parametrize("samples", [1, 100, 399])
def test_a_clip_shorter_than_one_frame_is_refused(model: KeywordModel, samples: int) -> None:
    with pytest.raises(AudioError, match="too short; expected 400 samples at 16 kHz or more"):
        model.classify(tone("mid")[:samples], RATE)


def test_a_path_bytes_a_file_and_samples_are_the_same_clip(model: KeywordModel, tmp_path: Path) -> None:
    path = tmp_path / "mid.wav"
    soundfile.write(path, tone("mid"), RATE, subtype="FLOAT")
    content = path.read_bytes()
    answers = [model.classify(source).to_dict() for source in (path, str(path), content, io.BytesIO(content))]
    assert answers == [model.classify(tone("mid"), RATE).to_dict()] * 4


def test_a_clip_with_nan_is_refused(model: KeywordModel) -> None:
    with pytest.raises(AudioError, match="NaN"):
        model.classify(np.full(RATE, np.nan, np.float32), RATE)


def test_the_score_and_the_target_choose_the_threshold(model: KeywordModel) -> None:
    assert model.classify(noise(), RATE, target=0.99).threshold == 0.7
    assert model.classify(tone("low"), RATE, target=0.999).label is None
    by_vacuity = model.classify(tone("low"), RATE, score="vacuity")
    assert by_vacuity.uncertainty == by_vacuity.vacuity
    assert by_vacuity.label is None  # of a tone, the tiny model gives little evidence
    with pytest.raises(SettingError, match=r"entropy at 0.99 .* 0.999 .*; vacuity at 0.995 \(99.5 %\)"):
        model.classify(tone("low"), RATE, target=0.9)


@pytest.mark.parametrize("seconds", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("make", [lambda s: tone("mid", s), noise, lambda s: np.zeros(round(s * RATE), np.float32)])
def test_every_answer_is_plain_json(model: KeywordModel, make: Any, seconds: float) -> None:
    p = model.classify(make(seconds), RATE)
    values = json.loads(json.dumps(p.to_dict(), allow_nan=False))
    assert values == p.to_dict()
    assert values["abstained"] is (values["label"] is None) is (values["reason"] is not None)


# Long clips


@pytest.mark.parametrize("at", [0.0, 1.0, 6.96, 7.0, 9.0])
def test_a_word_in_a_long_clip_is_found_with_its_time(model: KeywordModel, at: float) -> None:
    clip = noise(10.0)
    clip[round(at * RATE) :][:RATE] = tone("mid")
    p = model.classify(clip, RATE)
    assert p.label == "mid"
    assert p.start == pytest.approx(at, abs=0.05)
    assert p.end - p.start == pytest.approx(1.0, abs=0.01)


def test_a_long_clip_without_a_word_is_abstained_from_with_the_best_guess(model: KeywordModel) -> None:
    p = model.classify(noise(5.0), RATE)
    assert (p.label, p.reason) == (None, Reason.UNCERTAIN)
    assert p.guess in TONES


def test_silence_around_a_word_does_not_outdo_it(model: KeywordModel) -> None:
    clip = np.zeros(5 * RATE, np.float32)
    clip[2 * RATE : 3 * RATE] = noise()
    p = model.classify(clip, RATE)
    assert p.reason is Reason.UNCERTAIN
    assert p.guess is not None


def test_the_last_samples_of_a_long_clip_are_heard(model: KeywordModel) -> None:
    clip = noise(2.05)
    clip[-RATE:] = tone("high")
    p = model.classify(clip, RATE)
    assert p.label == "high"
    assert p.end == pytest.approx(2.05, abs=0.1)


def test_a_long_clip_is_decided_on_by_the_mean_of_windows_in_a_row(model: KeywordModel) -> None:
    clip = noise(4.0)
    clip[2 * RATE : 3 * RATE] = tone("mid")
    p = model.classify(clip, RATE)
    around = [model.classify(clip[at : at + RATE], RATE) for at in range(30_400, 33_601, 1600)]
    mean = np.mean([evidence.probability(q.alpha) for q in around], axis=0)
    assert p.label == "mid"
    assert p.probability == pytest.approx(mean.max(), abs=0.02)
    assert p.probability < max(q.probability for q in around)


def test_one_window_that_is_sure_names_nothing_where_its_neighbours_are_not(model: KeywordModel) -> None:
    clip = noise(4.0)
    clip[2 * RATE : 2 * RATE + RATE // 5] = tone("mid", 0.2, 0.9)
    assert model.classify(clip[2 * RATE - 6400 : 3 * RATE - 6400], RATE).guess is not None
    assert model.classify(clip, RATE).label is None


def test_in_a_long_clip_the_threshold_of_streams_must_hold_too_where_there_is_one(tmp_path: Path) -> None:
    clip = noise(4.0)
    clip[2 * RATE : 3 * RATE] = tone("mid")
    settings = {"thresholds": {"entropy": 1e-6}, "smoothing": 0.5}
    metadata = replace(METADATA, stream={"settings": settings})
    strict = KeywordModel.load(tiny_model.save(tmp_path, metadata=metadata))
    p = strict.classify(clip, RATE)
    assert (p.label, p.guess, p.threshold) == (None, "mid", 1e-6)
    assert strict.classify(clip, RATE, target=0.99).label == "mid"
    assert strict.classify(clip[2 * RATE : 3 * RATE], RATE).label == "mid"


def test_a_looser_threshold_of_streams_does_not_loosen_that_of_clips(tmp_path: Path) -> None:
    settings = {"thresholds": {"entropy": 1.0}, "smoothing": 0.3}
    loose = KeywordModel.load(tiny_model.save(tmp_path, metadata=replace(METADATA, stream={"settings": settings})))
    p = loose.classify(noise(4.0), RATE)
    assert (p.label, p.reason, p.threshold) == (None, Reason.UNCERTAIN, 0.5)


def test_a_long_clip_of_which_it_is_not_sure_and_that_is_clipped_is_called_so(model: KeywordModel) -> None:
    clipped = np.pad(np.clip(noise(3.0, amplitude=5.0), -1, 1), RATE // 2)
    assert model.classify(clipped, RATE).reason is Reason.CLIPPED


def test_in_a_long_clip_clipping_is_the_reason_also_where_the_threshold_of_streams_withholds(tmp_path: Path) -> None:
    clip = noise(4.0)
    clip[2 * RATE : 3 * RATE] = np.clip(tone("low", amplitude=1.02), -1, 1)
    settings = {"thresholds": {"entropy": 1e-6}, "smoothing": 0.5}
    strict = KeywordModel.load(tiny_model.save(tmp_path, metadata=replace(METADATA, stream={"settings": settings})))
    assert strict.classify(clip[2 * RATE : 3 * RATE], RATE).label == "low"
    p = strict.classify(clip, RATE)
    assert (p.label, p.guess, p.reason) == (None, "low", Reason.CLIPPED)


def test_the_threshold_of_streams_must_hold_on_its_own_score_too(tmp_path: Path) -> None:
    clip = noise(4.0)
    clip[2 * RATE : 3 * RATE] = tone("mid")
    settings = {"thresholds": {"vacuity": 1e-6}, "smoothing": 0.5}
    strict = KeywordModel.load(tiny_model.save(tmp_path, metadata=replace(METADATA, stream={"settings": settings})))
    p = strict.classify(clip, RATE)
    assert (p.label, p.guess, p.reason, p.score, p.threshold) == (None, "mid", Reason.UNCERTAIN, "vacuity", 1e-6)
    assert p.start == pytest.approx(2.0, abs=0.1)  # the least uncertain by the score that was asked for
    assert strict.classify(clip, RATE, target=0.99).label == "mid"
    assert strict.classify(clip[2 * RATE : 3 * RATE], RATE).label == "mid"
    settings["thresholds"] = {"vacuity": 1.0}
    loose = KeywordModel.load(tiny_model.save(tmp_path, metadata=replace(METADATA, stream={"settings": settings})))
    p = loose.classify(clip, RATE)
    assert (p.label, p.score, p.threshold) == ("mid", "entropy", METADATA.threshold("entropy", 0.995).threshold)


@settings(max_examples=40, deadline=None)
@given(samples=st.integers(1, 60_000), sizes=st.lists(st.integers(0, 20_000), max_size=12))
def test_windows_are_those_of_the_whole_clip_however_it_is_read(samples: int, sizes: list[int]) -> None:
    clip, fe = noise(samples / RATE), FrontEnd()
    blocks: list[Any] = np.split(clip, np.minimum(np.cumsum(sizes), samples)) if sizes else [clip]
    windows = list(cut(iter(blocks), fe, 98))
    whole = mfcc(clip)
    assert bool(windows) == (len(whole) > 0)
    if windows and samples <= fe.max_samples:
        (only,) = windows
        np.testing.assert_allclose(only.frames, whole, atol=1e-6)
        return
    starts = [round(window.start * RATE / fe.hop) for window in windows]
    assert starts[:-1] == [10 * i for i in range(len(starts) - 1)]
    if windows:
        assert starts[-1] + 98 == len(whole)
        assert 0 < starts[-1] - starts[-2] <= 10
    for start, window in zip(starts, windows, strict=True):
        np.testing.assert_allclose(window.frames, whole[start : start + 98], atol=1e-6)
        heard = clip[start * fe.hop : start * fe.hop + 97 * fe.hop + fe.window]
        assert window.end == pytest.approx((start * fe.hop + len(heard)) / RATE)
        assert window.level == measure(heard)


def test_memory_does_not_grow_with_the_length() -> None:
    def peak(seconds: int) -> int:
        block = noise(10.0)
        tracemalloc.start()
        try:
            count = sum(1 for _ in cut((block for _ in range(seconds // 10)), FrontEnd(), 98))
            assert count > 9 * seconds
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(120) < 1.1 * peak(20)


def test_progress_is_told_up_to_the_end(model: KeywordModel) -> None:
    told: list[float] = []
    model.classify(noise(8.0), RATE, progress=told.append)
    assert told == sorted(told)
    assert len(told) > 2
    assert told[-1] == pytest.approx(8.0, abs=0.01)


# Batches


def test_a_batch_gives_what_each_clip_gives_alone(model: KeywordModel) -> None:
    clips = np.stack([tone("low"), noise(), np.zeros(RATE, np.float32), tone("high")] * 5)
    together = model.classify_batch(clips)
    for clip, p in zip(clips, together, strict=True):
        alone = model.classify(clip, RATE)
        np.testing.assert_allclose(p.alpha, alone.alpha, rtol=1e-4)
        assert (p.label, p.guess, p.reason, p.end) == (alone.label, alone.guess, alone.reason, alone.end)


def test_unusable_samples_in_a_batch_are_abstained_from_one_by_one(model: KeywordModel) -> None:
    clips = np.stack([tone("low")] * 5)
    clips[1, 5], clips[2, 7], clips[3] = np.nan, np.inf, 32_000.0
    assert [(p.label, p.reason) for p in model.classify_batch(clips)] == [
        ("low", None),
        (None, Reason.INVALID_AUDIO),
        (None, Reason.INVALID_AUDIO),
        (None, Reason.INVALID_AUDIO),
        ("low", None),
    ]


def test_no_clips_are_no_answers(model: KeywordModel) -> None:
    assert model.classify_batch(np.empty((0, RATE), np.float32)) == []


@pytest.mark.parametrize(
    "samples",
    [np.zeros(RATE, "f4"), np.zeros((2, 399), "f4"), np.zeros((2, 20_880), "f4"), np.zeros((2, RATE), "i2")],
    ids=["one dimension", "too short", "too long", "integers"],
)
def test_a_batch_of_another_shape_or_type_is_refused(model: KeywordModel, samples: Any) -> None:
    with pytest.raises(AudioError, match=r"expected floating point \[n, 400 to 20879\]"):
        model.classify_batch(samples)


# Threads and processes


@pytest.mark.parametrize("threads", [1, 2])
def test_eight_threads_share_one_model(tmp_path: Path, threads: int) -> None:
    shared = KeywordModel.load(tiny_model.save(tmp_path), threads=threads)
    clips = [tone("low"), noise(0.5), tone("high", 3.0), noise(2.0)] * 8
    expected = [shared.classify(clip, RATE).to_dict() for clip in clips]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda clip: shared.classify(clip, RATE).to_dict(), clips))
    assert answers == expected


def test_a_model_keeps_no_copy_of_its_file() -> None:
    size = KeywordModel.load("softmax").path.stat().st_size
    tracemalloc.start()
    try:
        kept = KeywordModel.load("softmax")
        assert tracemalloc.get_traced_memory()[0] < size / 4, kept
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", sorted({"spawn", "forkserver"} & set(multiprocessing.get_all_start_methods())))
def test_a_model_can_be_handed_to_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    tiny_model.save(tmp_path)
    monkeypatch.chdir(tmp_path)
    model = KeywordModel.load("./tiny.onnx", threads=2)
    monkeypatch.chdir("/")
    clips = np.stack([tone("mid"), tone("high")])
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        assert [p.label for p in pool.submit(model.classify_batch, clips).result(60)] == ["mid", "high"]


def test_a_pickled_model_is_refused_where_its_file_is_another_by_now(tmp_path: Path) -> None:
    path = tiny_model.save(tmp_path)
    pickled = pickle.dumps(KeywordModel.load(path))
    assert pickle.loads(pickled).labels == METADATA.labels
    tiny_model.save(tmp_path, metadata=replace(METADATA, labels=("a", "b", "c")))
    with pytest.raises(ModelError, match="another model than the one that was pickled"):
        pickle.loads(pickled)


@pytest.mark.parametrize("given", ["stream", Path("stream.onnx"), None])
def test_a_model_that_was_not_loaded_is_refused_at_once(given: Any) -> None:
    with pytest.raises(SettingError, match=r"expected KeywordModel\.load"):
        KeywordModel(given)


@pytest.mark.parametrize("threads", [1025, 10**30])
def test_more_threads_than_any_machine_has_are_refused(threads: int) -> None:
    with pytest.raises(SettingError, match="expected a whole number from 1 to 1024"):
        KeywordModel.load(threads=threads)


def test_clips_of_unequal_length_are_refused_as_audio(model: KeywordModel) -> None:
    with pytest.raises(AudioError, match="expected clips of equal length"):
        model.classify_batch([[0.0] * 16_000, [0.0] * 15_999])


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_a_matrix_is_the_clip_that_its_array_is(model: KeywordModel) -> None:
    clip = tone("mid")
    assert model.classify(np.asmatrix(clip).T, RATE).label == "mid"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("used", [True, False], ids=["used in the child", "unused in the child"])
def test_a_model_goes_on_working_after_a_fork(tmp_path: Path, threads: int, used: bool) -> None:
    program = f"""
    import os, sys
    import numpy as np
    from kws_edge import KeywordModel

    model = KeywordModel.load({str(tiny_model.save(tmp_path))!r}, threads={threads})
    features = np.random.default_rng(0).standard_normal((256, 64, 128)).astype(np.float32)
    before = model.run(features).alpha
    child = os.fork()
    if child == 0:
        sys.exit({used} and not np.array_equal(model.run(features).alpha, before))  # and not os._exit: nothing may hang
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "ORT_DISABLE_TELEMETRY")}
    environment["PYTHONPATH"] = str(ROOT)
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environment, timeout=120, check=True)


def test_metadata_that_are_no_text_are_refused(tmp_path: Path) -> None:
    sound = tiny_model.save(tmp_path).read_bytes()
    at = sound.index(b'"labels"') + 1
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(sound[:at] + b"\xe1" + sound[at + 1 :])
    with pytest.raises(ModelError, match=r"damaged\.onnx"):
        KeywordModel.load(damaged)


# Real recordings


@dataclass(frozen=True)
class Words:
    """Five test recordings of each word that the default model knows, and what it says of them."""

    model: KeywordModel
    clips: list[Any]
    words: list[str]
    labels: list[str | None]

    def changed(self, change: Callable[[Any], Any]) -> tuple[float, float]:
        """Of the words that were named: the share that keeps its name, and the share that gets another."""
        named = [(clip, label) for clip, label in zip(self.clips, self.labels, strict=True) if label]
        now = [(label, self.model.classify(change(clip).astype(np.float32), RATE).label) for clip, label in named]
        return float(np.mean([a == b for a, b in now])), float(np.mean([b not in (None, a) for a, b in now]))


@pytest.fixture(scope="module")
def words(data: Path) -> Words:
    if not shipped_models():
        pytest.skip("needs the default model: none is in the folder of models")
    model, folder = KeywordModel.load(), data / "speech_commands"
    listed = (folder / "testing_list.txt").read_text().split()
    names = [name for word in model.labels for name in [line for line in listed if line.startswith(f"{word}/")][:5]]
    clips = [load(folder / name).samples for name in names]
    labels = [model.classify(clip, RATE).label for clip in clips]
    return Words(model, clips, [name.split("/")[0] for name in names], labels)


def test_real_words_are_named_or_abstained_from(words: Words) -> None:
    right = [label == word for label, word in zip(words.labels, words.words, strict=True) if label]
    assert len(right) >= 0.7 * len(words.words)
    assert np.mean(right) >= 0.97


def test_a_real_word_is_found_in_a_long_recording(words: Words) -> None:
    clip = next(c for c, label, word in zip(words.clips, words.labels, words.words, strict=True) if label == word)
    recording = noise(10.0, amplitude=1e-4)
    recording[7 * RATE : 7 * RATE + len(clip)] += clip
    p = words.model.classify(recording, RATE)
    assert p.guess == words.model.classify(clip, RATE).label
    assert p.start == pytest.approx(7.0, abs=0.4)


@pytest.mark.parametrize(
    "change",
    [lambda x: x + 0.2, lambda x: 0.01 * x / np.abs(x).max(), lambda x: 0.89 * x / np.abs(x).max()],
    ids=["20 % DC offset", "-40 dBFS", "-1 dBFS"],
)
def test_an_offset_or_another_level_seldom_silences_a_word_and_hardly_ever_changes_it(
    words: Words, change: Callable[[Any], Any]
) -> None:
    kept, changed = words.changed(change)
    assert kept >= 0.75
    assert changed <= 0.02


def test_real_words_outside_the_vocabulary_are_mostly_abstained_from(words: Words, data: Path) -> None:
    clips = [
        path for word in ("bird", "marvin", "sheila") for path in sorted((data / "speech_commands" / word).iterdir())
    ]
    assert np.mean([words.model.classify(clip).abstained for clip in clips]) > 0.7


@pytest.mark.parametrize(
    ("guess", "probability", "named"),
    [("yes", 0.2, True), ("yes", 0.15, False), ("_unknown_", 0.9, False), (None, 0.05, False)],
)
def test_a_guess_is_worth_naming_where_it_is_a_word_that_stands_out(
    guess: str | None, probability: float, named: bool
) -> None:
    assert worth_naming(guess, probability, 20) is named
