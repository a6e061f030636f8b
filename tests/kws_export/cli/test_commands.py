"""The command line `kws-export`: help that teaches, errors in one line, exit statuses, a run that can be stopped."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import tiny_model
import tone_words
import torch
from click.testing import CliRunner, Result

from kws_export.cli import main
from kws_export.training.checkpoint import load_checkpoint
from kws_export.training.trainer import Trainer

COMMANDS = ("train", "average", "export", "download", "inspect", "quantise", "report", "score", "sweep")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # `train` tunes its whole process, which here is that of all tests: without small numbers, for one.
    monkeypatch.setattr("kws_export.kernels.compiled.tune_process", lambda: None)
    with tone_words.one_thread():
        yield


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tones.toml"
    path.write_text(tone_words.RECIPE)
    return path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def train_arguments(recipe: Path, tones: Path, out: Path, *options: object) -> list[object]:
    cache = tones.parent / "cache"
    return ["train", "--recipe", recipe, "--data", tones, "--out", out, "--cache", cache, "--device", "cpu", *options]


def assert_one_line_error(result: Result, message: str, status: int = 1) -> None:
    assert result.exit_code == status, result.output
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert re.search(message, errors[0]), errors[0]
    assert result.stderr.rstrip().endswith(errors[0])
    assert "Traceback" not in result.output


# --- help


def test_the_commands_are_listed() -> None:
    result = call("--help")
    assert result.exit_code == 0
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w", result.output, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    for option in ("--help", "-h"):
        result = call(command, option)
        assert result.exit_code == 0
        assert re.search(rf"kws-export {command} \S", result.output)
        assert all(len(line) <= 120 for line in result.output.splitlines())


# --- train


def test_train_says_a_line_an_epoch_and_where_the_weights_are(recipe: Path, tones: Path, tmp_path: Path) -> None:
    result = call(*train_arguments(recipe, tones, tmp_path / "run", "--epochs", 2, "--seed", 3))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    pattern = r"epoch +{}/2  loss \d+\.\d{{4}}  accuracy [01]\.\d{{4}}  validation [01]\.\d{{4}}  \d+ clips/s"
    assert re.fullmatch(pattern.format(1), lines[0])
    assert re.fullmatch(pattern.format(2), lines[1])
    assert re.fullmatch(rf"best validation accuracy [01]\.\d+: {tmp_path}/run/best\.pt", lines[2])
    assert len(lines) == 3
    assert load_checkpoint(tmp_path / "run" / "last.pt")["recipe"]["seed"] == 3


def test_ctrl_c_is_status_130_and_the_same_command_goes_on(
    recipe: Path, tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer._step

    def interrupted(self: Trainer, *arguments: Any) -> Any:
        if self.epoch == 1:
            signal.raise_signal(signal.SIGINT)
        return step(self, *arguments)

    arguments = train_arguments(recipe, tones, tmp_path / "run", "--epochs", 2)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", interrupted)
        stopped = call(*arguments)
    assert stopped.exit_code == 130
    assert "Traceback" not in stopped.output
    assert "stopped after 1 epochs; the same command continues from there" in stopped.stderr
    resumed = call(*arguments)
    assert resumed.exit_code == 0
    assert resumed.stdout.startswith(f"{tmp_path}/run has 1 of 2 epochs; continuing from there\nepoch   2/2")


def test_on_a_terminal_a_bar_moves_and_makes_room_for_the_epochs_line(
    recipe: Path, tones: Path, tmp_path: Path
) -> None:
    screen, terminal = pty.openpty()
    command = map(str, train_arguments(recipe, tones, tmp_path / "run", "--epochs", 1, "--threads", 1))
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        [sys.executable, "-m", "kws_export", *command], stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # Linux's way to say that the other end is closed
        while part := os.read(screen, 65_536):
            shown += part
    os.close(screen)
    assert process.wait(timeout=60) == 0
    assert re.search(rb"step \d+/10, loss \d\.\d{3}", shown)  # at the latest the last step, as the bar leaves
    erased = rb"\r\x1b\[1A\x1b\[2K"  # the line above, which the bar was on
    assert re.search(erased + rb"epoch   1/1  loss", shown)


def test_without_a_terminal_no_bar_is_drawn(recipe: Path, tones: Path, tmp_path: Path) -> None:
    result = call(*train_arguments(recipe, tones, tmp_path / "run", "--epochs", 1))
    assert result.exit_code == 0
    assert "step" not in result.output


# --- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epochs", 0], "epochs=0; expected at least 1"),
        (["--seed", -1], "seed=-1; expected 0 to 1e"),
        (["--negatives", "x"], r"recipe tones has no \[negatives\] share"),
        (["--seed", 7, "--out", "{run}"], "holds a run of another recipe, which differs in seed"),
        (["--out", "{recipe}"], r"tones\.toml"),
    ],
)
def test_what_cannot_be_trained_is_one_line_and_status_1(
    recipe: Path, tones: Path, tone_run: Path, tmp_path: Path, options: list[object], message: str
) -> None:
    places = {"run": tone_run, "recipe": recipe}
    given = [str(option).format(**places) for option in options]
    assert_one_line_error(call(*train_arguments(recipe, tones, tmp_path / "run", *given)), message)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_cuda_device_is_one_line(recipe: Path, tones: Path, tmp_path: Path) -> None:
    result = call(*train_arguments(recipe, tones, tmp_path / "run", "--device", "cuda"))
    assert_one_line_error(
        result, "device cuda asked for, but torch finds no CUDA device here; use --device cpu or auto"
    )


def test_a_recipe_that_is_no_toml_is_one_line(tones: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("variant = softmax")
    assert_one_line_error(call(*train_arguments(tmp_path / "bad.toml", tones, tmp_path / "run")), "is not a TOML file")


def test_a_folder_without_words_is_one_line(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert_one_line_error(call(*train_arguments(recipe, tmp_path / "empty", tmp_path / "run")), "no words in .*empty")


@pytest.mark.parametrize(
    "arguments",
    [["train"], ["train", "--recipe", "none.toml"], ["export", "none"], ["inspect", "none.onnx"], ["listen"]],
)
def test_a_wrong_call_is_status_2_with_the_usage(arguments: list[str]) -> None:
    result = call(*arguments)
    assert_one_line_error(result, "Missing option|does not exist|No such command", status=2)
    assert "Usage: " in result.stderr


def test_a_run_without_a_checkpoint_cannot_be_exported(tones: Path, tmp_path: Path) -> None:
    assert_one_line_error(call("export", tmp_path, "--data", tones), r"no checkpoint .*best\.pt; `kws-export train`")


# --- inspect


def test_inspect_shows_versions_operators_and_metadata(tmp_path: Path) -> None:
    path = tiny_model.save(tmp_path)
    result = call("inspect", path)
    assert result.exit_code == 0
    head, operators, *metadata = result.output.splitlines()
    assert re.fullmatch(rf"{path}: IR version 8, opset 17, [\d,]+ weights", head)
    assert operators.startswith("operators: ")
    assert "ReduceSum x2" in operators
    assert json.loads("\n".join(metadata))["labels"] == ["low", "mid", "high"]


@pytest.mark.parametrize("content", [b"", b"RIFF not a model"])
def test_inspect_refuses_what_is_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(content)
    assert_one_line_error(call("inspect", path), r"x\.onnx (is not an ONNX file|has no metadata)")


def test_an_empty_value_of_an_option_is_refused_and_a_name_stays_on_its_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["export", str(tmp_path), "--out", ""])
    assert (result.exit_code, "--out: an empty value" in result.stderr) == (2, True)
    (tmp_path / "a\nError: forged.onnx").write_bytes(b"no model")
    result = CliRunner().invoke(main, ["inspect", str(tmp_path / "a\nError: forged.onnx")])
    assert result.exit_code != 0
    assert r"a\nError: forged" in result.stderr
    assert "\nError: forged" not in result.stderr


def test_names_in_a_model_stay_on_their_lines(tmp_path: Path) -> None:
    model = onnx.load(tiny_model.save(tmp_path))
    name, opset = "Op\nError: forged\x1b[2J", onnx.helper.make_opsetid("", 17)
    body = [onnx.helper.make_node("Identity", ["a"], ["b"])]
    model.functions.append(onnx.helper.make_function("own", name, ["a"], ["b"], body, [opset]))
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    model.graph.node.append(onnx.helper.make_node(name, ["mfcc"], ["c"], domain="own"))
    values = json.loads(model.metadata_props[0].value)
    model.metadata_props[0].value = json.dumps({**values, "training": {"data": "a\u2028b\u202ec\u009b2J"}})
    onnx.save(model, tmp_path / "own.onnx")
    output = call("inspect", tmp_path / "own.onnx").output
    assert not any(line.startswith("Error: forged") for line in output.splitlines())
    assert set(output) & set("\x1b\u2028\u202e\u009b") == set()


@pytest.mark.parametrize("command", ["speak hi", "quantise m.onnx --data ."])
def test_a_seed_below_nought_is_wrong_usage(command: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [*command.split(), "--seed", "-1", "--out", str(tmp_path / "o")])
    assert result.exit_code == 2


def test_a_wake_models_card_shows_what_was_typed_without_this_machines_folders() -> None:
    from kws_export.cli.wake import _command

    typed = ["wake", "AC/DC", "--negatives=/home/me/n.npz", "--out", "/tmp/x y.onnx", "--recordings-note", "CC BY/4.0"]
    assert _command(typed) == "kws-export wake AC/DC --negatives=n.npz --out 'x y.onnx' --recordings-note 'CC BY/4.0'"


def test_a_wake_models_card_names_the_folder_that_a_dot_stands_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kws_export.cli.wake import _command

    (tmp_path / "takes").mkdir()
    monkeypatch.chdir(tmp_path / "takes")
    assert _command(["wake", "lamp", "--recordings", ".", "--negatives=.."]) == (
        f"kws-export wake lamp --recordings takes --negatives={tmp_path.name}"
    )


def test_a_wake_model_without_negatives_is_wrong_usage(tmp_path: Path) -> None:
    result = call("wake", "hey lamp", "--out", tmp_path / "lamp.onnx")
    assert result.exit_code == 2
    assert "Missing option '--negatives'" in result.stderr


def test_a_mean_is_written_over_a_checkpoint_by_force_alone(tone_run: Path, tmp_path: Path) -> None:
    for name in ("a.pt", "b.pt"):
        (tmp_path / name).write_bytes((tone_run / "best.pt").read_bytes())
    before = (tmp_path / "b.pt").read_bytes()
    command = ("average", tmp_path / "a.pt", tmp_path / "b.pt", "--out", tmp_path / "b.pt")
    assert_one_line_error(call(*command), r"b\.pt exists; expected a new name, or --force")
    assert (tmp_path / "b.pt").read_bytes() == before
    assert call(*command, "--force").exit_code == 0


@pytest.mark.parametrize("name", ["x.onnx", "x.step.onnx", "x.md"])
def test_a_wake_word_is_written_over_something_else_by_force_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("another's")
    result = call("wake", "lamp", "--out", tmp_path / "x.onnx", "--negatives", tmp_path / "none.npz")
    assert_one_line_error(result, rf"{re.escape(name)} exists; expected a new name, or --force")


def test_packages_are_for_kokoro_alone(tmp_path: Path) -> None:
    result = call("download", tmp_path / "speech_commands", "--from", tmp_path)
    assert result.exit_code == 2
    assert "--from is for Kokoro's packages" in result.stderr
    assert not (tmp_path / "speech_commands").exists()
