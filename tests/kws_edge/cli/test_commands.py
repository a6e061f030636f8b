"""The command line `kws-edge`: what people and scripts see, and the exit status."""

import importlib.metadata
import io
import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import tiny_model
from click.testing import CliRunner, Result
from paths import ROOT

from kws_edge import version
from kws_edge.cli import main
from kws_edge.model.shipped import DEFAULT_MODEL, shipped_models
from kws_edge.stream.settings import StreamSettings

RATE = 16_000
COMMAND = [sys.executable, "-c", "from kws_edge.cli import main; main(prog_name='kws-edge')"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def clips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model, a clip per word, and what is no clip."""
    monkeypatch.chdir(tmp_path)
    tiny_model.save(tmp_path)
    t = np.arange(RATE) / RATE
    (tmp_path / "words" / "deeper").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    for word, frequency in tiny_model.TONES.items():
        soundfile.write(f"words/{word}.wav", 0.3 * np.sin(2 * np.pi * frequency * t), RATE)
    soundfile.write("words/deeper/noise.flac", 0.05 * np.random.default_rng(1).standard_normal(RATE), RATE)
    (tmp_path / "words" / "notes.txt").write_text("no audio")
    (tmp_path / "broken.wav").write_bytes(b"RIFF, but not really")
    return tmp_path


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def classify(*arguments: str, stdin: bytes | None = None) -> Result:
    return run("classify", "--model", "tiny.onnx", *arguments, stdin=stdin)


def answers(result: Result) -> dict[str, str | None]:
    """File → label, from JSON lines."""
    return {Path(line["file"]).name: line["label"] for line in map(json.loads, result.stdout.splitlines())}


@pytest.mark.usefixtures("clips")
class TestClassify:
    def test_a_table_names_the_words(self) -> None:
        result = classify("words/low.wav", "words/deeper/noise.flac")
        header, low, noise = result.stdout.splitlines()
        assert header.split() == ["ANSWER", "PROBABILITY", "ENTROPY", "SECONDS", "FILE"]
        assert low.split()[0] == "low"
        assert low.endswith("0.00-1.00       words/low.wav")
        assert noise.startswith("not sure")
        assert "(uncertain, best guess" in noise
        assert (result.exit_code, result.stderr) == (0, "")

    def test_json_lines_are_predictions_with_their_file(self) -> None:
        (line,) = classify("--json", "words/mid.wav").stdout.splitlines()
        answer = json.loads(line)
        assert (answer["file"], answer["label"], answer["model"]) == ("words/mid.wav", "mid", "tiny")
        assert len(answer["alpha"]) == 3

    def test_a_folder_is_searched_to_its_depths_for_audio(self) -> None:
        result = classify("--json", "words")
        assert answers(result) == {"noise.flac": None, "high.wav": "high", "low.wav": "low", "mid.wav": "mid"}

    def test_a_pattern_is_expanded(self) -> None:
        assert answers(classify("--json", "**/[lm]*.wav")) == {"low.wav": "low", "mid.wav": "mid"}

    def test_folders_that_a_pattern_matches_are_searched(self) -> None:
        every = {"noise.flac": None, "high.wav": "high", "low.wav": "low", "mid.wav": "mid"}
        for pattern in ("[ew]*", "words/[!n]*"):  # the folder "empty" has no audio, which is no error here
            assert answers(classify("--json", pattern)) == every, pattern

    def test_what_a_pattern_matches_twice_is_answered_once(self) -> None:
        result = classify("--json", "./words/**/[dn]*[cr]")  # the folder "deeper" and what is in it
        assert [json.loads(line)["file"] for line in result.stdout.splitlines()] == ["words/deeper/noise.flac"]

    def test_what_is_no_recording_is_not_meant_by_a_pattern_but_read_where_it_is_named(self) -> None:
        Path("words/low.wav").rename("words/low.sound")
        nothing = classify("--json", "words/*o*")  # notes.txt, too
        assert nothing.stderr.startswith("Error: words/*o*: no recording there; expected files that end in .wav")
        assert answers(classify("--json", "words/[lmn]*")) == {"mid.wav": "mid"}
        assert answers(classify("--json", "words/low.sound")) == {"low.sound": "low"}

    def test_a_file_whose_name_looks_like_a_pattern_is_a_file(self) -> None:
        Path("words/low.wav").rename("take[1].wav")
        assert answers(classify("--json", "take[1].wav")) == {"take[1].wav": "low"}

    def test_standard_input_is_a_dash(self) -> None:
        result = classify("--json", "-", stdin=Path("words/high.wav").read_bytes())
        assert answers(result) == {"-": "high"}

    def test_what_is_wrong_with_standard_input_is_said_of_it(self) -> None:
        sound = io.BytesIO()
        soundfile.write(sound, np.ones(300, np.int16), RATE, format="WAV")
        assert "Error: standard input: too short; expected 400 samples" in classify("-", stdin=sound.getvalue()).stderr

    def test_endless_standard_input_is_refused_in_a_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("kws_edge.cli.classify._MOST", 2 << 20)
        result = classify("-", "words/low.wav", "--json", stdin=bytes((2 << 20) + 1))
        assert result.stderr.startswith("Error: standard input: more than 2 MiB; expected an audio file")
        assert (result.exit_code, result.stderr.count("\n"), answers(result)) == (1, 1, {"low.wav": "low"})

    def test_standard_input_for_which_there_is_no_room_is_refused_in_a_line(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("kws_edge.cli.classify._IN_MEMORY", 1000)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
        try:
            result = classify("-", stdin=Path("words/high.wav").read_bytes())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            signal.signal(signal.SIGXFSZ, handler)
        assert "standard input: File too large; expected room for it in" in result.stderr
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)

    def test_a_channel_is_picked_by_its_number(self) -> None:
        (low, first), (high, second) = list(tiny_model.TONES.items())[:2]
        t = np.arange(RATE) / RATE
        pair = [0.3 * np.sin(2 * np.pi * frequency * t) for frequency in (first, second)]
        soundfile.write("two.wav", np.stack(pair, axis=1), RATE)
        assert answers(classify("two.wav", "--json", "--channel", "1")) == {"two.wav": low}
        assert answers(classify("two.wav", "--json", "--channel", "2")) == {"two.wav": high}
        refused = classify("two.wav", "--channel", "3")
        assert (refused.exit_code, "channel 3 of 2" in refused.stderr) == (1, True)
        assert "expected a number from 1, or mix" in classify("two.wav", "--channel", "left").stderr

    def test_a_long_clip_is_answered_with_the_time_of_its_word(self) -> None:
        clip = 0.05 * np.random.default_rng(2).standard_normal(10 * RATE)
        clip[7 * RATE : 8 * RATE] = soundfile.read("words/mid.wav")[0]
        soundfile.write("long.wav", clip, RATE)
        answer, _, _, seconds, file = classify("long.wav").stdout.splitlines()[1].split()
        assert (answer, file) == ("mid", "long.wav")
        start, end = map(float, seconds.split("-"))
        assert (start, end) == pytest.approx((7.0, 8.0), abs=0.011)  # the last frame that fits ends 5 ms before

    def test_a_line_names_the_score_that_withheld_a_label_where_the_column_has_another(self) -> None:
        settings = {"thresholds": {"vacuity": 1e-6}, "smoothing": 0.3}
        tiny_model.save(Path(), metadata=replace(tiny_model.METADATA, stream={"settings": settings}))
        clip = 0.05 * np.random.default_rng(2).standard_normal(3 * RATE)
        clip[RATE : 2 * RATE] = soundfile.read("words/mid.wav")[0]
        soundfile.write("long.wav", clip, RATE)
        head, line = classify("long.wav").stdout.splitlines()
        told = json.loads(classify("--json", "long.wav").stdout)
        assert (told["label"], told["score"], told["threshold"]) == (None, "vacuity", 1e-6)
        assert head.split()[2] == "ENTROPY"
        assert f" {told['entropy']:.3f} " in line
        assert line.endswith(f"(uncertain, vacuity {told['vacuity']:.3f}, best guess mid)")

    def test_what_cannot_be_read_gets_a_line_each_and_the_rest_an_answer(self) -> None:
        result = classify("--json", "broken.wav", "words/low.wav", "gone.wav", "*.mp3", "empty", "-", stdin=b"")
        assert answers(result) == {"low.wav": "low"}
        lines = result.stderr.splitlines()
        assert [line.split(":")[:2] for line in lines] == [
            ["Error", " broken.wav"],
            ["Error", " gone.wav"],
            ["Error", " *.mp3"],
            ["Error", " empty"],
            ["Error", " standard input"],
        ]
        assert all("expected" in line for line in lines)
        assert result.exit_code == 1

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (["--target", "97"], "entropy at 0.99 (99 %), 0.995 (99.5 %), 0.999 (99.9 %); vacuity at 0.995 (99.5 %)"),
            (["--target", "99", "--score", "vacuity"], "no threshold for score 'vacuity' at target 0.99"),
            (["--target", "1"], "target=1; expected 100 % or 1 %"),
            (["--score", "margin"], "'entropy', 'vacuity'"),
            (["--model", "nosuch"], "no shipped model 'nosuch'"),
            (["--model", "gone.onnx"], "gone.onnx: No such file or directory"),
            (["--model", "broken.wav.onnx"], "expected an ONNX file"),
            (["--provider", "coreml", "--strict"], "execution provider coreml: cpu is what runs"),
            (["--provider", "gpu"], "unknown execution provider 'gpu'"),
            (["--nonsense"], "--nonsense"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_what_makes_every_file_impossible_ends_the_command(self, arguments: list[str], problem: str) -> None:
        Path("broken.wav").rename("broken.wav.onnx")
        result = classify("words/low.wav", *arguments)
        assert problem in result.stderr
        assert result.stderr.splitlines()[-1].startswith("Error: ")
        assert result.exit_code == 2
        assert not result.stdout

    @pytest.mark.filterwarnings("default::RuntimeWarning")
    def test_a_provider_that_is_missing_costs_one_warning(self) -> None:
        result = classify("--json", "words", "--provider", "coreml")
        assert [line.split(";")[0] for line in result.stderr.splitlines()] == [
            "Warning: execution provider coreml: cpu is what runs"
        ]
        assert result.exit_code == 0

    def test_a_name_that_is_no_text_does_not_stop_it(self) -> None:
        name = os.fsdecode(b"words/caf\xe9.wav")
        Path("words/low.wav").rename(name)
        for arguments in ((), ("--json",)):
            result = classify(*arguments, name)
            assert (result.exit_code, result.exception) == (0, None)


@pytest.mark.usefixtures("clips")
class TestModels:
    def test_a_model_describes_itself(self) -> None:
        text = run("models", "tiny.onnx").stdout
        for fact in ("softmax", "low, mid, high", "90.00% right (80.00% to 95.00%), 100 clips", "Apache-2.0"):
            assert fact in text
        assert "99.5%        entropy (default): up to 0.5, 90.0% of the calibration's clips accepted" in text
        assert "99.9%        entropy (default): not reached" in text

    @pytest.mark.parametrize(
        ("accepted", "judgement"), [(1058, "shown"), (1057, "1057 clips do not show it"), (10**15, "shown")]
    )
    def test_a_promise_comes_with_its_interval_and_whether_the_clips_show_it(
        self, clips: Path, accepted: int, judgement: str
    ) -> None:
        point = replace(
            tiny_model.point(0.995, 0.5), accepted=accepted, total=accepted, coverage=1.0, total_accuracy=1.0
        )
        points = (replace(point, low=0.9965, high=1.0),)
        metadata = replace(tiny_model.METADATA, name="sure", thresholds={"entropy": points})
        tiny_model.save(clips, "sure", metadata=metadata)
        said = f"100.00% of them right (95 % interval 99.65% to 100.00%): {judgement}\n"
        assert said in run("models", "sure.onnx").stdout

    def test_its_stream_settings_are_told_with_what_they_were_calibrated_on(self, clips: Path) -> None:
        about = {
            "limit": 2.0,
            "limit_shown": False,
            "words_chosen": ["low"],
            "negatives": {"radio": {"seconds": 90, "kind": "speech"}},
        }
        about["false_accepts_per_hour"] = {"radio": {"value": 0.0, "low": 0.0, "high": 147.6}}
        settings = StreamSettings({"entropy": 0.25, "vacuity": 0.1}, smoothing=0.5).to_dict()
        stream = {"settings": settings, "calibration": about}
        tiny_model.save(clips, "few", metadata=replace(tiny_model.METADATA, name="few", stream=stream))
        lines = [line.strip() for line in run("models", "few.onnx").stdout.splitlines()]
        start = next(i for i, line in enumerate(lines) if line.startswith("stream "))
        assert lines[start : start + 4] == [
            "stream       entropy up to 0.25 and vacuity up to 0.1, smoothing 0.5 s",
            "limit 2 an hour, not shown: 0 false accepts in 1.5 minutes of speech, "
            "0.00 an hour (95 %: 0.00 to 147.56); that takes 110.7 minutes without one",
            "speech, radio    0 in  1.5 minutes, 0.00 an hour (95 %: 0.00 to 147.56)",
            "calibrated for low",
        ]
        assert json.loads(run("models", "few.onnx", "--json").stdout)["stream"] == stream

    @pytest.mark.parametrize("number", [0, -1, 1e308, 10**400, "9" * 400, None, "x", [], {}])
    @pytest.mark.parametrize("field", ["seconds", "value", "limit"])
    def test_numbers_of_a_calibration_that_cannot_be_are_no_traceback(
        self, clips: Path, field: str, number: Any
    ) -> None:
        said: dict[str, Any] = {"seconds": 90, "value": 0.0, "limit": 2.0, field: number}
        about = {
            "limit": said["limit"],
            "negatives": {"radio": {"seconds": said["seconds"], "kind": "speech"}},
            "false_accepts_per_hour": {"radio": {"value": said["value"]}},
        }
        stream = {"settings": StreamSettings({"entropy": 0.25}).to_dict(), "calibration": about}
        tiny_model.save(clips, "odd", metadata=replace(tiny_model.METADATA, name="odd", stream=stream))
        result = run("models", "odd.onnx")
        assert result.exit_code in (0, 2)
        assert result.exception is None or isinstance(result.exception, SystemExit)

    def test_words_that_a_file_says_at_length_are_told_in_short(self, clips: Path) -> None:
        stream = {"settings": StreamSettings({"entropy": 0.25}).to_dict(), "calibration": {"words_chosen": "x" * 9999}}
        tiny_model.save(clips, "long", metadata=replace(tiny_model.METADATA, name="long", stream=stream))
        assert len(run("models", "long.onnx").stderr) < 500

    def test_json_is_the_metadata(self) -> None:
        values = json.loads(run("models", "tiny.onnx", "--json").stdout)
        assert values.pop("default") is False
        assert values == json.loads(tiny_model.METADATA.to_json())

    def test_labels_that_are_no_words_are_not_counted_as_words(
        self, clips: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (clips / "models").mkdir()
        metadata = replace(tiny_model.METADATA, name="ten", labels=("low", "_unknown_", "_silence_"))
        tiny_model.save(clips / "models", "ten", metadata=metadata)
        monkeypatch.setattr("kws_edge.model.shipped.MODELS", clips / "models")
        assert run("models").stdout.splitlines()[1].split() == ["ten", "softmax", "1", "90.00%"]
        text = run("models", "ten").stdout
        assert "  words        low\n  other labels _unknown_, _silence_, never an answer\n" in text

    def test_the_list_marks_the_default(self, clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (clips / "models").mkdir()
        for name in ("another", DEFAULT_MODEL):
            tiny_model.save(clips / "models", name)
        tiny_model.save(clips / "models", f"{DEFAULT_MODEL}.audio", input_name="audio")  # for other runtimes
        monkeypatch.setattr("kws_edge.model.shipped.MODELS", clips / "models")
        lines = run("models").stdout.splitlines()
        assert [line.split() for line in lines[1:3]] == [
            ["another", "softmax", "3", "90.00%"],
            ["*", DEFAULT_MODEL, "softmax", "3", "90.00%"],
        ]
        as_json = [json.loads(line) for line in run("models", "--json").stdout.splitlines()]
        assert [(line["name"], line["default"]) for line in as_json] == [("another", False), (DEFAULT_MODEL, True)]

    def test_a_model_that_there_is_not_is_one_line(self) -> None:
        result = run("models", "nosuch")
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


def test_python_runs_the_package_as_the_command() -> None:
    command = [sys.executable, "-m", "kws_edge", "version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert done.stdout == run("version").stdout
    wrong = subprocess.run([*command, "--nothing"], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert wrong.stderr.startswith("Usage: kws-edge version")


def test_the_version_of_a_source_tree_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(version, "version", unknown)
    told = run("--version")
    assert (told.exit_code, told.stdout) == (0, "not installed, run from its source\n")


def test_the_version_says_what_it_stands_on() -> None:
    lines = dict(line.split(maxsplit=1) for line in run("version").stdout.splitlines())
    assert list(lines) == ["kws-edge", "onnxruntime", "numpy", "python", "platform", "providers"]
    assert lines["numpy"] == np.__version__
    values = json.loads(run("version", "--json").stdout)
    assert "cpu" in values.pop("providers")
    assert values.items() <= lines.items()


@pytest.mark.parametrize("command", [[], ["classify"], ["models"]], ids=" ".join)
def test_help_gives_examples_and_the_exit_status(command: list[str]) -> None:
    text = run(*command, "--help").stdout
    assert "Exit status: 0" in text
    assert "kws-edge classify " in text or "kws-edge models " in text


@pytest.mark.parametrize("command", ["listen", "calibrate", "bench"])
def test_help_names_no_bound_where_there_is_none(command: str) -> None:
    assert "None" not in run(command, "--help").stdout


def test_an_option_under_its_old_name_works_with_a_warning(tmp_path: Path) -> None:
    result = run("record", "..", f"--into={tmp_path}")
    assert "Warning: record --into is deprecated; use --out" in result.stderr
    assert "expected letters or digits" in result.stderr  # of the word, which is read after the options


def test_a_reader_that_goes_away_ends_it_in_silence(clips: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "classify", "--json", "--model", "tiny.onnx", *["words"] * 500],  # more than a pipe holds
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=clips,
        env=ENVIRONMENT,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 1
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_ctrl_c_ends_it_in_silence(clips: Path) -> None:
    # Always at the same place, the start of the third clip's answer: from outside it would be another each time.
    program = """
import signal
from kws_edge.cli import main
from kws_edge.model.keyword_model import KeywordModel
classify, asked = KeywordModel.classify, []
def interrupted(*given, **options):
    asked.append(given)
    if len(asked) == 3:
        signal.raise_signal(signal.SIGINT)
    return classify(*given, **options)
KeywordModel.classify = interrupted
main(prog_name="kws-edge")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "classify", "--json", "--model", "tiny.onnx", "words"],
        capture_output=True,
        cwd=clips,
        env=ENVIRONMENT,
        check=False,
        timeout=60,
    )
    assert done.stderr.strip() == b""
    assert len(done.stdout.splitlines()) == 2
    assert done.returncode == 130


