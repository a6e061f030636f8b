"""Thresholds for streams: the most hits under the false accepts that are allowed, written into a copy of the model."""

import json
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
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import METADATA

from kws_edge.cli import main
from kws_edge.errors import SettingError
from kws_edge.model import evidence
from kws_edge.model.evidence import no_evidence
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.score import Score
from kws_edge.model.variants import VARIANTS
from kws_edge.stream.settings import StreamSettings
from kws_edge.stream.trace import Hops
from kws_edge.tuning.calibration import (
    CANDIDATES,
    Point,
    Traced,
    assess,
    best,
    candidates,
    choose,
    frontier,
    per_label,
    sweep,
    trace_stream,
    trade_off,
    weigh,
)
from kws_edge.tuning.evaluation import StreamReport
from kws_edge.tuning.plot import det_plot
from kws_edge.tuning.soundscape import Word, compose

RATE = 16_000
SETTINGS = StreamSettings({"vacuity": 0.5}, smoothing=0.1)


def recording(name: str, *seen: tuple[str, float], said: bool = True) -> Traced:
    """One window each 3 s in which the network sees a label, with so much vacuity; `said`, if the word is there."""
    n = 30 * len(seen)
    alpha = np.tile(no_evidence(3, "softmax"), (n, 1))
    words = []
    for i, (label, vacuity) in enumerate(seen):
        k = METADATA.labels.index(label)
        at = 30 * i + 15
        alpha[at : at + 3, k] = 3 / vacuity - 3
        words.append(Word(label, at / 10 - 0.5, at / 10))
    hops = Hops(
        hop=0.1,
        time=0.1 * np.arange(1, n + 1),
        alpha=alpha,
        vacuity=evidence.vacuity(alpha, VARIANTS["softmax"]),
        level=np.full(n, -60, np.float32),
        noise=np.full(n, -60, np.float32),
        clipped=np.zeros(n, np.bool_),
        heard=np.ones(n, np.bool_),
    )
    return Traced(name, hops, tuple(words) if said else ())


WORDS = recording("words", ("low", 0.05), ("mid", 0.15), ("high", 0.25), ("low", 0.45))
RADIO = recording("radio", ("low", 0.3), ("mid", 0.8), said=False)
NOISE = recording("noise", ("high", 0.2), said=False)


def at(*thresholds: float) -> list[dict[str, float]]:
    return [{"vacuity": threshold} for threshold in thresholds]


def point(hits: int, false_accepts: int, wrong: int = 0, settings: StreamSettings = SETTINGS) -> Point:
    words = StreamReport(100.0, hits=hits, wrong=wrong, missed=20 - hits - wrong)
    return Point(settings, words, {"n": StreamReport(3600.0, false_accepts=false_accepts)})


# The trade-off


def test_a_looser_threshold_finds_more_and_fires_more() -> None:
    points = trade_off(METADATA, [WORDS], [RADIO, NOISE], SETTINGS, at(0.01, 0.1, 0.22, 0.27, 0.5, 0.9))
    assert [p.words.hits for p in points] == [0, 1, 2, 3, 4, 4]
    assert [p.negatives["radio"].false_accepts for p in points] == [0, 0, 0, 0, 1, 2]
    assert [p.negatives["noise"].false_accepts for p in points] == [0, 0, 1, 1, 1, 1]
    assert [p.settings.thresholds["vacuity"] for p in points] == [0.01, 0.1, 0.22, 0.27, 0.5, 0.9]
    assert points[2].miss_rate == 0.5


def test_the_rate_is_that_of_the_worst_recording() -> None:
    (loose,) = trade_off(METADATA, [WORDS], [RADIO, NOISE], SETTINGS, at(0.22))
    assert loose.false_accepts_per_hour == pytest.approx(1200)  # one in 3 s of noise, none in 6 s of radio


def test_of_two_scores_both_must_hold() -> None:
    pairs = [{"vacuity": v, "entropy": h} for v, h in ((0.9, 0.99), (0.01, 0.99), (0.9, -0.5))]
    assert [p.words.hits for p in trade_off(METADATA, [WORDS], [NOISE], SETTINGS, pairs)] == [4, 0, 0]


def test_for_a_few_words_only_their_own_hits_and_false_accepts_count() -> None:
    (p,) = trade_off(METADATA, [WORDS], [RADIO, NOISE], SETTINGS, at(0.9), {"low"})
    assert (p.words.words, p.words.hits) == (2, 2)
    assert [p.negatives[name].false_accepts for name in ("radio", "noise")] == [1, 0]


