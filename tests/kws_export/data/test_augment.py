"""Augmentation: each change is what its setting says, and nothing more."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kws_edge.errors import SettingError
from kws_export.data.augment import (
    WORD_MARGIN,
    Augmentation,
    at_speed,
    in_stream,
    mfcc_transforms,
    sample_transforms,
    scale_to_snr,
    transformed,
)

RATE = 16_000
OFF: dict[str, Any] = {
    "shift_ms": 0,
    "white_noise_db": (-200, -200),
    "gain_probability": 0,
    "dc_probability": 0,
    "background_probability": 0,
    "pad_probability": 0,
    "time_masks": 0,
    "band_masks": 0,
    "cutouts": 0,
}


def only(**settings: Any) -> Augmentation:
    return Augmentation(**{**OFF, **settings})


def tone(n: int = RATE, amplitude: float = 0.1) -> np.ndarray:
    return (amplitude * np.sin(2 * np.pi * 440 * np.arange(n) / RATE)).astype(np.float32)


def augmented(x: np.ndarray, settings: Augmentation, seed: int = 0, noises: Any = (), length: int = RATE) -> np.ndarray:
    return transformed(x[:length], sample_transforms(settings, noises), np.random.default_rng(seed))


def masked_mfcc(x: np.ndarray, settings: Augmentation, rng: np.random.Generator) -> np.ndarray:
    return transformed(x, mfcc_transforms(settings), rng)


def decibels(x: np.ndarray) -> float:
    return 20 * np.log10(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


# --- the samples


def test_with_everything_off_a_clip_stays_as_it_is() -> None:
    x = tone()
    np.testing.assert_allclose(augmented(x, only()), x, atol=1e-8)


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.25])
def test_a_faster_clip_is_shorter_and_higher_by_the_same_factor(factor: float) -> None:
    y = at_speed(tone(8000), factor, RATE)
    assert (y.dtype, len(y)) == (np.float32, int(8000 / factor))
    expected = 0.1 * np.sin(2 * np.pi * 440 * factor * np.arange(len(y)) / RATE)
    np.testing.assert_allclose(y[:-1], expected[:-1], atol=0.1 * (np.pi * 440 / RATE) ** 2)  # of linear interpolation


def test_a_slower_clip_is_cut_where_it_would_be_too_long() -> None:
    y = at_speed(tone(), 0.8, RATE)
    assert len(y) == RATE
    np.testing.assert_array_equal(y, at_speed(tone(), 0.8, 2 * RATE)[:RATE])


def test_a_shift_moves_the_clip_at_most_so_far_either_way_and_brings_zeros_in() -> None:
    x = np.zeros(RATE, np.float32)
    x[[0, 8000, -1]] = 0.5
    moves = []
    for seed in range(200):
        y = augmented(x, only(shift_ms=5), seed)
        by = int(np.argmax(np.abs(y[4000:12_000]))) - 4000
        moves.append(by)
        expected = np.zeros_like(x)
        for at in (0, 8000, RATE - 1):
            if 0 <= at + by < RATE:
                expected[at + by] = 0.5
        np.testing.assert_allclose(y, expected, atol=1e-8)
    assert -80 <= min(moves) < -60
    assert 60 < max(moves) <= 80


def test_a_shift_beyond_the_clip_leaves_silence() -> None:
    y = [augmented(tone(100), only(shift_ms=5000), seed, length=100) for seed in range(20)]
    assert np.mean([np.abs(clip).max() < 1e-8 for clip in y]) > 0.9


@pytest.mark.parametrize("level", [-90.0, -46.0, -20.0])
def test_white_noise_has_the_level_asked_for(level: float) -> None:
    y = augmented(np.zeros(RATE, np.float32), only(white_noise_db=(level, level)))
    assert decibels(y) == pytest.approx(level, abs=0.2)


def test_white_noise_is_white_and_differs_from_clip_to_clip() -> None:
    a, b = (augmented(np.zeros(RATE, np.float32), only(white_noise_db=(-20, -20)), seed) for seed in (1, 2))
    spectrum = np.abs(np.fft.rfft(a)[1:-1].reshape(19, 421)) ** 2  # means of 421 bins: each ±5 %
    assert spectrum.mean(1).max() < 1.4 * spectrum.mean(1).min()
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.05


def test_a_gain_changes_the_level_by_so_many_decibels() -> None:
    x = tone()
    y = augmented(x, only(gain_db=(-20, -20), gain_probability=1))
    np.testing.assert_allclose(y, 0.1 * x, atol=1e-7)


def test_an_offset_is_constant_and_within_its_range() -> None:
    offsets = [augmented(tone(), only(dc=0.3, dc_probability=1), seed) - tone() for seed in range(50)]
    assert all(np.ptp(offset) < 1e-6 for offset in offsets)
    assert -0.3 <= min(o.mean() for o in offsets) < -0.2
    assert 0.2 < max(o.mean() for o in offsets) <= 0.3


def test_background_noise_comes_at_the_ratio_asked_for() -> None:
    noise = np.random.default_rng(1).standard_normal(3 * RATE).astype(np.float32)
    x = tone()
    added = augmented(x, only(background_probability=1, background_snr_db=(10, 10)), noises=[noise]) - x
    assert decibels(x) - decibels(added) == pytest.approx(10, abs=0.01)
    # It is a stretch of the recording, no other noise.
    unit = added / np.linalg.norm(added)
    at = int(np.argmax(np.correlate(noise, unit)))
    assert noise[at : at + RATE] @ unit / np.linalg.norm(noise[at : at + RATE]) == pytest.approx(1, abs=1e-3)


def test_a_probability_is_how_often_it_happens() -> None:
    x = tone()
    changed = [np.abs(augmented(x, only(gain_probability=0.3), seed) - x).max() > 1e-6 for seed in range(400)]
    assert np.mean(changed) == pytest.approx(0.3, abs=0.07)  # three standard errors


def test_a_short_clip_keeps_its_length_or_lies_anywhere_in_a_second_of_silence() -> None:
    x = np.zeros(RATE, np.float32)
    x[:6000] = 0.5
    assert augmented(x, only(pad_probability=0), length=6000).shape == (6000,)
    starts = []
    for seed in range(100):
        y = augmented(x, only(pad_probability=1), seed, length=6000)
        starts.append(int(np.argmax(y > 0.25)))
        assert y.shape == (RATE,)
        assert np.count_nonzero(y > 0.25) == 6000
    assert min(starts) < 1000
    assert max(starts) > 9000


@given(seed=st.integers(0, 2**32), length=st.integers(1, RATE), amplitude=st.floats(0, 1))
def test_samples_stay_float32_within_full_scale_and_the_input_as_it_was(
    seed: int, length: int, amplitude: float
) -> None:
    x = tone(amplitude=amplitude)
    x[length:] = 0
    before = x.copy()
    loud = Augmentation(gain_db=(0, 40), gain_probability=0.5, dc=2, dc_probability=0.5, background_probability=0.5)
    y = augmented(x, loud, seed, [tone(2 * RATE)], length)
    assert y.dtype == np.float32
    assert len(y) in {length, RATE}
    assert np.abs(y).max() <= 1
    np.testing.assert_array_equal(x, before)


def test_the_generator_alone_decides() -> None:
    x, noises = tone(), [tone(2 * RATE)]
    a, b, c = (augmented(x, Augmentation(), seed, noises) for seed in (3, 3, 4))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 1e-6


@pytest.mark.parametrize("snr", [-5.0, 0.0, 20.0])
def test_scale_to_snr_sets_the_ratio_of_powers(snr: float) -> None:
    noise = np.random.default_rng(0).standard_normal(RATE).astype(np.float32)
    scaled = scale_to_snr(noise, tone(), snr)
    assert 10 * np.log10(np.mean(tone() ** 2) / np.mean(scaled**2)) == pytest.approx(snr, abs=1e-3)


def test_silence_as_noise_or_as_speech_is_no_division_by_zero() -> None:
    silence = np.zeros(RATE, np.float32)
    assert not scale_to_snr(silence, tone(), 10).any()
    assert not scale_to_snr(tone(), silence, 10).any()


# --- the features


def spans(masked: np.ndarray) -> int:
    """How many stretches of True a boolean array has."""
    return int(np.count_nonzero(np.diff(np.concatenate([[False], masked])) & masked))


@given(seed=st.integers(0, 2**32))
def test_time_masks_zero_whole_frames_in_few_narrow_stretches(seed: int) -> None:
    y = masked_mfcc(np.ones((64, 128), np.float32), only(time_masks=2, time_width=25), np.random.default_rng(seed))
    masked = (y == 0).all(0)
    assert ((y == 0).any(0) == masked).all()
    assert masked.sum() <= 50
    assert spans(masked) <= 2


@given(seed=st.integers(0, 2**32))
def test_band_masks_zero_whole_coefficients_in_few_narrow_stretches(seed: int) -> None:
    y = masked_mfcc(np.ones((64, 128), np.float32), only(band_masks=2, band_width=15), np.random.default_rng(seed))
    masked = (y == 0).all(1)
    assert ((y == 0).any(1) == masked).all()
    assert masked.sum() <= 30
    assert spans(masked) <= 2


@given(seed=st.integers(0, 2**32))
def test_a_cutout_is_one_rectangle_of_at_most_the_masks_widths(seed: int) -> None:
    y = masked_mfcc(np.ones((64, 128), np.float32), only(cutouts=1), np.random.default_rng(seed))
    rows, columns = (y == 0).any(1), (y == 0).any(0)
    np.testing.assert_array_equal(y == 0, np.outer(rows, columns))
    assert rows.sum() <= 15
    assert columns.sum() <= 25
    assert spans(rows) <= 1
    assert spans(columns) <= 1


def test_masks_reach_every_width_and_both_edges() -> None:
    settings = only(time_masks=1, time_width=3)
    rng = np.random.default_rng(0)
    masked = [masked_mfcc(np.ones((1, 6), np.float32), settings, rng)[0] == 0 for _ in range(300)]
    assert {int(m.sum()) for m in masked} == {0, 1, 2, 3}
    assert any(m[0] for m in masked)
    assert any(m[-1] for m in masked)


def test_without_masks_the_features_stay() -> None:
    x = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    y = masked_mfcc(x.copy(), only(), np.random.default_rng(0))
    np.testing.assert_array_equal(y, x)


# --- a word as a stream shows it


def burst(start: int, end: int, n: int = RATE) -> np.ndarray:
    clip = np.zeros(n, np.float32)
    clip[start:end] = np.random.default_rng(3).uniform(0.2, 0.4, end - start) * (-1) ** np.arange(end - start)
    return clip


@given(
    seed=st.integers(0, 2**32 - 1),
    start=st.integers(0, 11_000),
    length=st.integers(1_600, 12_000),
    surrounded=st.booleans(),
)
def test_a_word_lies_whole_in_the_streams_window(seed: int, start: int, length: int, surrounded: bool) -> None:
    end = min(RATE, start + length)
    clip, others = burst(start, end), np.full(20_720, 1e-3, np.float32)
    before = clip.copy()
    window = in_stream(clip, 20_720, np.random.default_rng(seed), others if surrounded else None)
    assert window.shape == (20_720,)
    loud = np.flatnonzero(np.abs(window) > 0.1)
    np.testing.assert_array_equal(window[loud[0] : loud[0] + end - start], clip[start:end])
    assert len(loud) == end - start
    np.testing.assert_array_equal(clip, before)
    assert np.all(others == np.float32(1e-3))


def test_a_word_in_a_stream_may_be_anywhere_but_at_the_very_edge() -> None:
    clip = burst(6_000, 10_000)
    starts = [int(np.argmax(np.abs(in_stream(clip, 20_720, np.random.default_rng(seed))) > 0.1)) for seed in range(300)]
    assert WORD_MARGIN <= min(starts) + 160 < WORD_MARGIN + 600
    assert 20_720 - 4_000 - WORD_MARGIN - 600 < max(starts) <= 20_720 - 4_000 - WORD_MARGIN + 160


def test_a_streams_window_shows_the_margins_that_are_asked_for() -> None:
    clip = np.zeros(RATE, np.float32)
    clip[4000:9000] = np.random.default_rng(0).uniform(-0.5, 0.5, 5000)
    places = []
    for seed in range(200):
        x = in_stream(clip, 20_720, np.random.default_rng(seed), margins=(1600, 4000))
        loud = np.flatnonzero(np.abs(x) > 0.01)
        places.append((loud[0], len(x) - loud[-1]))
    before, after = np.array(places).T
    assert 1300 <= before.min() < 2200
    assert 3700 <= after.min() < 4600


def test_coding_noise_is_largest_in_the_first_coefficient_and_within_what_is_asked_for() -> None:
    mfcc = np.zeros((64, 128), np.float32)
    deviations = []
    for seed in range(30):
        y = masked_mfcc(mfcc, only(coding_noise=0.8), np.random.default_rng(seed))
        deviations.append(y.std(axis=1))
    first, last = np.mean(deviations, axis=0)[[0, -1]]
    assert max(d[0] for d in deviations) < 0.8 * 1.3
    assert last == pytest.approx(first / 3, rel=0.1)


def test_neighbours_reach_up_to_the_margin_around_the_word() -> None:
    clip, others = burst(6_000, 10_000), np.full(20_720, 1e-3, np.float32)
    window = in_stream(clip, 20_720, np.random.default_rng(1), others)
    silent = np.count_nonzero(window == 0)
    assert silent == pytest.approx(2 * WORD_MARGIN, abs=320)
    assert np.count_nonzero(window == np.float32(1e-3)) == pytest.approx(20_720 - 4_000 - 2 * WORD_MARGIN, abs=320)


# --- the settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"white_noise_db": (-46, -90)}, r"white_noise_db=\(-46, -90\); expected two numbers, the lower first"),
        ({"gain_db": (1, 2, 3)}, "gain_db"),
        ({"background_snr_db": (3,)}, "background_snr_db"),
        ({"gain_probability": 1.5}, "gain_probability=1.5; expected 0 to 1"),
        ({"pad_probability": -0.1}, "pad_probability"),
        ({"shift_ms": -1}, "shift_ms=-1; expected 0 to 10000"),
        ({"cutouts": -1}, "cutouts"),
        ({"band_width": -1}, "band_width"),
        ({"shift_ms": 1e30}, "shift_ms=1e\\+30; expected 0 to 10000"),
        ({"rooms": 0}, "rooms=0; expected 1 to 10000"),
        ({"microphones": -3}, "microphones=-3"),
        ({"overdrive_db": -5.0}, "overdrive_db"),
        ({"dc": 1e300}, "dc=1e\\+300"),
        ({"coding_noise": 1e300}, "coding_noise"),
        ({"reverberation": (0, 0.9)}, r"reverberation=\(0, 0.9\); expected from 0.05 to 10"),
        ({"vocal_tract": (-1, 1)}, "vocal_tract"),
        ({"stream_margin_ms": (80, -80)}, "stream_margin_ms"),
        ({"white_noise_db": (-90, 1e5)}, "white_noise_db"),
        ({"gain_db": (-1e5, 6)}, "gain_db"),
        ({"background_snr_db": (-1e5, 30)}, "background_snr_db"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Augmentation(**settings)


def test_a_vocal_tract_moves_the_formants_by_its_factor() -> None:
    from kws_edge.model.features import FrontEnd, dct_matrix
    from kws_export.data.augment import change_vocal_tract

    fe = FrontEnd()
    mel = np.linspace(0, 2595 * np.log10(1 + fe.f_max / 700), fe.n_mels + 2)[1:-1]
    hertz = 700 * (10 ** (mel / 2595) - 1)
    dct = dct_matrix(fe.n_mels, fe.n_mfcc)
    formant = np.exp(-(((hertz - 1500) / 300) ** 2))[:, None] * np.ones((1, 5))
    moved = dct @ change_vocal_tract((dct.T @ formant).astype(np.float32), np.random.default_rng(0), factor=(1.2, 1.2))
    assert hertz[moved[:, 0].argmax()] == pytest.approx(1800, abs=80)
