"""A file's name is somebody else's text: it stays on its line."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_audio import tone, wav
from tiny_model import TONES, save

from kws_edge import KeywordModel
from kws_edge.text import one_line
from kws_edge.tuning.recordings import short_name

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


def test_a_name_cannot_forge_a_row_of_a_measurement(tmp_path: Path) -> None:
    model = save(tmp_path)
    (tmp_path / FORGED).write_bytes(wav(np.tile(tone(TONES["mid"]), 3)))
    (tmp_path / "said.txt").write_text("0\t1\tmid\n")
    done = run(tmp_path, "evaluate-stream", "--recording", FORGED, "--labels", "said.txt", "--model", str(model))
    assert len(done.stdout.splitlines()) == 3, done.stderr
    assert r"a.wav\nstop" in done.stdout
    assert short_name(".") == "."
    assert short_name(f"folder/{FORGED}") == rf"folder/{one_line(FORGED)}"


def test_names_of_takes_and_of_the_model_stay_on_their_lines(data: Path, tmp_path: Path) -> None:
    takes = sorted((data / "speech_commands" / "happy").glob("d312f481_nohash_*"))[:3]
    names = [f"take{i}\nError: forged\x1b[2J.wav" for i in range(3)]
    for take, name in zip(takes, names, strict=True):
        (tmp_path / name).write_bytes(take.read_bytes())
    done = run(tmp_path, "enroll", "open sesame", *names, "--out", "a b\nc.onnx")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 4), done.stderr
    assert "\x1b" not in done.stdout
    assert KeywordModel.load(tmp_path / "a b\nc.onnx").name == "a_b_c"


def test_the_folder_of_takes_stays_on_its_line(tmp_path: Path) -> None:
    (tmp_path / "long.wav").write_bytes(wav(tone(TONES["mid"])))
    done = run(tmp_path, "record", "mid", "--out", "a\nError: b", "--from", "long.wav")
    assert "\nError: b" not in done.stderr


def test_what_is_said_of_a_file_stays_on_its_line(tmp_path: Path) -> None:
    model = save(tmp_path)
    sides = tone(TONES["mid"], 2.0)
    name = "a\nError: forged\x1b[2J.wav"
    (tmp_path / name).write_bytes(wav(np.stack([sides, -sides], axis=1)))
    for arguments in (("classify", name, "--target", "99"), ("listen", "--fast", "--replay", name)):
        (line,) = run(tmp_path, *arguments, "--model", str(model)).stderr.splitlines()
        assert line.startswith(r"Warning: a\nError: forged\x1b[2J.wav: the channels cancel each other"), line
