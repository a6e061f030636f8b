"""Windows without a word: each kind is what its name says, and nothing that was held out is heard."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from kws_edge.errors import AudioError, SettingError
from kws_edge.tuning.soundscape import Word
from kws_export.data.negatives import CLEARANCE, JITTER, NegativeMix, Negatives, between, load_recordings
from kws_export.data.speech_commands import index, split_of
from kws_export.data.splits import ArrayDataset

RATE = 16_000
START, END = 4000, 10_000
ONLY = {"partial": 0.0, "reversed": 0.0, "spliced": 0.0, "noise": 0.0, "other": 0.0, "hard": 0.0}


def words() -> ArrayDataset:
    """Two clips with a burst in the middle, all of whose samples differ, so that a piece of it can be found again."""
    samples = np.zeros((2, RATE), np.int16)
    samples[:, START:END] = np.random.default_rng(0).integers(5000, 30_000, (2, END - START))
    samples[:, START + 1 : END : 2] *= -1
    return ArrayDataset(samples, np.full(2, RATE, np.int32), np.array([0, 1]), ["a/0.wav", "b/0.wav"])


WORDS = words()
CLIPS = WORDS.samples / np.float32(32768)
NOISE = np.random.default_rng(1).uniform(-0.5, 0.5, 3 * RATE).astype(np.float32)
SPEECH = np.arange(1, 2 * RATE + 1, dtype=np.int16)


def drawn(kind: str, n: int = 60, noises: Any = (NOISE,), others: Any = (SPEECH,), **mix: float) -> list[np.ndarray]:
    negatives = Negatives(WORDS, noises, others, NegativeMix(share=0.3, **{**ONLY, kind: 1.0, **mix}))
    rng = np.random.default_rng(0)
    windows = [negatives.draw(rng) for _ in range(n)]
    assert all(w.shape == (RATE,) and w.dtype == np.float32 for w in windows)
    return windows


# --- the kinds


def test_a_partial_word_touches_the_edge_and_shows_at_most_its_part() -> None:
    entering, leaving, shown = 0, 0, []
    for window in drawn("partial", n=100, most_visible=0.45):
        loud = np.flatnonzero(np.abs(window) > 0.1)
        shown.append(len(loud) / (END - START))
        piece = window[loud[0] : loud[-1] + 1]
        if loud[-1] == RATE - 1:  # the word's beginning, at the window's end
            entering += 1
            assert any(np.array_equal(clip[START : START + len(piece)], piece) for clip in CLIPS)
        else:  # its end, at the window's beginning
            leaving += 1
            assert loud[0] == 0
            assert any(np.array_equal(clip[END - len(piece) : END], piece) for clip in CLIPS)
    assert entering > 30
    assert leaving > 30
    assert max(shown) <= 0.45 + 0.05  # bounds leave 2 % of the energy out at each end
    assert max(shown) > 0.4
    assert min(shown) < 0.15


def test_a_reversed_word_is_a_clip_played_backwards() -> None:
    for window in drawn("reversed", n=10):
        assert any(np.array_equal(clip[::-1], window) for clip in CLIPS)


def test_a_splice_is_the_second_half_of_a_word_and_then_the_first_of_another() -> None:
    middle = (START + END) // 2

    def begins(piece: np.ndarray) -> list[int]:
        """Where in the clips it comes from."""
        return [
            at for clip in CLIPS for at in np.flatnonzero(clip == piece[0]) if np.array_equal(clip[at:][:1000], piece)
        ]

    for window in drawn("spliced", n=20):
        loud = np.flatnonzero(window)
        splice = window[loud[0] : loud[-1] + 1]
        assert len(splice) == pytest.approx(END - START, abs=400)  # bounds are those of frames of 10 ms
        assert begins(splice[:1000]) == [pytest.approx(middle, abs=200)]
        assert begins(splice[-1000:]) == [pytest.approx(middle - 1000, abs=200)]


@pytest.mark.parametrize("kind", ["partial", "reversed", "spliced", "noise", "other"])
def test_a_window_is_as_long_as_asked_for(kind: str) -> None:
    negatives = Negatives(WORDS, [NOISE], [SPEECH], NegativeMix(share=0.3, **{**ONLY, kind: 1.0}))
    rng = np.random.default_rng(0)
    for _ in range(20):
        window = negatives.draw(rng, 20_720)
        assert window.shape == (20_720,)
        if kind == "partial":
            loud = np.flatnonzero(np.abs(window) > 0.1)
            assert loud[0] == 0 or loud[-1] == 20_719


def test_noise_is_a_second_of_the_background_at_some_level_or_silence() -> None:
    windows = drawn("noise", n=100)
    silent = [w for w in windows if not w.any()]
    assert 10 < len(silent) < 40  # a quarter
    gains = []
    for window in windows:
        if window.any():
            at = int(np.argmax(np.correlate(NOISE[: -RATE + 400], window[:400])))
            gain = window @ window / (NOISE[at : at + RATE] @ window)
            np.testing.assert_allclose(window, gain * NOISE[at : at + RATE], atol=1e-6)
            gains.append(20 * np.log10(gain))
    assert -30 <= min(gains) < -20
    assert 0 < max(gains) <= 6


def test_other_is_a_second_of_a_recording_anywhere_in_it() -> None:
    starts = []
    for window in drawn("other"):
        first = round(float(window[0]) * 32768)
        np.testing.assert_array_equal(window * 32768, np.arange(first, first + RATE))
        starts.append(first)
    assert min(starts) < 2000
    assert max(starts) > 14_000


def test_a_recording_under_a_second_lies_anywhere_in_silence() -> None:
    short = np.full(1000, 2000, np.int16)
    starts = []
    for window in drawn("other", others=[short]):
        assert np.count_nonzero(window) == 1000
        starts.append(int(np.argmax(window > 0)))
    assert min(starts) < 1500
    assert max(starts) > 13_500


def test_a_hard_window_is_where_it_was_found_give_or_take_the_jitter() -> None:
    negatives = Negatives(WORDS, [NOISE], [SPEECH], NegativeMix(share=0.3, **{**ONLY, "hard": 1.0}))
    negatives.hard = [(0, 6000)]
    rng = np.random.default_rng(0)
    starts = [round(float(negatives.draw(rng)[0] * 32768)) - 1 for _ in range(50)]
    assert max(abs(start - 6000) for start in starts) <= JITTER
    assert len(set(starts)) > 20


def test_without_hard_windows_any_of_the_recordings_is_drawn() -> None:
    starts = {round(float(window[0] * 32768)) - 1 for window in drawn("hard")}
    assert len(starts) > 20


def test_a_longer_recording_is_drawn_more_often() -> None:
    short, long = np.full(RATE, 1, np.int16), np.full(9 * RATE, 2, np.int16)
    values = [round(float(w[0]) * 32768) for w in drawn("other", n=300, others=[short, long])]
    assert values.count(2) / 300 == pytest.approx(0.9, abs=0.06)  # three standard errors


def test_kinds_come_by_their_weights() -> None:
    windows = drawn("other", n=300, other=3.0, noise=1.0)
    integers = [bool(np.all(w * 32768 == np.rint(w * 32768))) and w.any() for w in windows]
    assert np.mean(integers) == pytest.approx(0.75, abs=0.08)


def test_the_generator_alone_decides() -> None:
    negatives = Negatives(WORDS, [NOISE], [SPEECH], NegativeMix(share=0.3))
    a, b, c = (negatives.draw(np.random.default_rng(seed)) for seed in (5, 5, 6))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


# --- recordings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data set that holds one clip of _unknown_ out, beside a folder of other recordings."""
    for name, value in (("_unknown_/a_nohash_0", 1), ("_unknown_/b_nohash_0", 2), ("yes/c_nohash_0", 3)):
        path = tmp_path / "speech" / f"{name}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        sf.write(path, np.full(800, value, np.int16), RATE)
    (tmp_path / "speech" / "testing_list.txt").write_text("_unknown_/b_nohash_0.wav\n")
    (tmp_path / "books" / "deep").mkdir(parents=True)
    sf.write(tmp_path / "books" / "deep" / "x.flac", np.full(900, 4, np.int16), RATE)
    sf.write(tmp_path / "books" / "y.wav", np.full(900, 5, np.int16), RATE)
    (tmp_path / "books" / "notes.txt").write_text("not audio")
    return tmp_path


