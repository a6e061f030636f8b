"""Rooms and microphones: what they do to a sound is what their numbers say."""

import numpy as np
import pytest

from kws_edge.arrays import F32
from kws_export.data.rooms import impulse_response, in_room, microphones, overdrive, rooms, through_microphone

RATE = 16_000
RANGE = (0.1, 0.9)


def noise(n: int = RATE, seed: int = 0) -> F32:
    return (0.1 * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


def band_db(x: F32, low: float, high: float) -> float:
    """The level of a band, dB."""
    power = np.abs(np.fft.rfft(x)) ** 2
    frequency = np.fft.rfftfreq(len(x), 1 / RATE)
    return float(10 * np.log10(power[(frequency >= low) & (frequency < high)].sum()))


def decay_time(h: F32) -> float:
    """RT60 by Schroeder's backward integral, from its fall from -5 to -20 dB."""
    left = np.cumsum(h[::-1].astype(np.float64) ** 2)[::-1]
    level = 10 * np.log10(left / left[0])
    return 4 * float(np.argmax(level < -20) - np.argmax(level < -5)) / RATE


@pytest.mark.parametrize("reverberation", [0.3, 0.6, 0.9])
def test_a_room_rings_as_long_as_asked_for(reverberation: float) -> None:
    rng = np.random.default_rng(0)
    times = [decay_time(impulse_response(rng, reverberation)) for _ in range(40)]
    assert np.median(times) == pytest.approx(reverberation, rel=0.25)


def test_a_response_begins_with_the_direct_sound_and_has_unit_energy() -> None:
    for h in rooms(50, RANGE):
        assert (h.dtype, h.ndim) == (np.float32, 1)
        assert np.square(h).sum() == pytest.approx(1, rel=1e-4)
        assert np.abs(h[:2]).max() > 0


def test_rooms_are_the_same_in_every_run_and_differ_from_each_other() -> None:
    rooms.cache_clear()
    first = rooms(5, RANGE)
    rooms.cache_clear()
    for a, b in zip(first, rooms(5, RANGE), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len({h.tobytes() for h in first}) == 5


def test_a_sound_in_a_room_is_its_convolution_with_the_response() -> None:
    x, rng = noise(20_720), np.random.default_rng(3)
    y = in_room(x, rng, count=4, reverberation=RANGE, probability=1.0)
    assert (y.shape, y.dtype) == (x.shape, np.float32)
    expected = [np.convolve(x, h)[: len(x)] for h in rooms(4, RANGE)]
    assert min(np.abs(y - e).max() for e in expected) < 1e-5


@pytest.mark.parametrize("seconds", [1.455, 2.015])  # what a recipe shows with 3 and 10 windows
def test_what_a_room_leaves_after_the_end_is_not_heard_at_the_beginning(seconds: float) -> None:
    x = np.zeros(round(seconds * RATE), np.float32)
    x[-1600:] = noise(1600)
    y = in_room(x, np.random.default_rng(3), count=4, reverberation=(0.9, 0.9), probability=1.0)
    assert np.abs(y[:-1600]).max() < 1e-6


def test_a_room_keeps_the_level_of_a_sound_about_as_it_was() -> None:
    rng, x = np.random.default_rng(0), noise()
    levels = [20 * np.log10(in_room(x, rng, count=20, reverberation=RANGE, probability=1.0).std() / 0.1)]
    assert np.abs(levels).max() < 3


def test_microphones_begin_and_end_somewhere_and_some_are_telephones() -> None:
    x = noise(4 * RATE)
    telephones = 0
    for i in range(60):
        y = through_microphone(x, np.random.default_rng(i), count=60, probability=1.0)
        assert (y.shape, y.dtype) == (x.shape, np.float32)
        assert np.isfinite(y).all()
        speech = band_db(y, 500, 3000) - band_db(x, 500, 3000)
        assert abs(speech) < 12
        telephones += band_db(y, 4500, 8000) - band_db(x, 4500, 8000) < -20
    assert 3 <= telephones <= 30
    assert len(microphones(60)) == 60


def test_an_overdriven_sound_loses_its_peaks_and_nothing_else() -> None:
    x = noise()
    y = overdrive(x.copy(), np.random.default_rng(0), probability=1.0, most_db=12.0)
    limit = np.abs(y).max()
    assert limit < np.abs(x).max()
    np.testing.assert_array_equal(y, np.clip(x, -limit, limit))


def test_what_is_switched_off_changes_nothing_and_draws_nothing() -> None:
    x, rng = noise(), np.random.default_rng(0)
    state = rng.bit_generator.state
    assert in_room(x, rng, count=4, reverberation=RANGE, probability=0.0) is x
    assert through_microphone(x, rng, count=4, probability=0.0) is x
    assert overdrive(x, rng, probability=0.0, most_db=12.0) is x
    assert rng.bit_generator.state == state
