"""What a stream reports: a word, or an abstention where there might have been one."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args

from kws_edge.model.prediction import Answer

Abstentions: TypeAlias = Literal["all", "words", "none"]
"""Which abstentions are events: after any utterance, where a word might have been meant, or none."""
ABSTENTIONS: Final[tuple[Abstentions, ...]] = get_args(Abstentions)

Clock: TypeAlias = Callable[[], datetime]
"""Says what time it is, with its zone."""


def local_time() -> datetime:
    """The machine's clock, with the offset of its zone."""
    return datetime.now().astimezone()


@dataclass(frozen=True, slots=True, eq=False)
class Event(Answer):
    """A word, or an abstention where there might have been one. Times are seconds of the stream.

    Attributes
    ----------
    label : the word; None where the model abstained.
    guess : the most probable label, also where the model abstained; None where too many samples were lost.
    probability, vacuity, entropy : the smoothed ones, by which was decided.
    alpha : float32 [K], the Dirichlet that has them.
    reason : why the model abstained; None where it did not.
    start, end : an estimate of where the word lies: from where the sound rose out of the noise, or from the start of
        the window where that is later, to where it last was above it, or the end of the window.
    time : the end of the hop at which was decided: nothing later than this was known.
    model : the name of the model.
    clock : what time it was at `time`, where whoever runs the stream gave it a clock. Nothing is decided by it.

    Examples
    --------
    >>> from kws_edge import KeywordModel, Spotter, WavFile
    >>> event = next(Spotter(KeywordModel.load()).listen(WavFile("kws_edge/samples/demo.flac")))
    >>> event.label, event.start < event.end < event.time + 1
    ('yes', True)
    """

    time: float
    model: str
    clock: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, without NaN or infinities."""
        clock = None if self.clock is None else self.clock.isoformat(timespec="milliseconds")
        start, end, time = (round(seconds, 3) for seconds in (self.start, self.end, self.time))
        return self.as_dict(start, end, self.model, time=time, clock=clock)
