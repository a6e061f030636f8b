"""A file's name is somebody else's text: it stays on its line."""

import subprocess
import sys
from pathlib import Path

import pytest
from made_audio import tone, wav
from tiny_model import TONES, save

from kws_edge.text import one_line

FORGED = "a.wav\nstop             1.000   0.001  0.00-1.00       b.wav"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from kws_edge.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, cwd=folder
    )


def test_a_name_cannot_forge_a_line_of_the_table(tmp_path: Path) -> None:
    model = save(tmp_path)
    (tmp_path / FORGED).write_bytes(wav(tone(TONES["mid"])))
    done = run(tmp_path, "classify", FORGED, "--model", str(model), "--target", "99")
    assert len(done.stdout.splitlines()) == 2
    assert r"a.wav\nstop" in done.stdout


def test_a_name_cannot_forge_an_error(tmp_path: Path) -> None:
    model = save(tmp_path)
    (tmp_path / "x\nError: all is lost\x1b[2J.wav").write_bytes(b"no audio")
    done = run(tmp_path, "classify", ".", "--model", str(model), "--target", "99")
    (line,) = done.stderr.splitlines()
    assert r"x\nError: all is lost\x1b[2J.wav" in line


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("ja nein.wav", "ja nein.wav"),
        ("はい　１.wav", "はい　１.wav"),
        ("a\u202egnp.wav", r"a\u202egnp.wav"),
        ("\udcff", r"\udcff"),
    ],
)
def test_what_can_be_written_is_written_as_it_is(name: str, shown: str) -> None:
    assert one_line(name) == shown
