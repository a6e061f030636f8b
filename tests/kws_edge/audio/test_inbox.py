"""The queue of a microphone: what is lost is counted, and said with what comes after it."""

import numpy as np
import pytest

from kws_edge.arrays import I16
from kws_edge.audio.inbox import Inbox, Piece


def frames(n: int) -> I16:
    return np.zeros((n, 1), np.int16)


def taken(inbox: Inbox) -> list[Piece]:
    """All that waits."""
    return [piece for _ in range(len(inbox)) if (piece := inbox.get(0)) is not None]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 20])
def test_every_frame_is_given_or_counted_as_lost_however_often_the_queue_is_full(count: int) -> None:
    inbox = Inbox(2)
    for i in range(count):
        inbox.put(frames(100 + i), overflow=False)
        assert len(inbox) <= 2
    pieces = taken(inbox)
    assert sum(piece.lost + len(piece.data) for piece in pieces) == sum(100 + i for i in range(count))
    assert [piece.lost for piece in pieces[1:]] == [0] * (len(pieces) - 1)


def test_an_overflow_in_what_is_lost_is_told_with_the_next_piece() -> None:
    inbox = Inbox(1)
    inbox.put(frames(10), overflow=True)
    inbox.put(frames(10), overflow=False)
    assert [(piece.lost, piece.overflow) for piece in taken(inbox)] == [(10, True)]


def test_nothing_is_given_where_nothing_waits_and_an_error_ends_the_wait() -> None:
    inbox = Inbox(2)
    assert inbox.get(0.001) is None
    inbox.fail(OSError("gone"))
    assert inbox.get(60) is None
    assert str(inbox.error) == "gone"


def test_a_device_that_is_opened_again_begins_without_what_was_before() -> None:
    inbox = Inbox(2)
    inbox.put(frames(10), overflow=True)
    inbox.fail(OSError("gone"))
    inbox.clear()
    assert (len(inbox), inbox.error) == (0, None)
    inbox.put(frames(5), overflow=False)
    assert [(piece.lost, piece.overflow) for piece in taken(inbox)] == [(0, False)]
