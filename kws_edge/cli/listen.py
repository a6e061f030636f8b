"""`kws-edge listen`: words from the microphone, a pipe or a recording, as they are said."""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kws_edge.cli.remote import View, connected, server_option

if TYPE_CHECKING:
    from kws_edge.cli.actions import EventCommand, EventSaver
    from kws_edge.cli.display import Display, Health
    from kws_edge.client import Hello
    from kws_edge.decision import Event
    from kws_edge.sources import AudioSource, Block
    from kws_edge.spotter import Snapshot, Spotter


@click.command()
@click.argument("source", type=click.Choice(["-"]), required=False, metavar="[-]")
@click.option("--replay", metavar="FILE", help="A recording instead of the microphone.")
@click.option("--realtime/--fast", default=True, help="Replay it as if it were live, or as fast as it goes.")
@click.option("--device", metavar="NUMBER|NAME", help="Which microphone; `kws-edge devices` lists them.")
@click.option("--rate", default=16_000, show_default=True, metavar="HZ", help="Of the samples on standard input.")
@click.option("--words", metavar="WORD,...", help="Only these, as in yes,no  [default: all that the model knows]")
@click.option("--model", metavar="NAME|PATH", help="A name that `kws-edge models` lists, or a path to an .onnx file.")
@click.option(
    "--target",
    type=click.FloatRange(1, 100, min_open=True),
    metavar="PERCENT",
    help="How many of the words that are given should be right, as calibrated on clips  [default: the model's stream "
    "settings, or 99.5]",
)
@click.option(
    "--score",
    type=click.Choice(["entropy", "vacuity", "both"]),
    help="Abstain by this  [default: the model's choice]",
)
@click.option("--hop", default=0.1, show_default=True, metavar="SECONDS", help="Between two looks, 0.01 to 1.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each event, for scripts.")
@click.option("--on-event", metavar="COMMAND", help="Run this for each event, which it gets as JSON on standard input.")
@click.option(
    "--save-events",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Keep 2 s of sound around each event; without this, no sound is ever kept.",
)
@server_option
def listen(
    source: str | None,
    replay: str | None,
    realtime: bool,
    device: str | None,
    rate: int,
    words: str | None,
    model: str | None,
    target: float | None,
    score: Literal["entropy", "vacuity", "both"] | None,
    hop: float,
    as_json: bool,
    on_event: str | None,
    save_events: Path | None,
    server: str | None,
) -> None:
    """Say which words are spoken, once each, and "not sure" with the reason where it might have been one.

    Listens to the microphone, or with - to 16-bit little-endian mono samples on standard input, until they end or
    Ctrl-C is pressed. On a terminal there is a live display; elsewhere there is a line for each event.

    \b
    kws-edge listen
    kws-edge listen --words yes,no --on-event 'jq -r .label >> said.txt'
    kws-edge listen --replay recording.wav --fast --json
    arecord -f S16_LE -r 16000 -c 1 -t raw | kws-edge listen -
    kws-edge listen --server http://192.0.2.7:8765

    Exit status: 0 the source ended; 2 wrong usage, or a model, microphone, recording, setting or server that cannot be
    used; 130 interrupted.
    """
    from kws_edge.cli.actions import STANDARD_ERROR, EventCommand, EventSaver
    from kws_edge.cli.display import JsonLines, LiveScreen, LogToDisplay, PlainLines
    from kws_edge.model import KeywordModel
    from kws_edge.spotter import Spotter

    if source and replay:
        raise click.UsageError("- and --replay are two sources; expected one")
    opened, name = _open(source, replay, realtime=realtime, device=device, rate=rate)
    asked: dict[str, Any] = {
        "words": None if words is None else [word.strip() for word in words.split(",")],
        "hop": hop,
        "score": score,
        "target": None if target is None else target / 100,
    }
    stream: Spotter | View = Spotter(KeywordModel.load(model), **asked) if server is None else View()
    saver = EventSaver(save_events) if save_events else None
    live = sys.stdout.isatty() and not as_json
    display = JsonLines() if as_json else LiveScreen(stream, name) if live else PlainLines()
    command = EventCommand(on_event, subprocess.DEVNULL if live else STANDARD_ERROR) if on_event else None
    log = LogToDisplay(display)
    logging.getLogger("kws_edge").addHandler(log)
    try:
        if isinstance(stream, Spotter):
            _run(stream, opened, display, command, saver)
        else:
            assert server is not None
            _run_at(server, {"model": model, **asked}, stream if live else None, opened, display, command, saver)
    finally:
        opened.close()
        if saver:
            saver.close()
        if command:
            command.close()
        display.close()
        logging.getLogger("kws_edge").removeHandler(log)


def _open(
    source: str | None, replay: str | None, *, realtime: bool, device: str | None, rate: int
) -> tuple["AudioSource", str]:
    """The source, and what it is in words."""
    from kws_edge.sources import StandardInput, WavFile

    if replay:
        return WavFile(replay, realtime=realtime), replay
    if source:
        if sys.stdin.isatty():
            raise click.UsageError("standard input is a terminal; expected samples: arecord ... | kws-edge listen -")
        return StandardInput(rate), "standard input"
    from kws_edge.microphone import Microphone

    return Microphone(int(device) if device and device.isdecimal() else device), "microphone"


def _run(
    spotter: "Spotter",
    source: "AudioSource",
    display: "Display",
    command: "EventCommand | None",
    saver: "EventSaver | None",
) -> None:
    """Listen until the source ends."""
    for block in source:
        if block.dropped:
            spotter.gap(block.dropped)
        _tell(spotter.push(block.samples), display, command, saver)
        if saver:
            saver.hear(block)
        display.update(_health(source))
    _tell(spotter.finish(), display, command, saver)


def _run_at(
    url: str,
    asked: dict[str, Any],
    view: View | None,
    source: "AudioSource",
    display: "Display",
    command: "EventCommand | None",
    saver: "EventSaver | None",
) -> None:
    """Let a server listen until the source ends; where there is a view, it and the display follow every hop."""
    lock = threading.Lock()  # the source is read in a thread of the client

    def watch(message: "Hello | Snapshot") -> None:
        assert view is not None
        view(message)
        display.update(_health(source))

    heard = _Overheard(source, saver, lock) if saver else source
    with connected(url) as client:
        for event in client.listen(heard, watch=watch if view else None, **asked):
            with lock:
                _tell([event], display, command, saver)


class _Overheard:
    """A source whose blocks are kept for the events in them, on their way to the server."""

    def __init__(self, source: "AudioSource", saver: "EventSaver", lock: threading.Lock) -> None:
        self._source, self._saver, self._lock = source, saver, lock

    def __iter__(self) -> Iterator["Block"]:
        for block in self._source:
            with self._lock:
                self._saver.hear(block)
            yield block

    def close(self) -> None:
        self._source.close()


def _tell(
    events: list["Event"], display: "Display", command: "EventCommand | None", saver: "EventSaver | None"
) -> None:
    for event in events:
        display.event(event)
        if command:
            command(event)
        if saver:
            saver(event)


def _health(source: "AudioSource") -> "Health":
    from kws_edge.cli.display import Health
    from kws_edge.microphone import Microphone

    if not isinstance(source, Microphone):
        return Health()
    return Health(source.overflows, source.dropped, source.lag, source.problem)