def test_the_sweep_ends_where_it_fires_too_often() -> None:
    done: list[None] = []
    points = trade_off(
        METADATA, [WORDS], [NOISE], SETTINGS, at(0.1, 0.22, 0.3, 0.4), until=100, progress=lambda: done.append(None)
    )
    assert len(points) == 2
    assert len(done) == 4


def test_thresholds_of_single_labels_are_replaced_too() -> None:
    settings = replace(SETTINGS, labels={"low": {"vacuity": 0.9}})
    (p,) = trade_off(METADATA, [WORDS], [NOISE], settings, at(0.1))
    assert p.settings == replace(SETTINGS, thresholds={"vacuity": 0.1})


@pytest.mark.parametrize(
    ("positives", "negatives", "words", "message"),
    [
        ([WORDS], [], None, "recordings without"),
        ([NOISE], [NOISE], None, "recordings with words"),
        ([recording("one", ("low", 0.1))], [NOISE], {"high"}, "recordings with words"),
    ],
)
def test_a_sweep_that_can_say_nothing_is_refused(
    positives: list[Traced], negatives: list[Traced], words: set[str] | None, message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        trade_off(METADATA, positives, negatives, SETTINGS, at(0.1), words)


@pytest.mark.parametrize("scores", [("vacuity",), ("entropy",), ("entropy", "vacuity")])
def test_candidates_reach_from_no_false_accept_to_every_word(scores: tuple[Score, ...]) -> None:
    thresholds = candidates(METADATA, [WORDS], [RADIO, NOISE], SETTINGS, scores)
    assert 0 < len(thresholds) <= 2 * CANDIDATES + 1
    for score in scores:
        assert np.all(np.diff([t[score] for t in thresholds]) >= 0)
    points = trade_off(METADATA, [WORDS], [RADIO, NOISE], SETTINGS, thresholds)
    assert points[0].false_accepts_per_hour == 0
    assert max(p.words.hits for p in points) == 4


def test_candidates_for_a_few_words_leave_out_what_sounds_like_others() -> None:
    lowest = [
        candidates(METADATA, [WORDS], [RADIO, NOISE], SETTINGS, ["vacuity"], w)[0]["vacuity"] for w in (None, {"high"})
    ]
    assert lowest == pytest.approx([0.05, 0.2], abs=0.01)  # the surest windows: of "low", and of "high" in the noise


def test_where_no_word_is_heard_there_are_no_candidates() -> None:
    silence = Traced("s", replace(WORDS.hops, heard=np.zeros(len(WORDS.hops), np.bool_)), WORDS.words)
    with pytest.raises(SettingError, match="none of the words is the most probable where it is said"):
        candidates(METADATA, [silence], [NOISE], SETTINGS, ["vacuity"])


# Thresholds for each label


HUM = recording("hum", *[("low", 0.1 + 0.02 * i) for i in range(40)], said=False)
"""It fires "low" again and again, and never another word."""


def test_a_label_that_never_fires_by_mistake_may_be_less_sure() -> None:
    words = recording("words", *[(label, 0.04 + 0.02 * i) for i in range(40) for label in ("low", "mid", "high")])
    points = trade_off(METADATA, [words], [HUM], SETTINGS, at(*(0.05 + 0.02 * i for i in range(40))))
    shared = [weigh(METADATA, [words], [HUM], s) for s in per_label(points)]
    limit = 3600 * 5 / HUM.seconds
    common, own = best(points, limit), best(shared, limit)
    assert common
    assert own
    assert own.words.hits > common.words.hits + 40
    thresholds = {
        label: own.settings.labels.get(label, own.settings.thresholds)["vacuity"] for label in METADATA.labels
    }
    assert thresholds["low"] < thresholds["mid"] == thresholds["high"]


def test_one_false_accept_does_not_tell_the_labels_apart() -> None:
    words = recording("words", *[(label, 0.04 + 0.02 * i) for i in range(20) for label in ("low", "mid", "high")])
    thresholds = [{"vacuity": 0.03 + 0.02 * i} for i in range(25)]
    points = trade_off(METADATA, [words], [recording("once", ("low", 0.2), said=False)], SETTINGS, thresholds)
    dearest = per_label(points)[0]
    assert dearest.thresholds["vacuity"] < 0.2
    assert dearest.labels == {}


def test_a_label_without_words_keeps_the_common_thresholds() -> None:
    words = recording("words", *[("low", 0.04 + 0.02 * i) for i in range(20)])
    points = trade_off(METADATA, [words], [HUM], SETTINGS, at(0.05, 0.1, 0.2, 0.4))
    assert all(s.labels.keys() <= {"low"} for s in per_label(points))


# Crowding


def sounding(name: str, *spoken: tuple[str, float, float, float], said: bool = True) -> Traced:
    """As `recording`, with the times at which there is sound, from and to, beside each word's score."""
    plain = recording(name, *[(label, score) for label, score, _, _ in spoken], said=said)
    level = plain.hops.level.copy()
    for _, _, start, end in spoken:
        level[(plain.hops.time > start) & (plain.hops.time < end)] = -20
    return replace(plain, hops=replace(plain.hops, level=level))


def test_crowding_finds_more_where_what_fires_lies_in_running_speech() -> None:
    said = [(word.start, word.end) for word in WORDS.words]
    words = sounding("words", *[("low", 0.05 + 0.1 * i, *span) for i, span in enumerate(said)])
    radio = sounding("radio", *[("low", 0.25, start - 1.5, end + 1.5) for start, end in said], said=False)
    bases = [replace(SETTINGS, crowding=crowding) for crowding in (0.0, 8.0)]
    tries = [(candidates(METADATA, [words], [radio], base, ("vacuity",)), base) for base in bases]
    plain, crowded = sweep(METADATA, [words], [radio], tries)
    chosen = choose([plain, crowded], 1.0)
    assert chosen.settings.crowding == 8.0
    assert chosen.words.hits == 4
    assert max(p.words.hits for p in plain if p.false_accepts_per_hour <= 1) == 2


@pytest.mark.parametrize(("plain", "expected"), [(15, 0.0), (13, 8.0)])
def test_crowding_must_find_more_than_chance_does(plain: int, expected: float) -> None:
    crowded = point(16, 0, settings=replace(SETTINGS, crowding=8.0))
    assert choose([[crowded], [point(plain, 0)]], 1).settings.crowding == expected


# The choice


def test_the_most_hits_under_the_limit_are_chosen() -> None:
    points = [point(5, 0), point(12, 1), point(15, 2), point(19, 9)]
    assert choose([points], 0.5) is points[0]
    assert choose([points], 1) is points[1]
    assert choose([points], 2.5) is points[2]


def test_of_equal_hits_the_fewest_false_accepts_are_chosen_and_then_the_fewest_wrong_words() -> None:
    points = [point(12, 2), point(12, 1, wrong=3), point(12, 1, wrong=2)]
    assert choose([points], 5) is points[2]


@pytest.mark.parametrize(("shorter", "expected"), [(15, 0.3), (14, 0.7)])
def test_longer_smoothing_must_find_more_than_chance_does(shorter: int, expected: float) -> None:
    curves = [[point(hits, 0, settings=replace(SETTINGS, smoothing=s))] for hits, s in ((16, 0.7), (shorter, 0.3))]
    assert choose(curves, 1).settings.smoothing == expected  # one standard error of 16 in 20 is 1.8


@pytest.mark.parametrize(("common", "expected"), [(15, False), (13, True)])
def test_thresholds_for_each_label_must_find_more_than_chance_does(common: int, expected: bool) -> None:
    own = point(16, 0, settings=replace(SETTINGS, labels={"low": {"vacuity": 0.1}}))
    assert bool(choose([[own], [point(common, 0)]], 1).settings.labels) is expected


@pytest.mark.parametrize(
    ("curves", "why"),
    [
        ([], "no word is found at any threshold"),
        ([[]], "no word is found at any threshold"),
        ([[point(0, 0), point(5, 3)]], "no threshold finds a word with 0.5 false accepts per hour"),
    ],
)
def test_where_no_point_holds_the_limit_that_is_said(curves: list[list[Point]], why: str) -> None:
    with pytest.raises(SettingError, match=why):
        choose(curves, 0.5)


counts = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10)).map(lambda c: point(*c)), min_size=1)


