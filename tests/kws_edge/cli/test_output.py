"""Labels and names of any script, on outputs that cannot write them."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_audio import tone, wav
from tiny_model import METADATA, TONES, save

WORD = 'Grüße "Łódź"'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scripts")
    save(folder, "grüße", metadata=replace(METADATA, name="grüße", labels=("low", WORD, "high")))
    (folder / "はい.wav").write_bytes(wav(tone(TONES["mid"])))
    return folder


def run(folder: Path, encoding: str, *arguments: str, program: str = "kws_edge.cli") -> str:
    code = f"from {program} import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, check=True, cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )  # fmt: skip
    assert done.stderr == b""
    return done.stdout.decode(encoding)


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", WORD), ("latin-1", r'Grüße "\u0141ód\u017a"')])
def test_what_an_output_cannot_write_is_written_as_an_escape(folder: Path, encoding: str, shown: str) -> None:
    (model,) = folder.glob("*.onnx")
    assert shown in run(folder, encoding, "classify", "はい.wav", "--model", model.name, "--target", "99")


def test_json_has_the_word_itself_on_every_output(folder: Path) -> None:
    (model,) = folder.glob("*.onnx")
    for encoding in ("utf-8", "latin-1", "cp1252"):
        line = run(folder, encoding, "classify", "はい.wav", "--model", model.name, "--target", "99", "--json")
        assert json.loads(line)["label"] == WORD


@pytest.mark.parametrize("program", ["kws_edge.cli", "kws_export.cli"])
def test_help_can_be_read_on_every_output(folder: Path, program: str) -> None:
    command = "wake" if program == "kws_export.cli" else "listen"
    assert "Usage" in run(folder, "latin-1", command, "--help", program=program)


def shell(command: str, *arguments: str, program: str = "kws_edge.cli") -> subprocess.CompletedProcess[str]:
    """A command line in which $KWS is the program, run by a shell."""
    code = f"from {program} import main; main()"
    kws = shlex.join([sys.executable, "-c", code])
    return subprocess.run(
        ["sh", "-c", command.replace("$KWS", kws), "sh", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(sys.platform == "win32", reason="has no such shell")
class TestClosed:
    @pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
    @pytest.mark.parametrize("command", ["listen --fast --target 99 --replay", "classify --target 99"])
    def test_what_is_written_to_a_closed_output_goes_nowhere(self, folder: Path, command: str, closed: str) -> None:
        (model,) = folder.glob("*.onnx")
        done = shell(f'$KWS {command} "$1" --model "$2" {closed}', str(folder / "はい.wav"), str(model))
        assert (done.returncode, "Traceback" in done.stderr) == (0, False)

    def test_no_file_takes_the_place_of_a_closed_output(self) -> None:
        code = "import os; from kws_edge.cli.output import replace_closed_output as f; f(); exit(os.dup(0))"
        assert shell(f"{sys.executable} -c '{code}' <&- >&- 2>&-").returncode > 2

    def test_a_closed_input_is_told_in_one_line(self) -> None:
        done = shell("$KWS listen - <&-")
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].startswith("Error: standard input is closed; expected")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
@pytest.mark.parametrize("program", ["kws_edge.cli", "kws_export.cli"])
@pytest.mark.parametrize("arguments", ["--help", "", "pack --help", "models --help"])
def test_help_on_a_full_disk_is_an_error_of_one_line(program: str, arguments: str) -> None:
    done = shell(f"$KWS {arguments} > /dev/full", program=program)
    assert "Traceback" not in done.stderr
    said = "Error: standard output: No space left on device"
    assert done.stderr.splitlines()[-1] == said or "Usage" in done.stderr
