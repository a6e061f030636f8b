"""What recordings without words show of a limit: a promise about speech, whatever few minutes of sounds are beside."""

import math

import pytest

from kws_edge.tuning.evaluation import StreamReport
from kws_edge.tuning.false_accepts import FalseAccepts

HOUR = 3600.0


def reports(**counts: tuple[float, int]) -> dict[str, StreamReport]:
    return {name: StreamReport(hours * HOUR, false_accepts=count) for name, (hours, count) in counts.items()}


def test_hours_of_speech_show_a_limit_whatever_minutes_of_sounds_do() -> None:
    negatives = FalseAccepts(reports(radio=(5, 0), dogs=(0.05, 0)), ["dogs"])
    assert negatives.shows(1)
    assert negatives.verdict(1) == "shown: 0 false accepts in 5.0 hours of speech, 0.00 an hour (95 %: 0.00 to 0.74)"


def test_hours_of_sounds_show_nothing_about_speech() -> None:
    negatives = FalseAccepts(reports(radio=(0.5, 0), sea=(100, 0)), ["sea"])
    assert not negatives.shows(1)
    assert negatives.verdict(1).endswith("; that takes 3.7 hours without one")


def test_several_recordings_of_speech_count_together() -> None:
    negatives = FalseAccepts(reports(radio=(2, 0), kitchen=(2, 0)))
    assert negatives.shows(1)
    assert "0 false accepts in 4.0 hours of speech" in negatives.verdict(1)


def test_where_they_are_long_enough_and_fire_too_often_no_more_are_asked_for() -> None:
    verdict = FalseAccepts(reports(radio=(10, 12))).verdict(1)
    assert verdict.startswith("not shown: 12 false accepts in 10.0 hours of speech, 1.20 an hour (95 %: ")
    assert "takes" not in verdict


def test_no_recording_shows_that_it_never_fires() -> None:
    assert "no recording is long enough for that" in FalseAccepts(reports(radio=(10, 0))).verdict(0)


def test_each_recording_has_a_line_with_its_interval_and_each_kind_its_sum() -> None:
    negatives = FalseAccepts(reports(radio=(2, 1), kitchen=(1, 0), dogs=(0.05, 0)), ["dogs"])
    assert negatives.lines() == [
        "all speech         1 in    3.0 hours, 0.33 an hour (95 %: 0.01 to 1.86)",
        "speech, radio      1 in    2.0 hours, 0.50 an hour (95 %: 0.01 to 2.79)",
        "speech, kitchen    0 in 60.0 minutes, 0.00 an hour (95 %: 0.00 to 3.69)",
        "sounds, dogs       0 in  3.0 minutes, 0.00 an hour (95 %: 0.00 to 73.78)",
    ]


def test_what_is_written_into_a_file_reads_back() -> None:
    negatives = FalseAccepts(reports(radio=(2, 1), dogs=(0.05, 0)), ["dogs"])
    again = FalseAccepts.of(negatives.to_dict())
    assert again.lines() == negatives.lines()
    assert again.verdict(1) == negatives.verdict(1)


@pytest.mark.parametrize("unnamed", [["radio", "dogs"], ["dogs"]], ids=["of none", "of some"])
def test_a_file_that_does_not_say_the_kinds_of_all_calls_them_recordings(unnamed: list[str]) -> None:
    about = FalseAccepts(reports(radio=(4, 0), dogs=(0.05, 0))).to_dict()
    for name in unnamed:
        del about["negatives"][name]["kind"]
    old = FalseAccepts.of(about)
    assert "4.0 hours of recordings" in old.verdict(1)
    assert [line.split("  ")[0] for line in old.lines()] == ["all recordings", "radio", "dogs"]


@pytest.mark.parametrize(
    "calibration",
    [None, {}, {"negatives": {"radio": {"seconds": 90}}}, {"negatives": ["radio"]}, {"negatives": {"radio": 90}}],
)
def test_a_file_that_does_not_say_them_shows_nothing(calibration: object) -> None:
    negatives = FalseAccepts.of(calibration)
    assert negatives.lines() == []
    assert negatives.verdict(1) == ""
    assert not negatives.shows(math.inf)
