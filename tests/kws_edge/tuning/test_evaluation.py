"""Events against the words that were said: what counts as what, and how sure the rates are."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kws_edge.errors import SettingError
from kws_edge.model.prediction import Reason
from kws_edge.stream.events import Event
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
    for said in (words, words[::-1]):  # the earlier one, in whatever order they are given
        assert outcomes([event("yes", 2.0, 2.9)], said) == ["hit", "missed"]


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
    words = [Word("bird", 2, 2.5), Word("tree", 5, 5.5), Word("cat", 8, 8.5)]
    report = evaluate([event("yes", 2, 2.6), event(None, 5, 5.6)], words, 10, LABELS)
    assert (report.unknown, report.unknown_accepted, report.unknown_abstained) == (3, 1, 1)
    assert (report.false_accepts, report.abstentions, report.words) == (1, 0, 0)
    assert report.to_dict()["unknown_abstained"] == 1


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
    report = evaluate([event("no", 2.1, 2.6), event(None, 5.0, 5.5)], [YES, NO], 10, LABELS)
    assert (report.wrong, report.abstained, report.delays) == (1, 1, ())


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
