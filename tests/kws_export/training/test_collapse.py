"""A run that has learnt nothing of a class fails; a tie is no hit; what is never shown is said before training."""

from pathlib import Path

import pytest
import tone_words
import torch

from kws_edge.errors import SettingError
from kws_export.data.speech_commands import index, listed
from kws_export.training.prepared import prepare
from kws_export.training.recipe import Recipe
from kws_export.training.sweep import SweepRun, run_state
from kws_export.training.trainer import named


def test_a_tie_names_nothing() -> None:
    logits = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert named(logits, torch.tensor([0, 0, 1])).tolist() == [False, True, False]


def test_a_class_that_is_never_named_fails_the_run(tones: Path, tmp_path: Path) -> None:
    recipe = tone_words.recipe(epochs=5, peak_lr=1e-9, final_lr=1e-9, average=0.998)  # it cannot learn
    with tone_words.one_thread(), pytest.raises(SettingError, match=r"collapsed.*no validation clip of .* is named"):
        tone_words.run(tone_words.trainer(tones, tmp_path / "run", recipe))
    state = run_state(SweepRun(recipe, tmp_path / "run"))
    assert (state.state, state.epochs) == ("collapsed", 5)
    assert "no validation clip of" in state.problem


def test_a_class_without_a_training_clip_is_named_before_training(tmp_path: Path) -> None:
    tone_words.write(tmp_path / "data")
    with pytest.raises(SettingError, match="no training clip for _unknown_"):
        prepare(tone_words.recipe(labels=["fall", "high", "low", "rise", "_unknown_"]), tmp_path / "data", tmp_path)


def test_one_label_is_told_what_to_add() -> None:
    with pytest.raises(SettingError, match=r"kws-export wake"):
        Recipe("x", "softmax", labels=("alexa",))


def test_the_clips_of_one_speaker_are_shared_out_among_the_splits(tmp_path: Path) -> None:
    (tmp_path / "lamp").mkdir()
    for i in range(60):
        (tmp_path / "lamp" / f"me_nohash_{i}.wav").touch()
    splits = [clip.split for clip in index(tmp_path)]
    assert {"train", "validation", "test"} == set(splits)
    assert splits.count("train") > 35


def test_another_list_of_test_clips_keeps_to_how_one_speakers_were_shared_out(tmp_path: Path) -> None:
    (tmp_path / "lamp").mkdir()
    for i in range(60):
        (tmp_path / "lamp" / f"me_nohash_{i}.wav").touch()
    of = {clip.split: clip.name for clip in index(tmp_path)}
    (tmp_path / "mine.txt").write_text(of["test"])
    assert [clip.name for clip in listed(tmp_path, "mine.txt")] == [of["test"]]
    (tmp_path / "mine.txt").write_text(of["train"])
    with pytest.raises(SettingError, match="names 1 clips of another split"):
        listed(tmp_path, "mine.txt")


def test_lists_may_part_the_clips_of_one_speaker(tmp_path: Path) -> None:
    (tmp_path / "lamp").mkdir()
    for i in range(10):
        (tmp_path / "lamp" / f"me_nohash_{i}.wav").touch()
    (tmp_path / "validation_list.txt").write_text("lamp/me_nohash_3.wav\n")
    (tmp_path / "testing_list.txt").write_text("lamp/me_nohash_4.wav\n")
    assert [clip.split for clip in index(tmp_path)][3:5] == ["validation", "test"]