@given(counts, st.integers(0, 10))
@settings(deadline=None)
def test_the_curve_holds_every_choice(points: list[Point], limit: int) -> None:
    curve = frontier(points)
    rates = [p.false_accepts_per_hour for p in curve]
    hits = [p.words.hits for p in curve]
    assert rates == sorted(set(rates))
    assert hits == sorted(set(hits))
    chosen = best(points, limit)
    if chosen:
        assert (chosen.false_accepts_per_hour, chosen.words.hits) in zip(rates, hits, strict=True)


# From sound


def test_a_composed_stream_is_traced_with_its_words(tmp_path: Path) -> None:
    model = KeywordModel.load(tiny_model.save(tmp_path))
    clips = [(word, tone(word)) for word in ("low", "high", "low")]
    stream = [(samples, [word] if word else []) for samples, word in compose(clips, seed=1)]
    traced = trace_stream(model, stream, "three")
    report = assess(model.metadata, [traced], StreamSettings({"entropy": 0.5}))
    assert [word.label for word in traced.words] == ["low", "high", "low"]
    assert (report.hits, report.false_accepts, report.missed) == (3, 0, 0)
    assert report.seconds == pytest.approx(traced.seconds)


def test_a_stream_shorter_than_a_hop_is_refused(tmp_path: Path) -> None:
    model = KeywordModel.load(tiny_model.save(tmp_path))
    with pytest.raises(SettingError, match="short: shorter than a hop"):
        trace_stream(model, [(np.zeros(100, np.float32), [])], "short")


