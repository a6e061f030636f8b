"""Trade-off curves of a stream: looser thresholds find more words, and fire more often where none is said."""

from dataclasses import replace

import numpy as np
import pytest
from stream_points import SETTINGS, recording
from tiny_model import METADATA

from kws_edge.errors import SettingError
from kws_edge.model.score import Score
from kws_edge.tuning.calibration import CANDIDATES, candidates, per_label, sweep, trade_off
from kws_edge.tuning.choice import best, choose
from kws_edge.tuning.points import weigh
from kws_edge.tuning.traced import Traced

WORDS = recording("words", ("low", 0.05), ("mid", 0.15), ("high", 0.25), ("low", 0.45))
RADIO = recording("radio", ("low", 0.3), ("mid", 0.8), said=False)
NOISE = recording("noise", ("high", 0.2), said=False)


def at(*thresholds: float) -> list[dict[str, float]]:
    return [{"vacuity": threshold} for threshold in thresholds]


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


def test_two_recordings_of_one_name_are_refused_since_only_one_of_them_would_count() -> None:
    with pytest.raises(SettingError, match="recordings without words: radio, radio; expected a name of its own"):
        weigh(METADATA, [WORDS], [RADIO, replace(NOISE, name="radio")], SETTINGS)


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


def test_the_strictest_candidate_accepts_nothing_even_where_something_is_surer_than_every_word() -> None:
    words = recording("words", ("low", 0.3), ("mid", 0.4))
    thresholds = candidates(METADATA, [words], [recording("noise", ("high", 0.05), said=False)], SETTINGS, ["vacuity"])
    assert thresholds[0]["vacuity"] == pytest.approx(0.05, rel=0.01)
    assert thresholds[0]["vacuity"] < 0.05


def test_a_word_that_is_said_in_a_recording_without_words_makes_no_candidate() -> None:
    radio = recording("radio", ("low", 0.01), ("low", 0.3))
    radio = replace(radio, words=radio.words[:1])
    assert candidates(METADATA, [WORDS], [radio], SETTINGS, ["vacuity"])[0]["vacuity"] == pytest.approx(0.05)


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
