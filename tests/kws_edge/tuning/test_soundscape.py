"""Composed streams: the words are where they are said to be, at the level that was asked for, a seed decides all."""

from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load
from kws_edge.errors import AudioError, SettingError
from kws_edge.tuning.soundscape import (
    FADE,
    ROOM_LEVEL,
    WORD_LEVEL,
    Word,
    compose,
    faded,
    joined,
    read_labels,
    speech_bounds,
)


def tone(seconds: float, amplitude: float = 0.3) -> F32:
    n = round(seconds * SAMPLE_RATE)
    return (amplitude * np.sin(2 * np.pi * 440 * np.arange(n) / SAMPLE_RATE)).astype(np.float32)


def clip(before: float, word: float, after: float, amplitude: float = 0.3) -> F32:
    """A tone between two silences, of so many seconds each."""
    return np.concatenate([tone(before, 0), tone(word, amplitude), tone(after, 0)])


def noise(seconds: float, level: float = 0.05, seed: int = 7) -> F32:
    rng = np.random.default_rng(seed)
    return (level * rng.standard_normal(round(seconds * SAMPLE_RATE))).astype(np.float32)


def stream(clips: list[tuple[str, F32]], **options: object) -> tuple[F32, list[Word]]:
    """The whole stream, and its words."""
    stretches = list(compose(clips, **{"seed": 1, **options}))  # type: ignore[arg-type]
    return np.concatenate([samples for samples, _ in stretches]), [word for _, word in stretches if word]


def rms(samples: F32) -> float:
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))


def part(samples: F32, start: float, end: float) -> F32:
    return samples[round(start * SAMPLE_RATE) : round(end * SAMPLE_RATE)]


# Where the words are


def test_the_samples_of_a_word_lie_at_its_time() -> None:
    samples, words = stream([("yes", clip(0.3, 0.4, 0.3)), ("no", clip(0.1, 0.2, 0.7))])
    assert [word.label for word in words] == ["yes", "no"]
    for word, length in zip(words, (0.4, 0.2), strict=True):
        assert word.end - word.start == pytest.approx(length, abs=0.021)
        assert rms(part(samples, word.start + 0.03, word.end - 0.03)) == pytest.approx(0.3 / np.sqrt(2), rel=0.01)
        assert rms(part(samples, word.start - 0.1, word.start - 0.01)) < 0.01
        assert rms(part(samples, word.end + 0.01, word.end + 0.1)) < 0.01


@given(st.integers(0, 2**32), st.floats(0, 2), st.floats(0, 2))
@settings(max_examples=30, deadline=None)
def test_pauses_are_as_long_as_allowed(seed: int, shortest: float, more: float) -> None:
    gap = (shortest, shortest + more)
    samples, words = stream([("a", tone(0.5))] * 4, seed=seed, gap=gap)
    starts = [0.0, *(word.start for word in words), len(samples) / SAMPLE_RATE]
    lengths = [after - before for before, after in pairwise(starts)]
    pauses = [lengths[0], *(length - 0.5 for length in lengths[1:])]
    assert all(gap[0] - 0.02 <= pause <= gap[1] + 0.02 for pause in pauses)


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=20, deadline=None)
def test_a_seed_gives_the_same_stream_again(seed: int, with_background: bool) -> None:
    background = [noise(0.7, seed=i) for i in range(3)] if with_background else None
    clips = [("a", clip(0.2, 0.3, 0.2)), ("b", clip(0.1, 0.3, 0.1))]
    first, words = stream(clips, seed=seed, background=background)
    again, same_words = stream(clips, seed=seed, background=background)
    other, other_words = stream(clips, seed=seed + 1, background=background)
    assert np.array_equal(first, again)
    assert words == same_words
    assert words != other_words
    assert len(other) != len(first) or not np.array_equal(other, first)


def test_the_background_changes_no_times() -> None:
    clips = [("a", clip(0.2, 0.3, 0.2))] * 3
    assert stream(clips)[1] == stream(clips, background=[noise(3)])[1]


# Levels


def test_without_a_background_words_keep_their_level_over_the_noise_of_a_room() -> None:
    samples, (word,) = stream([("a", tone(0.5, 0.01))])
    assert rms(part(samples, word.start + 0.02, word.end - 0.02)) == pytest.approx(0.01 / np.sqrt(2), rel=0.02)
    assert rms(part(samples, 0, word.start - 0.01)) == pytest.approx(ROOM_LEVEL, rel=0.05)


@pytest.mark.parametrize("snr", [20.0, 10.0, 0.0, -5.0])
@pytest.mark.parametrize("recorded", [0.9, 0.003])
def test_a_word_is_as_far_above_the_background_as_asked(snr: float, recorded: float) -> None:
    samples, (word,) = stream([("a", tone(1, recorded))], background=[noise(20, 0.2)], snr=snr)
    power = rms(part(samples, word.start + 0.05, word.end - 0.05)) ** 2
    behind = rms(part(samples, 0.05, word.start - 0.05)) ** 2
    assert 10 * np.log10((power - behind) / behind) == pytest.approx(snr, abs=0.4)
    assert np.sqrt(power - behind) == pytest.approx(WORD_LEVEL, rel=0.1)


