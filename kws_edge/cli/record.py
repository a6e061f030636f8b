"""`kws-edge record`: takes of a word, for a model of one's own."""

import getpass
import hashlib
import json
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kws_edge.cli.options import channel_option, device_option
from kws_edge.errors import AudioError, SettingError
from kws_edge.files import add_file
from kws_edge.text import counted, folder_name, one_line

if TYPE_CHECKING:
    from kws_edge.audio.channels import Channel
    from kws_edge.audio.sources import AudioSource
    from kws_edge.audio.takes import Take, TakeCutter

_QUIETEST: Final = -70.0  # dBFS, the left end of the meter
_WIDTH: Final = 30  # of the meter, in characters
_TAKES: Final = 20  # from a microphone, where no other number is given


@click.command()
@click.argument("word", metavar="WORD")
@click.option(
    "--out",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="FOLDER",
    help="Write the takes to FOLDER/WORD/SPEAKER_nohash_N.wav.",
)
@click.option(
    "--takes",
    type=click.IntRange(1, 1000),
    metavar="N",
    help=f"Good takes to record  [default: {_TAKES}; with --from all that there are]",
)
@click.option(
    "--from", "recording", metavar="FILE", help="Cut the takes from a recording of the repeated word instead."
)
@click.option(
    "--speaker", metavar="NAME", help="Speaker's name, letters and digits  [default: a code for the current user]"
)
@device_option
@channel_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each take, for scripts.")
def record(
    word: str,
    folder: Path,
    takes: int | None,
    recording: str | None,
    speaker: str | None,
    device: int | str | None,
    channel: "Channel | None",
    as_json: bool,
) -> None:
    """Record takes of a WORD or phrase, to make a model of it.

    Say the word, wait for the line that reports the take, and say it again: nearer and farther, faster and slower, as
    you will say it later. Each take is cut at the pauses around it. A take that is clipped, too quiet, too short or too
    long, or of which samples were lost, is refused. Existing takes are kept, and nothing but the takes is stored.

    \b
    kws-edge record "hey lamp" --out my_words
    kws-edge record "hey lamp" --out my_words --from long.wav
    kws-edge enroll "hey lamp" my_words/hey_lamp/*.wav --out lamp.onnx
    kws-export wake "hey lamp" --recordings my_words --negatives negatives.npz --out lamp.onnx

    Exit status: 0 success; 1 fewer takes than asked for, or no good one in --from; 2 wrong usage, or a microphone,
    recording or folder that cannot be used; 130 interrupted, with the takes so far kept.
    """
    from kws_edge.audio.takes import TakeCutter

    if device is not None and recording:
        raise click.UsageError("--device names a microphone; it cannot be used with --from")
    wanted = takes if takes or recording else _TAKES
    store = _Store(folder, word, speaker)
    source = _source(recording, device, channel)
    shown = sys.stderr.isatty() and not as_json
    if shown and not recording:
        click.echo(f'Say "{one_line(word)}" {wanted} times, with a pause after each. Press Ctrl-C to stop.', err=True)
    kept = refused = 0
    with closing(source):
        for take in _listen(source, TakeCutter(), shown):
            path = store.keep(take) if take.refused is None else None
            kept, refused = kept + (path is not None), refused + (path is None)
            _tell(take, path, kept, wanted, as_json)
            if kept == wanted:
                break
    if not as_json:
        told = "" if kept or refused else "; nothing was louder than the noise for as long as a word"
        click.echo(
            f"{counted(kept, 'take')} of {word!r} in {one_line(store.folder)}, {refused} refused{told}", err=True
        )
    if kept == 0 or (wanted is not None and kept < wanted):
        sys.exit(1)


def _source(recording: str | None, device: int | str | None, channel: "Channel | None") -> "AudioSource":
    if recording:
        from kws_edge.audio.sources import WavFile

        return WavFile(recording, channel=channel)
    from kws_edge.audio.microphone import Microphone

    return Microphone(device, channel=channel)


def _listen(source: "AudioSource", cutter: "TakeCutter", shown: bool) -> Iterator["Take"]:
    """The takes of a source, with the meter while they come."""
    for block in source:
        found = [*(cutter.gap(block.dropped) if block.dropped else ()), *cutter.push(block.samples)]
        if shown:
            click.echo(f"\r\x1b[K{_meter(cutter)}", nl=False, err=True)
        for take in found:
            if shown:
                click.echo("\r\x1b[K", nl=False, err=True)
            yield take
    yield from cutter.finish()


def _meter(cutter: "TakeCutter") -> str:
    full = round(min(max(1 - cutter.level / _QUIETEST, 0), 1) * _WIDTH)
    bar = click.style("█" * full, "red" if cutter.level > -3 else "green") + "·" * (_WIDTH - full)
    return f"{bar} {cutter.level:6.1f} dBFS {'●' if cutter.speaking else ' '}"


def _tell(take: "Take", path: Path | None, kept: int, wanted: int | None, as_json: bool) -> None:
    seconds = len(take.samples) / 16_000
    if as_json:
        values = {"file": None if path is None else str(path), "refused": take.refused, "start": take.start}
        click.echo(json.dumps({**values, "seconds": seconds}))
    elif path:
        count = f"{kept}/{wanted}" if wanted else f"{kept}"
        click.echo(f"{click.style(count, 'green')} {path.name}  {seconds:.2f} s, at {take.start:.1f} s")
    else:
        click.echo(f"{click.style('refused', 'yellow')} at {take.start:.1f} s: {take.refused}")


class _Store:
    """The folder of a word's takes."""

    def __init__(self, folder: Path, word: str, speaker: str | None) -> None:
        """Make it; raises SettingError for a word or speaker that no file can be named for, or where it cannot be."""
        name = folder_name(word.casefold())
        if not name:
            raise SettingError(f"word {word!r}; expected letters or digits")
        if speaker is not None and not re.fullmatch(r"[^\W_]+", speaker):
            raise SettingError(f"--speaker {speaker!r}; expected only letters and digits, such as anna")
        self.folder = folder / name
        self._speaker = speaker or hashlib.sha256(f"{_user()}@{platform.node()}".encode()).hexdigest()[:8]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingError(f"{self.folder}: {error.strerror}; expected a folder to write takes into") from None

    def keep(self, take: "Take") -> Path:
        """Write a take under the next free number."""
        from kws_edge.audio.wav import as_wav

        sound = as_wav(take.samples)
        try:
            numbers = [
                int(match[1])
                for path in self.folder.iterdir()
                if (match := re.fullmatch(rf"{re.escape(self._speaker)}_nohash_(\d{{1,18}})", path.stem))
            ]
            return add_file(
                lambda number: self.folder / f"{self._speaker}_nohash_{number}.wav",
                max(numbers, default=-1) + 1,
                sound,
            )
        except OSError as error:
            raise AudioError(f"{self.folder}: {error.strerror}; expected a folder with room for takes") from None


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # as in a container without a name for its user
        return ""
