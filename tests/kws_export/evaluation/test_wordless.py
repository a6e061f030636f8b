"""Clips without a word: noise and quiet are listed, a word in noise is not, whatever its level and offset."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
import tone_words
from click.testing import CliRunner

from kws_export.cli import main
from kws_export.evaluation.wordless import QUIET, energy
from kws_export.graph.build import build_model, save_model
from kws_export.training.about import About
from kws_export.training.checkpoint import Checkpoint
from kws_export.training.description import uncalibrated_metadata

RNG = np.random.default_rng(0)
NOISE = RNG.standard_normal(16_000).astype(np.float32)


def word(level: float = 0.1) -> np.ndarray:
    """A tone of 0.3 s in a second."""
    clip = np.zeros(16_000, np.float32)
    clip[6000:10_800] = level * np.sin(2 * np.pi * 440 * np.arange(4800) / tone_words.RATE)
    return clip


@pytest.mark.parametrize("level", [1e-4, 1e-3, 0.01, 0.3])
def test_noise_without_a_word_is_listed_however_loud(level: float) -> None:
    assert energy(level * NOISE).holds_no_word


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.01])
def test_a_word_in_noise_is_not(noise: float) -> None:
    assert not energy(word() + noise * NOISE).holds_no_word


def test_an_offset_is_no_sound() -> None:
    assert energy(np.full(16_000, 0.3, np.float32)).holds_no_word
    assert not energy(word() + np.float32(0.3)).holds_no_word


def test_what_is_too_quiet_for_speech_is_listed_though_it_stands_out() -> None:
    e = energy(word(0.001))
    assert e.contrast > 30
    assert e.loudest < QUIET
    assert e.holds_no_word


def test_digital_silence_has_a_level() -> None:
    assert energy(np.zeros(1600, np.float32)).loudest == pytest.approx(-100)


def test_where_every_clip_is_listed_none_is_left_to_be_right(tones: Path, tone_run: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint.load(tone_run / "best.pt")
    model = tmp_path / "tones.onnx"
    save_model(build_model(checkpoint.network, uncalibrated_metadata(checkpoint, "entropy", {}, About())), model)
    root = Path(shutil.copytree(tones, tmp_path / "data"))
    tests = (root / "testing_list.txt").read_text().split()
    for name in tests:
        sf.write(root / name, 0.01 * NOISE, tone_words.RATE)
    arguments = ["wordless", "--data", root, "--model", model, "--cache", tmp_path / "cache"]
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    assert len([line for line in result.stdout.splitlines() if "loudest" in line]) == len(tests)
    assert result.stdout.splitlines()[-1] == f"without these {len(tests)}: none is left"


def test_the_test_clips_are_those_that_the_recipe_lists(tones: Path, tone_run: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint.load(tone_run / "best.pt")
    checkpoint = replace(checkpoint, recipe=replace(checkpoint.recipe, test_list="official.txt"))
    model = tmp_path / "tones.onnx"
    save_model(build_model(checkpoint.network, uncalibrated_metadata(checkpoint, "entropy", {}, About())), model)
    root = Path(shutil.copytree(tones, tmp_path / "data"))
    (root / "official.txt").write_text("\n".join((root / "testing_list.txt").read_text().split()[:5]))
    arguments = ["wordless", "--data", root, "--model", model, "--cache", tmp_path / "cache"]
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert "all 5 clips: " in result.stdout


def test_a_clip_without_a_frame_is_an_error_of_one_line(tones: Path, tone_run: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint.load(tone_run / "best.pt")
    model = tmp_path / "tones.onnx"
    save_model(build_model(checkpoint.network, uncalibrated_metadata(checkpoint, "entropy", {}, About())), model)
    root = Path(shutil.copytree(tones, tmp_path / "data"))
    short = (root / "testing_list.txt").read_text().split()[0]
    sf.write(root / short, NOISE[:100], tone_words.RATE)
    arguments = ["wordless", "--data", root, "--model", model, "--cache", tmp_path / "cache"]
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 1
    assert result.stderr.rstrip().endswith(f"Error: {short} has 100 samples; expected 400 or more, a frame")
