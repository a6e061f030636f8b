"""What a run is scored on: sets from a data set's layout, seconds of recordings, the test split in noise."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
import tone_words

from kws_edge.errors import SettingError
from kws_edge.model.features import FrontEnd, mfcc, pad
from kws_edge.tuning.soundscape import speech_bounds
from kws_export.data.batches import split_features
from kws_export.data.splits import SILENCE, UNKNOWN, load_split
from kws_export.evaluation.score_sets import (
    SNRS,
    ClipSet,
    clip_of,
    clip_sets,
    in_noise,
    noisy_features,
    noisy_name,
    seconds_of,
)

LABELS = tuple(w for w in tone_words.SWEEPS if w != "rise")
FRONT_END = FrontEnd()
RATE = tone_words.RATE


def write(path: Path, seconds: float, level: float = 0.1, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    sf.write(path, level * np.random.default_rng(seed).standard_normal(int(seconds * RATE)), RATE)
    return path


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Noise of 2 s, sounds of 3.5 s whose second second is silent, speech of 1 s."""
    folder = tmp_path_factory.mktemp("recordings")
    noise = write(folder / "noise" / "hum.wav", 2, seed=1)
    sounds = write(folder / "sounds" / "rain.wav", 3.5, seed=2)
    samples, _ = sf.read(sounds)
    samples[RATE : 2 * RATE] = 0
    sf.write(sounds, samples, RATE)
    return {"noise": noise, "sounds": sounds, "speech": write(folder / "speech" / "talk.wav", 1, seed=3)}


def sets_of(root: Path, cache: Path, **recordings: Path) -> dict[str, ClipSet]:
    given = {name: [path] for name, path in recordings.items()}
    return {s.name: s for s in clip_sets(root, LABELS, FRONT_END, cache, **given)}


def test_the_sets_are_what_the_data_make_possible(tones: Path, recordings: Mapping[str, Path]) -> None:
    cache = tones.parent / "cache"
    alone = {"validation", "test", "other_words", "background"}
    assert sets_of(tones, cache).keys() == alone
    everything = sets_of(tones, cache, **recordings).keys()
    assert everything == alone | {"sounds", "speech"} | {noisy_name(snr) for snr in SNRS}


def test_splits_hold_the_models_words_and_other_words_all_others_of_every_split(tones: Path) -> None:
    sets = sets_of(tones, tones.parent / "cache")
    features, truth = sets["test"].load()
    assert features.shape == (3 * tone_words.COUNTS["test"], FRONT_END.n_mfcc, FRONT_END.frames)
    assert np.bincount(truth).tolist() == [tone_words.COUNTS["test"]] * 3
    others, nothing = sets["other_words"].load()
    assert len(others) == sum(tone_words.COUNTS.values())
    assert set(nothing) == {-1}


def test_a_split_is_scored_as_the_device_hears_it(tones: Path) -> None:
    features, _ = sets_of(tones, tones.parent / "cache")["test"].load()
    first = sorted((tones / LABELS[0]).glob("00000[7-9]*"))[0]  # test clips are numbered from 2000, 0x7d0
    np.testing.assert_allclose(features[0], pad(mfcc(sf.read(first, dtype="float32")[0])), atol=1e-3)


def test_seconds_without_sound_are_left_out(tones: Path, recordings: Mapping[str, Path]) -> None:
    features, truth = sets_of(tones, tones.parent / "cache", sounds=recordings["sounds"])["sounds"].load()
    assert len(features) == len(truth) == 2  # of three whole ones


def test_folders_of_silence_and_of_lost_labels_are_sets_of_clips(tones: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(tones, tmp_path / "data"))
    write(root / "_silence_" / "1.wav", 1, level=0.001)
    write(root / "_unknown_" / "2.wav", 0.7)
    write(root / "_unknown_" / "3.wav", 1.6)
    sets = sets_of(root, tmp_path / "cache")
    assert len(sets["silence"].load()[1]) == 1
    assert len(sets["unknown"].load()[1]) == 2


