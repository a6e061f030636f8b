"""What a stream is doing: its state, and the last hop, for displays."""

from dataclasses import dataclass
from enum import StrEnum

from kws_edge.arrays import F32


class State(StrEnum):
    """The state of a stream.

    Examples
    --------
    >>> from kws_edge import KeywordModel, Spotter, State
    >>> Spotter(KeywordModel.load()).state is State.WARMING_UP
    True
    """

    WARMING_UP = "warming_up"
    """There is less than one hop since the start or the last gap."""
    SILENCE = "silence"
    """Nothing is above the noise: the network rests."""
    LISTENING = "listening"
    """The network looks at every window."""
    LOSSES = "losses"
    """So many samples are lost that words cannot be recognised."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The last hop, for displays.

    Attributes
    ----------
    time : stream time of its end, s.
    state : of the stream.
    level, noise : of the sound and of the noise floor, dBFS, at least -100.
    probability : float32 [K], smoothed as the decision sees it, in the order of the model's labels.
    vacuity, entropy : the same.
    """

    time: float
    state: State
    level: float
    noise: float
    probability: F32
    vacuity: float
    entropy: float
