"""Mutations of seeds, drawn by hypothesis, so that what they find is made small."""

from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

TELLING = (b"\0", b"\xff", b"\x7f\xff", b"\x80\0", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\x80")
"""Numbers at which programs err, in either byte order."""

_EDITS = st.lists(
    st.tuples(
        st.sampled_from(["set", "insert", "delete", "repeat", "cut", "swap"]),
        st.floats(0, 1, exclude_max=True),
        st.one_of(st.sampled_from(TELLING), st.binary(min_size=1, max_size=8)),
        st.integers(1, 64),
    ),
    min_size=1,
    max_size=6,
)


def _edit(data: bytes, kind: str, where: float, value: bytes, count: int) -> bytes:
    # Half of the edits go to the first tenth, where headers are.
    at = int(len(data) * (where * 0.2 if where < 0.5 else where))
    match kind:
        case "set":
            return data[:at] + value + data[at + len(value) :]
        case "insert":
            return data[:at] + value + data[at:]
        case "delete":
            return data[:at] + data[at + count :]
        case "repeat":
            return data[:at] + data[at : at + count] * 8 + data[at:]
        case "swap":
            return data[:at] + data[at + count : at + 2 * count] + data[at : at + count] + data[at + 2 * count :]
        case _:
            return data[:at]


@st.composite
def mutated(draw: Any, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds, with some edits."""
    data = draw(st.sampled_from(seeds))
    for edit in draw(_EDITS):
        data = _edit(data, *edit)
    return data


def budget(examples: int) -> settings:
    """So many examples with all other tests, as many as the profile says by hand."""
    given = settings()
    most = examples if settings.get_current_profile_name() == "gate" else given.max_examples
    return settings(max_examples=most, deadline=None, suppress_health_check=list(HealthCheck))
