"""What a stream reports: a word, or an abstention."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args

from kws_edge.model.prediction import Answer

Abstentions: TypeAlias = Literal["all", "words", "none"]
"""Which abstentions are events: after any utterance, where a word may have been meant, or none."""
ABSTENTIONS: Final[tuple[Abstentions, ...]] = get_args(Abstentions)

Clock: TypeAlias = Callable[[], datetime]
"""Says what time it is, with its zone."""


def local_time() -> datetime:
    """The machine's clock, with the offset of its zone."""
    return datetime.now().astimezone()


@dataclass(frozen=True, slots=True, eq=False)
class Event(Answer):
    """A word, or an abstention where one may have been meant. Times are seconds of the stream.

    Attributes
    ----------
    label : the word; None if the model abstained.
    guess : the most probable label, even if the model abstained; None if too many samples were lost.
    probability, vacuity, entropy : the smoothed values that decided.
    alpha : float32 [K], parameters of the Dirichlet distribution that has these values.
    reason : why the model abstained; None if it did not.
    start, end : an estimate of where the word is: from where the sound rose above the noise, or the start of the window
        if that is later, to where it was last above the noise, or the end of the window.
    time : the end of the hop at which the decision was made; later sound was not known.
    model : the name of the model.
    clock : the time of day at `time`, if the stream was given a clock. It plays no part in the decision.

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
