"""The front end: what it computes, that a stream gives what the whole clip gives, and what it refuses."""

import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import python_speech_features as psf
import scipy.fft
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from kws_edge.arrays import F64
from kws_edge.errors import AudioError, SettingError
from kws_edge.model.features import FrameMFCC, FrontEnd, MFCCStream, dct_matrix, mel_filterbank, mfcc, pad

FE = FrontEnd()
REFERENCE = {
    "samplerate": 16_000,
    "winlen": 0.025,
    "winstep": 0.01,
    "nfilt": 64,
    "nfft": 512,
    "lowfreq": 0,
    "highfreq": 8_000,
    "preemph": 0,
    "winfunc": np.hanning,
}
"""The front end's parameters in the reference implementation's terms."""


@pytest.fixture(scope="module")
def speech(data: Path) -> list[F64]:
    """One recording of every keyword and of read speech: [n] each, 16 kHz."""
    words = [folder for folder in sorted((data / "speech_commands").iterdir()) if folder.is_dir()]
    files = [min(word.iterdir()) for word in words if not word.name.startswith("_")]
    files += [min((data / "libri_speech").rglob("*.opus"))]
    return [soundfile.read(file)[0] for file in files]


def noise(samples: int, level: float = 0.1) -> F64:
    """White noise of the given standard deviation."""
    return np.random.default_rng(0).normal(0, level, samples)


def filter_energies(clip: F64) -> F64:
    """The reference's filter energies of all complete frames (it would pad one more)."""
    return psf.fbank(clip, **REFERENCE)[0][: FE.frame_count(len(clip))]


# What it computes


def test_filters_are_those_of_the_reference() -> None:
    expected = psf.get_filterbanks(nfilt=64, nfft=512, samplerate=16_000, lowfreq=0, highfreq=8_000).T
    np.testing.assert_allclose(mel_filterbank(FE), expected, atol=1e-12)


def test_transform_is_the_orthonormal_dct_ii() -> None:
    log_mel = noise(5 * 64).reshape(5, 64)
    expected = scipy.fft.dct(log_mel, type=2, norm="ortho", axis=1)[:, :20]
    np.testing.assert_allclose(log_mel @ dct_matrix(64, 20), expected, atol=1e-12)


def test_real_speech_gives_the_reference_coefficients(speech: list[F64]) -> None:
    compared = total = 0
    for clip in speech:
        # The reference replaces exact zeros alone, this front end everything under its floor: above it they agree.
        above_floor = (filter_energies(clip) > FE.log_floor).all(axis=1)
        expected = psf.mfcc(clip, **REFERENCE, numcep=64, ceplifter=0, appendEnergy=False)[: len(above_floor)]
        np.testing.assert_allclose(mfcc(clip)[above_floor], expected[above_floor], atol=1e-4, rtol=0)
        compared, total = compared + above_floor.sum(), total + len(above_floor)
    assert compared > 0.8 * total


def test_real_speech_gives_the_reference_coefficients_with_the_floor_applied_in_every_frame(speech: list[F64]) -> None:
    for clip in speech:
        log_mel = np.log(np.maximum(filter_energies(clip), FE.log_floor))
        np.testing.assert_allclose(mfcc(clip), scipy.fft.dct(log_mel, norm="ortho", axis=1), atol=1e-4, rtol=0)


def test_the_floor_leaves_real_recordings_alone(speech: list[F64]) -> None:
    log_mel = np.concatenate([mfcc(clip) for clip in speech]) @ dct_matrix(64, 64).T
    assert (log_mel < np.log(FE.log_floor) + 1e-3).mean() < 0.01


def test_the_floor_is_above_the_rounding_noise_of_16_bit_audio() -> None:
    rounding = np.random.default_rng(0).uniform(-0.5, 0.5, 160_000) / 2**15
    assert filter_energies(rounding)[:, :10].mean() < FE.log_floor  # the narrowest filters


@settings(deadline=None)
@given(frame=st.integers(0, 97))
def test_a_frame_depends_on_its_own_window_alone(frame: int) -> None:
    clip = noise(16_000)
    alone = mfcc(clip[frame * 160 : frame * 160 + 400])
    np.testing.assert_allclose(alone[0], mfcc(clip)[frame], atol=1e-4, rtol=1e-6)