def interrupted_at(module: str, package: str) -> "subprocess.CompletedProcess[bytes]":
    """`--help` of a package's command, with Ctrl-C where a module begins to be imported."""
    program = f"""
import signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "{module}":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from {package}.__main__ import main
main()
"""
    return subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize("package", ["kws_edge", "kws_export"])
def test_ctrl_c_while_the_command_line_is_imported_ends_it_in_silence(package: str) -> None:
    done = interrupted_at("click", package)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_ctrl_c_during_the_help_ends_it_in_silence() -> None:
    done = interrupted_at("kws_edge.cli.serve", "kws_edge")
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
def test_a_cold_start_is_light(clips: Path) -> None:
    """A second of processor time, since other processes may be taking the clock's, and 80 MB."""
    model = shipped_models().get(DEFAULT_MODEL, clips / "tiny.onnx")
    program = f"""
import re, time
from kws_edge.cli import main
main(["classify", "words/low.wav", "--model", {str(model)!r}], standalone_mode=False)
print(time.process_time(), re.search("VmHWM: *(.*) kB", open("/proc/self/status").read().replace("\\t", " "))[1])
"""
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=clips, env=ENVIRONMENT
    ).stdout
    seconds, kilobytes = map(float, output.splitlines()[-1].split())
    assert seconds < 1.0
    assert kilobytes < 80_000


