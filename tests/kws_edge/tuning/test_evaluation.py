"""Events against the words that were said: what counts as what, and how sure the rates are."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tiny_model
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tiny_model import METADATA

from kws_edge.cli import main
from kws_edge.errors import SettingError
from kws_edge.model.prediction import Reason
from kws_edge.stream.events import Event
from kws_edge.stream.settings import StreamSettings
from kws_edge.tuning.evaluation import Outcome, StreamReport, evaluate, match, per_hour, rate_of, seconds_to_show
from kws_edge.tuning.soundscape import Word

LABELS = ("yes", "no")
RATE = 16_000


def event(label: str | None, start: float, end: float, time: float | None = None) -> Event:
    return Event(
        label=label,
        guess=label or "yes",
        probability=0.9,
        alpha=np.ones(2, np.float32),
        vacuity=0.1,
        entropy=0.1,
        reason=None if label else Reason.UNCERTAIN,
        start=start,
        end=end,
        time=end if time is None else time,
        model="m",
    )


def outcomes(events: list[Event], words: list[Word]) -> list[str]:
    return [answer.outcome.value for answer in match(events, words)[0]]


YES, NO = Word("yes", 2.0, 2.5), Word("no", 5.0, 5.4)


# What counts as what


def test_an_event_of_its_label_makes_a_word_a_hit() -> None:
    assert outcomes([event("yes", 2.1, 2.6)], [YES]) == ["hit"]


def test_an_event_of_another_label_makes_it_wrong() -> None:
    assert outcomes([event("no", 2.1, 2.6)], [YES]) == ["wrong"]


def test_an_abstention_makes_it_abstained() -> None:
    assert outcomes([event(None, 1.9, 2.6, time=3.2)], [YES]) == ["abstained"]


def test_nothing_makes_it_missed() -> None:
    answers, left = match([], [YES])
    assert [(a.word, a.outcome, a.event) for a in answers] == [(YES, Outcome.MISSED, None)]
    assert left == []


@pytest.mark.parametrize(("start", "end", "expected"), [(0, 2.0, "hit"), (2.5, 3, "hit"), (0, 1.99, "missed")])
def test_an_event_answers_what_it_overlaps(start: float, end: float, expected: str) -> None:
    assert outcomes([event("yes", start, end)], [YES]) == [expected]


def test_the_right_label_counts_before_an_earlier_wrong_one() -> None:
    answers, left = match([event("no", 1.8, 2.2), event("yes", 2.0, 2.6)], [YES])
    assert answers[0].outcome == Outcome.HIT
    assert [e.label for e in left] == ["no"]


def test_a_second_event_of_one_word_is_a_false_accept() -> None:
    report = evaluate([event("yes", 2.0, 2.4), event("yes", 2.3, 3.2)], [YES], 10, LABELS)
    assert (report.hits, report.false_accepts) == (1, 1)


def test_one_event_answers_one_word() -> None:
    words = [Word("yes", 2.0, 2.3), Word("yes", 2.5, 2.8)]
    assert outcomes([event("yes", 2.0, 2.9)], words) == ["hit", "missed"]


def test_every_word_has_one_outcome_in_the_order_of_time() -> None:
    answers, _ = match([event(None, 2, 2.5), event("no", 5, 5.4)], [NO, YES])
    assert [(a.word.label, a.outcome) for a in answers] == [("yes", Outcome.ABSTAINED), ("no", Outcome.HIT)]


def test_events_where_nothing_was_said_are_false_accepts_or_abstentions() -> None:
    report = evaluate([event("yes", 1, 2), event(None, 3, 4), event("no", 7, 8), event(None, 8, 9)], [], 1800, LABELS)
    assert (report.false_accepts, report.abstentions) == (2, 2)
    assert report.false_accepts_per_hour.value == 4
    assert report.words == 0
    assert report.hit_rate is None


def test_a_label_on_a_word_outside_the_vocabulary_is_a_false_accept() -> None:
    words = [Word("bird", 2, 2.5), Word("tree", 5, 5.5)]
    report = evaluate([event("yes", 2, 2.6), event(None, 5, 5.6)], words, 10, LABELS)
    assert (report.unknown, report.unknown_accepted, report.false_accepts, report.abstentions) == (2, 1, 1, 0)
    assert report.words == 0


def test_delays_run_from_the_end_of_the_word_to_the_decision() -> None:
    words = [Word("yes", float(t), t + 0.5) for t in range(0, 40, 4)]
    delays = [0.1 * i - 0.2 for i in range(10)]
    events = [event("yes", w.start, w.end, time=w.end + d) for w, d in zip(words, delays, strict=True)]
    report = evaluate(events, words, 40, LABELS)
    assert report.delays == pytest.approx(delays)
    assert report.delay(0.5) == pytest.approx(0.25)
    assert report.delay(0.95) == pytest.approx(np.quantile(delays, 0.95))


def test_without_hits_there_is_no_delay() -> None:
    assert StreamReport(10.0, missed=3).delay(0.5) is None


times = st.floats(0, 50, allow_nan=False)
spans = st.tuples(times, st.floats(0, 3)).map(lambda span: (span[0], sum(span)))


@given(
    st.lists(st.tuples(st.sampled_from(["yes", "no", None]), spans)),
    st.lists(st.tuples(st.sampled_from(["yes", "no", "bird"]), spans)),
)
@settings(deadline=None)
def test_nothing_is_lost_and_nothing_counts_twice(
    heard: list[tuple[str | None, tuple[float, float]]], said: list[tuple[str, tuple[float, float]]]
) -> None:
    events = sorted((event(label, *span) for label, span in heard), key=lambda e: e.time)
    words = [Word(label, *span) for label, span in said]
    answers, left = match(events, words)
    used = [a.event for a in answers if a.event]
    assert sorted(map(id, used + left)) == sorted(map(id, events))
    assert len(answers) == len(words)
    report = evaluate(events, words, 60, LABELS)
    assert report.words + report.unknown == len(words)
    accepted = sum(e.label is not None for e in events)
    assert report.hits + report.wrong + report.false_accepts == accepted
    by_label = (report.words_of, report.hits_of, report.false_accepts_of)
    assert [sum(count.values()) for count in by_label] == [report.words, report.hits, report.false_accepts]


def test_reports_add_up() -> None:
    first = evaluate([event("yes", 2.0, 2.6)], [YES], 10, LABELS)
    second = evaluate([event("no", 1, 2)], [NO], 3590, LABELS)
    both = first + second
    assert (both.seconds, both.hits, both.missed, both.false_accepts) == (3600, 1, 1, 1)
    assert both.delays == first.delays
    assert both.false_accepts_per_hour.value == 1


def test_each_label_has_its_own_counts() -> None:
    words = [YES, NO, Word("yes", 8.0, 8.5), Word("bird", 12.0, 12.5)]
    events = [event("yes", 2.0, 2.6), event("yes", 5.0, 5.4), event("no", 12.0, 12.5), event("no", 15.0, 15.5)]
    assert evaluate(events, words, 20, LABELS).to_dict()["labels"] == {
        "yes": {"words": 2, "hits": 1, "false_accepts": 0},
        "no": {"words": 1, "hits": 0, "false_accepts": 2},
    }


def test_a_report_is_plain_json() -> None:
    report = evaluate([event("yes", 2.0, 2.6, time=2.75)], [YES], 10, LABELS)
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False)) == report.to_dict()
    assert report.to_dict()["delay"] == {"p50": 0.25, "p95": 0.25}
    assert StreamReport(10.0).to_dict()["hit_rate"] is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_stream_without_length_is_refused(seconds: float) -> None:
    with pytest.raises(SettingError, match="expected more than 0"):
        evaluate([], [], seconds, LABELS)


# Intervals, against scipy


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
@settings(deadline=None)
def test_the_hit_rate_has_wilsons_interval(counts: tuple[int, int]) -> None:
    expected = stats.binomtest(*counts).proportion_ci(method="wilson")
    assert rate_of(*counts) == pytest.approx((counts[0] / counts[1], expected.low, expected.high), abs=1e-12)


@given(st.integers(0, 3000), st.floats(1, 1e5))
@settings(deadline=None)
def test_false_accepts_have_the_exact_poisson_interval(count: int, seconds: float) -> None:
    low = stats.chi2.ppf(0.025, 2 * count) / 2 if count else 0
    high = stats.chi2.ppf(0.975, 2 * count + 2) / 2
    scale = 3600 / seconds
    assert per_hour(count, seconds) == pytest.approx((count * scale, low * scale, high * scale), rel=1e-9)


def test_an_hour_without_a_false_accept_shows_a_rate_below_3_7() -> None:
    assert per_hour(0, 3600).high == pytest.approx(3.689, abs=1e-3)


@given(st.floats(0.01, 1000))
@settings(deadline=None)
def test_a_recording_that_is_long_enough_shows_the_rate_and_no_shorter_one(rate: float) -> None:
    seconds = seconds_to_show(rate)
    assert per_hour(0, seconds).high == pytest.approx(rate)
    assert per_hour(0, 0.99 * seconds).high > rate


def test_no_recording_shows_a_rate_of_none_at_all() -> None:
    assert seconds_to_show(0) == float("inf")


# The command


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
        lines = run(*arguments).stdout.splitlines()
        assert "0.7 minutes of radio.wav" in lines[0]
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
            (("--positives", "clips", "--rates", "1"), "--rates needs --positives, and --negatives"),
            (("--positives", "clips", "--rates", "0,1"), "above 0 to 1000"),
            (("--positives", "clips", "--plot", "det.svg"), "--plot draws the curves of --rates"),
        ],
    )
    def test_what_cannot_be_measured_is_refused_in_one_line(self, arguments: tuple[str, ...], message: str) -> None:
        result = run(*arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert message in result.stderr
        assert "Traceback" not in result.output
