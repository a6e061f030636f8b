"""`kws-export score`: what is kept of a run's answers, in which file, and what is not scored twice."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import score_files
import soundfile as sf
import tone_words
import torch
from click.testing import CliRunner, Result

from kws_export.cli import main
from kws_export.data.batches import split_features
from kws_export.data.splits import load_split
from kws_export.evaluation.score_file import RunScores
from kws_export.evaluation.score_sets import ClipSet
from kws_export.graph.build import build_model, build_step_model, save_model
from kws_export.network.matchboxnet import MatchboxNet
from kws_export.training.about import About
from kws_export.training.checkpoint import Checkpoint
from kws_export.training.description import uncalibrated_metadata

WORDS = tuple(tone_words.SWEEPS)


@pytest.fixture
def run(tone_run: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, to be written to."""
    return Path(shutil.copytree(tone_run, tmp_path / "tones-1"))


@pytest.fixture(scope="module")
def hum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kitchen") / "hum.wav"
    sf.write(path, 0.1 * np.random.default_rng(0).standard_normal(2 * tone_words.RATE), tone_words.RATE)
    return path


def score(tones: Path, out: Path, *arguments: object) -> Result:
    given = ["score", "--data", tones, "--cache", tones.parent / "cache", "--out", out, *arguments]
    return CliRunner().invoke(main, [str(argument) for argument in given])


def test_a_runs_answers_are_those_of_its_network(tones: Path, run: Path, hum: Path, tmp_path: Path) -> None:
    result = score(tones, tmp_path / "scores", run, "--noise", hum, "--sounds", hum.parent)
    assert result.exit_code == 0, result.output
    scores = RunScores.load(tmp_path / "scores" / "tones-1.npz")
    assert (scores.run, scores.variant, scores.seed, scores.epochs) == ("tones-1", "softmax", 1, 4)
    assert scores.labels == WORDS
    noisy = {f"test_{snr}dB" for snr in (20, 10, 5, 0)}
    assert scores.sets.keys() == scores.keys.keys() == {"validation", "test", "background", "sounds"} | noisy
    assert scores.patterns["noise"] == [f"{hum.parent.name}/hum.wav"]
    assert not any(Path(p).is_absolute() for patterns in scores.patterns.values() for p in patterns)
    checkpoint = Checkpoint.load(run / "best.pt")
    data = load_split(tones, "test", WORDS, tones.parent / "cache")
    with torch.inference_mode():
        p = checkpoint.network(split_features(data, checkpoint.front_end)).softmax(1).numpy()
    test = scores.sets["test"]
    assert test.p_truth is not None
    assert test.truth.tolist() == data.labels.tolist()
    assert test.predicted.tolist() == p.argmax(1).tolist()
    np.testing.assert_allclose(test.p_truth, p[np.arange(len(p)), data.labels], rtol=1e-3)
    np.testing.assert_allclose(test.entropy, -(p * np.log(p)).sum(1) / np.log(4), rtol=2e-3, atol=1e-6)
    assert f"tones-1.npz: test accuracy {test.correct.mean():.4f}" in result.stdout


def exported(run: Path, out: Path) -> Path:
    checkpoint = Checkpoint.load(run / "best.pt")
    save_model(build_model(checkpoint.network, uncalibrated_metadata(checkpoint, "entropy", {}, About())), out)
    return out


def test_an_exported_file_gives_the_scores_of_its_run(tones: Path, run: Path, tmp_path: Path) -> None:
    file = exported(run, tmp_path / "shipped.onnx")
    result = score(tones, tmp_path / "scores", run, file)
    assert result.exit_code == 0, result.output
    ours, its = (RunScores.load(tmp_path / "scores" / f"{name}.npz") for name in ("tones-1", "shipped"))
    assert (its.run, its.variant, its.seed, its.best_epoch) == ("shipped", ours.variant, ours.seed, ours.best_epoch)
    assert its.recipe == ours.recipe
    assert len(ours.history) == 4
    assert its.history == []
    for name, answers in ours.sets.items():
        for column in answers.__slots__:
            np.testing.assert_array_equal(getattr(its.sets[name], column), getattr(answers, column))
    assert "0 sets scored now" in score(tones, tmp_path / "scores", file).stdout


def test_the_kept_logits_are_the_networks_and_name_the_class(tones: Path, run: Path, tmp_path: Path) -> None:
    score(tones, tmp_path, run)
    checkpoint = Checkpoint.load(run / "best.pt")
    for name in ("validation", "test"):
        data = load_split(tones, name, WORDS, tones.parent / "cache")
        with torch.inference_mode():
            expected = checkpoint.network(split_features(data, checkpoint.front_end)).numpy()
        kept = RunScores.load(tmp_path / "tones-1.npz").sets[name]
        assert kept.logits is not None
        np.testing.assert_allclose(kept.logits, expected, rtol=1e-3, atol=1e-3)
        assert kept.logits.argmax(1).tolist() == kept.predicted.tolist()


