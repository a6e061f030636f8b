"""The decision on a stream, as a rule on numbers: no sound and no network in this file."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tiny_model import METADATA

from kws_edge.errors import ModelError, SettingError
from kws_edge.model import evidence
from kws_edge.model.evidence import no_evidence
from kws_edge.model.prediction import Reason
from kws_edge.model.selection import WITHHOLD_ALL
from kws_edge.model.variants import VARIANTS
from kws_edge.stream.decision import Decision, decide
from kws_edge.stream.events import Event
from kws_edge.stream.framing import Hop
from kws_edge.stream.settings import StreamSettings, calibrated_words, chosen_labels
from kws_edge.stream.trace import Hops

SETTINGS = StreamSettings({"entropy": 0.5}, smoothing=0.1)
"""Of a window each, so that a test can say what is decided on."""

QUIET, LOUD = -60.0, -20.0
CERTAIN = {"low": (100, 1, 1), "mid": (1, 100, 1), "high": (1, 1, 100)}
UNSURE = (4, 2, 2)
NOTHING = None


def stream(*parts: tuple[float, Any, float], hop: float = 0.1, start: float = 1.0) -> Hops:
    """Hops from (seconds, a word, α or NOTHING, dBFS), over a noise floor of -60 dBFS."""
    alpha, level, heard = [], [], []
    for seconds, what, dbfs in parts:
        n = round(seconds / hop)
        alpha += [no_evidence(3, "softmax") if what is NOTHING else CERTAIN.get(what, what)] * n
        level += [dbfs] * n
        heard += [what is not NOTHING] * n
    a = np.array(alpha, np.float32).reshape(len(level), 3)
    return Hops(
        hop=hop,
        time=start + hop * np.arange(len(level)),
        alpha=a,
        vacuity=evidence.vacuity(a, VARIANTS["softmax"]),
        level=np.array(level, np.float64),
        noise=np.full(len(level), -60.0),
        clipped=np.zeros(len(level), np.bool_),
        heard=np.array(heard, np.bool_),
    )


def one_by_one(decision: Decision, hops: Hops) -> Iterator[list[Event]]:
    """The events of each hop, given to the decision as a live stream gives them."""
    for i in range(len(hops)):
        level, noise, clipped = float(hops.level[i]), float(hops.noise[i]), bool(hops.clipped[i])
        frames = np.zeros((98, 64), np.float32) if hops.heard[i] else None
        hop = Hop(float(hops.time[i]), level, noise, clipped, frames, 10)
        yield decision.step_one(hop, hops.alpha[i : i + 1], hops.vacuity[i : i + 1])


def piece(hops: Hops, start: int, end: int) -> Hops:
    columns = ("time", "alpha", "vacuity", "level", "noise", "clipped", "heard")
    return replace(hops, **{name: getattr(hops, name)[start:end] for name in columns})


def labels(events: list[Event]) -> list[str | None]:
    return [event.label for event in events]


PAUSE = (1.0, NOTHING, QUIET)


# Words


def test_a_word_is_one_event_at_its_first_accepted_hop() -> None:
    hops = stream(PAUSE, (0.3, UNSURE, LOUD), (0.4, "mid", LOUD), (0.3, UNSURE, QUIET), PAUSE)
    (event,) = decide(METADATA, hops, SETTINGS)
    assert (event.label, event.guess, event.reason) == ("mid", "mid", None)
    assert event.time == pytest.approx(2.3)
    assert not event.abstained


def test_a_score_that_stays_high_for_5_s_is_one_event() -> None:
    hops = stream(PAUSE, (5.0, "mid", LOUD), PAUSE)
    assert labels(decide(METADATA, hops, SETTINGS)) == ["mid"]


@pytest.mark.parametrize("hop", [0.02, 0.05, 0.1, 0.2])
def test_a_score_that_flickers_about_its_threshold_is_one_event_at_any_hop(hop: float) -> None:
    just_above = (1, 9, 1)
    assert 0.5 < evidence.entropy(np.array(just_above)) < 0.5 + 0.25 * (1 - 0.5)
    hops = stream(PAUSE, *[(0.4, "mid", LOUD), (0.4, just_above, LOUD)] * 5, hop=hop)
    settings = replace(SETTINGS, smoothing=0.0)
    assert labels(decide(METADATA, hops, settings)) == ["mid"]
    assert len(decide(METADATA, hops, replace(settings, hysteresis=0.0))) > 1


def test_a_score_that_rises_again_and_again_for_less_than_the_time_to_rearm_is_one_event() -> None:
    hops = stream(PAUSE, *[(0.4, "mid", LOUD), (0.2, (2, 4, 2), LOUD)] * 5)
    assert labels(decide(METADATA, hops, SETTINGS)) == ["mid"]
    assert len(decide(METADATA, hops, replace(SETTINGS, rearm=0.2))) > 1


@pytest.mark.parametrize("thresholds", [{"entropy": 0.5, "vacuity": 0.5}, {"vacuity": 0.5, "entropy": 0.5}])
@pytest.mark.parametrize("between", [(20, 40, 20), (0.25, 20, 0.25)], ids=["evenly spread", "with little evidence"])
def test_where_two_scores_must_hold_the_rise_of_one_of_them_parts_two_words(
    thresholds: dict[str, float], between: tuple[float, ...]
) -> None:
    settings = replace(SETTINGS, thresholds=thresholds)
    hops = stream(PAUSE, (0.5, "mid", LOUD), (0.6, between, LOUD), (0.5, "mid", LOUD), PAUSE)
    rises = evidence.vacuity(np.array(between), VARIANTS["softmax"]) > 0.1  # else it is the entropy
    hops = replace(hops, vacuity=np.where(rises & (hops.alpha == between).all(axis=1), np.float32(0.9), hops.vacuity))
    assert labels(decide(METADATA, hops, settings)) == ["mid", "mid"]


def test_the_same_word_twice_is_two_events_when_the_score_fell_between() -> None:
    hops = stream(PAUSE, (0.5, "mid", LOUD), (0.6, NOTHING, QUIET), (0.5, "mid", LOUD), PAUSE)
    assert labels(decide(METADATA, hops, SETTINGS)) == ["mid", "mid"]


def test_another_word_needs_no_fall_between() -> None:
    hops = stream(PAUSE, (1.0, "mid", LOUD), (1.0, "high", LOUD), PAUSE)
    events = decide(METADATA, hops, SETTINGS)
    assert labels(events) == ["mid", "high"]
    assert events[1].time == pytest.approx(3.0 + SETTINGS.rearm - 0.1)


def test_events_keep_the_refractory_time_between_them() -> None:
    hops = stream(PAUSE, (0.2, "mid", LOUD), (0.3, NOTHING, QUIET), (2.0, "high", LOUD), PAUSE)
    events = decide(METADATA, hops, replace(SETTINGS, refractory=1.5))
    assert labels(events) == ["mid", "high"]
    assert events[1].time - events[0].time == pytest.approx(1.5)


@pytest.mark.parametrize("start", [0.1 * i for i in range(1, 60)])
def test_the_refractory_time_is_the_same_number_of_hops_at_any_time(start: float) -> None:
    hops = stream((0.1, "mid", LOUD), (0.4, NOTHING, QUIET), (1.0, "high", LOUD), start=start)
    first, second = decide(METADATA, hops, SETTINGS)
    assert second.time - first.time == pytest.approx(SETTINGS.refractory)


def test_one_spurious_window_is_smoothed_away() -> None:
    hops = stream(PAUSE, (0.5, UNSURE, LOUD), (0.1, "mid", LOUD), (0.5, UNSURE, LOUD), PAUSE)
    assert labels(decide(METADATA, hops, SETTINGS)) == ["mid"]
    assert labels(decide(METADATA, hops, replace(SETTINGS, smoothing=0.3))) == [None]


@pytest.mark.parametrize("score", ["entropy", "vacuity"])
def test_what_lies_before_the_start_counts_as_no_evidence(score: str) -> None:
    settings = replace(SETTINGS, thresholds={score: 0.5}, smoothing=0.3)
    first, second = (
        decide(METADATA, stream(before, (0.5, "mid", LOUD)), settings) for before in ((0, "mid", 0), PAUSE)
    )
    assert first[0].time - 1.0 == pytest.approx(second[0].time - 2.0)


def test_the_smoothed_numbers_are_the_means_over_the_windows() -> None:
    hops = stream((0.1, "mid", LOUD), (0.1, UNSURE, LOUD))
    decision = Decision(METADATA, replace(SETTINGS, smoothing=0.2), 0.1)
    decision.step(hops)
    p = evidence.probability(hops.alpha).mean(axis=0)
    assert decision.last is not None
    assert decision.last.probability == pytest.approx(p)
    assert decision.last.vacuity == pytest.approx(hops.vacuity.mean())
    assert decision.last.entropy == pytest.approx(evidence.entropy(p))


@pytest.mark.parametrize("hop", [0.02, 0.05, 0.1, 0.2])
def test_smoothing_is_over_the_same_time_at_any_hop(hop: float) -> None:
    sure = evidence.probability(np.array(CERTAIN["mid"], np.float32))
    for seconds, alike in ((0.4, True), (0.4 - hop, False)):
        decision = Decision(METADATA, replace(SETTINGS, smoothing=0.4), hop)
        decision.step(stream((1.0, UNSURE, LOUD), (seconds, "mid", LOUD), hop=hop))
        assert decision.last is not None
        assert np.allclose(decision.last.probability, sure, atol=1e-6) is alike


@pytest.mark.parametrize("variant", ["softmax", "edl_ce"])
def test_the_alpha_of_an_event_has_its_probability_vacuity_and_entropy(variant: str) -> None:
    metadata = replace(METADATA, variant=variant)
    hops = stream((0.1, (2, 3, 1), LOUD), (0.1, "mid", LOUD))
    hops = replace(hops, vacuity=evidence.vacuity(hops.alpha, VARIANTS[variant]))
    (event,) = decide(metadata, hops, StreamSettings({"entropy": 0.9}, smoothing=0.2))
    assert event.label == "mid"
    assert evidence.probability(event.alpha).max() == pytest.approx(event.probability, rel=1e-5)
    assert evidence.vacuity(event.alpha, VARIANTS[variant]) == pytest.approx(event.vacuity, rel=1e-5)
    assert evidence.entropy(event.alpha) == pytest.approx(event.entropy, rel=1e-5)


# Crowding


CROWDED = StreamSettings({"entropy": 0.7}, smoothing=0.1, crowding=8.0)
RATHER = (1, 9, 1)
"""Sure enough for a word on its own, and not within running speech."""


def test_a_word_on_its_own_may_be_less_sure_than_one_in_running_speech() -> None:
    assert 0.5 < evidence.entropy(np.array(RATHER)) < 0.7
    alone = stream(PAUSE, (0.3, RATHER, LOUD), PAUSE)
    (event,) = decide(METADATA, alone, CROWDED)
    assert (event.label, event.reason, event.time) == ("mid", None, pytest.approx(2.0))
    within = stream(PAUSE, (1.0, UNSURE, LOUD), (0.3, RATHER, LOUD), (1.0, UNSURE, LOUD), PAUSE)
    assert labels(decide(METADATA, within, CROWDED)) == [None]
    assert labels(decide(METADATA, within, replace(CROWDED, crowding=0.0))) == ["mid"]


def test_what_is_sure_enough_counts_in_running_speech_too() -> None:
    within = stream(PAUSE, (1.0, UNSURE, LOUD), (0.3, (1, 9000, 1), LOUD), (1.0, UNSURE, LOUD), PAUSE)
    assert labels(decide(METADATA, within, CROWDED)) == ["mid"]


@pytest.mark.parametrize(("before", "told"), [(LOUD - 7, [None]), (LOUD - 9, ["mid"])])
def test_what_is_clearly_less_loud_than_the_word_does_not_crowd_it(before: float, told: list[str | None]) -> None:
    hops = stream(PAUSE, (1.5, UNSURE, before), (0.3, RATHER, LOUD), PAUSE)
    assert labels(decide(METADATA, hops, CROWDED)) == told


def test_steady_noise_as_loud_as_the_word_does_not_crowd_it() -> None:
    hops = stream(PAUSE, (1.5, UNSURE, LOUD), (0.3, RATHER, LOUD), PAUSE)
    (event,) = decide(METADATA, replace(hops, noise=np.full(len(hops), LOUD - 5)), CROWDED)
    assert event.label == "mid"


@pytest.mark.parametrize(("since", "told"), [(0.5, ["mid"]), (1.1, [])])
def test_what_is_loud_enough_to_crowd_is_measured_by_the_loudest_of_the_last_second(
    since: float, told: list[str]
) -> None:
    bang = stream(
        PAUSE, (1.0, UNSURE, LOUD), (0.1, UNSURE, LOUD + 12), (since, UNSURE, LOUD), (0.3, RATHER, LOUD), PAUSE
    )
    assert [event.label for event in decide(METADATA, bang, CROWDED) if event.label] == told


@pytest.mark.parametrize("seconds", [1.4, 2.5, 30.0])
def test_speech_that_goes_on_asks_for_no_more_certainty_than_after_its_first_seconds(seconds: float) -> None:
    hops = stream(PAUSE, (seconds, UNSURE, LOUD), (0.3, (1, 100_000, 1), LOUD), (1.0, UNSURE, LOUD), PAUSE)
    assert labels(decide(METADATA, hops, CROWDED)) == ["mid"]


@pytest.mark.parametrize(("quiet", "told"), [(2.6, ["mid"]), (1.8, []), (0.7, [])])
def test_sound_of_3_s_ago_does_not_crowd_a_word(quiet: float, told: list[str]) -> None:
    hops = stream(PAUSE, (1.5, UNSURE, LOUD), (quiet, NOTHING, QUIET), (0.3, RATHER, LOUD), PAUSE)
    assert [event.label for event in decide(METADATA, hops, CROWDED) if event.label] == told


@pytest.mark.parametrize(("lost", "told"), [(2.6, ["mid"]), (0.7, []), (0.0, [])])
def test_what_was_lost_crowds_a_word_as_little_as_quiet_of_that_length(lost: float, told: list[str]) -> None:
    decision = Decision(METADATA, CROWDED, 0.1)
    assert decision.step(stream(PAUSE, (1.5, UNSURE, LOUD))) == []
    decision.gap(lost)
    events = decision.step(stream((0.3, RATHER, LOUD), PAUSE, start=3.5 + lost))
    assert [event.label for event in events if event.label] == told


def test_a_reset_forgets_running_speech() -> None:
    decision = Decision(METADATA, CROWDED, 0.1)
    assert decision.step(stream((1.5, UNSURE, LOUD))) == []
    decision.reset()
    assert labels(decision.step(stream((0.3, RATHER, LOUD)))) == ["mid"]


@pytest.mark.parametrize("hop", [0.02, 0.05, 0.1, 0.2])
def test_a_word_on_its_own_is_one_event_at_any_hop(hop: float) -> None:
    hops = stream((3.0, NOTHING, QUIET), (0.6, RATHER, LOUD), (3.0, NOTHING, QUIET), hop=hop)
    assert labels(decide(METADATA, hops, replace(CROWDED, smoothing=0.0))) == ["mid"]


def test_settings_from_before_crowding_are_read() -> None:
    given = SETTINGS.to_dict()
    del given["crowding"]
    assert StreamSettings.from_dict(given) == SETTINGS
    assert StreamSettings.from_dict(CROWDED.to_dict()) == CROWDED


def test_thresholds_that_were_calibrated_on_clips_bring_no_crowding() -> None:
    metadata = replace(METADATA, stream={"settings": CROWDED.to_dict()})
    assert StreamSettings.of(metadata).crowding == 8
    assert StreamSettings.of(metadata, score="entropy").crowding == 0
    assert StreamSettings.after_wake(metadata).crowding == 0


@pytest.mark.parametrize("crowding", [-1.0, 21.0, "much", None, True])
def test_crowding_is_a_number_in_its_range(crowding: Any) -> None:
    with pytest.raises(SettingError, match="crowding"):
        StreamSettings({"entropy": 0.5}, crowding=crowding)


# Thresholds


@pytest.mark.parametrize(
    ("thresholds", "fires"),
    [
        ({"entropy": 0.9}, True),
        ({"vacuity": 0.9}, True),
        ({"entropy": 0.9, "vacuity": 0.9}, True),
        ({"entropy": 0.01}, False),
        ({"vacuity": 0.01}, False),
        ({"entropy": 0.01, "vacuity": 0.9}, False),
        ({"entropy": 0.9, "vacuity": 0.01}, False),
        ({"entropy": WITHHOLD_ALL}, False),
    ],
)
def test_every_score_that_has_a_threshold_must_hold(thresholds: dict[str, float], fires: bool) -> None:
    hops = stream(PAUSE, (0.5, "mid", LOUD), PAUSE)
    assert labels(decide(METADATA, hops, replace(SETTINGS, thresholds=thresholds))) == (["mid"] if fires else [None])


def test_a_score_equal_to_its_threshold_is_accepted() -> None:
    hops = stream((0.3, "mid", LOUD))
    u = float(evidence.entropy(hops.alpha[:1])[0])
    below = float(np.nextafter(np.float32(u), np.float32(0)))
    assert labels(decide(METADATA, hops, replace(SETTINGS, thresholds={"entropy": u}))) == ["mid"]
    assert labels(decide(METADATA, hops, replace(SETTINGS, thresholds={"entropy": below}))) == []


def test_a_label_may_have_thresholds_of_its_own() -> None:
    settings = replace(SETTINGS, labels={"mid": {"entropy": 0.01}})
    hops = stream(PAUSE, (0.5, "mid", LOUD), PAUSE, (0.5, "high", LOUD), PAUSE)
    assert labels(decide(METADATA, hops, settings)) == [None, "high"]


def test_the_probability_may_have_a_threshold_too() -> None:
    hops = stream(PAUSE, (0.5, "mid", LOUD), PAUSE)
    assert labels(decide(METADATA, hops, replace(SETTINGS, probability=0.97))) == ["mid"]
    assert labels(decide(METADATA, hops, replace(SETTINGS, probability=0.99))) == [None]
    p = float(evidence.probability(hops.alpha[10]).max())
    assert labels(decide(METADATA, hops, replace(SETTINGS, probability=p))) == ["mid"]


def test_a_word_that_was_not_chosen_gives_nothing_and_no_abstention_either() -> None:
    hops = stream(PAUSE, (0.5, "mid", LOUD), PAUSE, (0.5, "low", LOUD), PAUSE)
    assert labels(decide(METADATA, hops, SETTINGS, words={"low"})) == ["low"]


def test_after_a_word_that_was_not_chosen_the_refractory_time_passes_as_after_one_that_was() -> None:
    hops = stream(PAUSE, (0.2, "mid", LOUD), (0.3, NOTHING, QUIET), (2.0, "high", LOUD), PAUSE)
    (event,) = decide(METADATA, hops, replace(SETTINGS, refractory=1.5), words={"high"})
    assert event.time == pytest.approx(2.0 + 1.5)


@pytest.mark.parametrize(
    ("alpha", "words", "all_told", "told"),
    [
        ((5, 2, 2), {"low"}, ["low"], ["low"]),
        ((5, 2, 2), {"mid"}, [], []),
        ((5, 2, 2), {"mid", "high"}, [], []),
        ((5, 2, 2), None, ["low"], ["low"]),
        ((10, 9, 9), {"mid"}, ["low"], []),
        ((10, 9, 9), None, ["low"], []),
    ],
    ids=["a chosen word", "another word", "none of two", "any word", "nothing, and one word", "nothing, and all words"],
)
def test_an_abstention_is_told_where_a_chosen_word_stands_out_or_if_asked_for_where_none_does(
    alpha: Any, words: Any, all_told: list[str], told: list[str]
) -> None:
    hops = stream(PAUSE, (0.5, alpha, LOUD), PAUSE)
    for abstentions, expected in (("all", all_told), ("words", told), ("none", [])):
        events = decide(METADATA, hops, SETTINGS, words, abstentions=abstentions)
        assert [(event.label, event.guess) for event in events] == [(None, guess) for guess in expected]


def test_abstentions_of_another_kind_are_refused() -> None:
    with pytest.raises(SettingError, match="abstentions='some'; expected one of all, words, none"):
        decide(METADATA, stream(PAUSE), SETTINGS, abstentions="some")


def test_a_class_that_is_no_word_is_told_as_unknown_where_all_abstentions_are() -> None:
    metadata = replace(METADATA, labels=("low", "_unknown_", "high"))
    (event,) = decide(metadata, stream(PAUSE, (0.5, "mid", LOUD), PAUSE), SETTINGS, {"low"}, abstentions="all")
    assert event.reason == Reason.UNKNOWN_WORD


def test_words_may_be_written_in_capitals() -> None:
    hops = stream(PAUSE, (0.5, "mid", LOUD), PAUSE, (0.5, "low", LOUD), PAUSE)
    assert labels(decide(METADATA, hops, SETTINGS, words={"LOW"})) == ["low"]


def test_a_class_that_is_no_word_cannot_be_listened_for_alone() -> None:
    with pytest.raises(SettingError, match=r"words: _unknown_; expected one or more of low, high$"):
        chosen_labels(["_unknown_"], ["low", "_unknown_", "high"])
    assert chosen_labels(["_unknown_", "high"], ["low", "_unknown_", "high"]) == ["_unknown_", "high"]


def test_an_empty_word_among_others_is_named() -> None:
    with pytest.raises(SettingError, match=r"^words: ''; expected one or more of low, high$"):
        chosen_labels(["low", ""], ["low", "high"])


@pytest.mark.parametrize("words", [["nope"], [], 5, ["low", 3], "low"])
def test_a_file_calibrated_for_other_words_than_its_own_is_the_models_fault(words: object) -> None:
    stream_of = {"settings": SETTINGS.to_dict(), "calibration": {"words_chosen": words}}
    with pytest.raises(ModelError, match=r"model tiny: stream: calibrated for words.*; calibrate it again"):
        calibrated_words(replace(METADATA, stream=stream_of))


def test_a_phrase_may_be_written_as_the_folder_of_its_takes() -> None:
    labels = ["hey computer", "_unknown_"]
    assert chosen_labels(["hey_computer"], labels) == chosen_labels(["Hey Computer"], labels) == ["hey computer"]
    assert chosen_labels(["hey_you"], ["hey_you", "hey you"]) == ["hey_you"]
    with pytest.raises(SettingError, match="words: unknown; expected"):
        chosen_labels(["unknown"], labels)


def test_capitals_count_where_two_labels_differ_by_them_alone() -> None:
    assert chosen_labels(["Low", "MID"], ["low", "Low", "mid"]) == ["Low", "mid"]
    with pytest.raises(SettingError, match="words: LOW; expected"):
        chosen_labels(["LOW"], ["low", "Low", "mid"])


@pytest.mark.parametrize(
    ("words", "given"), [("mid", r"'mid'; .*such as \{'mid'\}"), (5, "5; "), ([1], r"\[1\]; "), (b"mid", "b'mid'; ")]
)
def test_words_that_are_no_collection_of_texts_are_refused(words: Any, given: str) -> None:
    with pytest.raises(SettingError, match=f"words={given}"):
        decide(METADATA, stream(), SETTINGS, words)


def test_the_word_of_index_0_is_an_event_like_any_other() -> None:
    (event,) = decide(METADATA, stream((0.5, "low", LOUD)), SETTINGS)
    assert event.label == METADATA.labels[0] == "low"
    assert event


def test_no_detection_is_an_empty_list() -> None:
    assert decide(METADATA, stream(PAUSE), SETTINGS) == []
    assert decide(METADATA, stream(), SETTINGS) == []


def test_a_label_with_an_underscore_is_no_word() -> None:
    metadata = replace(METADATA, labels=("low", "_unknown_", "high"))
    hops = stream(PAUSE, (0.5, "mid", LOUD), PAUSE)
    (event,) = decide(metadata, hops, SETTINGS, abstentions="all")
    assert (event.label, event.guess, event.reason) == (None, "_unknown_", Reason.UNKNOWN_WORD)


# Abstentions


def test_an_utterance_without_a_word_is_one_abstention_after_its_pause() -> None:
    hops = stream(PAUSE, (0.2, (3, 2.5, 2.5), LOUD), (0.3, (2, 5, 2), LOUD), (0.5, (3, 3, 3), QUIET), PAUSE)
    (event,) = decide(METADATA, hops, replace(SETTINGS, smoothing=0.0))
    assert (event.label, event.guess, event.reason) == (None, "mid", Reason.UNCERTAIN)
    assert event.abstained
    assert event.entropy == pytest.approx(evidence.entropy(np.array([2, 5, 2])))
    assert (event.start, event.end) == pytest.approx((1.9, 2.4))
    assert event.time == pytest.approx(3.0)


def test_a_word_that_is_recognised_after_its_end_is_not_abstained_from() -> None:
    hops = stream(PAUSE, (0.4, UNSURE, LOUD), (0.4, UNSURE, QUIET), (0.2, "mid", QUIET), PAUSE)
    assert labels(decide(METADATA, hops, SETTINGS)) == ["mid"]


def test_a_word_that_is_accepted_as_the_pause_after_it_is_over_is_not_abstained_from() -> None:
    hops = stream(PAUSE, (0.4, UNSURE, LOUD), (0.5, UNSURE, QUIET), (0.1, "mid", QUIET), PAUSE)
    (event,) = decide(METADATA, hops, SETTINGS)
    assert (event.label, event.time) == ("mid", pytest.approx(2.9))
    late = stream(PAUSE, (0.4, UNSURE, LOUD), (0.6, UNSURE, QUIET), (0.1, "mid", QUIET), PAUSE)
    assert labels(decide(METADATA, late, replace(SETTINGS, refractory=0.0))) == [None, "mid"]


def test_a_word_that_is_accepted_as_its_sound_begins_is_not_abstained_from() -> None:
    hops = stream((2.0, NOTHING, QUIET), (1.0, "mid", LOUD), (3.0, NOTHING, QUIET), hop=1.0)
    assert labels(decide(METADATA, hops, SETTINGS, abstentions="all")) == ["mid"]


@pytest.mark.parametrize(("seconds", "told"), [(0.1, False), (0.2, True), (3.0, True), (3.1, False), (30.0, False)])
def test_a_click_and_a_radio_are_no_utterances(seconds: float, told: bool) -> None:
    hops = stream(PAUSE, (seconds, UNSURE, LOUD), PAUSE)
    assert labels(decide(METADATA, hops, SETTINGS)) == ([None] if told else [])


def test_sound_below_9_db_over_the_noise_is_no_utterance() -> None:
    hops = stream(PAUSE, (0.5, UNSURE, QUIET + 8.9), PAUSE, (0.5, UNSURE, QUIET + 9.1), PAUSE)
    (event,) = decide(METADATA, hops, SETTINGS)
    assert event.start > 3.0


@pytest.mark.parametrize("labels", [METADATA.labels, ("_unknown_", "mid", "high")])
def test_clipping_is_named_as_the_reason(labels: tuple[str, ...]) -> None:
    hops = stream(PAUSE, (0.5, UNSURE, LOUD), PAUSE)
    hops.clipped[12] = True
    (event,) = decide(replace(METADATA, labels=labels), hops, SETTINGS, abstentions="all")
    assert event.reason == Reason.CLIPPED


# Times


def test_the_word_lies_where_the_sound_was_above_the_noise() -> None:
    hops = stream(PAUSE, (0.5, UNSURE, LOUD), (0.3, "mid", QUIET), PAUSE)
    (event,) = decide(METADATA, hops, SETTINGS)
    assert (event.start, event.end, event.time) == pytest.approx((1.9, 2.4, 2.5))


def test_in_sound_that_goes_on_the_word_lies_in_its_window() -> None:
    hops = stream((5.0, UNSURE, LOUD), (0.5, "mid", LOUD), (5.0, UNSURE, LOUD))
    (event,) = decide(METADATA, hops, SETTINGS)
    assert (event.start, event.end) == pytest.approx((6.0 - 0.995, 6.0))


# Pieces


words = st.sampled_from([NOTHING, UNSURE, "low", "mid", "high"])
parts = st.lists(st.tuples(st.sampled_from([0.1, 0.3, 0.5, 1.0]), words, st.sampled_from([QUIET, LOUD])), max_size=15)


@given(parts, st.lists(st.integers(1, 40), min_size=1, max_size=10), st.sampled_from([0.0, 0.2, 0.5]))
@hypothesis_settings(deadline=None)
def test_pieces_of_a_stream_give_the_events_of_the_whole(parts: list[Any], cuts: list[int], smoothing: float) -> None:
    settings, hops = replace(SETTINGS, smoothing=smoothing), stream(*parts)
    decision, events, at = Decision(METADATA, settings, 0.1), [], 0
    while at < len(hops):
        end = at + cuts[at % len(cuts)]
        events += decision.step(piece(hops, at, end))
        at = end
    assert [e.to_dict() for e in events] == [e.to_dict() for e in decide(METADATA, hops, settings)]


@given(parts, st.sampled_from([0.0, 0.2, 0.5]))
@hypothesis_settings(deadline=None)
def test_hops_one_by_one_give_the_events_of_the_whole(parts: list[Any], smoothing: float) -> None:
    settings, hops = replace(SETTINGS, smoothing=smoothing), stream(*parts)
    events = [e for events in one_by_one(Decision(METADATA, settings, 0.1), hops) for e in events]
    assert [e.to_dict() for e in events] == [e.to_dict() for e in decide(METADATA, hops, settings)]


@pytest.mark.parametrize("smoothing", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("K", [2, 8, 20, 37])
def test_the_numbers_are_the_same_to_the_last_bit_however_the_hops_come(K: int, smoothing: float) -> None:
    rng = np.random.default_rng(K)
    metadata = replace(METADATA, labels=tuple(f"word{i}" for i in range(K)))
    hops = stream((20.0, UNSURE, LOUD))
    alpha = np.exp(rng.normal(0, 3, (len(hops), K))).astype(np.float32)
    hops = replace(hops, alpha=alpha, vacuity=evidence.vacuity(alpha, VARIANTS["softmax"]))
    settings = replace(SETTINGS, smoothing=smoothing)
    single, pieces, at = Decision(metadata, settings, 0.1), Decision(metadata, settings, 0.1), 0
    alone = [single.last for _ in one_by_one(single, hops)]
    while at < len(hops):
        start, at = at, at + int(rng.integers(1, 30))
        pieces.step(piece(hops, start, at))
        expected = alone[min(at, len(hops)) - 1]
        assert pieces.last is not None
        assert expected is not None
        np.testing.assert_array_equal(pieces.last.probability, expected.probability)
        assert pieces.last._replace(probability=None) == expected._replace(probability=None)


@given(parts, parts)
@hypothesis_settings(deadline=None)
def test_reset_is_a_new_start(before: list[Any], after: list[Any]) -> None:
    decision = Decision(METADATA, SETTINGS, 0.1)
    decision.step(stream(*before, start=50.0))
    decision.reset()
    events = decision.step(stream(*after))
    assert [e.to_dict() for e in events] == [e.to_dict() for e in decide(METADATA, stream(*after), SETTINGS)]


@given(parts)
@hypothesis_settings(deadline=None)
def test_events_are_in_order_and_within_what_was_heard(parts: list[Any]) -> None:
    hops = stream(*parts)
    events = decide(METADATA, hops, SETTINGS)
    assert [e.time for e in events] == sorted(e.time for e in events)
    for e in events:
        assert 0 <= e.start < e.end <= e.time <= hops.time[-1]
        assert (e.label is None) == (e.reason is not None)
        assert np.isfinite(e.alpha).all()
        assert (e.alpha > 0).all()


@given(parts, st.floats(0.01, 0.9), st.floats(0.01, 0.9))
@hypothesis_settings(deadline=None)
def test_a_stricter_threshold_hears_no_word_where_the_other_has_none(parts: list[Any], a: float, b: float) -> None:
    strict, lax = (decide(METADATA, stream(*parts), StreamSettings({"entropy": t})) for t in sorted((a, b)))
    assert any(e.label for e in lax) or not any(e.label for e in strict)


# Settings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("thresholds", {}),
        ("thresholds", {"energy": 0.5}),
        ("thresholds", {"entropy": float("nan")}),
        ("thresholds", {"entropy": True}),
        ("thresholds", 0.5),
        ("labels", {"mid": {"vacuity": 0.5}}),
        ("labels", {"mid": {}}),
        ("labels", ["mid"]),
        ("probability", 1.1),
        ("smoothing", 0.95),
        ("smoothing", -0.1),
        ("hysteresis", "much"),
        ("rearm", float("inf")),
        ("refractory", -1),
    ],
)
def test_impossible_settings_are_refused(field: str, value: Any) -> None:
    with pytest.raises(SettingError, match="expected"):
        replace(SETTINGS, **{field: value})


def test_settings_survive_json() -> None:
    settings = StreamSettings({"entropy": 0.1, "vacuity": 0.2}, {"mid": {"vacuity": 0.1}}, probability=0.3)
    assert StreamSettings.from_dict(settings.to_dict()) == settings


@pytest.mark.parametrize("change", [{"unknown": 1}, {"rearm": ...}])
def test_missing_and_unknown_settings_are_refused(change: dict[str, Any]) -> None:
    values = {k: v for k, v in (SETTINGS.to_dict() | change).items() if v is not ...}
    with pytest.raises(SettingError, match=next(iter(change))):
        StreamSettings.from_dict(values)


def test_a_model_without_stream_settings_gives_its_clip_thresholds() -> None:
    assert StreamSettings.of(METADATA) == StreamSettings({"entropy": 0.5})
    assert StreamSettings.of(METADATA, target=0.99) == StreamSettings({"entropy": 0.7})
    assert StreamSettings.of(METADATA, score="vacuity") == StreamSettings({"vacuity": 0.5})
    assert StreamSettings.of(METADATA, score="both") == StreamSettings({"entropy": 0.5, "vacuity": 0.5})
    with pytest.raises(SettingError, match=r"target 0\.9"):
        StreamSettings.of(METADATA, target=0.9)


def test_a_calibrated_model_gives_its_stream_settings_unless_a_clip_threshold_is_asked_for() -> None:
    settings = StreamSettings({"vacuity": 0.1}, {"mid": {"vacuity": 0.05}}, smoothing=0.4, refractory=1.0)
    metadata = replace(METADATA, stream={"settings": settings.to_dict(), "calibration": {"hours": 3}})
    assert StreamSettings.of(metadata) == settings
    assert StreamSettings.of(metadata, target=0.99) == replace(settings, thresholds={"entropy": 0.7}, labels={})


@pytest.mark.parametrize("stream", [{}, {"settings": 1}, {"settings": {"thresholds": {}}}])
def test_malformed_stream_settings_in_a_model_are_refused(stream: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="tiny"):
        StreamSettings.of(replace(METADATA, stream=stream))


@pytest.mark.parametrize("words", [{"left"}, {"mid", "left"}, set()])
def test_words_that_the_model_lacks_are_refused(words: set[str]) -> None:
    with pytest.raises(SettingError, match="low, mid, high"):
        decide(METADATA, stream(), SETTINGS, words)


def test_settings_for_a_label_that_the_model_lacks_are_refused() -> None:
    with pytest.raises(SettingError, match="left"):
        decide(METADATA, stream(), replace(SETTINGS, labels={"left": {"entropy": 0.1}}))
