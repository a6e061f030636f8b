"""When the client of a live stream is told that the server is behind, and how far."""

from collections.abc import Callable

import pytest
from clock import Clock, clock_of

from kws_edge.server import lag as module
from kws_edge.server.lag import Lag

RATE = 32_000
"""Bytes of a second of 16-bit samples at 16 kHz."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return clock_of(monkeypatch, module)


def begun(waiting: Callable[[], int] | None) -> Lag:
    lag = Lag(RATE, waiting)
    lag.begin()
    return lag


@pytest.mark.parametrize(("waits", "told"), [(0.5, None), (0.99, None), (1.0, 1.0), (3.0, 3.0)])
def test_a_second_of_live_audio_that_waits_is_told_in_seconds(clock: Clock, waits: float, told: float | None) -> None:
    lag = begun(lambda: round(waits * RATE))
    clock.now += 10
    assert lag.of(stream_time=10 - waits) == told


def test_who_sends_faster_than_in_real_time_is_ahead_and_waits_for_nothing(clock: Clock) -> None:
    lag = begun(lambda: 5 * RATE)
    clock.now += 10
    assert lag.of(stream_time=7) is None  # 12 s were sent in 10
    clock.now += 10
    assert lag.of(stream_time=15) == 5


def test_it_is_told_again_after_two_seconds(clock: Clock) -> None:
    lag = begun(lambda: 2 * RATE)
    told = []
    for _ in range(40):
        clock.now += 0.25
        if lag.of(stream_time=clock.now - 1002) is not None:
            told.append(clock.now - 1000)
    assert told == [0.25, 2.25, 4.25, 6.25, 8.25]


def test_how_much_waits_is_looked_at_twice_a_second_at_most(clock: Clock) -> None:
    looks = []

    def look() -> int:
        looks.append(clock.now - 1000)
        return 0

    lag = begun(look)
    for _ in range(16):
        clock.now += 0.125
        lag.of(stream_time=clock.now - 1000)
    assert looks == [0.125, 0.625, 1.125, 1.625]


def test_after_a_reset_the_clock_of_the_stream_begins_with_its_next_audio(clock: Clock) -> None:
    lag = begun(lambda: 2 * RATE)
    clock.now += 60
    lag.reset()
    assert lag.of(stream_time=0) is None
    lag.begin()
    clock.now += 5
    assert lag.of(stream_time=6) is None  # ahead: 8 s in 5
    clock.now += 5
    assert lag.of(stream_time=8) == 2


def test_before_any_audio_and_where_it_is_not_known_what_waits_nothing_is_told(clock: Clock) -> None:
    clock.now += 10
    assert Lag(RATE, lambda: 9 * RATE).of(stream_time=0) is None
    assert begun(None).of(stream_time=0) is None
