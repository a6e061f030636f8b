"""What is trained on and what is held out: no speaker, no voice and no recording is in both."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from kws_edge.errors import SettingError
from kws_export.data.pack import Pack, Piece
from kws_export.data.sources import Source
from kws_export.wake.material import LONGEST, MARGIN, Saying, cut_out, load_recordings, load_takes, part

SPEECH, SOUNDS, WORDS = Source("talk"), Source("hum", kind="sounds"), Source("list", kind="words")


def saying(speaker: str, real: bool = True, label: str = "lamp") -> Saying:
    return Saying(label, speaker, real, np.full(8000, 100, np.int16))


def pack(speakers: int = 20, seconds: int = 20) -> Pack:
    noise = np.ones(seconds * 16_000, np.int16)
    return Pack((*(Piece(SPEECH, f"s{i}", "", noise) for i in range(speakers)), Piece(SOUNDS, "x", "", noise)))


def test_no_speaker_is_on_both_sides() -> None:
    words = [saying(f"person{i % 12}") for i in range(60)] + [saying(f"voice{i % 9}", real=False) for i in range(45)]
    training, held_out = part(words, [], pack(), seed=1)
    inside, outside = ({s.speaker for s in material.words} for material in (training, held_out))
    assert inside.isdisjoint(outside)
    assert inside | outside == {s.speaker for s in words}
    for real in (True, False):
        assert 0.1 < np.mean([s in held_out.words for s in words if s.real is real]) < 0.4
    speech = sum(len(x) for x in held_out.speech) / sum(len(p.samples) for p in pack().pieces)
    assert speech == pytest.approx(0.3, abs=0.06)


@pytest.mark.parametrize("seed", range(6))
def test_who_says_two_words_is_on_one_side_with_both(seed: int) -> None:
    rng = np.random.default_rng(seed)
    words = [
        saying(f"person{i}", label=label)
        for label, people in (("lamp", range(12)), ("door", range(4, 16)))
        for i in people
        for _ in range(int(rng.integers(1, 9)))
    ]
    material = part(words, [], pack(), seed)
    inside, outside = ({s.speaker for s in some.words} for some in material)
    assert inside.isdisjoint(outside)
    assert all({s.label for s in some.words} == {"lamp", "door"} for some in material)


@pytest.mark.parametrize("seed", range(6))
def test_a_voice_is_on_one_side_with_the_word_and_what_sounds_like_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    words = [saying(f"voice{i}", real=False) for i in range(12) for _ in range(int(rng.integers(1, 9)))]
    near = [
        Saying("_unknown_", f"voice{i}", False, np.full(8000, i, np.int16))
        for i in range(2, 16)
        for _ in range(int(rng.integers(1, 9)))
    ]
    trained, kept = part(words, near, pack(), seed)
    inside = {s.speaker for s in trained.words} | {f"voice{x[0]}" for x in trained.near}
    outside = {s.speaker for s in kept.words} | {f"voice{x[0]}" for x in kept.near}
    assert inside.isdisjoint(outside)
    assert kept.near


def test_a_word_of_which_all_speakers_are_known_from_another_is_held_out_too() -> None:
    words = [saying(f"person{i}") for i in range(20) for _ in range(3)]
    training, _ = part(words, [], pack(), seed=1)
    trained = sorted({s.speaker for s in training.words})[:4]
    both = part([*words, *(saying(name, label="door") for name in trained)], [], pack(), seed=1)
    assert all("door" in {s.label for s in some.words} for some in both)


def test_each_of_several_words_needs_takes_that_are_held_out() -> None:
    words = [*(saying("me") for _ in range(20)), *(saying("me", label="door") for _ in range(2))]
    with pytest.raises(SettingError, match="no recording of door is held out; expected five takes or more"):
        part(words, [], pack(), seed=1)


def test_of_one_speaker_every_fifth_take_is_held_out() -> None:
    training, held_out = part([saying("me") for _ in range(20)], [], pack(), seed=1)
    assert (len(training.words), len(held_out.words)) == (16, 4)


@pytest.mark.parametrize("seed", range(4))
def test_one_speaker_with_nearly_all_takes_is_not_held_out_whole(seed: int) -> None:
    words = [*(saying("me") for _ in range(40)), saying("ann"), saying("bob")]
    training, held_out = part(words, [], pack(), seed)
    assert (len(training.words), len(held_out.words)) == (34, 8)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("takes", [[10] * 9, [30, 30, 12, 12, 12, 2, 2], [45, 45, 10], [1] * 20])
def test_speakers_are_held_out_whole_in_a_fifth_of_the_takes_at_most(takes: list[int], seed: int) -> None:
    words = [saying(f"person{i}") for i, n in enumerate(takes) for _ in range(n)]
    training, held_out = part(words, [], pack(), seed)
    assert 0.1 <= len(held_out.words) / len(words) <= 0.2
    assert {s.speaker for s in training.words}.isdisjoint(s.speaker for s in held_out.words)


def test_of_three_speakers_alike_one_is_held_out() -> None:
    training, held_out = part([saying(f"person{i % 3}") for i in range(9)], [], pack(), seed=1)
    assert (len(training.words), len(held_out.words)) == (6, 3)


@pytest.mark.parametrize("seed", range(6))
def test_one_recording_among_short_ones_is_parted_in_time(seed: int) -> None:
    lengths = {"radio": 3600, "a": 300, "b": 300}
    speech = Pack(tuple(Piece(SPEECH, name, "", np.ones(16_000 * n, np.int16)) for name, n in lengths.items()))
    training, held_out = part([saying("me") for _ in range(20)], [], speech, seed)
    assert sorted(len(x) // 16_000 for x in training.speech) == [300, 300, 2520]
    assert [len(x) // 16_000 for x in held_out.speech] == [1080]


@pytest.mark.parametrize("seed", range(6))
def test_no_more_speech_is_held_out_than_its_share(seed: int) -> None:
    minutes = [10, 10, 5, 2, 2, 1]
    speech = Pack(tuple(Piece(SPEECH, f"s{i}", "", np.ones(960_000 * n, np.int16)) for i, n in enumerate(minutes)))
    training, held_out = part([saying("me") for _ in range(20)], [], speech, seed)
    told = [sum(map(len, material.speech)) // 960_000 for material in (training, held_out)]
    assert sum(told) == 30
    assert 5 <= told[1] <= 9


def test_of_one_speaker_with_many_recordings_the_last_are_held_out() -> None:
    speech = Pack(tuple(Piece(SPEECH, "me", "", np.full(16_000 * 60, i, np.int16)) for i in range(5)))
    training, held_out = part([saying("me") for _ in range(20)], [], speech, seed=1)
    assert [(x[0], len(x) // 16_000) for x in training.speech] == [(0, 60), (1, 60), (2, 60), (3, 30)]
    assert [(x[0], len(x) // 16_000) for x in held_out.speech] == [(3, 30), (4, 60)]


def test_the_same_seed_parts_alike() -> None:
    words = [saying(f"person{i}") for i in range(10)]
    first, second = (part(words, [], pack(), seed=3)[1] for _ in range(2))
    assert [s.speaker for s in first.words] == [s.speaker for s in second.words]


def test_one_long_recording_is_parted_in_time() -> None:
    long = Pack((Piece(SPEECH, "radio", "", np.arange(16_000 * 600).astype(np.int16)),))
    training, held_out = part([saying("me") for _ in range(20)], [], long, seed=1)
    assert [len(training.speech[0]), len(held_out.speech[0])] == [16_000 * 420, 16_000 * 180]
    assert (training.sounds, held_out.sounds) == ([], [])


def test_single_words_train_as_speech_does_and_are_held_out_apart() -> None:
    """An hour of them is many times what is said alone in a day, so no limit of false accepts is held on them."""
    listed = tuple(Piece(WORDS, f"w{i}", "", np.full(16_000, 7, np.int16)) for i in range(50))
    training, held_out = part([saying("me") for _ in range(20)], [], Pack(pack().pieces + listed), seed=1)
    assert sum(x[0] == 7 for x in training.speech) == 35
    assert (len(held_out.single), training.single) == (15, [])
    assert all(x[0] == 1 for x in held_out.speech)


def test_without_speech_to_tell_it_from_there_is_no_word() -> None:
    with pytest.raises(SettingError, match="give more --negatives"):
        part([saying("me") for _ in range(20)], [], pack(speakers=2, seconds=1), seed=1)


def test_without_a_saying_there_is_no_word() -> None:
    with pytest.raises(SettingError, match="no recording of the wake word"):
        part([], [], pack(), seed=1)


def test_the_word_is_cut_out_of_a_long_recording() -> None:
    x = np.random.default_rng(0).normal(0, 3, 48_000)
    x[20_000:28_000] += 8000 * np.sin(np.arange(8000) / 5)
    assert len(cut_out(x.astype(np.int16))) == pytest.approx(8000 + 3200, abs=500)


@pytest.mark.parametrize("folder", ["Küche", "küche", ""])
def test_recordings_lie_in_a_folder_named_for_the_word_or_alone(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    for i, name in enumerate(("ann_nohash_0.wav", "bob_nohash_0.wav")):
        soundfile.write(tmp_path / folder / name, np.sin(np.arange(16_000) / (5 + i)), 16_000)
    assert [s.speaker for s in load_recordings(tmp_path, ["Küche"])] == ["ann", "bob"]


def test_all_folders_of_a_word_are_read(tmp_path: Path) -> None:
    for i, name in enumerate(("hey_lamp/ann_nohash_0.wav", "Hey Lamp/bob_nohash_0.wav", "other/eve_nohash_0.wav")):
        (tmp_path / name).parent.mkdir()
        soundfile.write(tmp_path / name, np.sin(np.arange(16_000) / (5 + i)), 16_000)
    for labels in (["hey lamp"], ["hey lamp", "door"]):
        assert [(s.label, s.speaker) for s in load_recordings(tmp_path, labels)] == [
            ("hey lamp", "bob"), ("hey lamp", "ann"),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "speakers"),
    [(["1", "2", "3"], 1), (["ann_nohash_0", "ann_nohash_1", "2", "3"], 3)],
)
def test_takes_that_name_no_speaker_are_of_one_unless_others_name_theirs(
    tmp_path: Path, names: list[str], speakers: int
) -> None:
    for i, name in enumerate(names):
        soundfile.write(tmp_path / f"{name}.wav", np.sin(np.arange(16_000) / (5 + i)), 16_000)
    assert len({s.speaker for s in load_recordings(tmp_path, ["lamp"])}) == speakers


def test_a_take_that_is_there_twice_counts_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Else one of the two would be held out, and the other trained on."""
    for i, name in enumerate(("1", "2", "3", "3 (copy)")):
        soundfile.write(tmp_path / f"{name}.wav", np.sin(np.arange(16_000) / (5 + min(i, 2))), 16_000)
    assert len(load_recordings(tmp_path, ["lamp"])) == 3
    assert caplog.messages == [f"1 take given more than once, such as {tmp_path}/3.wav; each counts once"]


