"""`kws-edge record`: the files that it leaves, and what it says."""

import json
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner, Result

from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import load
from kws_edge.audio.sources import Block
from kws_edge.cli import main


def room(seconds: float) -> Any:
    return 0.001 * np.random.default_rng(0).standard_normal(round(seconds * SAMPLE_RATE))


def said(seconds: float = 0.6, amplitude: float = 0.3) -> Any:
    t = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return amplitude * np.sin(2 * np.pi * 300 * t) + room(seconds)


def stream(*words: Any) -> Any:
    parts = [room(1), *(part for word in words for part in (word, room(0.8)))]
    return np.clip(np.concatenate(parts), -1, 1).astype(np.float32)


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """Two good takes and a clipped one between them."""
    soundfile.write(tmp_path / "long.wav", stream(said(), said(amplitude=5), said(0.8)), SAMPLE_RATE)
    return tmp_path / "long.wav"


def record(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["record", *arguments])


def test_a_recording_is_cut_into_files_in_the_layout_of_speech_commands(tmp_path: Path, long: Path) -> None:
    result = record("Hey Lamp", "--out", str(tmp_path / "mine"), "--from", str(long), "--speaker", "anna")
    assert result.exit_code == 0, result.output
    files = sorted((tmp_path / "mine").rglob("*.wav"))
    assert [f.relative_to(tmp_path / "mine").as_posix() for f in files] == [
        "hey_lamp/anna_nohash_0.wav", "hey_lamp/anna_nohash_1.wav",
    ]  # fmt: skip
    assert [len(load(f).samples) / SAMPLE_RATE for f in files] == pytest.approx([0.9, 1.1], abs=0.06)
    assert "clipped" in result.stdout
    assert "2 takes of 'Hey Lamp'" in result.stderr
    assert "1 refused" in result.stderr


def test_takes_are_added_to_those_that_are_there(tmp_path: Path, long: Path) -> None:
    for _ in range(2):
        record("yes", "--out", str(tmp_path), "--from", str(long), "--speaker", "anna")
    record("yes", "--out", str(tmp_path), "--from", str(long), "--speaker", "bert")
    names = sorted(f.stem for f in (tmp_path / "yes").iterdir())
    assert names == [*(f"anna_nohash_{i}" for i in range(4)), *(f"bert_nohash_{i}" for i in range(2))]


@pytest.mark.parametrize(
    ("word", "folder"), [("की", "की"), ("का", "का"), ("Hey, Ku\u0308che!", "hey_küche"), ("नमस्ते", "नमस्ते")]
)
def test_the_folder_of_a_word_of_any_script_has_all_of_it(tmp_path: Path, long: Path, word: str, folder: str) -> None:
    assert record(word, "--out", str(tmp_path), "--from", str(long)).exit_code == 0
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [folder]


def test_json_tells_each_take(tmp_path: Path, long: Path) -> None:
    result = record("yes", "--out", str(tmp_path), "--from", str(long), "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["refused"] is None for line in lines] == [True, False, True]
    assert [line["file"] is None for line in lines] == [False, True, False]
    assert all(Path(line["file"]).is_file() for line in lines if line["file"])


class Spoken:
    """A microphone into which a word is said again and again."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.closed = False

    def __iter__(self) -> Any:
        while not self.closed:
            for part in np.split(stream(said()), 24):
                yield Block(part)

    def close(self) -> None:
        self.closed = True


def test_a_microphone_is_listened_to_until_there_are_enough_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kws_edge.audio.microphone.Microphone", Spoken)
    result = record("yes", "--out", str(tmp_path), "--takes", "3")
    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / "yes").iterdir())) == 3


class Losing(Spoken):
    """One that loses 0.15 s in the middle of each first word of two."""

    def __iter__(self) -> Any:
        while not self.closed:
            torn, whole = stream(said()), stream(said())
            yield Block(torn[: round(1.3 * SAMPLE_RATE)])
            yield Block(torn[round(1.45 * SAMPLE_RATE) :], dropped=round(0.15 * SAMPLE_RATE))
            yield Block(whole)


def test_a_take_that_lost_samples_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kws_edge.audio.microphone.Microphone", Losing)
    result = record("yes", "--out", str(tmp_path), "--takes", "2", "--json")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    good = [line for line in lines if line["refused"] is None]
    assert [line["start"] for line in good] == pytest.approx([3.4 - 0.15, 3.4 + 4.8 - 0.15], abs=0.06)
    assert all("samples were lost" in line["refused"] for line in lines if line not in good)
    assert len(lines) > 2


def test_a_recording_is_cut_to_its_end_however_many_takes_it_has(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "long.wav", stream(*[said(0.3)] * 22), SAMPLE_RATE)
    cut = ["yes", "--out", str(tmp_path), "--from", str(tmp_path / "long.wav")]
    record(*cut)
    assert len(list((tmp_path / "yes").iterdir())) == 22
    record(*cut, "--takes", "2")
    assert len(list((tmp_path / "yes").iterdir())) == 24


def test_a_recording_without_a_take_fails(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "quiet.wav", room(3), SAMPLE_RATE)
    result = record("yes", "--out", str(tmp_path / "mine"), "--from", str(tmp_path / "quiet.wav"))
    assert (result.exit_code, "0 takes" in result.stderr) == (1, True)
    assert "nothing was louder than the noise" in result.stderr


def test_a_recording_with_fewer_takes_than_asked_for_fails_and_its_takes_are_kept(tmp_path: Path, long: Path) -> None:
    result = record("yes", "--out", str(tmp_path), "--from", str(long), "--takes", "5")
    assert (result.exit_code, "2 takes" in result.stderr) == (1, True)
    assert len(list((tmp_path / "yes").iterdir())) == 2


def test_a_single_take_is_called_one(tmp_path: Path, long: Path) -> None:
    result = record("yes", "--out", str(tmp_path), "--from", str(long), "--takes", "1")
    assert "1 take of 'yes'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["..", "--out", "mine"], "expected letters or digits"),
        (["yes", "--out", "mine", "--speaker", "a/b"], "expected only letters and digits"),
        (["yes", "--out", "mine", "--from", "nowhere.wav"], "nowhere.wav"),
        (["yes", "--out", "mine", "--from", "long.wav", "--device", "1"], "--device names a microphone"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    long: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    monkeypatch.chdir(long.parent)
    result = record(*arguments)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert not list(long.parent.rglob("*_nohash_*"))


def test_where_the_disk_takes_no_more_it_is_one_line_and_no_half_take_stays(tmp_path: Path, long: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    try:
        result = record("yes", "--out", str(tmp_path / "mine"), "--from", str(long))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "File too large; expected a folder with room for takes" in result.stderr
    assert list((tmp_path / "mine" / "yes").iterdir()) == []


def test_a_folder_that_is_removed_meanwhile_is_one_line(
    tmp_path: Path, long: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kws_edge.cli.record._tell", lambda *_: shutil.rmtree(tmp_path / "mine", ignore_errors=True))
    result = record("yes", "--out", str(tmp_path / "mine"), "--from", str(long))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "No such file or directory; expected a folder with room for takes" in result.stderr
