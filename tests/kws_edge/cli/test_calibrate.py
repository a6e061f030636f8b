"""`kws-edge calibrate`: a copy of the model with the thresholds that were chosen, and what it was chosen on."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import soundfile
import tiny_model
from click.testing import CliRunner, Result
from stream_points import tone
from tiny_model import METADATA

from kws_edge.cli import main
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.stream.settings import StreamSettings

RATE = 16_000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model, clips of its words, and noise."""
    monkeypatch.chdir(tmp_path)
    tiny_model.save(tmp_path)
    for word in tiny_model.TONES:
        (tmp_path / "clips" / word).mkdir(parents=True)
        for i in range(3):
            soundfile.write(f"clips/{word}/{i}_nohash_0.wav", tone(word, 10 * i), RATE)
    rng = np.random.default_rng(1)
    for name in ("hiss", "hum"):
        soundfile.write(f"{name}.wav", 0.05 * rng.standard_normal(10 * RATE), RATE)
    return tmp_path


def calibrate(*arguments: str, out: str = "mine.onnx") -> Result:
    common = ("--model", "tiny.onnx", "--positives", "clips", "--negatives", "hiss.wav", "--count", "4", "--out", out)
    return CliRunner().invoke(main, ["calibrate", *common, *arguments])


def stream_of(path: str) -> Mapping[str, Any]:
    stream = KeywordModel.load(path).metadata.stream
    assert stream is not None
    return stream