def test_a_take_of_two_words_is_refused(tmp_path: Path) -> None:
    for word in ("door", "lamp"):
        (tmp_path / word).mkdir()
        soundfile.write(tmp_path / word / "a.wav", np.sin(np.arange(16_000) / 5), 16_000)
    with pytest.raises(SettingError, match=r"door/a\.wav and .*lamp/a\.wav hold the same sound; expected a take to be"):
        load_recordings(tmp_path, ["door", "lamp"])


@pytest.mark.parametrize(("seconds", "kept"), [(0.5, 0.5), (2.0, 2.0), (4.0, LONGEST)])
def test_a_phrase_that_lasts_too_long_is_cut_whoever_says_it(tmp_path: Path, seconds: float, kept: float) -> None:
    path, end = tmp_path / "voice_nohash_0.wav", np.zeros(3200)
    said = 0.3 * np.random.default_rng(0).standard_normal(round(16_000 * seconds - 3200))
    soundfile.write(path, np.concatenate([said, end]), 16_000)
    (take,) = load_takes("lamp", [path])
    assert len(take.samples) / 16_000 == pytest.approx(kept, abs=MARGIN + 0.05)
    assert len(take.samples) / 16_000 <= LONGEST + MARGIN


def test_a_folder_without_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no takes in"):
        load_recordings(tmp_path, ["hey lamp"])


def test_a_take_that_is_silent_is_refused_by_its_name(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", 0.1 * np.sin(np.arange(16_000) / 5), 16_000)
    soundfile.write(tmp_path / "b.wav", np.zeros(16_000), 16_000)
    with pytest.raises(SettingError, match=r"the take .*b\.wav is silent; expected a recording of the word"):
        load_recordings(tmp_path, ("lamp",))
