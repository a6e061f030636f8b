"""Speech Commands on disk: words, speakers, splits, samples."""

import os
import random
import shutil
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from kws_edge.errors import AudioError, SettingError
from kws_export.data.speech_commands import (
    CLIP_SAMPLES,
    Clip,
    Split,
    background,
    check_speakers,
    index,
    listed,
    split_of,
    words_with,
)
from kws_export.data.splits import SILENCE, SILENCE_CLIPS, UNKNOWN, load_split, loudest_second

TWENTY_WORDS = (
    "bed", "cat", "down", "eight", "five", "four", "go", "happy", "left", "no",
    "off", "on", "one", "right", "stop", "three", "two", "up", "yes", "zero",
)  # fmt: skip

# Speakers of the public data set, each with the split that the public lists give them.
TRAIN, VALIDATION, TEST = "004ae714", "026290a7", "03401e93"


OPUS = {"format": "OGG", "subtype": "OPUS"}  # libsndfile does not know the extension


def write_clip(path: Path, samples: int = CLIP_SAMPLES, seed: int = 0) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    x = np.random.default_rng(seed).integers(-20_000, 20_000, samples, dtype=np.int16)
    sf.write(path, x, 16_000, **OPUS if path.suffix == ".opus" else {})
    return x


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data set of two words and three speakers, without list files."""
    folder = tmp_path / "speech_commands"
    for seed, speaker in enumerate((TRAIN, VALIDATION, TEST)):
        write_clip(folder / "yes" / f"{speaker}_nohash_0.wav", seed=seed)
        write_clip(folder / "no" / f"{speaker}_nohash_0.wav", seed=10 + seed)
    write_clip(folder / "_background_noise_" / "tap.wav", 40_000)
    write_clip(folder / "_silence_" / "1.wav")
    return folder


def splits(root: Path) -> dict[str, str]:
    return {clip.name: clip.split for clip in index(root)}


# --- which clips there are


def test_underscore_folders_are_no_words(root: Path) -> None:
    assert {clip.word for clip in index(root)} == {"yes", "no"}


def test_clips_are_sorted_by_word_and_file(root: Path) -> None:
    names = [clip.name for clip in index(root)]
    assert names == sorted(names)
    assert len(names) == 6


def test_a_clip_knows_its_file_word_and_speaker(root: Path) -> None:
    clip = index(root)[0]
    assert clip == Clip(root / "no" / f"{TRAIN}_nohash_0.wav", "no", TRAIN, "train")


@pytest.mark.parametrize("extension", [".wav", ".flac", ".ogg", ".opus", ".WAV"])
def test_accepts_any_of_the_extensions(tmp_path: Path, extension: str) -> None:
    write_clip(tmp_path / "yes" / f"a_nohash_0{extension}")
    assert [clip.name for clip in index(tmp_path)] == [f"yes/a_nohash_0{extension}"]


def test_a_recording_without_the_marker_has_a_speaker_of_its_own(tmp_path: Path) -> None:
    for name in ("take.1", "take.2", "a.b_nohash_0"):
        write_clip(tmp_path / "yes" / f"{name}.wav", 100)
    clips = index(tmp_path)
    assert [clip.speaker for clip in clips] == ["a.b", "take.1", "take.2"]
    assert [clip.split for clip in clips] == [split_of(clip.name) for clip in clips]


def test_hidden_and_other_files_are_passed_over(root: Path) -> None:
    (root / "yes" / "._x_nohash_0.wav").write_bytes(b"metadata")
    (root / "yes" / "notes.txt").write_text("not audio")
    (root / ".git").mkdir()
    assert len(index(root)) == 6


def test_one_clip_in_two_formats_is_refused(root: Path) -> None:
    write_clip(root / "yes" / f"{TRAIN}_nohash_0.flac")
    with pytest.raises(SettingError, match=r"yes/004ae714_nohash_0\.wav and 004ae714_nohash_0\.flac are one clip"):
        index(root)


def test_an_absent_root_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"no folder .*nowhere"):
        index(tmp_path / "nowhere")


def test_a_root_without_words_says_what_was_looked_for(tmp_path: Path) -> None:
    write_clip(tmp_path / "_background_noise_" / "tap.wav")
    with pytest.raises(SettingError, match=r"no words in .*looked for folders .*\.opus"):
        index(tmp_path)


# --- which split they belong to


def test_the_rule_gives_a_tenth_to_validation_and_a_tenth_to_test() -> None:
    rng = random.Random(0)
    found = [split_of(f"yes/{rng.getrandbits(32):08x}_nohash_0.wav") for _ in range(20_000)]
    for split, share in (("train", 0.8), ("validation", 0.1), ("test", 0.1)):
        assert found.count(split) / len(found) == pytest.approx(share, abs=0.01)  # 0.01 is 3.5 to 4.7 standard errors


@pytest.mark.parametrize("name", ["yes/{}_nohash_0.wav", "no/{}_nohash_7.opus", "{}_nohash_1.flac"])
def test_the_rule_depends_on_the_speaker_alone(name: str) -> None:
    assert [split_of(name.format(s)) for s in (TRAIN, VALIDATION, TEST)] == ["train", "validation", "test"]


def test_without_lists_the_rule_decides(root: Path) -> None:
    assert splits(root) == {name: split_of(name) for name in splits(root)}


def test_lists_are_honoured_against_the_rule(root: Path) -> None:
    (root / "validation_list.txt").write_text(f"no/{TRAIN}_nohash_0.wav\nyes/{TRAIN}_nohash_0.wav\n")
    (root / "testing_list.txt").write_text("")
    expected = {TRAIN: "validation", VALIDATION: "train", TEST: "train"}
    assert {clip.speaker: clip.split for clip in index(root)} == expected


def test_the_rule_decides_the_split_whose_list_is_absent(root: Path) -> None:
    (root / "validation_list.txt").write_text("")
    assert {clip.speaker: clip.split for clip in index(root)} == {TRAIN: "train", VALIDATION: "train", TEST: "test"}


@pytest.mark.parametrize(("listed", "on_disk"), [(".wav", ".opus"), (".opus", ".wav")])
def test_the_extension_in_a_list_need_not_be_the_files(tmp_path: Path, listed: str, on_disk: str) -> None:
    write_clip(tmp_path / "yes" / f"{TRAIN}_nohash_0{on_disk}")
    (tmp_path / "testing_list.txt").write_bytes(f"yes/{TRAIN}_nohash_0{listed}\r\n\r\n".encode())
    assert [clip.split for clip in index(tmp_path)] == ["test"]


def test_a_listed_clip_that_is_missing_is_named(root: Path) -> None:
    (root / "testing_list.txt").write_text("yes/12345678_nohash_0.wav\n")
    with pytest.raises(SettingError, match=r"testing_list.txt, line 1: yes/12345678_nohash_0"):
        index(root)


def test_a_listed_word_without_a_folder_is_passed_over(root: Path) -> None:
    (root / "testing_list.txt").write_text("happy/12345678_nohash_0.wav\n_silence_/99.wav\n")
    assert len(index(root)) == 6


def test_a_clip_in_both_lists_is_refused(root: Path) -> None:
    for name in ("validation_list.txt", "testing_list.txt"):
        (root / name).write_text(f"yes/{TEST}_nohash_0.wav\n")
    with pytest.raises(SettingError, match=rf"yes/{TEST}_nohash_0, are in both"):
        index(root)


def test_lists_that_put_a_speaker_in_two_splits_are_refused(root: Path) -> None:
    (root / "validation_list.txt").write_text(f"yes/{VALIDATION}_nohash_0.wav\n")  # and not the speaker's "no"
    (root / "testing_list.txt").write_text("")
    with pytest.raises(SettingError, match=rf"1 speakers .* {VALIDATION} \(train, validation\)"):
        index(root)


def test_at_most_five_speakers_are_named() -> None:
    clips = [Clip(Path(f"s{i}.wav"), "yes", f"s{i}", split) for i in range(7) for split in ("train", "test")]
    with pytest.raises(SettingError, match=r"7 speakers .* s4 \(test, train\), …; give"):
        check_speakers(clips)


def test_words_with_counts_training_clips_only(root: Path) -> None:
    for n in range(1, 4):
        write_clip(root / "yes" / f"{TRAIN}_nohash_{n}.wav", 100)
        write_clip(root / "no" / f"{TEST}_nohash_{n}.wav", 100)
    clips = index(root)
    assert words_with(clips, 0) == ("no", "yes")
    assert words_with(clips, 3) == ("yes",)
    assert words_with(clips, 4) == ()


# --- the samples


def test_samples_are_those_of_the_file(root: Path, tmp_path: Path) -> None:
    data = load_split(root, "validation", ["yes", "no"], tmp_path / "cache")
    assert data.names == [f"no/{VALIDATION}_nohash_0.wav", f"yes/{VALIDATION}_nohash_0.wav"]
    assert data.labels.tolist() == [1, 0]
    assert (data.samples.dtype, data.lengths.dtype, data.labels.dtype) == (np.int16, np.int32, np.int64)
    for row, name in zip(data.samples, data.names, strict=True):
        np.testing.assert_array_equal(row, sf.read(root / name, dtype="int16")[0])


def test_full_scale_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "data" / "yes" / f"{TRAIN}_nohash_0.wav"
    path.parent.mkdir(parents=True)
    extremes = np.tile(np.array([-32768, 32767, 0, -1], np.int16), 4000)
    sf.write(path, extremes, 16_000)
    data = load_split(tmp_path / "data", "train", ["yes"], tmp_path / "cache")
    np.testing.assert_array_equal(data.samples[0], extremes)


def test_short_clips_are_padded_at_the_end_and_their_length_kept(root: Path, tmp_path: Path) -> None:
    recorded = write_clip(root / "yes" / f"{TRAIN}_nohash_1.wav", 9_000)
    data = load_split(root, "train", ["yes"], tmp_path / "cache")
    assert data.lengths.tolist() == [CLIP_SAMPLES, 9_000]
    np.testing.assert_array_equal(data.samples[1, :9_000], recorded)
    assert not data.samples[1, 9_000:].any()


def test_a_longer_clip_is_cut_to_its_loudest_second_with_a_warning(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x = np.zeros(48_000, np.int16)
    x[25_000:41_000] = 1_000
    sf.write(root / "yes" / f"{TRAIN}_nohash_1.wav", x, 16_000)
    data = load_split(root, "train", ["yes"], tmp_path / "cache")
    assert data.lengths[1] == CLIP_SAMPLES
    assert (data.samples[1] == 1_000).all()
    assert f"1 clips longer than 1 s were cut to their loudest second, such as yes/{TRAIN}_nohash_1.wav" in caplog.text


def test_what_was_wrong_with_a_clip_that_could_be_decoded_is_logged(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = root / "yes" / f"{TRAIN}_nohash_0.wav"
    path.write_bytes(path.read_bytes()[:20_000])
    data = load_split(root, "train", ["yes"], tmp_path / "cache")
    assert data.lengths.tolist() == [(20_000 - 44) // 2]
    assert f"{path}: " in caplog.text


def test_the_loudest_second_of_exactly_one_second_is_itself() -> None:
    x = np.linspace(-1, 1, CLIP_SAMPLES, dtype=np.float32)
    np.testing.assert_array_equal(loudest_second(x), x)


def test_the_second_call_reads_the_cache_and_no_clip(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_split(root, "train", ["yes", "no"], tmp_path / "cache")
    monkeypatch.setattr("kws_export.data.splits.load", lambda path: pytest.fail(f"decoded {path} again"))
    again = load_split(root, "train", ["no", "yes"], tmp_path / "cache")  # labels are no part of the key
    assert isinstance(again.samples, np.memmap)
    np.testing.assert_array_equal(again.samples, first.samples)
    np.testing.assert_array_equal(again.labels, 1 - first.labels)


def test_a_changed_clip_of_the_same_size_is_decoded_anew(root: Path, tmp_path: Path) -> None:
    load_split(root, "train", ["yes"], tmp_path / "cache")
    path = root / "yes" / f"{TRAIN}_nohash_0.wav"
    recorded = write_clip(path, seed=99)
    os.utime(path, ns=(0, 0))
    data = load_split(root, "train", ["yes"], tmp_path / "cache")
    np.testing.assert_array_equal(data.samples[0], recorded)


def test_a_file_that_cannot_be_decoded_is_named_counted_and_left_out(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = load_split(root, "train", ["yes", "no"], tmp_path / "cache")
    (root / "no" / f"{TRAIN}_nohash_1.wav").write_text("not audio")
    for _ in ("decoded", "from the cache"):
        caplog.clear()
        data = load_split(root, "train", ["yes", "no"], tmp_path / "cache")
        assert data.names == whole.names
        assert np.array_equal(data.samples, whole.samples)
        assert np.array_equal(data.labels, whole.labels)
        assert "1 of 3 clips" in caplog.text
        assert f"{TRAIN}_nohash_1.wav" in caplog.text


def test_a_failed_build_leaves_nothing_behind(root: Path, tmp_path: Path) -> None:
    (root / "yes" / f"{TRAIN}_nohash_0.wav").write_text("not audio")
    with pytest.raises(AudioError, match=f"none of 1 clips.*{TRAIN}_nohash_0.wav"):
        load_split(root, "train", ["yes"], tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_built_by_another_process_meanwhile_is_used(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load_split(root, "train", ["yes"], tmp_path / "elsewhere")
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        shutil.copytree(self, target)
        return self.rename(target)

    monkeypatch.setattr(Path, "rename", late)
    data = load_split(root, "train", ["yes"], tmp_path / "cache")
    np.testing.assert_array_equal(data.samples, expected.samples)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_what_a_killed_process_left_in_the_cache_is_removed_and_what_another_makes_is_not(
    root: Path, tmp_path: Path
) -> None:
    days = {"killed": 3, "at work": 0}
    for name, age in days.items():
        arrays = tmp_path / "cache" / f".partial-{name}" / "arrays"
        arrays.mkdir(parents=True)
        (arrays / "samples.npy").write_bytes(b"half")
        for path in (arrays / "samples.npy", arrays, arrays.parent):
            os.utime(path, (time.time() - age * 86_400,) * 2)
    os.utime(tmp_path / "cache" / ".partial-at work", (0, 0))  # its files are newer
    load_split(root, "train", ["yes"], tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").glob(".partial-*")] == [".partial-at work"]


def test_a_cache_that_cannot_be_written_is_named(root: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(SettingError, match="cannot write the cache"):
        load_split(root, "train", ["yes"], tmp_path / "cache")


@pytest.mark.parametrize(
    ("split", "labels", "message"),
    [
        ("training", ["yes"], "unknown split 'training'; expected one of train, validation, test"),
        ("train", ["yes", "maybe"], "no clips for maybe in .*; the words there are no, yes"),
        ("train", ["_background_noise_"], "no clips for _background_noise_"),
        ("train", ["yes", "yes"], "expected at least one, each once"),
        ("train", [], "expected at least one, each once"),
    ],
)
def test_impossible_requests_are_refused(
    root: Path, tmp_path: Path, split: str, labels: list[str], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        load_split(root, split, labels, tmp_path / "cache")  # type: ignore[arg-type]


def test_a_split_without_clips_is_refused(tmp_path: Path) -> None:
    write_clip(tmp_path / "yes" / f"{TRAIN}_nohash_0.wav")
    with pytest.raises(SettingError, match="no test clips for yes"):
        load_split(tmp_path, "test", ["yes"], tmp_path / "cache")


# --- classes that are no word


def test_unknown_stands_for_every_other_word_and_for_clips_without_one(root: Path, tmp_path: Path) -> None:
    write_clip(root / "_unknown_" / f"{TRAIN}_nohash_0.wav")
    write_clip(root / "_unknown_" / f"{TEST}_nohash_0.wav")
    data = load_split(root, "train", ["yes", UNKNOWN], tmp_path / "cache")
    expected = {f"no/{TRAIN}_nohash_0.wav": 1, f"yes/{TRAIN}_nohash_0.wav": 0, f"_unknown_/{TRAIN}_nohash_0.wav": 1}
    assert dict(zip(data.names, data.labels.tolist(), strict=True)) == expected


def test_silence_is_stretches_of_the_background_noise_at_many_levels(root: Path, tmp_path: Path) -> None:
    data = load_split(root, "train", ["yes", SILENCE], tmp_path / "cache")
    silent = data.labels == 1
    assert silent.sum() == SILENCE_CLIPS["train"]
    noise = background(root)["tap"]
    levels = []
    for samples, name in zip(data.samples[silent][:50], np.array(data.names)[silent][:50], strict=True):
        start, gain = name.partition("@")[2].split("*")
        stretch = noise[int(start) : int(start) + CLIP_SAMPLES]
        np.testing.assert_allclose(samples / 32767, stretch * float(gain), atol=1e-4)
        levels.append(float(gain))
    assert 0 <= min(levels) < 0.1
    assert 0.9 < max(levels) <= 1


def test_silence_differs_between_the_splits_and_not_between_runs(root: Path, tmp_path: Path) -> None:
    splits: list[Split] = ["train", "validation", "validation"]
    first, second, again = (
        {name for name in load_split(root, split, ["no", SILENCE], tmp_path / f"{i}").names if "@" in name}
        for i, split in enumerate(splits)
    )
    assert not first & second
    assert second == again


def test_a_list_of_test_clips_replaces_the_test_split_and_repeats_count(root: Path, tmp_path: Path) -> None:
    write_clip(root / "_silence_" / "7.wav")
    lines = [f"yes/{TEST}_nohash_0.wav", "_silence_/7.opus", f"no/{TEST}_nohash_0.wav", f"yes/{TEST}_nohash_0.wav"]
    (root / "tests.txt").write_text("\n".join(lines) + "\n")
    labels = ["yes", UNKNOWN, SILENCE]
    data = load_split(root, "test", labels, tmp_path / "cache", test_list="tests.txt")
    assert data.labels.tolist() == [0, 2, 1, 0]
    np.testing.assert_array_equal(data.samples[0], data.samples[3])
    assert len(load_split(root, "test", labels, tmp_path / "cache")) == 2 + SILENCE_CLIPS["test"]  # without the list


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"yes/{TEST}_nohash_9.wav", "is not there"),
        (f"yes/{TRAIN}_nohash_0.wav", "names 1 clips of another split, such as yes/"),
    ],
)
def test_a_list_that_cannot_be_a_test_set_is_refused(root: Path, tmp_path: Path, line: str, message: str) -> None:
    (root / "tests.txt").write_text(line)
    with pytest.raises(SettingError, match=message):
        load_split(root, "test", ["yes"], tmp_path / "cache", test_list="tests.txt")


def test_a_list_that_is_not_there_is_named(root: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"no list .*tests\.txt"):
        load_split(root, "test", ["yes"], tmp_path / "cache", test_list="tests.txt")


def test_background_noise_is_read_whole(root: Path) -> None:
    noise = background(root)
    assert {name: (x.dtype, x.shape) for name, x in noise.items()} == {"tap": (np.float32, (40_000,))}


def test_absent_background_noise_says_where_it_was_looked_for(root: Path) -> None:
    shutil.rmtree(root / "_background_noise_")
    with pytest.raises(SettingError, match=r"no background noise: looked for .*_background_noise_"):
        background(root)


# --- the real recordings


def test_the_public_test_set_of_12_classes_is_whole(data: Path) -> None:
    labels = ["down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes", UNKNOWN, SILENCE]
    root = data / "speech_commands"
    clips = listed(root, "official_test_v0.02.txt")
    count = Counter(clip.word if clip.word in labels else UNKNOWN for clip in clips)
    assert (len(clips), len({clip.path for clip in clips})) == (4_890, 4_890 - 121)
    assert (count[UNKNOWN], count[SILENCE]) == (408, 408)
    assert {count[label] for label in labels[:10]} == {425, 419, 412, 411, 406, 405, 402, 396}


def test_more_than_300_training_clips_selects_the_twenty_words(data: Path) -> None:
    clips = index(data / "speech_commands")
    words = words_with(clips, 300)
    assert words == TWENTY_WORDS
    counts = [sum(c.split == s and c.word in words for c in clips) for s in ("train", "validation", "test")]
    assert counts == [24_840, 3_443, 6_214]


def test_the_public_lists_follow_the_rule(data: Path) -> None:  # the same splits with and without the lists
    clips = index(data / "speech_commands")
    assert [clip.name for clip in clips if split_of(clip.name) != clip.split] == []


def test_six_background_recordings_of_about_a_minute(data: Path) -> None:
    noise = background(data / "speech_commands")
    assert len(noise) == 6
    assert sum(x.size for x in noise.values()) / 16_000 / 60 == pytest.approx(6.7, abs=0.1)
    assert all(0.01 < np.abs(x).max() <= 1 for x in noise.values())


def test_real_clips_are_loaded_whole(data: Path, tmp_path: Path) -> None:
    root = data / "speech_commands"
    loaded = load_split(root, "validation", ["off", "on"], tmp_path)
    assert len(loaded) == 48 + 53
    for i in range(0, len(loaded), 10):
        samples, rate = sf.read(root / loaded.names[i])
        assert (rate, loaded.lengths[i]) == (16_000, samples.size)
        np.testing.assert_allclose(loaded.samples[i, : samples.size] / 32768, samples, atol=1 / 32768)


# --- lists that hold nothing out


@pytest.mark.parametrize(
    ("text", "encoding"),
    [("\ufeff{clip}\n", "utf-8"), ("\r\n{clip}\r\n", "utf-8"), ("./{clip}\n", "utf-8")],
    ids=["byte order mark", "empty line", "this folder"],
)
def test_a_list_holds_its_clips_out_however_an_editor_saved_it(root: Path, text: str, encoding: str) -> None:
    clip = f"yes/{TRAIN}_nohash_0.wav"
    (root / "no" / f"{TRAIN}_nohash_0.wav").unlink()
    (root / "validation_list.txt").write_bytes(text.format(clip=clip).encode(encoding))
    assert splits(root)[clip] == "validation"


@pytest.mark.parametrize(
    "line",
    [
        '"yes/{0}"', "'yes/{0}'", "speech_commands/yes/{0}", "/data/yes/{0}", "yes\\{0}", "yes/{0},yes", "{0}",
        "Yes/{0}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["validation_list.txt", "testing_list.txt"])
def test_a_line_that_matches_nothing_is_refused_with_its_number(root: Path, line: str, name: str) -> None:
    lines = ["", f"no/{VALIDATION}_nohash_0.wav", line.format(f"{TRAIN}_nohash_0.wav")]
    (root / name).write_text("\n".join(lines) + "\n")
    with pytest.raises(SettingError, match=f"{name}, line 3: "):
        index(root)


def test_an_error_about_a_list_is_not_as_long_as_its_line(root: Path) -> None:
    for line in ("yes/" + "a" * 9999, "a" * 9999, '"' * 9999):
        (root / "validation_list.txt").write_text(f"{line}\n")
        with pytest.raises(SettingError, match=r"line 1: ") as refused:
            index(root)
        assert len(str(refused.value)) < 500


def test_a_list_in_another_encoding_is_refused_in_one_line(root: Path) -> None:
    (root / "validation_list.txt").write_text(f"yes/{TRAIN}_nohash_0.wav\n", encoding="utf-16")
    with pytest.raises(SettingError, match="not UTF-8") as refused:
        index(root)
    assert "\n" not in str(refused.value)
