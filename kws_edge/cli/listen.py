"""`kws-edge listen`: words from the microphone, a pipe or a recording, as they are said."""

import logging
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kws_edge.cli.options import TARGET, WORDS, Number, channel_option, device_option, hop_option, model_option
from kws_edge.cli.remote import View, server_option
from kws_edge.errors import SettingError
from kws_edge.model.score import STREAM_SCORES, StreamScore
from kws_edge.text import one_line, shortened

if TYPE_CHECKING:
    from kws_edge.audio.channels import Channel
    from kws_edge.audio.sources import AudioSource
    from kws_edge.cli.actions import EventCommand, EventSaver
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.stream.spotter import Spotter


@click.command()
@click.argument("source", required=False, metavar="[-]")
@click.option("--replay", metavar="FILE", help="Listen to a recording instead of the microphone.")
@click.option(
    "--realtime/--fast",
    default=None,
    help="Replay at the speed of the recording (the default), or as fast as possible.",
)
@device_option
@click.option("--rate", type=int, metavar="HZ", help="Sample rate of standard input  [default: 16000]")
@channel_option
@click.option(
    "--words",
    type=WORDS,
    metavar="WORD,...",
    help="Report only these words  [default: those that the model is calibrated for; with --target or --score, all]",
)
@click.option("--wake", type=WORDS, metavar="WORD,...", help="Listen for commands only after one of these wake words.")
@click.option(
    "--then",
    type=WORDS,
    metavar="WORD,...",
    help="Commands after a wake word  [default: those it was calibrated for, or all]",
)
@click.option(
    "--for", "wake_seconds", type=Number(), metavar="SECONDS", help="How long commands count after it  [default: 4]"
)
@click.option("--wake-model", metavar="NAME|PATH", help="Model that knows the wake words  [default: that of --model]")
@model_option
@click.option(
    "--target",
    type=TARGET,
    metavar="PERCENT",
    help="Use the thresholds for clips at this accuracy of the given answers  [default: the model's thresholds for "
    "streams, or 99.5]",
)
@click.option(
    "--score",
    type=click.Choice(STREAM_SCORES),
    help="Uncertainty that decides whether to abstain; with both, both must be low  [default: the model's choice]",
)
@hop_option
@click.option(
    "--abstentions",
    type=click.Choice(["all", "words", "none"]),
    help='Which "not sure" to report: where one of the words may have been meant (words), after any sound as long as '
    "an utterance (all), or none  [default: words; none for a wake word model]",
)
@click.option("--verbose", is_flag=True, help="Same as --abstentions words, for a wake word model.")
@click.option(
    "--on-event", metavar="COMMAND", help="Run a shell command for each event, with its JSON on standard input."
)
@click.option(
    "--save-events",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Keep 2 s of sound around each event. Without this option no sound is ever stored.",
)
@click.option(
    "--save-most",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Stop saving when FOLDER holds N recordings of 64 kB.",
)
@server_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each event, for scripts.")
def listen(
    source: str | None,
    replay: str | None,
    realtime: bool | None,
    device: int | str | None,
    rate: int | None,
    channel: "Channel | None",
    words: list[str] | None,
    wake: list[str] | None,
    then: list[str] | None,
    wake_seconds: float | None,
    wake_model: str | None,
    model: str | None,
    target: float | None,
    score: StreamScore | None,
    hop: float,
    abstentions: Literal["all", "words", "none"] | None,
    verbose: bool,
    on_event: str | None,
    save_events: Path | None,
    save_most: int,
    server: str | None,
    as_json: bool,
) -> None:
    """Name words as they are spoken.

    Where one of the words may have been meant, but the model is not sure, it says so with the reason. It listens to the
    microphone, or with - to 16-bit little-endian mono samples on standard input (a WAV header may give another rate and
    several channels), until the sound ends or you press Ctrl-C. A terminal shows a live display; otherwise each event
    is one line.

    \b
    kws-edge listen
    kws-edge listen --words yes,no --on-event 'jq -r ".label // empty" >> said.txt'
    kws-edge listen --replay recording.wav --fast --json
    arecord -f S16_LE -r 16000 -c 1 -t raw | kws-edge listen -
    kws-edge listen --server http://192.0.2.7:8765

    After a wake word, commands count for a few seconds, and may be less certain. Both the wake word and the command are
    events. The wake word is one of the model's own, or comes from another model, such as one made by `kws-export wake`:

    \b
    kws-edge listen --wake happy --then yes,no,stop --for 4
    kws-edge listen --wake-model computer --then stop,go

    Up to 4 commands of --on-event run at the same time. While 4 are running, a further event is shown but runs no
    command, with a warning; with --fast the replay waits instead. If so many samples are lost that no word can be
    recognised, an event with the reason "losses" says so.

    Exit status: 0 the sound ended, or SIGTERM; 2 wrong usage, or a model, microphone, recording, setting or server that
    cannot be used; 130 interrupted.
    """
    from kws_edge.cli.display import JsonLines, LiveScreen, LogToDisplay, PlainLines
    from kws_edge.cli.listening import ended_by_sigterm, run, run_at
    from kws_edge.memory import release_start
    from kws_edge.model.keyword_model import KeywordModel
    from kws_edge.model.metadata import is_wake_model
    from kws_edge.stream.events import local_time
    from kws_edge.stream.spotter import Spotter
    from kws_edge.stream.wake import WAKE_SECONDS, Wake

    waits = wake is not None or wake_model is not None
    if not waits and not (then is None and wake_seconds is None):
        raise click.UsageError("--then and --for describe what comes after a wake word; add --wake or --wake-model")
    if waits and words is not None:
        raise click.UsageError("--words cannot be used with a wake word; name the commands by --then")
    _check_usage(source, replay, realtime=realtime, device=device, rate=rate, on_event=on_event)
    fast = realtime is False
    opened, name = _open(source, replay, realtime=not fast, device=device, rate=rate, channel=channel)
    asked: dict[str, Any] = {
        "words": words if then is None else then,
        "hop": hop,
        "score": score,
        "target": target,
        "abstentions": abstentions or ("words" if verbose else None),
    }
    stream: Spotter | View = View()
    if server is None:
        release_start()  # what imports needed, so that it is not held beside what the model needs
        loaded = KeywordModel.load(model)
        waking = None
        if waits:
            other = KeywordModel.load(wake_model) if wake_model else None
            if other is None:
                _check_wake(wake or (), loaded)
            waking = Wake(wake, WAKE_SECONDS if wake_seconds is None else wake_seconds, other)
        asked["abstentions"] = asked["abstentions"] or ("none" if is_wake_model(loaded.metadata) else "words")
        stream = Spotter(loaded, clock=local_time, wake=waking, **asked)
        _tell_words(stream, asked=asked["words"] is not None)
    saver = _saver(save_events, save_most) if save_events else None
    live = sys.stdout.isatty() and not as_json
    display = JsonLines() if as_json else LiveScreen(stream, name) if live else PlainLines()
    command = _command(on_event, quiet=live, wait=fast) if on_event else None
    log = LogToDisplay(display)
    logging.getLogger("kws_edge").addHandler(log)
    with ended_by_sigterm(), ExitStack() as parts:  # closed from the last to the first, whatever each of them raises
        parts.callback(logging.getLogger("kws_edge").removeHandler, log)
        for part in (display, command, saver, opened):
            if part:
                parts.callback(part.close)
        if isinstance(stream, Spotter):
            run(stream, opened, display, command, saver)
        else:
            assert server is not None
            asked |= {"wake": wake, "wake_model": wake_model, "wake_seconds": wake_seconds}
            run_at(server, {"model": model, **asked}, stream if live else None, opened, display, command, saver)


