"""Labels and names of any script, on outputs that cannot write them."""

import json
import os
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
