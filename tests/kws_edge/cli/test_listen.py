"""`kws-edge listen`, `devices` and `stream-cost`: what people and scripts see; sounddevice is a stand-in."""

import errno
import io
import json
import os
import pty
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import tiny_model
from click.testing import CliRunner, Result
from listen_sounds import SOUND, noise, tone
from paths import ROOT
from rich.console import Console

from kws_edge.audio.load import load
from kws_edge.audio.sources import Block
from kws_edge.cli import main
from kws_edge.cli.actions import MOST_COMMANDS, EventCommand, EventSaver
from kws_edge.cli.display import Health, _clock, picture
from kws_edge.errors import SettingError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import WAKE_WORD
from kws_edge.model.onnx_file import with_metadata
from kws_edge.stream.settings import StreamSettings
from kws_edge.stream.spotter import Spotter

RATE = 16_000

PATIENT = 60  # s, which only a failure takes
COMMAND = [sys.executable, "-c", "from kws_edge.cli import main; main(prog_name='kws-edge')"]

STAND_IN = """
import threading, time, pathlib, numpy as np
from types import SimpleNamespace

class PortAudioError(Exception): pass

default = SimpleNamespace(device=[0, 0])
MIC = {"name": "USB Mic", "index": 0, "hostapi": 0, "max_input_channels": 1, "default_samplerate": 16000.0}

def query_hostapis(): return [{"name": "ALSA"}]

def query_devices(device=None, kind=None): return MIC if kind else [MIC]

class InputStream:
    def __init__(self, *, blocksize, callback, **settings):
        self.blocksize, self.callback, self.active = blocksize, callback, False
        pathlib.Path("opened").touch()

    def start(self):
        self.active = True
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        sound, n = np.load("sound.npy"), 0
        while self.active:
            block = sound[n : n + self.blocksize] if n < len(sound) else np.full(self.blocksize, 1, np.int16)
            if len(block) == self.blocksize:
                self.callback(block[:, None], len(block), None, SimpleNamespace(input_overflow=False))
            n += self.blocksize
            time.sleep(self.blocksize / 16000)

    def abort(self): self.active = False

    def close(self): pathlib.Path("released").touch()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model, a recording and, for processes of their own, a microphone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kws_edge.cli.actions._PATIENCE", PATIENT)  # for what the commands of events write
    tiny_model.save(tmp_path)
    soundfile.write("words.wav", SOUND, RATE)
    np.save("sound.npy", (SOUND[RATE:] * 32767).astype(np.int16))
    (tmp_path / "standin").mkdir()
    (tmp_path / "standin" / "sounddevice.py").write_text(STAND_IN)
    return tmp_path


@pytest.fixture
def no_sounddevice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def listen(*arguments: str, stdin: bytes | None = None) -> Result:
    return run("listen", "--model", "tiny.onnx", *arguments, stdin=stdin)


def replay(*arguments: str) -> Result:
    return listen("--replay", "words.wav", "--fast", *arguments)


def events(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    told = [json.loads(line) for line in result.stdout.splitlines()]
    for event in told:
        assert datetime.fromisoformat(event["clock"]).tzinfo
    return [{**event, "clock": None} for event in told]


def start(*arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
    """The command in a process of its own, where the microphone is the stand-in."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path("standin").absolute()), str(ROOT)])}
    return subprocess.Popen(
        [*COMMAND, "listen", "--model", "tiny.onnx", *arguments],
        env=environment,
        **{"stdout": subprocess.PIPE, **settings},
    )