def test_importing_the_package_is_light() -> None:
    program = "import time; t = time.process_time(); import kws_edge; print(time.process_time() - t)"
    best = min(
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=ENVIRONMENT).stdout)
        for _ in range(3)
    )
    assert best < 0.3


def test_an_empty_name_is_no_folder(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["classify", "--model", str(tiny_model.save(tmp_path)), ""])
    assert result.exit_code == 1
    assert result.stderr.count("Error: ") == 1


def test_a_name_too_long_for_the_system_does_not_keep_the_others_from_an_answer(tmp_path: Path) -> None:
    model = tiny_model.save(tmp_path)
    result = CliRunner().invoke(
        main, ["classify", "--model", str(model), "a" * 5000 + ".wav", str(tmp_path / "no.wav")]
    )
    assert result.exit_code == 1
    assert result.stderr.count("Error: ") == 2


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize(
    "option",
    [
        "evaluate-stream --snr", "evaluate-stream --for", "calibrate --snr", "calibrate --crowding",
        "calibrate --false-accepts-per-hour", "doctor --seconds", "listen --for", "bench --seconds",
    ],
)  # fmt: skip
def test_a_number_that_is_none_is_wrong_usage(option: str, number: str) -> None:
    result = run(*option.split(), number)
    assert (result.exit_code, option.split()[1] in result.stderr) == (2, True)


@pytest.mark.parametrize("command", ["evaluate-stream", "calibrate"])
def test_a_ratio_of_no_sounds_is_wrong_usage(command: str) -> None:
    result = run(command, "--snr", "1e308")
    assert (result.exit_code, "'--snr'" in result.stderr) == (2, True)
