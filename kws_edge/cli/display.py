"""What `kws-edge listen` shows: a live screen on a terminal, lines elsewhere, JSON lines for scripts."""

import json
import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from kws_edge.model.prediction import Reason, worth_naming
from kws_edge.text import one_line

if TYPE_CHECKING:
    from rich.text import Text

    from kws_edge.stream.events import Event
    from kws_edge.stream.state import Snapshot, State

REFRESH = 0.1
"""Seconds between two pictures: as often as there is a new hop, and slow enough for a terminal over a network."""

_WIDTH = 40  # of a bar, in characters
_QUIETEST = -80.0  # dBFS, the left end of the level meter
_WORDS, _EVENTS = 5, 8


@dataclass(frozen=True, slots=True)
class Health:
    """How the source is doing, as far as it knows: counts so far, samples at 16 kHz, and seconds that wait."""

    overflows: int = 0
    dropped: int = 0
    lag: float = 0.0
    problem: str | None = None


class Display(Protocol):
    """Shows a stream; `warn` may come from any thread."""

    def update(self, health: Health) -> None:
        """There may be a new hop."""

    def event(self, event: "Event") -> None:
        """There is an event."""

    def warn(self, message: str) -> None:
        """Something is to be said, in one line."""

    def close(self) -> None:
        """The stream ended."""


class JsonLines:
    """One JSON object for each event, on standard output."""

    def update(self, health: Health) -> None:
        """Nothing: only events are for scripts."""

    def event(self, event: "Event") -> None:
        """Print it."""
        click.echo(json.dumps(event.to_dict(), allow_nan=False))

    def warn(self, message: str) -> None:
        """Print it on standard error."""
        click.echo(f"Warning: {message}", err=True)

    def close(self) -> None:
        """Nothing is open."""


class PlainLines(JsonLines):
    """One line for each event, for pipes and logs."""

    def event(self, event: "Event") -> None:
        """Print it."""
        click.echo(_line(event))


class Watched(Protocol):
    """A stream to look at: a `Spotter`, or one at a server."""

    model: Any
    """Has a name and labels."""
    settings: Any
    """Has thresholds by score."""
    last: "Snapshot | None"

    @property
    def state(self) -> "State":
        """What the stream is at."""

    @property
    def time(self) -> float:
        """Stream time, s."""


class LiveScreen:
    """Level, posterior, uncertainty and the last events, redrawn in place."""

    def __init__(self, stream: Watched, source: str) -> None:
        """Take over the lines below the cursor; `source` is what is listened to, in words."""
        from rich.console import Console
        from rich.live import Live

        self._stream, self._source = stream, source
        self._events: deque[Event] = deque(maxlen=_EVENTS)
        self._drawn = float("-inf")
        self._health = Health()
        self._live = Live(console=Console(highlight=False), auto_refresh=False)
        self._live.start()

    def update(self, health: Health) -> None:
        """Draw again, if the last picture is old enough."""
        self._health = health
        if time.monotonic() - self._drawn >= REFRESH:
            self._draw()

    def event(self, event: "Event") -> None:
        """Draw it at once."""
        self._events.append(event)
        self._draw()

    def warn(self, message: str) -> None:
        """Print it above the picture, where it stays."""
        self._live.console.print(f"Warning: {message}", style="yellow", markup=False)

    def close(self) -> None:
        """Leave the last picture, and give the terminal back."""
        self._draw()
        self._live.stop()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._live.update(picture(self._stream, self._source, list(self._events), self._health), refresh=True)


class LogToDisplay(logging.Handler):
    """Show what the package logs as warnings."""

    def __init__(self, display: Display) -> None:
        """Pass records on to `display`."""
        super().__init__(logging.WARNING)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        """Show one."""
        self._display.warn(one_line(record.getMessage()))


def picture(stream: Watched, source: str, events: list["Event"], health: Health) -> "Text":
    """What the live screen shows; always of the same height, so that nothing jumps."""
    from rich.text import Text

    now, K = stream.last, len(stream.model.labels)
    state = str(stream.state).replace("_", " ")
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{source}  ", "bold").append(f"model {stream.model.name}  {_clock(stream.time)}  ")
    text.append(f"{state}\n", "green" if state == "listening" else "dim")
    level, noise = (now.level, now.noise) if now else (_QUIETEST, _QUIETEST)
    loud = "red" if level > -3 else "green"
    _bar(text, "level", 1 - level / _QUIETEST, f"{level:6.1f} dBFS", loud, mark=1 - noise / _QUIETEST)
    text.append("\n")
    order = now.probability.argsort()[::-1][:_WORDS] if now else range(min(_WORDS, K))
    for i in order:
        p = float(now.probability[i]) if now else 0.0
        _bar(text, stream.model.labels[i], p, f"{p:6.3f}", "cyan")
    text.append("\n")
    for score, u in (("entropy", now.entropy if now else 1.0), ("vacuity", now.vacuity if now else 1.0)):
        threshold = stream.settings.thresholds.get(score)
        sure = threshold is not None and u <= threshold
        limit = "" if threshold is None else f"  accepted up to {threshold:.3f}"
        _bar(text, score, u, f"{u:6.3f}{limit}", "green" if sure else "yellow", mark=threshold)
    text.append("\n")
    for event in events[-_EVENTS:]:
        text.append(f"{_line(event)}\n", "yellow" if event.abstained else "bold green")
    text.append("\n" * (_EVENTS - len(events[-_EVENTS:])))
    text.append(f"overflows {health.overflows}  dropped {health.dropped / 16_000:.1f} s  lag {health.lag:.1f} s", "dim")
    text.append(f"  {health.problem}" if health.problem else "", "bold red")
    return text


def _bar(text: "Text", name: str, fraction: float, value: str, colour: str, mark: float | None = None) -> None:
    """A line: name, bar and value; `mark` is where on the bar a limit lies."""
    full = round(min(max(fraction, 0), 1) * _WIDTH)
    at = None if mark is None or not 0 <= mark <= 1 else min(round(mark * _WIDTH), _WIDTH - 1)
    text.append(f"{name[:12]:12} ")
    for i in range(_WIDTH):
        if i == at:
            text.append("|", "bold")
        else:
            text.append("█" if i < full else "·", colour if i < full else "dim")
    text.append(f" {value}\n")


def _line(event: "Event") -> str:
    guess = f", best guess {event.guess}" if worth_naming(event.guess, event.probability, len(event.alpha)) else ""
    answer = event.label or f"not sure ({event.reason}{guess})"
    if event.reason == Reason.LOSSES:
        answer = "too many samples lost"
    return (
        f"{_clock(event.start)}-{_clock(event.end)}  {answer:38} probability {event.probability:.3f}  "
        f"entropy {event.entropy:.3f}  vacuity {event.vacuity:.3f}"
    )


def _clock(seconds: float) -> str:
    minutes, tenths = divmod(round(seconds * 10), 600)
    return f"{minutes}:{tenths / 10:04.1f}"
