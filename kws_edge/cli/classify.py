"""`kws-edge classify`: name the words in files."""

import contextlib
import glob
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast

import click

from kws_edge.cli.options import TARGET, channel_option, model_option
from kws_edge.cli.remote import connected, refuse_with_server, served_model, server_option
from kws_edge.errors import AudioError
from kws_edge.files import make_blocking
from kws_edge.model.score import SCORES, Score
from kws_edge.text import one_line

if TYPE_CHECKING:
    from kws_edge.audio.channels import Channel
    from kws_edge.model.prediction import Prediction

STANDARD_INPUT = "-"
"""What names it among files."""

Ask: TypeAlias = Callable[[str | BinaryIO, Callable[[float], None]], "Prediction"]

_IN_MEMORY = 1 << 26  # bytes of standard input that need no temporary folder
_MOST = 1 << 30  # bytes of standard input: 9 hours of 16-bit samples
_PIECE = 1 << 20  # bytes read at a time
_LONG = 20.0  # seconds of audio, before progress is worth showing


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@model_option
@click.option(
    "--target",
    type=TARGET,
    default="99.5",
    show_default=True,
    metavar="PERCENT",
    help="Share of the given answers that should be right. The higher it is, the more often the model abstains.",
)
@click.option(
    "--score",
    type=click.Choice(SCORES),
    help="Uncertainty that decides whether to abstain  [default: the model's choice]",
)
@channel_option
@click.option(
    "--provider", default="cpu", show_default=True, metavar="NAME", help="Execution provider, such as cpu or cuda."
)
@click.option("--strict", is_flag=True, help="Fail if the provider is unavailable, instead of falling back to the CPU.")
@server_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each file, for scripts.")
@click.pass_context
def classify(
    ctx: click.Context,
    files: tuple[str, ...],
    model: str | None,
    target: float,
    score: Score | None,
    channel: "Channel | None",
    provider: str,
    strict: bool,
    server: str | None,
    as_json: bool,
) -> None:
    """Name the word in each FILE, or say why it is not sure.

    A FILE is WAV, FLAC, Ogg Vorbis, Opus, MP3, AIFF, AU or CAF, of any sample rate and length. It can also be a folder,
    which is searched with its subfolders, a pattern in quotes, or - for standard input, up to 1 GiB. In a file longer
    than 1.3 s the word is searched for, as in a live stream, and the answer says where it is.

    \b
    kws-edge classify yes.wav
    kws-edge classify recordings/ --target 99.9
    kws-edge classify 'recordings/**/stop_*.flac' --json | jq .label
    curl -s https://example.org/clip.ogg | kws-edge classify -
    kws-edge classify recordings/ --server http://192.0.2.7:8765

    Exit status: 0 every file was read, even if the model was not sure; 1 some files could not be read, each reported on
    standard error; 2 wrong usage, or a model, provider, setting or server that cannot be used; 130 interrupted.
    """
    unreadable = 0
    if server is not None:
        refuse_with_server(ctx, "provider", "strict")
        answering = _at(server, model, target, score, channel)
    else:
        answering = _here(model, target, score, channel, provider, strict)
    with answering as (decides, ask):
        head = "" if as_json else f"{'ANSWER':10} {'PROBABILITY':>11} {decides.upper():>7}  {'SECONDS':15} FILE\n"
        for name in _expand(files):
            try:
                with _source(name) as source, _progress(name) as progress:
                    prediction = ask(source, progress)
            except AudioError as error:
                click.echo(f"Error: {one_line(error)}", err=True)
                unreadable += 1
            else:
                # The head comes with the first answer: a server may yet refuse what it is asked.
                click.echo(head + (_as_json(name, prediction) if as_json else _as_text(name, prediction, decides)))
                head = ""
    ctx.exit(1 if unreadable else 0)


@contextmanager
def _here(
    name: str | None, target: float, score: Score | None, channel: "Channel | None", provider: str, strict: bool
) -> Iterator[tuple[Score, Ask]]:
    """A model that runs here: the score that decides, and how a file is answered."""
    from kws_edge.model.keyword_model import KeywordModel

    model = KeywordModel.load(name, provider=provider, strict=strict)
    decides = score or model.metadata.score
    model.metadata.threshold(decides, target)  # so that a bad setting is refused once, not for every file
    asked: dict[str, Any] = {"target": target, "score": decides, "channel": channel}
    yield decides, lambda file, progress: model.classify(file, progress=progress, **asked)


