"""The compiled features of training are those of the device."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kws_edge.arrays import F32
from kws_edge.audio.load import load
from kws_edge.errors import AudioError
from kws_edge.model.features import FrontEnd, mfcc, pad
from kws_export.data import features
from kws_export.data.features import frames_of, window_features
from kws_export.kernels import compiled as kernels

FRONT_END = FrontEnd()


def on_the_device(samples: F32) -> F32:
    return pad(mfcc(samples, FRONT_END), FRONT_END)


def test_real_speech_gives_the_device_s_features(data: Path) -> None:
    clips = sorted((data / "speech_commands" / "seven").iterdir())
    assert len(clips) > 20
    for clip in clips:
        samples = load(clip).samples[:16_000]
        np.testing.assert_allclose(window_features(samples, FRONT_END), on_the_device(samples), atol=1e-4)


@given(arrays(np.float32, st.integers(400, FRONT_END.max_samples), elements=st.floats(-1, 1, width=32)))
@settings(deadline=None, max_examples=50)
def test_any_samples_of_any_length_give_the_device_s_features(samples: F32) -> None:
    np.testing.assert_allclose(window_features(samples, FRONT_END), on_the_device(samples), atol=1e-4)


@pytest.mark.parametrize("settings_", [{"window": 320}, {"n_mels": 40, "n_mfcc": 13}, {"f_min": 20.0, "f_max": 7600.0}])
def test_other_front_ends_of_the_same_fft_give_the_device_s_features(settings_: dict[str, float]) -> None:
    front_end = FrontEnd(**settings_)  # type: ignore[arg-type]
    samples = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)
    np.testing.assert_allclose(window_features(samples, front_end), pad(mfcc(samples, front_end), front_end), atol=1e-4)


@given(st.integers(0, 60_000), st.integers(1, 30_000))
@settings(deadline=None, max_examples=20)
def test_the_frames_of_a_long_sound_are_all_of_the_device_s_however_it_is_cut(n: int, block: int) -> None:
    samples = np.random.default_rng(n).normal(0, 0.1, n).astype(np.float32)
    found = list(frames_of((samples[i : i + block] for i in range(0, n, block)), FRONT_END))
    together = np.concatenate([np.empty((FRONT_END.n_mfcc, 0)), *found], axis=1)
    np.testing.assert_allclose(together.T, mfcc(samples, FRONT_END), atol=1e-4)


@pytest.mark.parametrize("n", [0, 399, FRONT_END.max_samples + 1])
def test_a_clip_without_a_frame_or_with_too_many_is_refused_as_on_the_device(n: int) -> None:
    with pytest.raises(AudioError, match="frames"):
        window_features(np.zeros(n, np.float32), FRONT_END)


def test_without_a_compiler_the_features_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = np.random.default_rng(1).normal(0, 0.1, 16_000).astype(np.float32)
    compiled = window_features(samples, FRONT_END)
    features._tables.cache_clear()
    monkeypatch.setattr(kernels, "library", lambda source: None)
    try:
        np.testing.assert_allclose(window_features(samples, FRONT_END), compiled, atol=1e-4)
    finally:
        features._tables.cache_clear()