@pytest.mark.usefixtures("folder")
class TestReplay:
    def test_a_line_for_each_event_where_there_is_no_terminal(self) -> None:
        result = replay()
        assert result.exit_code == 0
        mid, unsure, low = result.stdout.splitlines()
        assert mid.startswith("0:01.5-0:02.1  mid ")
        assert "not sure (uncertain, best guess" in unsure
        assert low.split()[1] == "low"

    def test_a_wake_words_model_tells_what_it_is_not_sure_of_only_when_asked(self) -> None:
        path = Path("tiny.onnx")
        metadata = KeywordModel.load(path).metadata
        waking = replace(metadata, training={**metadata.training, "purpose": WAKE_WORD})
        path.write_bytes(with_metadata(path.read_bytes(), waking))
        told = {options: [e["label"] for e in events(replay("--json", *options))] for options in ((), ("--verbose",))}
        assert told == {(): ["mid", "low"], ("--verbose",): ["mid", None, "low"]}

    def test_json_lines_are_those_of_the_public_interface(self) -> None:
        spotter = Spotter(KeywordModel.load("tiny.onnx"))
        expected = spotter.push(load("words.wav").samples) + spotter.finish()
        assert events(replay("--json")) == [event.to_dict() for event in expected]

    def test_only_the_chosen_words(self) -> None:
        assert [e["label"] for e in events(replay("--json", "--words", "low, high"))] == [None, "low"]

    def test_chosen_words_may_be_written_in_capitals(self) -> None:
        assert events(replay("--json", "--words", "LOW,High")) == events(replay("--json", "--words", "low,high"))

    def test_a_model_that_was_calibrated_for_a_few_words_listens_for_these(self, folder: Path) -> None:
        stream = {"settings": StreamSettings({"entropy": 0.5}).to_dict(), "calibration": {"words_chosen": ["low"]}}
        tiny_model.save(folder, "few", metadata=replace(tiny_model.METADATA, name="few", stream=stream))

        def words(*arguments: str) -> list[str]:
            result = replay("--json", "--model", "few.onnx", *arguments)
            return [event["label"] for event in events(result) if event["label"]]

        assert words() == ["low"]
        assert words("--words", "mid") == ["mid"]
        assert words("--target", "99.5") == ["mid", "low"]  # thresholds for all words
        assert "listening for low" in replay("--model", "few.onnx").stderr

    def test_words_that_were_asked_for_are_not_told_again(self) -> None:
        asked = [("--words", "low"), ("--wake", "mid", "--then", "low")]
        assert [replay("--json", *words).stderr for words in asked] == ["", ""]

    @pytest.mark.parametrize("wake", ["", " ", ",", " , "])
    def test_no_wake_word_is_not_taken_for_listening_without_one(self, wake: str) -> None:
        result = replay("--wake", wake, "--then", "low")
        assert result.exit_code == 2
        assert result.stdout == ""

    def test_commands_count_only_after_a_wake_word(self) -> None:
        def words(*options: str) -> list[str]:
            return [event["label"] for event in events(replay("--json", "--abstentions", "none", *options))]

        assert words() == ["mid", "low"]
        assert words("--wake", "mid", "--then", "low", "--for", "10") == ["mid", "low"]
        assert words("--wake", "low", "--then", "mid", "--for", "10") == ["low"]
        assert words("--wake-model", "tiny.onnx", "--wake", "mid", "--then", "low", "--for", "10") == ["mid", "low"]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--then", "low"), "add --wake or --wake-model"),
            (("--for", "3"), "add --wake or --wake-model"),
            (("--wake", "mid", "--words", "low"), "name the commands by --then"),
            (("--wake", "mid", "--for", "0.1"), "expected a number from 1 to 60"),
            (("--wake", "alexa"), "--wake: alexa; expected one or more of low, mid, high, or --wake-model with"),
        ],
    )
    def test_wake_options_that_do_not_go_together_are_refused(self, options: tuple[str, ...], said: str) -> None:
        result = replay(*options)
        assert result.exit_code == 2
        assert said in result.stderr

    @pytest.mark.parametrize(
        ("seconds", "said"),
        [
            (0.05, "nothing was heard: 0.05 s of sound came in"),  # less than a hop
            (3, "nothing was heard: too quiet: at most -70 dBFS in 3.0 s"),
        ],
    )
    def test_a_recording_in_which_nothing_was_heard_is_said_to_be_one(self, seconds: float, said: str) -> None:
        soundfile.write("faint.wav", noise(seconds), RATE)
        result = listen("--replay", "faint.wav", "--fast")
        assert (result.exit_code, result.stdout) == (0, "")
        (line,) = result.stderr.splitlines()
        assert said in line

    def test_what_was_heard_needs_no_remark(self) -> None:
        soundfile.write("short.wav", tone("mid"), RATE)
        for path in ("words.wav", "short.wav"):
            result = listen("--replay", path, "--fast")
            assert "mid" in result.stdout
            assert result.stderr == ""

    def test_score_target_and_hop_are_passed_on(self) -> None:
        assert [e["label"] for e in events(replay("--json", "--target", "99.9"))] == [None, None, None]
        spotter = Spotter(KeywordModel.load("tiny.onnx"), score="both", hop=0.05)
        expected = spotter.push(load("words.wav").samples) + spotter.finish()
        assert events(replay("--json", "--score", "both", "--hop", "0.05")) == [event.to_dict() for event in expected]

    def test_in_real_time_it_takes_as_long_as_the_recording(self) -> None:
        soundfile.write("short.wav", SOUND[: RATE // 2], RATE)
        started = time.monotonic()
        assert events(listen("--replay", "short.wav", "--json")) == []
        assert time.monotonic() - started >= 0.5

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--replay", "nowhere.wav"], "nowhere.wav"),
            (["--replay", "words.wav", "-"], "give one source"),
            (["--replay", "words.wav", "--words", "left"], "low, mid, high"),
            (["--replay", "words.wav", "--words", ","], "low, mid, high"),
            (["--replay", "words.wav", "--words", ""], "--words: an empty value"),
            (["--replay", "words.wav", "--words="], "--words: an empty value"),
            (["--replay", "words.wav", "--wake", ""], "--wake: an empty value"),
            (["--replay", "words.wav", "--save-events", ""], "--save-events: an empty value"),
            (["--replay", "words.wav", "--wake", "mid", "--for", "0"], "expected a number from 1 to 60"),
            (["--replay", "words.wav", "--hop", "0.015"], "multiple of 0.01"),
            (["--replay", "words.wav", "--target", "42"], "target 0.42"),
            (["--replay", "words.wav", "--save-events", "words.wav/x"], "words.wav/x"),
            (["-", "--rate", "5"], "4000 to 192000"),
            (["words.wav"], "kws-edge listen --replay words.wav"),
            (["my words.wav"], "kws-edge listen --replay 'my words.wav'"),
            (["--replay", "words.wav", "--rate", "8000"], "--rate describes samples on standard input"),
            (["--replay", "words.wav", "--device", "0"], "--device names a microphone"),
            (["--fast"], "add --replay FILE"),
            (["-", "--fast"], "add --replay FILE"),
            (["--replay", "words.wav", "--on-event", " "], "an empty command"),
        ],
    )
    def test_what_cannot_be_used_is_refused_in_one_line(self, arguments: list[str], message: str) -> None:
        result = listen(*arguments)
        assert result.exit_code == 2
        assert message in result.stderr
        assert "Traceback" not in result.stderr
        assert result.stdout == ""