@contextmanager
def _at(
    url: str, name: str | None, target: float, score: Score | None, channel: "Channel | None"
) -> Iterator[tuple[Score, Ask]]:
    """The same at a server, which says so itself where a setting is bad."""
    with connected(url) as client:
        model = served_model(client, name)
        decides = score or model["score"]
        asked: dict[str, Any] = {"model": model["name"], "target": target, "score": decides, "channel": channel}
        yield decides, lambda file, _: client.classify(file, **asked)


def _expand(files: tuple[str, ...]) -> Iterator[str]:
    """The files in folders and behind patterns, in order of name. What stands for none is passed on, to fail.

    A file that is named is read whatever it is called.
    """
    from kws_edge.audio.files import recordings_at

    for file in files:
        if file == STANDARD_INPUT or os.path.isfile(file):
            yield file
        else:
            unread: list[str] = []  # which fail in their turn
            found = [str(path) for path in recordings_at(file, unread.append)]
            yield from [*found, *unread] or [file]


@contextmanager
def _source(name: str) -> Iterator[str | BinaryIO]:
    """What `classify` can read: the path, or standard input as a file that can be read again from its start."""
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise AudioError("standard input is closed; expected the bytes of an audio file")
        with _kept(sys.stdin.buffer) as file:
            try:
                yield cast(BinaryIO, file)
            except AudioError as error:
                detail = str(error).removeprefix("file object: ").removeprefix("audio: ")
                raise AudioError(f"standard input: {detail}") from None
    elif os.path.isdir(name) or (glob.has_magic(name) and not os.path.exists(name)):
        from kws_edge.audio.files import audio_in
        from kws_edge.audio.load import EXTENSIONS

        if os.path.isdir(name):
            audio_in(name)  # which says so where it cannot be read
        raise AudioError(f"{name}: no recording there; expected files that end in {', '.join(EXTENSIONS)}")
    else:
        yield name


def _kept(pipe: BinaryIO) -> tempfile.SpooledTemporaryFile[bytes]:
    """All that comes out of a pipe. Raises AudioError where it is too much, or there is no room for it."""
    make_blocking(pipe)
    file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - it is given back open
    try:
        while piece := pipe.read(_PIECE):
            if file.tell() + len(piece) > _MOST:
                raise AudioError(
                    f"standard input: more than {_MOST >> 20} MiB; expected an audio file: name one that is longer, or "
                    "give endless sound to kws-edge listen -"
                )
            try:
                file.write(piece)
                file.flush()
            except OSError as error:
                raise AudioError(
                    f"standard input: {error.strerror}; expected room for it in {tempfile.gettempdir()}"
                ) from None
        file.seek(0)
    except BaseException:
        with contextlib.suppress(OSError):  # of what it could not write
            file.close()
        raise
    return file


@contextmanager
def _progress(name: str) -> Iterator[Callable[[float], None]]:
    """How far a long file is read, on a terminal, while it is."""
    shown = False

    def show(seconds: float) -> None:
        nonlocal shown
        if seconds >= _LONG and sys.stderr.isatty():
            minutes, rest = divmod(round(seconds), 60)
            click.echo(f"\r{one_line(name)}: {minutes} min {rest:02} s", nl=False, err=True)
            shown = True

    try:
        yield show
    finally:
        if shown:
            click.echo("\r\x1b[K", nl=False, err=True)


def _as_json(name: str, prediction: "Prediction") -> str:
    return json.dumps({"file": name, **prediction.to_dict()}, allow_nan=False)


def _as_text(name: str, p: "Prediction", score: Score) -> str:
    """A line, with the score that was asked for; it names another that withheld the label, as that of streams may."""
    from kws_edge.model.prediction import worth_naming

    answer = click.style(f"{p.label or 'not sure':10}", fg="yellow" if p.abstained else "green")
    numbers = f"{p.probability:11.3f} {p.uncertainty_by(score):7.3f}  {f'{p.start:.2f}-{p.end:.2f}':15}"
    guess = f", best guess {p.guess}" if worth_naming(p.guess, p.probability, len(p.alpha)) else ""
    other = f", {p.score} {p.uncertainty:.3f}" if p.reason and p.score != score else ""
    why = f"  ({p.reason}{other}{guess})" if p.reason else ""
    return f"{answer} {numbers} {one_line(name)}{why}"
