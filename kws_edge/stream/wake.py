"""Wake, then command: commands count only in the seconds after a wake word, and may be less sure for it.

Two decisions look at one stream, each with its own calibrated thresholds: one for the wake words, which runs all day,
and one for the commands, of which a false one needs a false or a true wake word before it. The events are a function
of their events and of stream time alone.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kws_edge.errors import SettingError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.stream.events import Event
from kws_edge.stream.settings import StreamSettings
from kws_edge.text import shortened

GUARD: Final = 0.3
"""Seconds from a wake word's event in which no command counts: what is heard then is the wake word itself."""
WAKE_SECONDS: Final = 4.0
SHORTEST, LONGEST = 1.0, 60.0  # s
_ROUNDING: Final = 1e-6  # s


@dataclass(frozen=True, slots=True, eq=False)
class Wake:
    """What wakes a stream, and for how long.

    Attributes
    ----------
    words : the wake words; None for all words that the model is calibrated for.
    seconds : how long commands count after the event of a wake word, 1 to 60.
    model : the model that knows the wake words; None for the model of the commands.
    settings : settings of the decision on wake words; None for the model's own.

    Raises
    ------
    SettingError : seconds out of their range.

    Examples
    --------
    >>> from kws_edge import KeywordModel, Spotter, Wake, WavFile
    >>> spotter = Spotter(KeywordModel.load(), words={"no", "stop"}, wake=Wake({"yes"}, seconds=3))
    >>> [event.label for event in spotter.listen(WavFile("kws_edge/samples/demo.flac")) if event.label]
    ['yes']
    """

    words: Collection[str] | None = None
    seconds: float = WAKE_SECONDS
    model: KeywordModel | None = None
    settings: StreamSettings | None = None

    def __post_init__(self) -> None:
        """Refuse a time that no command can be said in, or after which nobody expects one."""
        is_number = isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool)
        if not is_number or not SHORTEST <= self.seconds <= LONGEST:
            said = shortened(repr(self.seconds))
            raise SettingError(f"{said} s after a wake word; expected a number from {SHORTEST:g} to {LONGEST:g}")


class WakeTimer:
    """Lets commands through for a while after each wake word. Events come in the order of their times."""

    def __init__(self, seconds: float) -> None:
        """Not awake yet."""
        self._seconds = seconds
        self.reset()

    def reset(self) -> None:
        """Not awake again."""
        self._woken: float | None = None

    def wake(self, event: Event) -> None:
        """Start, at the time of a wake word's event."""
        self._woken = event.time

    def is_awake(self, time: float) -> bool:
        """Whether a command that is decided on at this time counts."""
        if self._woken is None:
            return False
        return GUARD - _ROUNDING <= time - self._woken <= self._seconds + _ROUNDING


def gated(wakes: Iterable[Event], commands: Iterable[Event], seconds: float) -> Iterator[Event]:
    """The wake words of one recording, and the commands that count, in the order of their times."""
    timer = WakeTimer(seconds)
    told = [(event, True) for event in wakes if event.label is not None] + [(event, False) for event in commands]
    for event, wakes_it in sorted(told, key=lambda pair: pair[0].time):
        if wakes_it:
            timer.wake(event)
        if wakes_it or timer.is_awake(event.time):
            yield event