def closed(tones: Path, root: Path) -> Path:
    """The tones with a list of test clips of its own: eight of the word "low" and six of another."""
    shutil.copytree(tones, root)
    tests = (root / "testing_list.txt").read_text().split()
    chosen = [name for word in ("low", "rise") for name in tests if name.startswith(f"{word}/")][:14]
    (root / "official.txt").write_text("\n".join(chosen))
    write(root / "_unknown_" / "0000beef_nohash_0.wav", 1)
    write(root / "_silence_" / "1.wav", 1, level=0.001)
    return root


def test_where_unknown_words_and_silence_are_classes_their_clips_are_in_the_splits_alone(
    tones: Path, tmp_path: Path
) -> None:
    root, labels = closed(tones, tmp_path / "data"), ("low", "rise", UNKNOWN, SILENCE)
    names = {s.name for s in clip_sets(root, labels, FRONT_END, tmp_path / "cache")}
    assert names == {"validation", "test"}
    names = {s.name for s in clip_sets(root, labels[:-1], FRONT_END, tmp_path / "cache")}
    assert names == {"validation", "test", "silence", "background"}
    names = {s.name for s in clip_sets(root, ("low", SILENCE), FRONT_END, tmp_path / "cache")}
    assert names == {"validation", "test", "other_words", "unknown"}


def test_a_recipes_list_decides_the_test_sets_and_their_keys(tones: Path, tmp_path: Path) -> None:
    root, labels = closed(tones, tmp_path / "data"), ("low", UNKNOWN)
    noise = write(tmp_path / "noise" / "a.wav", 1)

    def made(test_list: str = "") -> dict[str, ClipSet]:
        sets = clip_sets(root, labels, FRONT_END, tmp_path / "cache", test_list=test_list, noise=[noise])
        return {s.name: s for s in sets}

    plain, listed = made(), made("official.txt")
    for name in ("test", noisy_name(0)):
        assert np.bincount(listed[name].load()[1]).tolist() == [8, 6]
        assert plain[name].key != listed[name].key
    assert plain["validation"].key == listed["validation"].key
    (root / "official.txt").write_text((root / "official.txt").read_text() + "\nlow/000007d0_nohash_0.wav\n")
    assert made("official.txt")["test"].key != listed["test"].key


@pytest.mark.parametrize("name", ["sounds", "speech"])
def test_recordings_without_a_second_of_sound_are_refused_with_their_sets_name(
    tones: Path, tmp_path: Path, name: str
) -> None:
    for path in (write(tmp_path / "silent.wav", 2, level=0), write(tmp_path / "short.wav", 0.5)):
        sets = sets_of(tones, tones.parent / "cache", **{name: path})
        with pytest.raises(SettingError, match=rf"of {name}, such as .*{path.name}, hold no second with sound"):
            sets[name].load()


def test_a_longer_clip_is_its_loudest_second_and_a_recording_is_cut_into_whole_seconds(tmp_path: Path) -> None:
    x = np.full(int(2.5 * RATE), 0.01)
    x[RATE : 2 * RATE] = 0.5
    sf.write(tmp_path / "x.wav", x, RATE)
    (clip,) = clip_of(tmp_path / "x.wav")
    assert clip == pytest.approx(np.full(RATE, 0.5), abs=1e-4)
    assert [len(second) for second in seconds_of(tmp_path / "x.wav")] == [RATE, RATE]


# ---- keys


def test_keys_of_plain_splits_are_those_of_earlier_score_files(tones: Path) -> None:
    sets = sets_of(tones, tones.parent / "cache")
    tests = [path for word in LABELS for path in sorted((tones / word).glob("000007*"))]
    settings = {"front end": asdict(FRONT_END), "labels": list(LABELS), "format": 1}
    listed = [f"{path.parent.name}/{path.name} {path.stat().st_size}" for path in tests]
    whole = json.dumps(["test", settings, listed, {}])
    assert sets["test"].key == hashlib.sha256(whole.encode()).hexdigest()[:16]


