"""Several channels become one: what is averaged, what is taken alone, and what is said about it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kws_edge.audio.channels import DownMix
from kws_edge.audio.level import SAMPLE_RATE, SILENCE_PEAK
from kws_edge.audio.load import load, read_blocks
from kws_edge.errors import AudioError, SettingError
from kws_edge.model.keyword_model import KeywordModel


def tone(frequency: float, amplitude: float = 0.3, seconds: float = 1.0) -> Any:
    t = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return (amplitude * np.sin(2 * np.pi * frequency * t)).astype(np.float32)


def noise(seed: int, amplitude: float = 0.1) -> Any:
    return (amplitude * np.random.default_rng(seed).standard_normal(SAMPLE_RATE)).astype(np.float32)


@pytest.mark.parametrize(
    ("second", "kept"),
    [(-1.0, 1), (-0.5, 1), (-2.0, 2)],
    ids=["opposite", "opposite and quieter", "opposite and louder"],
)
def test_of_channels_of_opposite_polarity_the_stronger_is_taken_with_a_warning(second: float, kept: int) -> None:
    channels = np.stack([tone(440), np.float32(second) * tone(440)], axis=1)
    clip = load(channels, SAMPLE_RATE)
    assert clip.samples == pytest.approx(channels[:, kept - 1], abs=1e-6)
    (warning,) = clip.warnings
    assert "cancel" in warning
    assert f"channel {kept}" in warning


def test_it_is_said_by_how_much_the_mix_is_quieter() -> None:
    (warning,) = load(np.stack([tone(440), -0.5 * tone(440)], axis=1), SAMPLE_RATE).warnings
    assert "12 dB quieter than channel 1" in warning  # the mean of 1 and -0.5 is a quarter


@pytest.mark.parametrize(("second", "kept"), [(0.7, 1.0), (1.5, 0.5)])
def test_a_channel_below_the_peak_of_silence_is_left_out(second: float, kept: float) -> None:
    channels = np.stack([tone(440), tone(700, second * SILENCE_PEAK)], axis=1)
    assert load(channels, SAMPLE_RATE).samples == pytest.approx(kept * tone(440), abs=1e-3)


def test_what_is_common_and_opposite_still_cancels_beside_a_little_noise() -> None:
    x, a, b = tone(440), noise(1, 0.01), noise(2, 0.01)
    assert load(np.stack([x + a, b - x], axis=1), SAMPLE_RATE).samples == pytest.approx(x + a, abs=1e-6)


@pytest.mark.parametrize(
    "pair",
    [
        (tone(440), tone(440)),
        (tone(440), 0.5 * tone(440)),
        (tone(440), noise(1)),
        (noise(1), noise(2)),
        (tone(440), tone(700)),
        (tone(440) + 0.3, tone(440) - 0.3),
        (tone(440) + 0.7, tone(440) - 0.7),
    ],
    ids=["equal", "softer", "noise beside it", "two noises", "two tones", "opposite offsets", "large ones"],
)
def test_channels_that_do_not_cancel_are_averaged_without_a_word(pair: tuple[Any, Any]) -> None:
    clip = load(np.stack(pair, axis=1), SAMPLE_RATE)
    assert clip.samples == pytest.approx((pair[0] + pair[1]) / 2, abs=1e-6)
    assert clip.warnings == ()


def test_a_file_whose_channels_cancel_is_the_same_in_blocks(caplog: pytest.LogCaptureFixture) -> None:
    channels = np.stack([tone(440), -tone(440)], axis=1)
    blocks = np.concatenate(list(read_blocks(channels, 0.1, SAMPLE_RATE)))
    assert np.array_equal(blocks, load(channels, SAMPLE_RATE).samples)
    assert "cancel" in caplog.text


def test_a_channel_is_picked_by_its_number_and_mix_averages_whatever_comes_of_it() -> None:
    channels = np.stack([tone(440), -tone(440), tone(880)], axis=1)
    for number in (1, 2, 3):
        assert np.array_equal(load(channels, SAMPLE_RATE, channel=number).samples, channels[:, number - 1])
    mixed = load(channels, SAMPLE_RATE, channel="mix")
    assert mixed.samples == pytest.approx(tone(880) / 3, abs=1e-6)
    assert mixed.warnings == ()


def test_a_channel_that_is_not_there_is_refused() -> None:
    with pytest.raises(AudioError, match="channel 3 of 2; expected 1 to 2"):
        load(np.zeros((400, 2)), SAMPLE_RATE, channel=3)


@pytest.mark.parametrize("channel", [0, -1, 1.0, True, "left", np.array([1, 2])])
def test_an_impossible_channel_is_refused(channel: Any) -> None:
    for attempt in (load, lambda x, rate, channel: read_blocks(x, 1.0, rate, channel=channel)):
        with pytest.raises(SettingError, match="expected a number from 1, or mix"):
            attempt(np.zeros(400), SAMPLE_RATE, channel=channel)


def test_a_stream_does_not_flutter_between_the_mix_and_one_channel() -> None:
    """At a correlation about where cancelling is noticed, blocks differ by chance; one decision stands for seconds."""
    rng, x = np.random.default_rng(0), DownMix(2, memory=2.0 * SAMPLE_RATE)
    decisions = []
    for _ in range(400):
        a, b = rng.standard_normal((2, 800)).astype(np.float32)
        frames = 0.1 * np.stack([a, np.float32(-0.5) * a + np.float32(0.75**0.5) * b], axis=1)
        x.add(frames)
        x.mix(frames)
        decisions.append(x.cancelled > 0)
    assert np.count_nonzero(np.diff(decisions)) <= 4


def test_in_a_stream_that_goes_on_opposite_offsets_are_no_cancelling() -> None:
    x, block = DownMix(2, memory=0.5 * SAMPLE_RATE), tone(440, seconds=0.1)
    frames = np.stack([block + np.float32(0.7), block - np.float32(0.7)], axis=1)
    for _ in range(100):
        x.add(frames)
        assert np.abs(x.mix(frames) - block).max() < 1e-6


def test_a_click_in_a_dead_channel_is_forgotten_in_time() -> None:
    x, frames = DownMix(2, memory=2.0 * SAMPLE_RATE), np.stack([tone(440, seconds=0.1), np.zeros(1600, np.float32)], 1)
    click = frames.copy()
    click[800, 1] = 0.9
    x.add(click)
    assert x.mix(frames) == pytest.approx(frames[:, 0] / 2)
    for _ in range(300):
        x.add(frames)
    assert x.mix(frames) == pytest.approx(frames[:, 0])


def test_a_word_in_opposite_channels_is_still_the_word(data: Path) -> None:
    model = KeywordModel.load("softmax")
    path = sorted((data / "speech_commands" / "yes").iterdir())[0]
    x = load(path).samples
    alone = model.classify(x, SAMPLE_RATE)
    both = model.classify(np.stack([x, -x], 1), SAMPLE_RATE)
    assert alone.guess == "yes"
    assert (both.label, both.probability) == (alone.label, pytest.approx(alone.probability, abs=1e-4))


def test_a_word_beside_a_louder_playback_is_heard_in_its_own_channel(data: Path) -> None:
    """As a six-channel array gives them, with what is played in the fifth."""
    model = KeywordModel.load("softmax")
    path = sorted((data / "speech_commands" / "yes").iterdir())[0]
    x = load(path).samples
    channels = np.stack([x, x, x, x, noise(3, 0.3)[: len(x)], np.zeros_like(x)], axis=1)
    alone = model.classify(x, SAMPLE_RATE)
    assert model.classify(channels, SAMPLE_RATE, channel=1).alpha == pytest.approx(alone.alpha, rel=1e-3)
    assert model.classify(channels, SAMPLE_RATE).alpha != pytest.approx(alone.alpha, rel=1e-3)