def values(root: Path, *patterns: str) -> list[int]:
    by_pattern = load_recordings([str(root / pattern) for pattern in patterns], root / "speech")
    assert len(by_pattern) == len(patterns)
    recordings = [recording for recordings in by_pattern for recording in recordings]
    assert all(r.dtype == np.int16 and np.ptp(r) == 0 for r in recordings)
    return sorted(int(r[0]) for r in recordings)


def test_a_folder_is_searched_with_all_below(root: Path) -> None:
    assert values(root, "books") == [4, 5]


def test_a_recording_that_cannot_be_decoded_is_named_and_left_out(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    (root / "books" / "a.wav").write_text("no audio")
    assert values(root, "books") == [4, 5]
    assert "a.wav" in caplog.text
    assert "1 of 3 recordings" in caplog.text
    with pytest.raises(AudioError, match="none of the 1 recordings"):
        values(root, "books/a.wav")


def test_files_and_globs_are_taken(root: Path) -> None:
    assert values(root, "books/y.wav") == [5]
    assert values(root, "books/*/x.*", "books/*.wav") == [4, 5]


def test_a_recording_of_two_patterns_is_taken_once(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert values(root, "books", "books/*.wav") == [4, 5]
    assert "1 recording given more than once, such as " in caplog.text


def test_what_the_lists_hold_out_is_left_out(root: Path) -> None:
    assert values(root, "speech/_unknown_") == [1]


def test_without_lists_the_clips_that_the_data_sets_rule_holds_out_are_left_out(tmp_path: Path) -> None:
    for i in range(60):
        path = tmp_path / "speech" / ("yes", "_unknown_", "_background_noise_")[i % 3] / f"{i:04x}_nohash_0.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        sf.write(path, np.full(800, i, np.int16), RATE)
    trained = [i for i in range(60) if split_of(f"yes/{i:04x}_nohash_0.wav") == "train"]
    assert 35 < len(trained) < 58
    kept = values(tmp_path, "speech/yes", "speech/_unknown_", "speech/_background_noise_")
    assert kept == [i for i in range(60) if i in trained or i % 3 == 2]  # noise is nobody's clip


def test_of_one_speaker_without_lists_the_clips_for_training_are_left(tmp_path: Path) -> None:
    (tmp_path / "speech" / "yes").mkdir(parents=True)
    for i in range(40):
        sf.write(tmp_path / "speech" / "yes" / f"me_nohash_{i}.wav", np.full(800, i, np.int16), RATE)
    clips = index(tmp_path / "speech")
    trained = [clip for clip in clips if clip.split == "train"]
    assert 0 < len(values(tmp_path, "speech")) == len(trained) < len(clips)


def test_a_pattern_without_recordings_is_named(root: Path) -> None:
    with pytest.raises(SettingError, match=r"no recording at .*books/\*\.mp3; expected files that end in \.wav"):
        values(root, "books/*.mp3")


# --- settings


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ({"share": 1.0}, "share=1.0; expected 0 to below 1"),
        ({"share": -0.1}, "share"),
        ({**ONLY, "share": 0.3}, "expected none below 0, and one above"),
        ({"other": -1.0}, "expected none below 0"),
        ({"most_visible": 0.0}, "most_visible=0.0; expected between 0 and 1"),
        ({"most_visible": 1.0}, "most_visible"),
    ],
)
def test_impossible_mixes_are_refused(mix: dict[str, float], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        NegativeMix(**mix)


@pytest.mark.parametrize(
    ("kind", "given"), [("noise", {"noises": ()}), ("other", {"others": ()}), ("hard", {"others": ()})]
)
def test_a_kind_without_recordings_is_refused_unless_its_weight_is_zero(kind: str, given: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=rf"weight {kind}=1.0, but no such recordings were given"):
        drawn(kind, **given)
    assert len(drawn("reversed", n=1, **given)) == 1


def test_the_words_of_a_label_track_are_cut_out_with_what_is_close_to_them() -> None:
    samples = np.arange(10 * RATE, dtype=np.float32) / (10 * RATE)
    pieces = between(samples, [Word("yes", 2.0, 2.5), Word("no", 3.0, 3.5), Word("up", 9.9, 10.2)])
    spans = [(round(p[0] / 32768 * 10, 2), round(p[-1] / 32768 * 10, 2)) for p in pieces]
    assert spans == [(0.0, 2.0 - CLEARANCE), (3.5 + CLEARANCE, 9.9 - CLEARANCE)]  # half a second between is left out


def test_without_words_a_recording_stays_whole_however_short_it_is() -> None:
    assert [len(piece) for piece in between(np.zeros(900, np.float32), [])] == [900]


def test_a_word_that_fills_a_recording_leaves_nothing() -> None:
    assert between(np.zeros(2 * RATE, np.float32), [Word("yes", 0.0, 2.0)]) == []


def test_a_label_track_beside_a_recording_is_read(root: Path) -> None:
    sf.write(root / "books" / "y.wav", np.full(5 * RATE, 5, np.int16), RATE)
    (root / "books" / "y.labels.txt").write_text("2.0\t2.5\tyes\n")
    assert values(root, "books") == [4, 5, 5]
