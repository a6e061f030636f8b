"""The open connections: what a client has of them, proxies, and who is cut off because it reads nothing."""

import logging

import pytest
from clock import Clock, clock_of

from kws_edge import throttle
from kws_edge.server.http import connections as module
from kws_edge.server.http.connections import Connections

TIMEOUT = 30.0
"""Seconds for a client to read what is sent to it."""


class Connection:
    """A connection as the event loop shows it: from an address, with bytes that the other side has not taken."""

    def __init__(self, address: str = "192.0.2.1") -> None:
        self.address, self.unread, self.closing, self.aborted = address, 0, False, False

    def get_extra_info(self, _: str) -> tuple[str, int]:
        return self.address, 1234

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.aborted = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return clock_of(monkeypatch, module, throttle)


def swept_for(seconds: float, connections: Connections, clock: Clock) -> None:
    """Sweep once a second, for so long."""
    for _ in range(round(seconds)):
        clock.now += 1
        connections.sweep()


def opened(connections: Connections, *addresses: str) -> list[bool]:
    """Which of the connections that come from these addresses, one after the other, may be."""
    return [connections.opened(Connection(address)) for address in addresses]


def test_a_client_has_just_its_share_and_all_together_just_what_there_may_be() -> None:
    assert opened(Connections(5, 2, TIMEOUT), *["192.0.2.1"] * 3, "192.0.2.2") == [True, True, False, True]
    assert opened(Connections(3, 9, TIMEOUT), *[f"192.0.2.{i}" for i in range(4)]) == [True, True, True, False]


def test_a_place_is_free_again_when_its_connection_has_gone() -> None:
    connections, first = Connections(9, 1, TIMEOUT), Connection()
    assert connections.opened(first)
    connections.closed(first)
    connections.closed(first)  # which is heard of more than once
    assert len(connections) == 0
    assert opened(connections, "192.0.2.1", "192.0.2.1") == [True, False]


def test_a_trusted_proxy_has_no_share_but_takes_places_as_everybody() -> None:
    connections = Connections(4, 1, TIMEOUT, proxies=("192.0.2.7", "10.0.0.0/8"))
    found = opened(connections, "10.1.2.3", "10.1.2.3", "192.0.2.8", "192.0.2.8", "192.0.2.7")
    assert found == [True, True, True, False, False]  # the last because there are four
    assert opened(Connections(4, 1, TIMEOUT, proxies=("*",)), *["192.0.2.1"] * 5) == [True] * 4 + [False]


def test_who_reads_nothing_for_as_long_as_it_may_is_cut_off(clock: Clock) -> None:
    connections, idle, unread = Connections(9, 9, TIMEOUT), Connection(), Connection()
    for connection in (idle, unread):
        connections.opened(connection)
    unread.unread = 1
    swept_for(TIMEOUT, connections, clock)
    assert not unread.aborted
    swept_for(2, connections, clock)
    assert unread.aborted
    assert not idle.aborted  # it has nothing to read


@pytest.mark.parametrize("whole", [False, True], ids=["most of it", "all of it"])
def test_who_takes_what_is_sent_from_time_to_time_is_slow_and_not_gone(clock: Clock, whole: bool) -> None:
    connections, slow = Connections(9, 9, TIMEOUT), Connection()
    connections.opened(slow)
    for _ in range(5):
        slow.unread = 100_000
        swept_for(TIMEOUT - 5, connections, clock)
        if whole:
            slow.unread = 0
            swept_for(1, connections, clock)
        else:
            connections.was_read(slow)
    assert not slow.aborted


def test_what_is_closed_has_five_seconds_to_be_rid_of_the_rest(clock: Clock) -> None:
    connections, closed = Connections(9, 9, TIMEOUT), Connection()
    connections.opened(closed)
    closed.unread, closed.closing = 100_000, True
    swept_for(5, connections, clock)
    assert not closed.aborted
    swept_for(2, connections, clock)
    assert closed.aborted


def test_refusals_are_counted_and_said_every_ten_seconds_at_most(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    connections = Connections(1, 1, TIMEOUT)
    opened(connections, *["192.0.2.1"] * 4)
    with caplog.at_level(logging.WARNING, "kws_edge.server"):
        swept_for(1, connections, clock)
        opened(connections, *["192.0.2.1"] * 2)
        swept_for(9, connections, clock)
        assert [record.message.split(" connections")[0] for record in caplog.records] == ["3"]
        swept_for(30, connections, clock)
    assert [record.message.split(" connections")[0] for record in caplog.records] == ["3", "2"]
