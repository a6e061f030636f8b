"""`kws-edge record`: takes of a word, for a model of one's own."""

import getpass
import hashlib
import io
import json
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kws_edge.cli.channel import channel_option
from kws_edge.errors import AudioError, SettingError
from kws_edge.files import add_file

if TYPE_CHECKING:
    from kws_edge.audio.channels import Channel
    from kws_edge.audio.sources import AudioSource
    from kws_edge.audio.takes import Take, TakeCutter

_QUIETEST: Final = -70.0  # dBFS, the left end of the meter
_WIDTH: Final = 30  # of the meter, in characters


@click.command()
@click.argument("word", metavar="WORD")
@click.option(
    "--into",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="FOLDER",
    help="Where the takes go: FOLDER/WORD/SPEAKER_nohash_N.wav.",
)
@click.option(
    "--takes", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many good ones to keep."
)
@click.option(
    "--from", "recording", metavar="FILE", help="A recording of the word, again and again, cut at its pauses."
)
@click.option(
    "--speaker", metavar="NAME", help="Who speaks, in letters and digits  [default: a code for this user here]"
)
@click.option("--device", metavar="NUMBER|NAME", help="Which microphone; `kws-edge devices` lists them.")
@channel_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each take, for scripts.")
def record(
    word: str,
    folder: Path,
    takes: int,
    recording: str | None,
    speaker: str | None,
    device: str | None,
    channel: "Channel | None",
    as_json: bool,
) -> None:
    """Record takes of WORD, which may be several words, for `kws-edge enroll` or `kws-export wake`.

    Say it, wait for the line, say it again: nearer and farther, faster and slower, as you will say it later. Each take
    is cut out at the pauses around it, and kept where it is neither clipped, too quiet, too short nor too long; a meter
    shows the level. Takes are added to those that are there. Nothing else of the sound is kept.

    \b
    kws-edge record "hey lamp" --into my_words
    kws-edge record "hey lamp" --into my_words --from long.wav
    kws-edge enroll "hey lamp" my_words/hey_lamp/*.wav --out lamp.onnx
    kws-export wake "hey lamp" --recordings my_words --negatives negatives.npz --out lamp.onnx

    Exit status: 0 as many takes as were asked for, or all that --from holds; 1 fewer came, or none was good enough;
    2 wrong usage, or a microphone, recording or folder that cannot be used; 130 interrupted, with what was kept.
    """
    from kws_edge.audio.takes import TakeCutter

    if device is not None and recording:
        raise click.UsageError("--device is for microphones; expected no --from beside it")
    store = _Store(folder, word, speaker)
    source = _source(recording, device, channel)
    shown = sys.stderr.isatty() and not as_json
    if shown and not recording:
        click.echo(f'Say "{word}" {takes} times, with a pause after each. Ctrl-C ends it.', err=True)
    kept = refused = 0
    with closing(source):
        for take in _listen(source, TakeCutter(), shown):
            path = store.keep(take) if take.refused is None else None
            kept, refused = kept + (path is not None), refused + (path is None)
            _tell(take, path, kept, takes, as_json)
            if kept == takes:
                break
    if not as_json:
        click.echo(f"{kept} takes of {word!r} in {store.folder}, {refused} refused", err=True)
    if kept == 0 or (kept < takes and not recording):
        sys.exit(1)


def _source(recording: str | None, device: str | None, channel: "Channel | None") -> "AudioSource":
    if recording:
        from kws_edge.audio.sources import WavFile

        return WavFile(recording, channel=channel)
    from kws_edge.audio.microphone import Microphone

    return Microphone(int(device) if device and device.isdecimal() else device, channel=channel)


def _listen(source: "AudioSource", cutter: "TakeCutter", shown: bool) -> Iterator["Take"]:
    """The takes of a source, with the meter while they come."""
    for block in source:
        found = cutter.push(block.samples)
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


def _tell(take: "Take", path: Path | None, kept: int, takes: int, as_json: bool) -> None:
    seconds = len(take.samples) / 16_000
    if as_json:
        values = {"file": None if path is None else str(path), "refused": take.refused, "start": take.start}
        click.echo(json.dumps({**values, "seconds": seconds}))
    elif path:
        click.echo(f"{click.style(f'{kept}/{takes}', 'green')} {path.name}  {seconds:.2f} s, at {take.start:.1f} s")
    else:
        click.echo(f"{click.style('refused', 'yellow')} at {take.start:.1f} s: {take.refused}")


class _Store:
    """The folder of a word's takes."""

    def __init__(self, folder: Path, word: str, speaker: str | None) -> None:
        """Make it; raises SettingError for a word or speaker that no file can be named for, or where it cannot be."""
        name = "_".join(re.findall(r"[^\W_]+", word.casefold()))
        if not name:
            raise SettingError(f"word {word!r}; expected letters or digits")
        if speaker is not None and not re.fullmatch(r"[^\W_]+", speaker):
            raise SettingError(f"--speaker {speaker!r}; expected letters and digits alone, as anna")
        self.folder = folder / name
        self._speaker = speaker or hashlib.sha256(f"{_user()}@{platform.node()}".encode()).hexdigest()[:8]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingError(f"{self.folder}: {error.strerror}; expected a folder to write takes into") from None

    def keep(self, take: "Take") -> Path:
        """Write a take under the next free number."""
        import soundfile

        sound = io.BytesIO()
        soundfile.write(sound, take.samples, 16_000, format="WAV", subtype="PCM_16")
        try:
            numbers = [
                int(match[1])
                for path in self.folder.iterdir()
                if (match := re.fullmatch(rf"{re.escape(self._speaker)}_nohash_(\d{{1,18}})", path.stem))
            ]
            return add_file(
                lambda number: self.folder / f"{self._speaker}_nohash_{number}.wav",
                max(numbers, default=-1) + 1,
                sound.getvalue(),
            )
        except OSError as error:
            raise AudioError(f"{self.folder}: {error.strerror}; expected a folder with room for takes") from None


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # as in a container without a name for its user
        return ""