@settings(deadline=None)
@given(samples=st.integers(0, 30_000))
def test_frame_count_is_the_number_of_frames(samples: int) -> None:
    assert len(mfcc(np.zeros(samples))) == FE.frame_count(samples)


def test_frames_that_are_cut_already_give_those_of_the_clip_whatever_was_before() -> None:
    clip, compute = noise(16_000), FrameMFCC(FE)
    frames = np.lib.stride_tricks.sliding_window_view(clip, 400)[::160]
    for n in (98, 1, 10, 0, 15):
        np.testing.assert_allclose(compute(frames[:n]), mfcc(clip)[:n], atol=1e-4, rtol=1e-6)


# A stream


def assert_stream_equals_clip(clip: F64, cuts: list[int]) -> None:
    stream = MFCCStream()
    streamed = np.concatenate([stream.push(chunk) for chunk in np.split(clip, cuts)])
    offline = mfcc(clip)
    assert streamed.shape == offline.shape
    assert (np.abs(streamed - offline) <= 1e-6 * np.maximum(1, np.abs(offline))).all()


@settings(deadline=None)
@given(samples=st.integers(0, 20_000), cuts=st.lists(st.integers(0, 20_000), max_size=40))
def test_streaming_equals_the_whole_clip_for_any_cuts(samples: int, cuts: list[int]) -> None:
    assert_stream_equals_clip(noise(samples), sorted(min(cut, samples) for cut in cuts))


@pytest.mark.parametrize("chunk", [1, 160, 1000, 1280, 4096, 16_001])
def test_streaming_equals_the_whole_clip_on_real_speech(speech: list[F64], chunk: int) -> None:
    clip = np.concatenate(speech[:3])
    assert_stream_equals_clip(clip, list(range(chunk, len(clip), chunk)))


def test_a_reset_stream_has_no_past() -> None:
    stream = MFCCStream()
    stream.push(noise(1_000))
    stream.reset()
    np.testing.assert_array_equal(stream.push(noise(16_000)), mfcc(noise(16_000)))


def test_a_stream_keeps_no_more_than_the_next_frame_needs() -> None:
    stream, minute = MFCCStream(), noise(960_000)
    stream.push(minute[:16_000])
    tracemalloc.start()
    stream.push(minute)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 2 * FE.window * minute.itemsize


# Difficult signals; a RuntimeWarning fails any test


def test_digital_silence_is_finite_and_flat() -> None:
    coefficients = mfcc(np.zeros(16_000, np.float32))
    np.testing.assert_allclose(coefficients[:, 0], np.sqrt(64) * np.log(FE.log_floor), rtol=1e-6)
    np.testing.assert_allclose(coefficients[:, 1:], 0, atol=1e-4)


def test_constant_dc_is_finite_and_the_same_in_every_frame() -> None:
    coefficients = mfcc(np.full(16_000, 0.5, np.float32))
    assert np.isfinite(coefficients).all()
    np.testing.assert_allclose(coefficients, np.broadcast_to(coefficients[0], (98, 64)), atol=1e-4)