def tone(word: str, shift: float = 0.0) -> np.ndarray:
    """So long that the model is sure of it."""
    t = np.arange(round(1.2 * RATE)) / RATE
    return (0.3 * np.sin(2 * np.pi * (tiny_model.TONES[word] + shift) * t)).astype(np.float32)


# The command


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
    soundfile.write("hiss.wav", 0.05 * rng.standard_normal(10 * RATE), RATE)
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
        assert metadata == replace(METADATA, stream=metadata.stream)
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
        tried = lines[2 : lines.index("The trade-off of the chosen one:")]
        curve = lines[len(tried) + 4 : -1]
        assert ["0.20 s  entropy" in line for line in tried] == [True, True, False, False]
        assert ["0.50 s  entropy" in line for line in tried] == [False, False, True, True]
        (marked,) = [line for line in tried if line.startswith("*")]
        assert marked in curve
        assert "entropy" in marked
        assert lines[-1] == "* is what mine.onnx holds now."

    def test_a_limit_that_the_negatives_are_too_short_to_show_is_said_and_written(self) -> None:
        result = calibrate("--smoothing", "0.2", "--false-accepts-per-hour", "2")
        assert result.stderr.splitlines() == [
            "not shown: 2 an hour on hiss.wav. 0 false accepts in 0.2 minutes: at 95 %, 0.0 to 1328.7 an hour; "
            "that takes 111 minutes without one"
        ]
        assert stream_of("mine.onnx")["calibration"]["limit_shown"] is False

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
        after = StreamSettings.after_wake(KeywordModel.load("both.onnx").metadata)
        assert after.thresholds["entropy"] >= both["settings"]["thresholds"]["entropy"]
        assert after.crowding == 0

    def test_a_point_for_after_a_wake_word_needs_one_for_the_wake_word(self) -> None:
        result = calibrate("--after-wake")
        assert result.exit_code == 2
        assert "is not calibrated on streams" in result.output

    def test_a_few_words_are_calibrated_alone(self) -> None:
        calibrate("--smoothing", "0.2", "--words", "Low, high", "--snr", "10")
        calibration = stream_of("mine.onnx")["calibration"]
        assert calibration["words_chosen"] == ["low", "high"]
        assert calibration["words"]["labels"].keys() == {"low", "high"}

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
        calibrate("--smoothing", "0.2", "--seed", "3")
        calibrate("--smoothing", "0.2", "--seed", "3", out="again.onnx")
        assert Path("mine.onnx").read_bytes() == Path("again.onnx").read_bytes()

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
        assert "no word of the model in others" in result.stderr


def test_a_drawing_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"cannot write .*det.svg"):
        det_plot([point(5, 0)], point(5, 0), 0.5, tmp_path / "absent" / "det.svg")


def test_more_misses_are_drawn_higher_and_more_false_accepts_further_right(tmp_path: Path) -> None:
    curve = [point(5, 0), point(12, 1), point(20, 10)]
    det_plot(curve, curve[1], 0.5, tmp_path / "det.svg")
    (line,) = ElementTree.parse(tmp_path / "det.svg").getroot().iter("{http://www.w3.org/2000/svg}polyline")
    x, y = np.array([xy.split(",") for xy in line.attrib["points"].split()], float).T
    assert np.all(np.diff(x) > 0)
    assert np.all(np.diff(y) > 0)  # in SVG, downwards