@pytest.mark.usefixtures("folder")
class TestStandardInput:
    def test_samples_from_a_pipe(self) -> None:
        result = listen("-", "--json", stdin=(SOUND * 32767).astype("<i2").tobytes())
        assert [e["label"] for e in events(result)] == ["mid", None, "low"]

    def test_an_empty_pipe_is_said_to_be(self) -> None:
        result = listen("-", stdin=b"")
        assert result.exit_code == 0
        assert "nothing was heard: 0.00 s of sound came in" in result.stderr

    def test_at_another_rate(self) -> None:
        samples = np.repeat(SOUND, 3)
        result = listen("-", "--json", "--rate", "48000", stdin=(samples * 32767).astype("<i2").tobytes())
        assert [e["label"] for e in events(result)] == ["mid", None, "low"]

    def test_an_event_is_told_before_the_pipe_ends(self) -> None:
        process = start("-", "--json", stdin=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write((SOUND[: 3 * RATE] * 32767).astype("<i2").tobytes())
            process.stdin.flush()
            assert select.select([process.stdout], [], [], PATIENT)[0]
            assert json.loads(process.stdout.readline())["label"] == "mid"
        finally:
            process.communicate(timeout=PATIENT)
        assert process.returncode == 0


@pytest.mark.usefixtures("folder")
class TestActions:
    def test_a_command_gets_each_event_as_json(self) -> None:
        told = events(replay("--json", "--on-event", "cat >> told.jsonl"))
        lines = [json.loads(line) | {"clock": None} for line in Path("told.jsonl").read_text().splitlines()]
        assert sorted(lines, key=lambda e: e["time"]) == told

    def test_a_command_that_fails_or_does_not_read_stops_nothing(self) -> None:
        result = replay("--json", "--on-event", "exit 3")
        assert len(result.stdout.splitlines()) == 3
        assert result.exit_code == 0
        assert result.stderr.count("exit 3: exit status 3") == 3

    def test_a_command_that_cannot_be_started_stops_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_process(*_: object, **__: object) -> None:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

        monkeypatch.setattr(subprocess, "Popen", no_process)
        result = replay("--json", "--on-event", "cat")
        assert (result.exit_code, len(result.stdout.splitlines())) == (0, 3)
        assert result.stderr.count("Warning: cat: Resource temporarily unavailable; event at ") == 3

    @pytest.mark.parametrize("wait", [True, False])
    def test_the_fifth_command_waits_only_for_a_recording_that_does_not_run_away(
        self, wait: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        spotter = Spotter(KeywordModel.load("tiny.onnx"))
        (event, *_) = spotter.push(SOUND)
        command = EventCommand("until [ -e go ]; do sleep 0.02; done; cat >> told.jsonl", wait=wait)
        for _ in range(MOST_COMMANDS):
            command(event)
        if wait:
            threading.Timer(0.3, Path("go").absolute().touch).start()
        command(event)
        assert Path("go").exists() is wait
        command(event)
        Path("go").touch()
        command.close()
        assert len(Path("told.jsonl").read_text().splitlines()) == (6 if wait else 4)
        assert ("skipped" in caplog.text) is not wait

    def test_with_fast_no_event_is_lost(self) -> None:
        soundfile.write("many.wav", np.tile(SOUND, 3), RATE)
        told = events(listen("--replay", "many.wav", "--fast", "--json", "--on-event", "sleep 0.2; cat >> told.jsonl"))
        assert len(told) > MOST_COMMANDS
        assert len(Path("told.jsonl").read_text().splitlines()) == len(told)

    def test_what_a_command_prints_is_kept_out_of_the_events(self) -> None:
        process = start("--replay", "words.wav", "--fast", "--json", "--on-event", "echo noise", stderr=subprocess.PIPE)
        output, errors = process.communicate(timeout=PATIENT)
        assert len([json.loads(line) for line in output.splitlines()]) == 3
        assert errors.split() == [b"noise"] * 3

    def test_two_seconds_around_each_event_are_kept(self) -> None:
        replay("--save-events", "kept")
        files = sorted(Path("kept").iterdir())
        told = events(replay("--json"))
        assert [path.stem.split("_", 2)[2] for path in files] == ["mid", f"not_sure_{told[1]['guess']}", "low"]
        (first, *_) = files
        sound, rate = soundfile.read(first)
        assert (len(sound), rate) == (2 * RATE, RATE)
        middle = round((told[0]["start"] + told[0]["end"]) / 2 * RATE)
        assert sound == pytest.approx(SOUND[middle - RATE : middle + RATE], abs=2 / 32768)

    def test_where_the_folder_is_full_no_more_are_saved_and_it_is_said_once(self) -> None:
        result = replay("--save-events", "kept", "--save-most", "2")
        assert len(list(Path("kept").iterdir())) == 2
        assert result.stderr.count("kept: holds 2 recordings, the most that --save-most allows") == 1
        again = replay("--save-events", "kept", "--save-most", "2")
        assert len(list(Path("kept").iterdir())) == 2
        assert again.stderr.count("holds 2 recordings") == 1

    def test_where_the_disk_takes_no_more_it_is_said_once_and_no_half_file_stays(self) -> None:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
        try:
            result = replay("--save-events", "kept")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            signal.signal(signal.SIGXFSZ, handler)
        assert list(Path("kept").iterdir()) == []
        assert result.stderr.count("not saved: File too large; make room, or end with --save-events") == 1

    def test_nothing_is_kept_unless_asked_for(self, folder: Path) -> None:
        before = set(folder.rglob("*"))
        assert events(replay("--json"))
        assert set(folder.rglob("*")) == before

    def test_sound_lost_near_an_event_is_kept_as_silence(self, folder: Path) -> None:
        saver, spotter = EventSaver(folder / "kept"), Spotter(KeywordModel.load("tiny.onnx"))
        sound = SOUND[: round(2.8 * RATE)].astype(np.float32)
        (event,) = spotter.push(sound)
        saver.add(Block(sound[:RATE]))
        saver.add(Block(sound[RATE + 4000 :], dropped=4000))
        saver(event)
        saver.close()
        (path,) = (folder / "kept").iterdir()
        kept = soundfile.read(path)[0]
        middle = round((event.start + event.end) / 2 * RATE)
        lost = slice(RATE - (middle - RATE), RATE + 4000 - (middle - RATE))
        assert not kept[lost].any()
        assert kept[lost.stop :] == pytest.approx(sound[RATE + 4000 : middle + RATE], abs=2 / 32768)

    def test_sound_that_runs_ahead_of_the_events_is_kept_until_they_come(self, folder: Path) -> None:
        saver, (event,) = EventSaver(folder / "kept"), Spotter(KeywordModel.load("tiny.onnx")).push(SOUND[: 3 * RATE])
        sound = np.concatenate([SOUND[: 3 * RATE], np.zeros(60 * RATE)]).astype(np.float32)
        saver.decided(0.0)
        for start in range(0, len(sound), RATE):
            saver.add(Block(sound[start : start + RATE]))
        saver(event)
        (path,) = (folder / "kept").iterdir()
        middle = round((event.start + event.end) / 2 * RATE)
        assert soundfile.read(path)[0] == pytest.approx(sound[middle - RATE : middle + RATE], abs=2 / 32768)

    def test_sound_before_what_is_decided_is_not_kept_for_long(self, folder: Path) -> None:
        saver = EventSaver(folder / "kept")
        for second in range(600):
            saver.decided(max(0, second - 60))
            saver.add(Block(np.zeros(RATE, np.float32)))
        assert 60 <= len(saver._blocks) <= 72

    def test_a_folder_in_which_nothing_can_be_made_is_refused_at_the_start(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(**settings: Any) -> Any:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("tempfile.TemporaryFile", full)  # file modes do not stop a superuser
        with pytest.raises(SettingError, match="kept: No space left on device; expected a folder"):
            EventSaver(folder / "kept")

    def test_a_folder_that_cannot_be_made_is_refused(self) -> None:
        with pytest.raises(SettingError, match=r"words\.wav"):
            EventSaver(Path("words.wav"))


def test_a_clock_goes_from_59_seconds_to_the_next_minute() -> None:
    assert [_clock(seconds) for seconds in (0.04, 59.94, 59.995, 119.96)] == ["0:00.0", "0:59.9", "1:00.0", "2:00.0"]


@pytest.mark.usefixtures("folder")
def test_words_may_end_with_a_comma_as_a_server_reads_them() -> None:
    told = events(replay("--json", "--abstentions", "none", "--words", " mid ,"))
    assert {event["label"] for event in told} == {"mid"}
    assert "words: none" in replay("--words", ",").stderr


@pytest.mark.usefixtures("folder")
class TestMicrophone:
    def test_words_are_told_as_they_are_said_and_ctrl_c_releases_the_device(self) -> None:
        process = start("--json", stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], PATIENT)[0]
        assert json.loads(process.stdout.readline())["label"] == "mid"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENT)
        assert Path("released").exists()
        assert (process.returncode, errors) == (130, b"")

    def test_sigterm_releases_the_device_and_keeps_the_sound_of_what_was_told(self) -> None:
        process = start("--json", "--save-events", "kept", stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["label"] == "mid"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENT)
        assert Path("released").exists()
        assert (process.returncode, errors) == (0, b"")
        assert [path.name.endswith("_mid.wav") for path in Path("kept").iterdir()] == [True]

    @pytest.mark.usefixtures("no_sounddevice")
    @pytest.mark.parametrize("command", ["listen", "devices"])
    def test_without_sounddevice_the_command_names_what_to_install(self, command: str) -> None:
        result = run(command)
        assert result.exit_code == 2
        assert "pip install '.[mic]'" in result.stderr

    @pytest.mark.usefixtures("no_sounddevice")
    def test_without_sounddevice_a_recording_can_be_replayed(self) -> None:
        assert [e["label"] for e in events(replay("--json"))] == ["mid", None, "low"]

    def test_devices_are_listed(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "standin"), str(ROOT)])}
        text, lines = (
            subprocess.run(
                [*COMMAND, "devices", *flag], env=environment, capture_output=True, text=True, check=True
            ).stdout
            for flag in ([], ["--json"])
        )
        assert text.splitlines()[1].split() == ["*", "0", "1", "16000", "Hz", "ALSA", "USB", "Mic"]
        assert json.loads(lines) == {
            "index": 0, "name": "USB Mic", "api": "ALSA", "channels": 1, "rate": 16_000, "default": True,
        }  # fmt: skip


