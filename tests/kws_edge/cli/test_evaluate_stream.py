"""`kws-edge evaluate-stream`: a row for each stream, and what does not go together."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tiny_model
from click.testing import CliRunner, Result
from tiny_model import METADATA

from kws_edge.audio.load import load
from kws_edge.cli import main
from kws_edge.cli.evaluate_stream import row
from kws_edge.stream.settings import StreamSettings
from kws_edge.tuning import recordings
from kws_edge.tuning.evaluation import StreamReport

RATE = 16_000
RATES = ("--positives", "clips", "--negatives", "clips/_background_noise_", "--rates", "100")


def test_of_unknown_words_those_without_an_event_are_not_called_not_sure() -> None:
    report = StreamReport(60.0, unknown=10, unknown_accepted=2, unknown_abstained=3, false_accepts=2)
    wrong, unsure, rate, *_ = row("10 unknown words", report).split()
    assert (wrong, unsure, rate) == ("2", "3", "120.0")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model, clips of its words and of another, and noise."""
    monkeypatch.chdir(tmp_path)
    tiny_model.save(tmp_path)
    t = np.arange(round(1.2 * RATE)) / RATE  # it is sure of a tone that fills a window
    for word, frequency in {**tiny_model.TONES, "unheard": 1.0}.items():
        (tmp_path / "clips" / word).mkdir(parents=True)
        for i in range(3):
            tone = 0.3 * np.sin(2 * np.pi * (frequency + 10 * i) * t)
            soundfile.write(f"clips/{word}/{i}_nohash_0.wav", np.pad(tone, 1600), RATE)
    (tmp_path / "clips" / "_background_noise_").mkdir()
    noise = 0.05 * np.random.default_rng(1).standard_normal(20 * RATE)
    soundfile.write("clips/_background_noise_/hiss.wav", noise, RATE)
    (tmp_path / "list.txt").write_text("low/0_nohash_0.opus\nhigh/2_nohash_0.wav\n_background_noise_/hiss.wav\n")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["evaluate-stream", "--model", "tiny.onnx", *arguments])


def radio() -> None:
    """Write a recording with a tone of each word, 9 s apart."""
    t = np.arange(round(1.3 * RATE)) / RATE
    quiet = 0.0003 * np.random.default_rng(1).standard_normal(9 * RATE)
    tones = [0.3 * np.sin(2 * np.pi * tiny_model.TONES[word] * t) for word in ("low", "mid", "high")]
    soundfile.write("radio.wav", np.concatenate([part for tone in tones for part in (quiet, tone)] + [quiet]), RATE)


def rows(*arguments: str) -> dict[str, dict[str, object]]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return {row["stream"]: row for row in map(json.loads, result.stdout.splitlines())}