def test_backgrounds_of_all_levels_are_made_equal() -> None:
    samples, _ = stream([("a", tone(0.01, 0))], background=[noise(5, 0.5), noise(5, 0.001)], gap=(5.0, 5.0), snr=10)
    levels = [rms(part(samples, second + 0.1, second + 0.9)) for second in (0, 3, 6, 9)]
    assert max(levels) < 1.1 * min(levels)


def test_silence_stays_silence() -> None:
    samples, words = stream([("a", tone(0.5, 0))], background=[tone(2, 0), np.full(16_000, 0.25, np.float32)])
    assert np.abs(samples).max() <= 0.25
    assert words[0].end - words[0].start == pytest.approx(0.5)


def test_recordings_are_faded_at_both_ends() -> None:
    (faded,) = joined([np.ones(1000, np.float32)])
    n = round(FADE * SAMPLE_RATE)
    assert faded[0] == faded[-1] == 0
    assert np.all(np.diff(faded[:n]) > 0)
    assert np.all(faded[n:-n] == 1)


@given(st.integers(1, 5))
@settings(deadline=None)
def test_the_shortest_recordings_survive_their_fades(n: int) -> None:
    (faded,) = joined([np.ones(n, np.float32)])
    assert faded.shape == (n,)


def test_backgrounds_are_decoded_when_they_are_reached() -> None:
    class Recordings(list[F32]):
        asked = 0

        def __getitem__(self, i):  # noqa: ANN001, ANN204
            Recordings.asked += 1
            return super().__getitem__(i)

    background = Recordings([noise(10, seed=i) for i in range(50)])
    list(islice(compose([("a", tone(1))] * 3, seed=1, background=background), 3))
    assert 1 <= Recordings.asked <= 2


@pytest.mark.parametrize("gap", [(-1.0, 1.0), (2.0, 1.0), (0.0, float("inf")), (float("nan"), 1.0)])
def test_an_impossible_pause_is_refused(gap: tuple[float, float]) -> None:
    with pytest.raises(SettingError, match="gap="):
        compose([], seed=1, gap=gap)


def test_a_background_of_nothing_is_refused() -> None:
    with pytest.raises(SettingError, match="no recordings"):
        compose([], seed=1, background=[])


# Where a word is in its clip


def test_the_bounds_of_a_word_are_found_in_noise() -> None:
    start, end = speech_bounds(clip(0.3, 0.4, 0.3) + noise(1, 0.02))
    assert start == pytest.approx(0.3 * SAMPLE_RATE, abs=320)
    assert end == pytest.approx(0.7 * SAMPLE_RATE, abs=320)


@given(st.integers(0, 3000), st.sampled_from([0.0, 1e-9, 0.1]))
@settings(deadline=None)
def test_bounds_are_within_the_clip(n: int, level: float) -> None:
    start, end = speech_bounds(noise(n / SAMPLE_RATE, level))
    assert 0 <= start <= end <= n
    assert start < end or n == 0


def test_real_words_are_where_most_of_their_energy_is(data: Path) -> None:
    lengths, shares = [], []
    for path in sorted((data / "speech_commands" / "stop").iterdir())[:40]:
        samples = load(path).samples
        start, end = speech_bounds(samples)
        shares.append(samples[start:end].var() * (end - start) / (samples.var() * len(samples)))
        lengths.append((end - start) / SAMPLE_RATE)
    assert np.median(shares) > 0.95
    assert 0.3 < np.median(lengths) < 0.6


# Label files


def test_a_label_track_is_read(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_text(
        "\ufeff# comment\n3.5\t4.0\tno\n1.25\t1.75\tyes\n\\\t300.0\t3000.0\n\n5\t5\tthe word\r\n", encoding="utf-8"
    )
    assert read_labels(file) == [Word("yes", 1.25, 1.75), Word("no", 3.5, 4.0), Word("the word", 5, 5)]


@pytest.mark.parametrize(
    "line",
    [
        "1.0\t2.0", "1.0 2.0 yes", "a\tb\tyes", "2\t1\tyes", "-1\t1\tyes", "nan\t1\tyes", "1\tinf\tyes",
        "1\t1e308\tyes", "1\t2\tyes\x1b[2J", "1" * 99_999, "1\t2\t" + "\u202e" * 9999,
    ],
)  # fmt: skip
def test_a_line_that_is_no_label_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "labels.txt"
    file.write_text(f"0\t1\tyes\n{line}\n")
    with pytest.raises(AudioError, match=r"labels.txt, line 2: .*expected start, end and word") as refused:
        read_labels(file)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"\xff\xfe\x00"])
def test_a_file_without_labels_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "labels.txt").write_bytes(content)
    with pytest.raises(AudioError, match="expected lines of start, end and word"):
        read_labels(tmp_path / "labels.txt")


def test_a_missing_label_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match=r"absent.txt"):
        read_labels(tmp_path / "absent.txt")


@pytest.mark.parametrize("n", [1, 100, 319, 320, 1600, 1601, 1759, 1760, 1919, 1920, 1921, 4799, 4800, 4801])
def test_a_recording_in_blocks_is_faded_as_it_is_whole(n: int) -> None:
    samples = noise(n / SAMPLE_RATE)
    (whole,) = joined([samples])
    blocks = [samples[i : i + 1600] for i in range(0, n, 1600)]
    np.testing.assert_array_equal(np.concatenate(list(faded(blocks))), whole)
