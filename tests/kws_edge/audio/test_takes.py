"""Takes of a word: cut out at the pauses, trimmed, judged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load
from kws_edge.audio.takes import LONGEST, MARGIN, Take, TakeCutter


def room(seconds: float, level: float = -60.0, seed: int = 0) -> Any:
    noise = np.random.default_rng(seed).standard_normal(round(seconds * SAMPLE_RATE))
    return (10 ** (level / 20) * noise).astype(np.float32)


def said(seconds: float, amplitude: float = 0.3) -> Any:
    """As loud as speech, over the noise of a room: a tone that swells and falls."""
    t = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    swell = 0.4 + 0.6 * np.sin(np.pi * t / seconds)
    return (amplitude * swell * np.sin(2 * np.pi * 300 * t)).astype(np.float32) + room(seconds)


def cut(*parts: Any, block: int = 1600) -> list[Take]:
    stream, cutter, takes = np.concatenate(parts), TakeCutter(), []
    for i in range(0, len(stream), block):
        takes += cutter.push(stream[i : i + block])
    return takes + cutter.finish()


@pytest.mark.parametrize("block", [1, 77, 1600, 100_000])
def test_each_word_between_pauses_is_a_take_with_a_margin_however_the_stream_is_cut(block: int) -> None:
    takes = cut(room(1), said(0.6), room(1), said(0.8), room(0.7), block=block)
    assert [take.refused for take in takes] == [None, None]
    assert [take.start for take in takes] == pytest.approx([1 - MARGIN, 2.6 - MARGIN], abs=0.04)
    assert [len(take.samples) / SAMPLE_RATE for take in takes] == pytest.approx(
        [0.6 + 2 * MARGIN, 0.8 + 2 * MARGIN], abs=0.06
    )


@pytest.mark.parametrize("pause", [0.25, 0.4])
def test_a_short_pause_inside_a_phrase_does_not_part_it(pause: float) -> None:
    (take,) = cut(room(1), said(0.4), room(pause), said(0.4), room(1))
    assert take.refused is None
    assert len(take.samples) / SAMPLE_RATE == pytest.approx(0.8 + pause + 2 * MARGIN, abs=0.06)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (np.clip(said(0.6, 4.0), -1, 1), "clipped"),
        (said(0.1), "too short"),
        (said(0.16), "too short"),
        (said(LONGEST + 0.3), "without a pause"),
        (said(0.6, 0.005) - room(0.6), "too quiet"),
    ],
    ids=["clipped", "short", "a little short", "long", "quiet"],
)
def test_what_is_no_good_take_is_refused_with_the_reason(word: Any, reason: str) -> None:
    quiet_room = [room(s, -75.0, seed) for s, seed in ((1, 1), (1, 2))]
    takes = cut(quiet_room[0], word, quiet_room[1])
    assert takes
    assert reason in str(takes[0].refused)


@pytest.mark.parametrize(("samples", "refused"), [(40, True), (5, False)])
def test_a_take_of_which_more_than_a_thousandth_is_clipped_is_refused(samples: int, refused: bool) -> None:
    word = said(0.6)
    word[4000 : 4000 + samples] = 1.0
    (take,) = cut(room(1), word, room(1))  # 0.9 s, of which 14 samples are a thousandth
    assert ("clipped" in str(take.refused)) is refused


@pytest.mark.parametrize("seconds", [4, 5, 8])
def test_what_goes_on_without_a_pause_is_refused_once_and_the_next_word_is_a_take(seconds: int) -> None:
    long, word = cut(room(1), said(seconds), room(1), said(0.6), room(1))
    assert "without a pause" in str(long.refused)
    assert word.refused is None
    assert word.start == pytest.approx(2 + seconds - MARGIN, abs=0.05)


@pytest.mark.parametrize("samples", [80, 200])
def test_a_click_is_no_take(samples: int) -> None:
    click = np.zeros(samples, np.float32)
    click[::2] = 0.9
    assert cut(room(1), click, room(1)) == []


def test_a_word_that_the_stream_ends_in_is_a_take() -> None:
    assert len(cut(room(1), said(0.6))) == 1


def cut_with_loss(before: Any, lost: int, after: Any) -> list[Take]:
    cutter = TakeCutter()
    return [*cutter.push(before), *cutter.gap(lost), *cutter.push(after), *cutter.finish()]


@pytest.mark.parametrize("at", [0.1, 0.3, 0.55], ids=["its beginning", "its middle", "its end"])
def test_a_word_in_which_samples_are_lost_is_refused_and_not_joined(at: float) -> None:
    stream, middle = np.concatenate([room(1), said(0.6), room(1)]), round((1 + at) * SAMPLE_RATE)
    takes = cut_with_loss(stream[:middle], 2400, stream[middle + 2400 :])
    assert takes
    assert all("samples were lost" in str(take.refused) for take in takes)
    ends = [take.start + len(take.samples) / SAMPLE_RATE for take in takes]
    lost = middle / SAMPLE_RATE, middle / SAMPLE_RATE + 0.15
    assert all(end <= lost[0] or take.start >= lost[1] for take, end in zip(takes, ends, strict=True))


def test_a_loss_between_words_moves_the_clock_and_harms_neither() -> None:
    before, after = np.concatenate([room(1), said(0.6), room(1)]), np.concatenate([room(1), said(0.8), room(1)])
    takes = cut_with_loss(before[:-77], 5 * SAMPLE_RATE + 77, after)
    assert [take.refused for take in takes] == [None, None]
    assert [take.start for take in takes] == pytest.approx([1 - MARGIN, 2.6 + 5 + 1 - MARGIN], abs=0.04)


def test_silence_and_noise_hold_no_takes() -> None:
    assert cut(np.zeros(5 * SAMPLE_RATE, np.float32)) == cut(room(5, -30)) == []


def test_real_words_one_after_the_other_are_found_again(data: Path) -> None:
    files = sorted((data / "speech_commands" / "happy").iterdir())[:12]
    parts = [part for path in files for part in (load(path).samples, room(1.0, -62))]
    takes = cut(room(1.0, -62), *parts)
    assert 9 <= sum(take.refused is None for take in takes) <= 13