def test_a_key_stays_with_its_clips_and_changes_with_them(tones: Path, tmp_path: Path) -> None:
    cache = tones.parent / "cache"
    noise = write(tmp_path / "noise" / "a.wav", 1)
    before = {name: s.key for name, s in sets_of(tones, cache, noise=noise).items()}
    assert {name: s.key for name, s in sets_of(tones, cache, noise=noise).items()} == before
    assert len(set(before.values())) == len(before)
    write(noise, 2)
    after = {name: s.key for name, s in sets_of(tones, cache, noise=noise).items()}
    assert {name for name in before if before[name] != after[name]} == {noisy_name(snr) for snr in SNRS}


def test_other_recordings_of_the_same_name_and_size_are_told_apart(tones: Path, tmp_path: Path) -> None:
    cache = tones.parent / "cache"
    noise = write(tmp_path / "noise" / "a.wav", 1)
    before = sets_of(tones, cache, noise=noise)
    contents = {name: s.content for name, s in before.items()}
    write(noise, 1, seed=2)
    after = sets_of(tones, cache, noise=noise)
    assert {name: s.key for name, s in after.items()} == {name: s.key for name, s in before.items()}
    assert {name for name, s in after.items() if s.content != contents[name]} == {noisy_name(snr) for snr in SNRS}


def test_another_front_end_changes_every_key(tones: Path) -> None:
    keys = [
        {s.key for s in clip_sets(tones, LABELS, front_end, tones.parent / "cache")}
        for front_end in (FRONT_END, FrontEnd(n_mfcc=40))
    ]
    assert not keys[0] & keys[1]


# ---- noise


@pytest.mark.parametrize("snr", [20, 0])
@pytest.mark.parametrize("length", [RATE, 9001])
def test_the_ratio_is_that_of_the_word_while_it_is_spoken(snr: float, length: int) -> None:
    clip = tone_words.say("fall", 1)[:length]
    noise = np.random.default_rng(0).standard_normal(RATE).astype(np.float32)
    mixed = in_noise(clip, noise, snr)
    start = (RATE - length) // 2
    added = mixed.astype(np.float64)
    added[start : start + length] -= clip
    first, last = speech_bounds(clip)
    ratio = np.mean(np.square(clip[first:last], dtype=np.float64)) / np.mean(np.square(added))
    assert 10 * np.log10(ratio) == pytest.approx(snr, abs=0.01)
    assert np.corrcoef(added, noise)[0, 1] == pytest.approx(1, abs=1e-4)


def test_a_clip_keeps_its_noise_from_ratio_to_ratio(tones: Path) -> None:
    data = load_split(tones, "test", LABELS, tones.parent / "cache")
    rng = np.random.default_rng(0)
    noises = [rng.standard_normal(RATE).astype(np.float32) for _ in range(2)]
    loud, truth = noisy_features(data, noises, -60, FRONT_END)
    louder, _ = noisy_features(data, noises, -80, FRONT_END)
    assert truth.tolist() == data.labels.tolist()
    shape = loud[:, 1:] - louder[:, 1:]  # but for the level, which is in the first coefficient, noise is all there is
    assert np.abs(shape).mean() < 0.01 * np.abs(loud[:, 1:]).mean()
    assert len({f[1:].round(1).tobytes() for f in loud}) >= 2


def test_with_hardly_any_noise_a_set_is_the_split_itself(tones: Path) -> None:
    data = load_split(tones, "test", LABELS, tones.parent / "cache")
    noise = np.random.default_rng(0).standard_normal(RATE).astype(np.float32)
    nearly, _ = noisy_features(data, [noise], 120, FRONT_END)
    np.testing.assert_allclose(nearly, split_features(data, FRONT_END).numpy(), atol=0.05)


def test_noise_without_sound_is_refused(tones: Path, tmp_path: Path) -> None:
    noise = write(tmp_path / "nothing.wav", 2, level=0)
    sets = sets_of(tones, tones.parent / "cache", noise=noise)
    with pytest.raises(SettingError, match=r"nothing\.wav is silent; expected sound to mix"):
        sets[noisy_name(0)].load()


def test_noise_shorter_than_a_second_is_refused(tones: Path, tmp_path: Path) -> None:
    noise = write(tmp_path / "click.wav", 0.5)
    sets = sets_of(tones, tones.parent / "cache", noise=noise)
    with pytest.raises(SettingError, match=r"click\.wav of 8000 samples; expected a second"):
        sets[noisy_name(0)].load()