@pytest.mark.usefixtures("folder")
class TestCalibrate:
    def test_the_copy_holds_what_was_chosen_and_on_what(self) -> None:
        before = Path("tiny.onnx").read_bytes()
        result = calibrate("--smoothing", "0.2", "--false-accepts-per-hour", "2")
        assert result.exit_code == 0, result.output
        metadata = KeywordModel.load("mine.onnx").metadata
        assert metadata.stream is not None
        assert metadata == replace(METADATA, name="mine", stream=metadata.stream)
        assert StreamSettings.of(metadata).to_dict() == metadata.stream["settings"]
        calibration = metadata.stream["calibration"]
        assert calibration["limit"] == 2
        assert calibration["positives"] == {"clips": 4, "from": "clips", "snr": [None, 10.0]}
        assert calibration["negatives"]["hiss.wav"]["seconds"] == pytest.approx(10, abs=0.2)
        assert calibration["words"]["words"] == 8
        assert Path("tiny.onnx").read_bytes() == before

    def test_what_was_tried_and_the_curve_are_printed_with_the_choice_marked_in_both(self) -> None:
        lines = calibrate("--smoothing", "0.2", "--smoothing", "0.5", "--score", "entropy").stdout.splitlines()
        assert lines[0] == "Within 0.5 false accepts an hour:"
        tried = lines[2 : lines.index("The trade-off curve of the chosen combination:")]
        marks = lines.index("* is the choice, written to mine.onnx.")
        curve = lines[len(tried) + 4 : marks]
        assert ["0.20 s  entropy" in line for line in tried] == [True, True, False, False]
        assert ["0.50 s  entropy" in line for line in tried] == [False, False, True, True]
        (marked,) = [line for line in tried if line.startswith("*")]
        assert marked in curve
        assert "entropy" in marked

    def test_false_accepts_on_each_of_the_negatives_are_printed_with_their_intervals(self) -> None:
        result = calibrate("--smoothing", "0.2", "--sounds", "hum.wav")
        start = result.stdout.index("Its false accepts on recordings without the words")
        assert result.stdout[start:].splitlines()[1:] == [
            "  speech, hiss.wav    0 in  0.2 minutes, 0.00 an hour (95 %: 0.00 to 1328.66)",
            "  sounds, hum.wav     0 in  0.2 minutes, 0.00 an hour (95 %: 0.00 to 1328.66)",
        ]
        negatives = stream_of("mine.onnx")["calibration"]["negatives"]
        assert {name: negative["kind"] for name, negative in negatives.items()} == {
            "hiss.wav": "speech",
            "hum.wav": "sounds",
        }

    def test_a_limit_that_the_negatives_are_too_short_to_show_is_said_and_written(self) -> None:
        result = calibrate("--smoothing", "0.2", "--false-accepts-per-hour", "2")
        assert result.stderr.splitlines() == [
            "2 an hour is not shown: 0 false accepts in 0.2 minutes of speech, 0.00 an hour (95 %: 0.00 to 1328.66); "
            "that takes 110.7 minutes without one"
        ]
        assert stream_of("mine.onnx")["calibration"]["limit_shown"] is False

    def test_a_looser_threshold_than_the_models_own_on_too_little_speech_comes_with_a_caution(self) -> None:
        assert calibrate("--smoothing", "0.2").exit_code == 0
        stream = dict(stream_of("mine.onnx"))
        stream["settings"] = {**stream["settings"], "thresholds": {"entropy": 1e-6}}
        tiny_model.save(Path(), metadata=replace(METADATA, stream=stream))
        arguments = ("--smoothing", "0.2", "--score", "entropy", "--false-accepts-per-hour")
        caution = calibrate(*arguments, "2", out="looser.onnx").stderr.splitlines()[-1]
        assert caution.startswith("Caution: entropy up to ")
        assert "is looser than the 0.000 of tiny, and these recordings are too short" in caution
        assert calibrate(*arguments, "2000", out="shown.onnx").stderr == ""

    def test_no_recording_shows_that_it_never_fires(self) -> None:
        result = calibrate("--smoothing", "0.2", "--false-accepts-per-hour", "0", "--json")
        assert "no recording is long enough for that" in result.stderr
        assert json.loads(result.stdout)["limit_shown"] is False

    def test_a_limit_that_the_negatives_show_is_written_without_a_word(self) -> None:
        result = calibrate("--smoothing", "0.2", "--false-accepts-per-hour", "2000")
        assert result.stderr == ""
        assert stream_of("mine.onnx")["calibration"]["limit_shown"] is True

    def test_what_counts_after_a_wake_word_has_a_point_of_its_own(self) -> None:
        quick = ("--smoothing", "0.3", "--score", "entropy")
        calibrate(*quick)
        result = calibrate("--after-wake", "--model", "mine.onnx", *quick, out="both.onnx")
        assert result.exit_code == 0, result.output
        both = stream_of("both.onnx")
        assert {key: value for key, value in both.items() if key != "after_wake"} == stream_of("mine.onnx")
        assert both["after_wake"]["calibration"]["limit"] == 60
        described = CliRunner().invoke(main, ["models", "both.onnx"]).stdout
        assert "  after wake   entropy up to" in described
        assert "limit 60 an hour, not shown: 0 false accepts in 0.2 minutes of speech" in described
        after = StreamSettings.after_wake(KeywordModel.load("both.onnx").metadata)
        assert after.thresholds["entropy"] >= both["settings"]["thresholds"]["entropy"]
        assert after.crowding == 0

    def test_json_says_whether_the_limit_after_a_wake_word_is_shown_not_the_other(self) -> None:
        quick = ("--smoothing", "0.3", "--score", "entropy", "--json")
        shown = calibrate(*quick, "--false-accepts-per-hour", "2000")
        after = calibrate("--after-wake", "--model", "mine.onnx", *quick, out="both.onnx")
        assert [json.loads(result.stdout)["limit_shown"] for result in (shown, after)] == [True, False]

    def test_a_point_for_after_a_wake_word_needs_one_for_the_wake_word(self) -> None:
        result = calibrate("--after-wake")
        assert result.exit_code == 2
        assert "is not calibrated on streams" in result.output

    def test_a_few_words_are_calibrated_alone(self) -> None:
        calibrate("--smoothing", "0.2", "--words", "Low, high", "--snr", "10")
        calibration = stream_of("mine.onnx")["calibration"]
        assert calibration["words_chosen"] == ["low", "high"]
        assert calibration["words"]["labels"].keys() == {"low", "high"}

    def test_recordings_of_one_name_in_two_folders_both_count(self, folder: Path) -> None:
        for day in ("monday", "friday"):
            (folder / day / "home").mkdir(parents=True)
            shutil.copy(folder / "hiss.wav", folder / day / "home" / "radio.wav")
        both = ("--negatives", "monday/home/radio.wav", "--negatives", "friday/home/radio.wav")
        calibrate("--smoothing", "0.2", *both)
        names = set(stream_of("mine.onnx")["calibration"]["negatives"])
        assert names == {"hiss.wav", "monday/home/radio.wav", "friday/home/radio.wav"}

    def test_a_recording_given_twice_is_refused(self) -> None:
        result = calibrate("--negatives", "./hiss.wav")
        assert result.exit_code == 2
        assert "is given twice; expected each recording once" in result.output

    def test_both_scores_can_be_asked_to_hold(self) -> None:
        calibrate("--smoothing", "0.2", "--score", "both")
        assert stream_of("mine.onnx")["settings"]["thresholds"].keys() == {"entropy", "vacuity"}

    def test_thresholds_for_each_label_are_tried_beside_the_common_one(self) -> None:
        result = calibrate("--smoothing", "0.2", "--score", "entropy", "--per-label", "--json")
        assert len(json.loads(result.stdout)["tried"]) == 4
        assert stream_of("mine.onnx")["calibration"]["tried"]["per_label"] is True

    def test_the_curve_as_json_agrees_with_the_copy(self) -> None:
        result = json.loads(calibrate("--smoothing", "0.2", "--json").stdout)
        metadata = KeywordModel.load("mine.onnx").metadata
        assert metadata.stream is not None
        assert result["chosen"]["settings"] == metadata.stream["settings"]
        assert result["chosen"] in result["curve"]
        assert result["chosen"]["false_accepts_per_hour"] <= 0.5

    def test_the_curve_is_drawn(self) -> None:
        assert calibrate("--smoothing", "0.2", "--plot", "det.svg").exit_code == 0
        root = ElementTree.parse("det.svg").getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
        assert "words missed" in texts

    @pytest.mark.parametrize("form", [".step.onnx", ".audio.onnx", ".audio.step.onnx"])
    def test_the_other_forms_of_the_model_are_calibrated_with_it(self, form: str) -> None:
        Path("tiny.onnx").with_suffix(form).write_bytes(Path("tiny.onnx").read_bytes())
        calibrate("--smoothing", "0.2")
        assert stream_of(f"mine{form}") == stream_of("mine.onnx")

    def test_the_same_seed_gives_the_same_file(self) -> None:
        Path("again").mkdir()
        calibrate("--smoothing", "0.2", "--seed", "3")
        calibrate("--smoothing", "0.2", "--seed", "3", out="again/mine.onnx")
        assert Path("mine.onnx").read_bytes() == Path("again/mine.onnx").read_bytes()

    def test_the_copy_is_called_as_its_file_wherever_a_model_is_named(self) -> None:
        calibrate("--smoothing", "0.2", out="my room.onnx")
        assert KeywordModel.load("my room.onnx").name == "my_room"
        assert CliRunner().invoke(main, ["models", "my room.onnx"]).stdout.startswith("my_room\n")
        arguments = ["listen", "--model", "my room.onnx", "--replay", "clips/low/0_nohash_0.wav", "--fast", "--json"]
        (event,) = CliRunner().invoke(main, arguments).stdout.splitlines()
        assert json.loads(event)["model"] == "my_room"

    def test_an_existing_copy_is_kept_unless_forced(self) -> None:
        Path("mine.onnx").write_bytes(b"precious")
        result = calibrate("--smoothing", "0.2")
        assert result.exit_code == 2
        assert "mine.onnx exists; expected a new name, or --force" in result.stderr
        assert Path("mine.onnx").read_bytes() == b"precious"
        assert calibrate("--smoothing", "0.2", "--force").exit_code == 0
        assert KeywordModel.load("mine.onnx").metadata.stream

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--out", "tiny.onnx", "--force"), "tiny.onnx is the model itself"),
            (("--out", "mine.bin"), "expected a name that ends in .onnx"),
            (("--out", "mine.audio.onnx"), "expected a name that does not end in .audio.onnx, as a form of a model"),
            (("--out", "a\nb\x1b.onnx"), "expected a name of printable characters"),
            (("--out", "hiss.wav/mine.onnx"), "expected a folder that can be written, not "),
            (("--plot", "det.png"), "expected a name that ends in .svg"),
            (("--smoothing", "7"), "smoothing=7"),
            (("--hop", "0.005"), "hop=0.005"),
            (("--words", "low,maybe"), "words: maybe; expected one or more of low, mid, high"),
            (("--negatives", "nowhere"), "no recording at nowhere"),
            (("--positives", "clips/low"), "no clips in clips/low"),
        ],
    )
    def test_what_cannot_be_done_is_refused_in_one_line(self, arguments: tuple[str, ...], message: str) -> None:
        result = calibrate(*arguments)
        assert result.exit_code == 2
        assert message in result.stderr
        assert "Traceback" not in result.output
        assert not Path("mine.onnx").exists()

    def test_words_that_the_model_lacks_are_refused(self) -> None:
        Path("others/bird").mkdir(parents=True)
        soundfile.write("others/bird/0_nohash_0.wav", tone("low"), RATE)
        result = calibrate("--positives", "others")
        assert result.exit_code == 2
        assert "others has no clip of a word to calibrate for" in result.stderr