def _check_wake(wake: Sequence[str], model: "KeywordModel") -> None:
    """Raise SettingError for wake words that the model of the commands does not know: another model may."""
    from kws_edge.model.metadata import is_word
    from kws_edge.stream.settings import label_of

    if strange := [word for word in wake if label_of(word, model.labels) is None]:
        raise SettingError(
            f"--wake: {shortened(', '.join(strange), 200)}; expected one or more of "
            f"{', '.join(filter(is_word, model.labels))}, or --wake-model with a model that knows another word"
        )


def _saver(folder: Path, most: int) -> "EventSaver":
    from kws_edge.cli.actions import EventSaver

    return EventSaver(folder, most)


def _command(command: str, *, quiet: bool, wait: bool) -> "EventCommand":
    import subprocess

    from kws_edge.cli.actions import STANDARD_ERROR, EventCommand

    return EventCommand(command, subprocess.DEVNULL if quiet else STANDARD_ERROR, wait=wait)


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
    device: int | str | None,
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
        raise click.UsageError("- and --replay cannot be used together; give one source")
    if realtime is not None and not replay:
        raise click.UsageError("--fast and --realtime need a recording; add --replay FILE")
    if rate is not None and not source:
        raise click.UsageError("--rate describes samples on standard input; add -, or leave it out")
    if device is not None and (source or replay):
        raise click.UsageError("--device names a microphone; it cannot be used with another source")
    if on_event is not None and not on_event.strip():
        raise click.UsageError("--on-event: an empty command; expected one, or no --on-event")


def _open(
    source: str | None,
    replay: str | None,
    *,
    realtime: bool,
    device: int | str | None,
    rate: int | None,
    channel: "Channel | None",
) -> tuple["AudioSource", str]:
    """The source, and what it is in words."""
    from kws_edge.audio.level import SAMPLE_RATE
    from kws_edge.audio.sources import StandardInput, WavFile

    if replay:
        return WavFile(replay, realtime=realtime, channel=channel), one_line(replay)
    if source:
        if sys.stdin is None:
            raise click.UsageError("standard input is closed; expected samples: arecord ... | kws-edge listen -")
        if sys.stdin.isatty():
            raise click.UsageError(
                "standard input is a terminal; pipe samples into it: arecord ... | kws-edge listen -"
            )
        return StandardInput(SAMPLE_RATE if rate is None else rate, channel=channel), "standard input"
    from kws_edge.audio.microphone import Microphone

    return Microphone(device, channel=channel), "microphone"