def test_a_full_scale_square_wave_is_finite() -> None:
    square = np.where(np.arange(16_000) // 40 % 2, 1.0, -1.0)
    assert np.isfinite(mfcc(square)).all()


def test_hard_clipped_speech_is_finite(speech: list[F64]) -> None:
    for clip in speech:
        assert np.isfinite(mfcc(np.clip(100 * clip, -1, 1))).all()


# The network's input


@pytest.mark.parametrize("samples", [15_999, 16_000, 16_001])
def test_one_second_give_or_take_a_sample_has_the_same_input_shape(samples: int) -> None:
    network_input = pad(mfcc(noise(samples)))
    assert network_input.shape == (64, 128)
    assert network_input.dtype == np.float32


@pytest.mark.parametrize(("frames", "left"), [(1, 63), (97, 15), (98, 15), (127, 0), (128, 0)])
def test_padding_is_symmetric_with_the_odd_frame_on_the_right(frames: int, left: int) -> None:
    coefficients = np.ones((frames, 64), np.float32)
    filled = np.flatnonzero(pad(coefficients).all(axis=0))
    np.testing.assert_array_equal(filled, np.arange(left, left + frames))
    assert pad(coefficients).sum() == frames * 64


@pytest.mark.parametrize("frames", [0, 129])
def test_what_does_not_fit_the_network_is_refused(frames: int) -> None:
    with pytest.raises(AudioError, match=rf"{frames} frames; expected 1 to 128"):
        pad(np.zeros((frames, 64), np.float32))


def test_max_samples_is_the_longest_clip_that_fits() -> None:
    assert FE.frame_count(FE.max_samples) == FE.frames
    assert FE.frame_count(FE.max_samples + 1) == FE.frames + 1


@pytest.mark.parametrize("run", [mfcc, lambda samples: MFCCStream().push(samples)], ids=["clip", "stream"])
@pytest.mark.parametrize(
    ("samples", "message"),
    [(np.zeros((2, 16_000)), r"shape \(2, 16000\)"), (np.zeros(16_000, np.int16), "int16")],
    ids=["stereo", "integers"],
)
def test_samples_that_are_not_mono_floating_point_are_refused(run: Any, samples: Any, message: str) -> None:
    with pytest.raises(AudioError, match=message):
        run(samples)


# Settings


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"window": 513}, "window of 513 samples does not fit n_fft=512"),
        ({"window": 0}, "window of 0 samples"),
        ({"window": 400.0}, "window=400.0; expected int"),
        ({"hop": 0}, "hop of 0 samples"),
        ({"hop": 401}, "hop of 401 samples; expected 1 to the window's 400"),
        ({"hop": None}, "hop=None; expected int"),
        ({"n_mfcc": 0}, "n_mfcc=0; expected 1 to"),
        ({"n_mfcc": 65}, "n_mfcc=65; expected 1 to n_mels=64"),
        ({"f_min": -1.0}, "band -1.0-8000.0 Hz; expected 0 <="),
        ({"f_min": 8_000.0}, "band 8000.0-8000.0 Hz"),
        ({"f_max": 8_001.0}, "band 0.0-8001.0 Hz"),
        ({"f_max": float("nan")}, "band 0.0-nan Hz"),
        ({"f_max": "8000"}, "f_max='8000'; expected int or float"),
        ({"sample_rate": 8_000}, "<= 4000.0 Hz"),
        ({"log_floor": 0.0}, "log_floor=0.0; expected a number above 0, at most 1"),
        ({"log_floor": float("inf")}, "log_floor=inf; expected a number above 0, at most 1"),
        ({"frames": 0}, "frames=0; expected at least 1"),
        ({"frames": True}, "frames=True; expected int"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=re.escape(message)):
        FrontEnd(**setting)


def test_settings_survive_json() -> None:
    fe = FrontEnd(n_mfcc=40, hop=200)
    assert FrontEnd.from_dict(json.loads(json.dumps(fe.to_dict()))) == fe


@pytest.mark.parametrize("name", ["window", "log_floor"])
def test_a_missing_setting_is_refused_by_name(name: str) -> None:
    settings_ = FE.to_dict()
    del settings_[name]
    with pytest.raises(SettingError, match=f"missing .*{name}"):
        FrontEnd.from_dict(settings_)


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(SettingError, match=r"unknown .*preemph"):
        FrontEnd.from_dict(FE.to_dict() | {"preemph": 0.97})


@pytest.mark.parametrize(
    "setting",
    [{"n_fft": 2**40}, {"n_mels": 10**9}, {"log_floor": 10**400}, {"log_floor": 1e300}],
    ids=["n_fft", "n_mels", "log_floor beyond floats", "log_floor"],
)
def test_settings_that_no_machine_could_run_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        FrontEnd(**setting)


@pytest.mark.parametrize(
    ("setting", "filters"),
    [
        ({"n_mels": 80, "f_min": 125.0, "f_max": 7600.0}, "filter 5 of 80"),
        ({"n_mels": 128, "n_mfcc": 64}, "of 128"),
        ({"n_mels": 64, "n_fft": 400}, "of 64"),
    ],
)
def test_filters_in_which_no_bin_lies_are_refused_by_their_numbers(setting: dict[str, Any], filters: str) -> None:
    with pytest.raises(SettingError, match=filters):
        FrontEnd(**setting)