@pytest.mark.usefixtures("folder")
class TestDisplay:
    def shown(self, spotter: Spotter, health: Health | None = None) -> list[str]:
        console = Console(width=120, color_system=None, record=True, file=io.StringIO())
        console.print(picture(spotter, "USB Mic", [], health or Health()))
        return console.export_text().splitlines()

    def test_the_picture_shows_level_posterior_and_uncertainty_against_its_threshold(self) -> None:
        spotter = Spotter(KeywordModel.load("tiny.onnx"))
        spotter.push(SOUND[: round(2.3 * RATE)])
        title, level, _, *bars = self.shown(spotter)
        assert title.split() == ["USB", "Mic", "model", "tiny", "0:02.3", "listening"]
        assert level.split()[-2:] == ["-13.5", "dBFS"]
        assert bars[0].split()[0] == "mid"
        entropy, vacuity = (line for line in bars if line.startswith(("entropy", "vacuity")))
        assert entropy[13:53][20] == "|"  # the threshold, 0.5 of 40
        assert entropy.endswith("accepted up to 0.500")
        assert "|" not in vacuity

    def test_the_picture_keeps_its_height(self) -> None:
        spotter = Spotter(KeywordModel.load("tiny.onnx"))
        heights = {len(self.shown(spotter))}
        told = spotter.push(SOUND)
        heights.add(len(self.shown(spotter)))
        for n in (1, 3, 20):
            text = picture(spotter, "USB Mic", (told * 10)[:n], Health())
            heights.add(len(text.plain.splitlines()))
        assert len(heights) == 1

    def test_losses_and_trouble_are_in_the_last_line(self) -> None:
        spotter = Spotter(KeywordModel.load("tiny.onnx"))
        *_, last = self.shown(spotter, Health(overflows=3, dropped=24_000, lag=0.4, problem="it is muted"))
        assert last == "overflows 3  dropped 1.5 s  lag 0.4 s  it is muted"

    def test_on_a_terminal_it_is_redrawn_in_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal, child = pty.openpty()
        monkeypatch.setenv("TERM", "xterm")
        process = start("--replay", "words.wav", "--fast", stdout=child, stdin=child, stderr=child)
        os.close(child)
        output = b""
        while select.select([terminal], [], [], PATIENT)[0]:
            try:
                output += os.read(terminal, 1 << 16)
            except OSError:  # Linux: the other end is closed
                break
        os.close(terminal)
        assert process.wait(timeout=PATIENT) == 0
        text = output.decode()
        assert "\x1b[1A\x1b[2K" in text  # up a line, and clear it
        last = text[text.rindex("model tiny") :]
        assert [word in last for word in ("mid", "not sure", "low", "entropy", "vacuity", "lag")] == [True] * 6
        assert text.rstrip().endswith("\x1b[?25h")  # the cursor is back


@pytest.mark.usefixtures("folder")
class TestStreamCost:
    def test_the_cost_of_a_stream_in_which_the_network_always_runs(self) -> None:
        result = run("stream-cost", "--model", "tiny.onnx", "--seconds", "6", "--json")
        cost = json.loads(result.stdout)
        assert (cost["hops"], cost["runs"], cost["hop"]) == (40, 40, 0.1)
        assert 0 < cost["p50"] <= cost["p95"] <= cost["p99"]
        assert cost["core_share"] > 0
        assert cost["memory"] > 10

    def test_the_cost_of_a_recording_in_words(self) -> None:
        result = run("stream-cost", "words.wav", "--model", "tiny.onnx")
        assert result.exit_code == 0
        names = [line.split()[0] for line in result.stdout.splitlines()]
        assert names == ["model", "hops", "per", "real", "CPU", "memory"]

    def test_a_recording_too_short_to_measure_is_refused(self) -> None:
        soundfile.write("short.wav", SOUND[:RATE], RATE)
        result = run("stream-cost", "short.wav", "--model", "tiny.onnx")
        assert result.exit_code == 2
        assert "too short" in result.stderr
