"""`kws-edge listen`: words from the microphone, a pipe or a recording, as they are said."""

import logging
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kws_edge.cli.channel import channel_option
from kws_edge.cli.remote import View, server_option
from kws_edge.cli.target import TARGET
from kws_edge.model.score import STREAM_SCORES, StreamScore

if TYPE_CHECKING:
    from kws_edge.audio.channels import Channel
    from kws_edge.audio.sources import AudioSource
    from kws_edge.model.metadata import Metadata
    from kws_edge.stream.spotter import Spotter


@click.command()
@click.argument("source", required=False, metavar="[-]")
@click.option("--replay", metavar="FILE", help="A recording instead of the microphone.")
@click.option(
    "--realtime/--fast", default=None, help="Replay it as if it were live (the default), or as fast as it goes."
)
@click.option("--device", metavar="NUMBER|NAME", help="Which microphone; `kws-edge devices` lists them.")
@click.option("--rate", type=int, metavar="HZ", help="Of the samples on standard input  [default: 16000]")
@channel_option
@click.option(
    "--words",
    metavar="WORD,...",
    help="Only these, as in yes,no  [default: those that the model's stream settings were calibrated for; all that it "
    "knows, with --target or --score]",
)
@click.option(
    "--wake", metavar="WORD,...", help="Wake words: what --then names counts only after one of them; read below."
)
@click.option("--then", metavar="WORD,...", help="The commands that count after a wake word  [default: all words]")
@click.option("--for", "wake_seconds", type=float, metavar="SECONDS", help="For how long they count  [default: 4]")
@click.option("--wake-model", metavar="NAME|PATH", help="Whose words the wake words are  [default: that of --model]")
@click.option("--model", metavar="NAME|PATH", help="A name that `kws-edge models` lists, or a path to an .onnx file.")
@click.option(
    "--target",
    type=TARGET,
    metavar="PERCENT",
    help="Share of the words given that should be right, as calibrated on clips  [default: the model's stream "
    "settings, or 99.5]",
)
@click.option(
    "--score",
    type=click.Choice(STREAM_SCORES),
    help="Abstain by this  [default: the model's choice]",
)
@click.option("--hop", default=0.1, show_default=True, metavar="SECONDS", help="Between two windows, 0.01 to 1.")
@click.option(
    "--abstentions",
    type=click.Choice(["all", "words", "none"]),
    help="Which are events, also for --on-event and --save-events: after any sound as long as an utterance, where a "
    "word that is listened for might have been meant, or none.  [default: words; none for a wake word's model]",
)
@click.option("--verbose", is_flag=True, help='Report "not sure" of a wake word\'s model too: --abstentions words.')
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each event, for scripts.")
@click.option(
    "--on-event",
    metavar="COMMAND",
    help="Run this for each event, which it gets as JSON on standard input; read above.",
)
@click.option(
    "--save-events",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Keep 2 s of sound around each event; without this, no sound is ever kept.",
)
@click.option(
    "--save-most",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Save no more where the folder holds so many recordings, of 64 kB each.",
)
@server_option
def listen(
    source: str | None,
    replay: str | None,
    realtime: bool | None,
    device: str | None,
    rate: int | None,
    channel: "Channel | None",
    words: str | None,
    wake: str | None,
    then: str | None,
    wake_seconds: float | None,
    wake_model: str | None,
    model: str | None,
    target: float | None,
    score: StreamScore | None,
    hop: float,
    abstentions: Literal["all", "words", "none"] | None,
    verbose: bool,
    as_json: bool,
    on_event: str | None,
    save_events: Path | None,
    save_most: int,
    server: str | None,
) -> None:
    """Say which words are spoken, once each, and "not sure" with the reason where it might have been one.

    Listens to the microphone, or with - to 16-bit little-endian mono samples on standard input, until they end or
    Ctrl-C is pressed; a WAV header in front of them may say another rate and several channels. On a terminal there is
    a live display; elsewhere there is a line for each event.

    \b
    kws-edge listen
    kws-edge listen --words yes,no --on-event 'jq -r ".label // empty" >> said.txt'
    kws-edge listen --replay recording.wav --fast --json
    arecord -f S16_LE -r 16000 -c 1 -t raw | kws-edge listen -
    kws-edge listen --server http://192.0.2.7:8765

    With --words, other words give no event. "Not sure" is an event where a word that is listened for stands out from
    the rest without being sure; --abstentions all reports it for barks and other speech too. A wake word's model is
    silent about all but its word, unless --verbose is given.

    With --wake, commands count only in the seconds after a wake word, and may be less certain; both give events. The
    wake word may be one of the model's words, or that of another model, such as one of `kws-export wake`:

    \b
    kws-edge listen --wake happy --then yes,no,stop --for 4
    kws-edge listen --wake-model computer.onnx --then stop,go

    Where so many samples are lost that no word can be recognised, an event with the reason "losses" says so.

    Commands of --on-event run side by side, at most 4. Where 4 still run, the next event is skipped, with a
    warning; with --fast the recording waits until one has ended, so that none is lost.

    Exit status: 0 the source ended; 2 wrong usage, or a model, microphone, recording, setting or server that cannot be
    used; 130 interrupted.
    """
    from kws_edge.cli.actions import STANDARD_ERROR, EventCommand, EventSaver
    from kws_edge.cli.display import JsonLines, LiveScreen, LogToDisplay, PlainLines
    from kws_edge.cli.listening import run, run_at
    from kws_edge.cli.words import word_list
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.stream.events import local_time
    from kws_edge.stream.spotter import Spotter
    from kws_edge.stream.wake import WAKE_SECONDS, Wake

    if wake is None and wake_model is None and not (then is None and wake_seconds is None):
        raise click.UsageError("--then and --for are for what comes after a wake word; expected --wake or --wake-model")
    if (wake or wake_model) and words is not None:
        raise click.UsageError("--words beside --wake; expected --then for the commands")
    _check_usage(source, replay, realtime=realtime, device=device, rate=rate, on_event=on_event)
    fast = realtime is False
    opened, name = _open(source, replay, realtime=not fast, device=device, rate=rate, channel=channel)
    asked: dict[str, Any] = {
        "words": word_list(words if then is None else then),
        "hop": hop,
        "score": score,
        "target": target,
        "abstentions": abstentions or "words",
    }
    stream: Spotter | View = View()
    if server is None:
        loaded = KeywordModel.load(model)
        waking = None
        if wake or wake_model:
            other = KeywordModel.load(wake_model) if wake_model else None
            waking = Wake(word_list(wake), WAKE_SECONDS if wake_seconds is None else wake_seconds, other)
        asked["abstentions"] = abstentions or _told_abstentions(loaded.metadata, verbose=verbose)
        stream = Spotter(loaded, clock=local_time, wake=waking, **asked)
        _tell_words(stream, asked=words is not None)
    saver = EventSaver(save_events, save_most) if save_events else None
    live = sys.stdout.isatty() and not as_json
    display = JsonLines() if as_json else LiveScreen(stream, name) if live else PlainLines()
    printed = subprocess.DEVNULL if live else STANDARD_ERROR
    command = EventCommand(on_event, printed, wait=fast) if on_event else None
    log = LogToDisplay(display)
    logging.getLogger("kws_edge").addHandler(log)
    try:
        if isinstance(stream, Spotter):
            run(stream, opened, display, command, saver)
        else:
            assert server is not None
            asked |= {"wake": word_list(wake), "wake_model": wake_model, "wake_seconds": wake_seconds}
            run_at(server, {"model": model, **asked}, stream if live else None, opened, display, command, saver)
    finally:
        opened.close()
        if saver:
            saver.close()
        if command:
            command.close()
        display.close()
        logging.getLogger("kws_edge").removeHandler(log)


