"""Which losses of samples are too many to hear a word, and that a flood of them is no burden."""

from hypothesis import given
from hypothesis import strategies as st

from kws_edge.stream.losses import HEARABLE, SPAN, Losses


def too_many(losses: list[tuple[float, float]], now: float) -> bool:
    """As it is defined, of all losses that there were, each from a time to a time."""
    begin = max(0.0, now - SPAN)
    lately = [(start, end) for start, end in losses if end >= begin]
    starts, ends = [start for start, _ in lately] + [now], [begin] + [end for _, end in lately]
    whole = sum(start - end for start, end in zip(starts, ends, strict=True) if start - end >= HEARABLE)
    return len(lately) >= 3 and whole < (now - begin) / 2


sixteenths = st.integers(0, 48).map(lambda n: n / 16)  # s, up to 3, which add up without an error
losses = st.lists(
    st.tuples(st.one_of(st.just(0.0), sixteenths), st.one_of(st.just(0.0), sixteenths), sixteenths), max_size=60
)


@given(losses)
def test_those_of_the_last_ten_seconds_between_which_too_little_is_whole(
    parts: list[tuple[float, float, float]],
) -> None:
    """Parts are: seconds that are heard, seconds that are lost, seconds after which one asks."""
    kept, all_losses, now = Losses(), [], 0.0
    for heard, lost, later in parts:
        kept.add(now + heard, lost)
        all_losses.append((now + heard, now + heard + lost))
        now += heard + lost
        assert kept.too_many(now) == too_many(all_losses, now)
        assert kept.too_many(now + later) == too_many(all_losses, now + later)


def test_a_flood_of_losses_takes_no_room() -> None:
    losses = Losses()
    for i in range(20_000):
        losses.add(i / 16_000, 0)
    assert losses.too_many(20_000 / 16_000)
    assert len(losses._lost) <= SPAN / HEARABLE + 5
