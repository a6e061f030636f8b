"""The choice among points of trade-off curves: most hits within a limit of false accepts per hour."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_points import SETTINGS, point

from kws_edge.errors import SettingError
from kws_edge.tuning.choice import at_rates, best, choose, frontier
from kws_edge.tuning.points import Point


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


@pytest.mark.parametrize(("plain", "expected"), [(15, 0.0), (13, 8.0)])
def test_crowding_must_find_more_than_chance_does(plain: int, expected: float) -> None:
    crowded = point(16, 0, settings=replace(SETTINGS, crowding=8.0))
    assert choose([[crowded], [point(plain, 0)]], 1).settings.crowding == expected


@pytest.mark.parametrize(("rate", "hits"), [(0.5, None), (1, 5), (1.99, 5), (2, 12), (3, 12), (4, 16), (50, 16)])
def test_at_a_rate_the_loosest_thresholds_are_taken_up_to_which_all_hold_it(rate: float, hits: int | None) -> None:
    points = [point(5, 1), point(10, 2), point(12, 2), point(14, 4), point(16, 3)]
    (found,) = at_rates(points, [rate])
    assert (found and found.words.hits) == hits


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