@pytest.mark.usefixtures("folder")
class TestEvaluateStream:
    def test_words_and_negatives_have_a_row_each(self) -> None:
        negatives = "clips/_background_noise_"
        table = rows("--positives", "clips", "--negatives", negatives, "--snr", "10", "--snr", "0")
        over = [f"9 words, {snr} dB over {negatives}" for snr in (10, 0)]
        assert list(table) == ["9 words", "3 unknown words", *over, negatives]
        assert [row["words"] for row in table.values()] == [9, 0, 9, 9, 0]
        assert table["3 unknown words"]["unknown"] == 3
        assert table[negatives]["seconds"] == pytest.approx(20, abs=0.2)

    def test_tones_in_silence_are_all_found(self) -> None:
        row = rows("--positives", "clips")["9 words"]
        assert (row["hits"], row["false_accepts"]) == (9, 0)
        assert row["settings"]["thresholds"] == {"entropy": 0.5}

    def test_the_same_seed_gives_the_same_numbers(self) -> None:
        arguments = ("--positives", "clips", "--count", "4")
        assert rows(*arguments, "--seed", "5") == rows(*arguments, "--seed", "5")
        assert rows(*arguments, "--seed", "5")["4 words"] != rows(*arguments, "--seed", "6")["4 words"]

    def test_a_list_says_which_clips_are_used(self) -> None:
        assert list(rows("--positives", "clips", "--list", "list.txt")) == ["2 words"]

    def test_words_that_are_not_listened_for_count_as_unknown(self) -> None:
        of = rows("--positives", "clips", "--words", "low")
        assert (of["3 words"]["words"], of["3 words"]["hits"]) == (3, 3)
        assert (of["9 unknown words"]["unknown"], of["9 unknown words"]["unknown_accepted"]) == (9, 0)

    def test_a_model_that_was_calibrated_for_a_few_words_is_measured_on_these(self) -> None:
        stream = {"settings": StreamSettings({"entropy": 0.5}).to_dict(), "calibration": {"words_chosen": ["low"]}}
        tiny_model.save(Path(), "few", metadata=replace(METADATA, name="few", stream=stream))
        assert rows("--positives", "clips", "--model", "few.onnx")["3 words"]["words"] == 3
        assert rows("--positives", "clips", "--model", "few.onnx", "--words", "LOW,mid")["6 words"]["words"] == 6

    def test_commands_count_after_a_wake_word_that_is_heard(self) -> None:
        radio()
        table = rows("--positives", "clips", "--wake", "low", "--words", "mid,high", "--negatives", "radio.wav")
        assert list(table) == [
            f"{name}: {what}" for name in ("6 pairs", "radio.wav") for what in ("wake words", "commands after them")
        ]
        woken, obeyed = table["6 pairs: wake words"], table["6 pairs: commands after them"]
        assert (woken["words"], woken["hits"], obeyed["words"], obeyed["hits"]) == (6, 6, 6, 6)
        in_radio = [table[f"radio.wav: {what}"]["false_accepts"] for what in ("wake words", "commands after them")]
        assert in_radio == [1, 0]  # the others come 10 s after it, when nothing counts any more

    def test_a_command_that_follows_no_wake_word_does_not_count(self) -> None:
        deaf = StreamSettings({"entropy": 0.001}).to_dict()
        loose = {"settings": StreamSettings({"entropy": 0.5}).to_dict()}
        metadata = replace(METADATA, name="deaf", stream={"settings": deaf, "after_wake": loose})
        tiny_model.save(Path(), "deaf", metadata=metadata)
        table = rows("--positives", "clips", "--wake", "low", "--words", "mid", "--model", "deaf.onnx")
        assert table["3 pairs: wake words"]["hits"] == 0
        assert table["3 pairs: commands after them"]["hits"] == 0

    def test_a_target_is_that_of_the_commands_as_where_one_listens(self) -> None:
        deaf = StreamSettings({"entropy": 0.001}).to_dict()
        metadata = replace(METADATA, name="deaf", stream={"settings": deaf, "after_wake": {"settings": deaf}})
        tiny_model.save(Path(), "deaf", metadata=metadata)
        common = ("--positives", "clips", "--wake", "low", "--words", "mid", "--model", "deaf.onnx")
        table = rows(*common, "--target", "99")
        thresholds = [row["settings"]["thresholds"]["entropy"] for row in table.values()]  # type: ignore[index]
        assert thresholds == [0.001, METADATA.threshold("entropy", 0.99).threshold]

    def test_at_each_rate_what_is_found_and_what_it_cost_is_told(self) -> None:
        radio()
        arguments = ("--positives", "clips", "--negatives", "radio.wav", "--snr", "20", "--rates", "1,100,1000")
        none, one, all_three = map(json.loads, run(*arguments, "--json", "--plot", "det.svg").stdout.splitlines())
        assert none["rate"] == 1
        assert one["negatives"]["false_accepts"] == 1
        assert 3 <= all_three["negatives"]["false_accepts"] <= 1000 * 44 / 3600
        assert one["settings"]["thresholds"]["entropy"] < all_three["settings"]["thresholds"]["entropy"]
        assert list(all_three["streams"]) == ["9 words", "3 unknown words", "9 words, 20 dB over radio.wav"]
        assert all_three["streams"]["9 words"]["hits"] == 9
        drawn = Path("det.svg").read_text()
        assert drawn.count("<polyline") == 2
        told = run(*arguments)
        lines = told.stdout.splitlines()
        assert "0.7 minutes of radio.wav" in lines[0]
        assert [line.split()[0] for line in lines[2:] if not line.startswith("      ")] == ["1", "100", "1000"]
        assert "minutes of negatives are too short for 1 an hour" in told.stderr
        assert lines[-1].endswith("9 words, 20 dB over radio.wav")

    def test_a_recording_with_a_label_track_is_measured(self) -> None:
        t = np.arange(RATE) / RATE
        rng = np.random.default_rng(1)
        parts = [0.0003 * rng.standard_normal(2 * RATE) for _ in range(5)]
        for i, word in ((1, "low"), (3, "high")):
            parts[i][:RATE] += 0.3 * np.sin(2 * np.pi * tiny_model.TONES[word] * t)
        soundfile.write("kitchen.wav", np.concatenate(parts), RATE)
        Path("kitchen.txt").write_text("2\t3\tlow\n6\t7\tmid\n")
        row = rows("--recording", "kitchen.wav", "--labels", "kitchen.txt")["kitchen.wav"]
        assert (row["hits"], row["wrong"], row["seconds"]) == (1, 1, pytest.approx(10, abs=0.1))

    def test_negatives_are_measured_beside_a_recording(self) -> None:
        Path("said.txt").write_text("0.1\t1.3\tlow\n")
        arguments = ("--recording", "clips/low/0_nohash_0.wav", "--labels", "said.txt", "--negatives")
        assert list(rows(*arguments, "clips/_background_noise_")) == ["0_nohash_0.wav", "clips/_background_noise_"]

    def test_words_of_folders_and_label_tracks_may_be_written_in_capitals(self) -> None:
        Path("clips/low").rename("clips/Low")
        Path("said.txt").write_text("0.1\t1.3\tLOW\n")
        assert rows("--positives", "clips", "--words", "low")["3 words"]["hits"] == 3
        row = rows("--recording", "clips/Low/0_nohash_0.wav", "--labels", "said.txt")["0_nohash_0.wav"]
        assert (row["words"], row["unknown"]) == (1, 0)

    @pytest.mark.parametrize("again", ["clips", "clips/*/hiss.wav", "again.wav"])
    def test_a_recording_in_two_of_the_negatives_is_refused(self, again: str) -> None:
        Path("again.wav").symlink_to("clips/_background_noise_/hiss.wav")
        result = run("--negatives", "clips/_background_noise_", "--negatives", again)
        assert (result.exit_code, "expected each recording once" in result.stderr) == (2, True), result.output

    def test_a_recording_longer_than_a_clip_may_be_is_measured_and_mixed_with_the_words(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recordings, "MAX_SECONDS", 8.0)
        monkeypatch.setattr(recordings, "load", partial(load, max_seconds=8.0))
        table = rows("--positives", "clips", "--negatives", "clips/_background_noise_", "--snr", "10")
        assert table["clips/_background_noise_"]["seconds"] == pytest.approx(20, abs=0.2)
        assert table["9 words, 10 dB over clips/_background_noise_"]["words"] == 9

    def test_where_a_negative_has_a_label_track_beside_it_its_words_are_no_false_accepts(self) -> None:
        Path("radio").mkdir()
        for name, words in {"a": "low", "b": "high"}.items():  # the second one's times must move by the first's length
            quiet = 0.0003 * np.random.default_rng(1).standard_normal(3 * RATE)
            tone = 0.3 * np.sin(2 * np.pi * tiny_model.TONES[words] * np.arange(round(1.3 * RATE)) / RATE)
            soundfile.write(f"radio/{name}.wav", np.concatenate([quiet, tone, quiet]), RATE)
        assert rows("--negatives", "radio")["radio"]["false_accepts"] == 2
        Path("radio/b.labels.txt").write_text("3.0\t4.3\thigh\n")
        row = rows("--negatives", "radio")["radio"]
        assert (row["false_accepts"], row["words"], row["hits"]) == (1, 1, 1)
        Path("radio/a.labels.txt").write_text("3.0\t4.3\tlow\n")
        row = rows("--negatives", "radio")["radio"]
        assert (row["false_accepts"], row["words"], row["hits"]) == (0, 2, 2)

    def test_the_table_has_a_line_per_stream(self) -> None:
        result = run("--positives", "clips", "--negatives", "clips/_background_noise_")
        about, header, words, unknown, negatives = result.stdout.splitlines()
        assert about.startswith("model tiny: entropy up to 0.5, ")
        assert header.split()[:2] == ["FOUND", "WRONG"]
        assert words.startswith("100.0 (70.1 to 100.0) %")
        assert unknown.endswith("3 unknown words")
        assert negatives.endswith("clips/_background_noise_")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((), "nothing to measure"),
            (("--recording", "list.txt"), "--recording and --labels go together"),
            (("--positives", "clips", "--snr", "10"), "--snr needs --positives, and --negatives"),
            (("--negatives", "nowhere"), "no recording at nowhere"),
            (("--negatives", "list.txt"), "no recording at list.txt"),
            (("--positives", "clips/low"), "no clips in clips/low"),
            (("--positives", "clips", "--hop", "0.001"), "hop=0.001"),
            (("--positives", "clips", "--words", "maybe"), "maybe"),
            (("--negatives", "clips", "--wake", "low"), "--wake needs --positives"),
            (("--positives", "clips", "--wake", ","), "words: none; expected one or more of low, mid, high"),
            (("--positives", "clips", "--wake", "low", "--words", "low"), "no command beside the wake words low"),
            (("--positives", "clips", "--rates", "1"), "--rates needs --positives, and --negatives"),
            (("--positives", "clips", "--rates", "0,1"), "above 0 to 1000"),
            (("--positives", "clips", "--plot", "det.svg"), "--plot draws the curves of --rates"),
            ((*RATES, "--plot", "det.png"), "expected a name that ends in .svg"),
            ((*RATES, "--plot", "nowhere/det.svg"), "cannot draw nowhere/det.svg; expected a folder that is there"),
            (("--positives", "clips", "--for", "3"), "add --wake"),
            (("--negatives", "clips", "--list", "list.txt"), "add --positives"),
            (("--positives", "clips", "--recording", "list.txt", "--labels", "list.txt"), "give one of them"),
        ],
    )
    def test_what_cannot_be_measured_is_refused_in_one_line(self, arguments: tuple[str, ...], message: str) -> None:
        result = run(*arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert message in result.stderr
        assert "Traceback" not in result.output