def test_a_form_for_other_runtimes_is_not_scored(tones: Path, run: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint.load(run / "best.pt")
    metadata = uncalibrated_metadata(checkpoint, "entropy", {}, About())
    file = tmp_path / "tones.step.onnx"
    save_model(build_step_model(MatchboxNet(len(WORDS), padding="valid"), metadata), file)
    result = score(tones, tmp_path / "scores", file)
    assert result.exit_code == 1
    assert "expected the file that takes windows, mfcc alone" in result.stderr
    assert "Traceback" not in result.output


def test_a_file_that_is_no_model_is_one_line(tones: Path, tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_text("hello")
    result = score(tones, tmp_path / "scores", tmp_path / "x.onnx")
    assert result.exit_code == 1
    assert "x.onnx is not an ONNX file" in result.stderr
    assert not (tmp_path / "scores").exists()


def test_a_set_counts_as_scored_by_its_key_and_by_what_is_in_it_where_that_is_known() -> None:
    clips = ClipSet("test", "key", lambda: pytest.fail("loaded"), [])
    scored = score_files.run("softmax", keys={"test": "key"})
    assert scored.is_of(clips)  # as in files of earlier versions
    assert replace(scored, contents={"test": clips.content}).is_of(clips)
    assert not replace(scored, contents={"test": "other"}).is_of(clips)
    assert not replace(scored, keys={"test": "other"}).is_of(clips)


def test_where_scores_cannot_be_written_is_told_before_any_clip_is_read(
    tones: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kws_export.evaluation.score_sets.clip_sets", lambda *_, **__: pytest.fail("read"))
    (tmp_path / "file").touch()
    result = score(tones, tmp_path / "file", run)
    assert result.exit_code == 1
    assert f"Error: cannot write {tmp_path}/file" in result.stderr


def test_what_is_scored_already_is_passed_over_and_new_sets_are_added(
    tones: Path, run: Path, hum: Path, tmp_path: Path
) -> None:
    out = tmp_path / "scores"
    assert "3 sets scored now" in score(tones, out, run).stdout
    before = (out / "tones-1.npz").read_bytes()
    assert "0 sets scored now" in score(tones, out, run).stdout
    assert (out / "tones-1.npz").read_bytes() == before
    assert "1 sets scored now" in score(tones, out, run, "--speech", hum).stdout
    assert "speech" in RunScores.load(out / "tones-1.npz").sets


def test_another_checkpoint_is_scored_anew(tones: Path, run: Path, hum: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores"
    score(tones, out, run, "--speech", hum)
    saved = torch.load(run / "best.pt", weights_only=True)
    saved["model"]["classifier.bias"] += torch.tensor([100.0, 0, 0, 0])
    torch.save(saved, run / "best.pt")
    assert "3 sets scored now" in score(tones, out, run).stdout
    scores = RunScores.load(out / "tones-1.npz")
    assert "speech" not in scores.sets  # it was the old checkpoint's
    assert (scores.sets["test"].predicted == 0).all()


def test_a_file_of_another_format_is_replaced(tones: Path, run: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "tones-1.npz", about=np.array(json.dumps({"format": 0})))
    assert "3 sets scored now" in score(tones, tmp_path, run).stdout
    assert "test" in RunScores.load(tmp_path / "tones-1.npz").sets


def test_runs_that_are_still_training_are_left_out_and_named(tones: Path, run: Path, tmp_path: Path) -> None:
    young, unborn = Path(shutil.copytree(run, tmp_path / "young-1")), tmp_path / "unborn-1"
    unborn.mkdir()
    history = (young / "history.jsonl").read_text().splitlines()
    (young / "history.jsonl").write_text("\n".join(history[:2]) + "\n")
    result = score(tones, tmp_path / "scores", run, young, unborn)
    assert result.exit_code == 0, result.output
    assert "young-1: 2 of 4 epochs; skipped" in result.stderr
    assert "unborn-1: no best.pt; skipped" in result.stderr
    assert [path.name for path in (tmp_path / "scores").iterdir()] == ["tones-1.npz"]
    alone = score(tones, tmp_path / "scores", young)
    assert alone.exit_code == 1
    assert "no finished run among those given" in alone.stderr


def test_two_runs_of_one_name_are_refused(tones: Path, run: Path, tmp_path: Path) -> None:
    twin = Path(shutil.copytree(run, tmp_path / "elsewhere" / "tones-1"))
    result = score(tones, tmp_path / "scores", run, twin)
    assert result.exit_code == 1
    assert "Error: two runs are called tones-1; expected folders of different names" in result.stderr
    assert "Traceback" not in result.output


def test_runs_whose_recipes_name_other_test_clips_are_refused_together(tones: Path, run: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(tones, tmp_path / "data"))
    tests = (root / "testing_list.txt").read_text().split()
    (root / "few.txt").write_text("\n".join(tests[::2]))
    listed = Path(shutil.copytree(run, tmp_path / "listed-1"))
    saved = torch.load(listed / "best.pt", weights_only=True)
    saved["recipe"]["test_list"] = "few.txt"
    torch.save(saved, listed / "best.pt")
    both = score(root, tmp_path / "scores", run, listed)
    assert both.exit_code == 1
    assert "differ in test_list ('few.txt' and none); score them separately" in both.stderr
    alone = score(root, tmp_path / "scores", listed)
    assert alone.exit_code == 0, alone.output
    assert len(RunScores.load(tmp_path / "scores" / "listed-1.npz").sets["test"].truth) == len(tests[::2])


def test_help_teaches_with_an_example() -> None:
    result = CliRunner().invoke(main, ["score", "--help"])
    assert result.exit_code == 0
    assert "kws-export score runs/nine/*/ --data speech_commands" in result.output