def _told_abstentions(metadata: "Metadata", *, verbose: bool) -> Literal["words", "none"]:
    """What is told where nothing else is asked for."""
    from kws_edge.model.metadata import is_wake_model

    return "none" if is_wake_model(metadata) and not verbose else "words"


def _tell_words(stream: "Spotter", *, asked: bool) -> None:
    """Say what is listened for where that is not all that the model knows, and nobody asked for it."""
    from kws_edge.model.metadata import is_word

    if not asked and len(stream.words) < sum(map(is_word, stream.model.labels)):
        said = f"listening for {', '.join(stream.words)}, which {stream.model.name} was calibrated for"
        click.echo(said, err=True)


def _check_usage(
    source: str | None,
    replay: str | None,
    *,
    realtime: bool | None,
    device: str | None,
    rate: int | None,
    on_event: str | None,
) -> None:
    """Refuse options that do not go together."""
    if source not in (None, "-"):
        raise click.UsageError(
            f"{source}: expected - for standard input, or nothing for the microphone; "
            f"for a recording, kws-edge listen --replay {shlex.quote(source)}"
        )
    if source and replay:
        raise click.UsageError("- and --replay are two sources; expected one")
    if realtime is not None and not replay:
        raise click.UsageError("--fast and --realtime are for recordings; expected --replay FILE beside them")
    if rate is not None and not source:
        raise click.UsageError("--rate is for samples on standard input; expected - beside it, or no --rate")
    if device is not None and (source or replay):
        raise click.UsageError("--device is for microphones; expected no other source beside it")
    if on_event is not None and not on_event.strip():
        raise click.UsageError("--on-event: an empty command; expected one, or no --on-event")


def _open(
    source: str | None,
    replay: str | None,
    *,
    realtime: bool,
    device: str | None,
    rate: int | None,
    channel: "Channel | None",
) -> tuple["AudioSource", str]:
    """The source, and what it is in words."""
    from kws_edge.audio.level import SAMPLE_RATE
    from kws_edge.audio.sources import StandardInput, WavFile

    if replay:
        return WavFile(replay, realtime=realtime, channel=channel), replay
    if source:
        if sys.stdin.isatty():
            raise click.UsageError("standard input is a terminal; expected samples: arecord ... | kws-edge listen -")
        return StandardInput(SAMPLE_RATE if rate is None else rate, channel=channel), "standard input"
    from kws_edge.audio.microphone import Microphone

    return Microphone(int(device) if device and device.isdecimal() else device, channel=channel), "microphone"
