"""What `kws-edge listen` does while it listens, here or with a server: events to the display, a command, a file."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.cli.remote import View, connected, is_for_waking

if TYPE_CHECKING:
    from kws_edge.audio.sources import AudioSource, Block
    from kws_edge.cli.actions import EventCommand, EventSaver
    from kws_edge.cli.display import Display, Health
    from kws_edge.client import Hello
    from kws_edge.stream.events import Event
    from kws_edge.stream.spotter import Spotter
    from kws_edge.stream.state import Snapshot


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """What is inside ends at SIGTERM, by which services are stopped, as at the end of the sound: cleanly, status 0."""
    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield
        return

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one does not wait
        sys.exit(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(
    spotter: "Spotter",
    source: "AudioSource",
    display: "Display",
    command: "EventCommand | None",
    saver: "EventSaver | None",
) -> None:
    """Listen until the source ends. Where it held nothing to decide on, say why."""
    from kws_edge.memory import release_start
    from kws_edge.stream.state import State

    told, heard, loudest = 0, False, float("-inf")
    for block in source:
        if block.dropped:
            spotter.gap(block.dropped)
        events = spotter.push(block.samples)
        told += len(events)
        if not heard and spotter.state == State.LISTENING:
            heard = True
            release_start()  # all has run once
        loudest = max(loudest, spotter.last.level if spotter.last else loudest)
        if saver:
            saver.add(block)
        _tell(events, display, command, saver)
        display.update(_health(source))
    seconds, early = spotter.time, spotter.state == State.WARMING_UP
    events = spotter.finish()
    _tell(events, display, command, saver)
    if not (told or events or heard):
        _warn_of_nothing(display, seconds, spotter.hop, None if early else loudest)


def _warn_of_nothing(display: "Display", seconds: float, hop: float, loudest: float | None) -> None:
    """Say why nothing was heard in so many seconds: too little sound, where no level is known, or too quiet."""
    if loudest is None:
        display.warn(f"nothing was heard: {seconds:.2f} s of sound came in; expected {hop:g} s or more")
    else:
        display.warn(
            f"nothing was heard: too quiet: at most {loudest:.0f} dBFS in {seconds:.1f} s; expected a level above the "
            "noise, or a microphone that is not muted"
        )


def run_at(
    url: str,
    asked: dict[str, Any],
    view: View | None,
    source: "AudioSource",
    display: "Display",
    command: "EventCommand | None",
    saver: "EventSaver | None",
) -> None:
    """Let a server listen until the source ends; where there is a view, it and the display follow every hop.

    Where the source held nothing to decide on, say why, as `run` does.
    """
    from kws_edge.client import Hello
    from kws_edge.stream.state import State

    told, heard, loudest = 0, False, float("-inf")

    def watch(message: "Hello | Snapshot") -> None:
        nonlocal heard, loudest
        if view:
            view(message)
            display.update(_health(source))
        if isinstance(message, Hello):
            return
        heard = heard or message.state == State.LISTENING
        loudest = max(loudest, message.level)
        if saver:
            saver.decided(message.time)

    if saver:
        saver.decided(0.0)
    sent = _Overheard(source, saver)
    with connected(url) as client:
        if asked["abstentions"] is None:
            asked = {**asked, "abstentions": "none" if is_for_waking(client, asked["model"]) else "words"}
        for event in client.listen(sent, watch=watch, **asked):
            told += 1
            _tell([event], display, command, saver)
    if not (told or heard):
        seconds = sent.samples / SAMPLE_RATE
        _warn_of_nothing(display, seconds, asked["hop"], None if seconds < asked["hop"] else loudest)


class _Overheard:
    """A source whose blocks are counted, and kept for the events in them, on their way to the server."""

    def __init__(self, source: "AudioSource", saver: "EventSaver | None") -> None:
        self._source, self._saver = source, saver
        self.samples = 0

    def __iter__(self) -> Iterator["Block"]:
        for block in self._source:
            self.samples += len(block.samples)
            if self._saver:
                self._saver.add(block)
            yield block

    def close(self) -> None:
        self._source.close()


def _tell(
    events: list["Event"], display: "Display", command: "EventCommand | None", saver: "EventSaver | None"
) -> None:
    for event in events:
        if saver:
            saver(event)  # first, so that what was told of is kept, whatever ends the program
        display.event(event)
        if command:
            command(event)


def _health(source: "AudioSource") -> "Health":
    from kws_edge.audio.microphone import Microphone
    from kws_edge.cli.display import Health

    if not isinstance(source, Microphone):
        return Health(problem=getattr(source, "problem", None))
    return Health(source.overflows, source.dropped, source.lag, source.problem)
