"""Load a file, bytes or an array as mono float32 at 16 kHz.

Any channels become one as channels.py says, any rate 16 kHz as resample.py says, and integers full scale ±1 as pcm.py
says. `load` and `read_blocks` give the same samples.
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.channels import Channel, DownMix, check_channel
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.opened import Opened, Source, open_source
from kws_edge.audio.resample import Resampler
from kws_edge.errors import AudioError, SettingError

EXTENSIONS: Final = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aif", ".aiff", ".aifc", ".au", ".snd", ".caf")
MAX_SECONDS: Final = 600.0
"""Of one `load`: 38 MB of samples, however few compressed bytes they came from."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Audio:
    """A decoded clip.

    Attributes
    ----------
    samples : float32 [n], mono at 16 kHz, full scale ±1, n ≥ 1.
    source_rate : sample rate before resampling, Hz.
    source_channels : channels before the down-mix.
    warnings : one line each for what was wrong with the source and did not stop it from being decoded.
    """

    samples: F32
    source_rate: int
    source_channels: int
    warnings: tuple[str, ...] = ()


def is_audio(path: Path) -> bool:
    """Whether a file in a folder is a recording, by its name. "._x.wav", which macOS leaves beside x.wav, is none."""
    return path.suffix.lower() in EXTENSIONS and not path.name.startswith(".") and path.is_file()


def load(
    source: Source,
    rate: int | None = None,
    *,
    channel: Channel | None = None,
    max_seconds: float = MAX_SECONDS,
    max_samples: float = math.inf,
) -> Audio:
    """Decode a whole clip.

    Parameters
    ----------
    source : a path, the bytes of a file, a seekable binary file (read from its start, left open), or an array [n] or
        [n, channels] of int16, int32, uint8 or floating point.
    rate : sample rate of an array in Hz; a file says its own.
    channel : the number of a channel, the first being 1; "mix" for the average of those that sound; None for the
        average where the channels do not cancel each other, else the strongest.
    max_seconds, max_samples : the longest clip, and the most samples of all channels together, that are decoded. A
        header that announces more is refused before anything is, and decoding ends where there is more than it says.

    Returns
    -------
    Audio : n samples at rate r become n * 16000 / r, rounded. A file whose data end before its header says is decoded
        as far as it goes, with a warning, unless its codec notices (FLAC) and it is refused.

    Raises
    ------
    AudioError : the source cannot be read or is not audio in a supported format; it has no samples, NaN or infinite
        samples, a rate outside `MIN_RATE` to `MAX_RATE`, more than `MAX_CHANNELS` channels, fewer than `channel`, or
        more than `max_seconds` (for which there is `read_blocks`) or `max_samples`, a TooMuchAudioError.
    SettingError : an array without a rate, a file with one, or an impossible channel.
    """
    check_channel(channel)
    with open_source(source, rate, max_seconds, max_samples) as opened:
        samples = np.concatenate(list(_mono(opened, channel)))
        return Audio(samples, opened.rate, opened.channels, tuple(opened.warnings))


def read_blocks(
    source: Source, seconds: float = 10.0, rate: int | None = None, *, channel: Channel | None = None
) -> Iterator[F32]:
    """Decode a source of any length in bounded memory: the samples of `load`, a block at a time.

    A source of several channels is decoded twice, first to look at them, unless one is named. Warnings go to the log.

    Parameters
    ----------
    source, rate, channel : as for `load`.
    seconds : length of a block; its number of samples is rounded.

    Yields
    ------
    float32 [round(seconds * 16000)], the last block shorter where the samples do not divide evenly.

    Raises
    ------
    AudioError, SettingError : as `load` does, except that no length is too long; and for a `seconds` that is less than
        one sample. Where it is the data that are bad, blocks may have been given before.
    """
    if not seconds * SAMPLE_RATE >= 1:
        raise SettingError(f"blocks of {seconds} s; expected at least one sample, {1 / SAMPLE_RATE} s")
    check_channel(channel)
    return _read_blocks(source, round(seconds * SAMPLE_RATE), rate, channel)


def _read_blocks(source: Source, size: int, rate: int | None, channel: Channel | None) -> Iterator[F32]:
    with open_source(source, rate) as opened:
        pending, ready = [], 0
        for piece in _mono(opened, channel):
            pending.append(piece)
            ready += len(piece)
            if ready >= size:
                joined = np.concatenate(pending)
                ready %= size
                yield from joined[: len(joined) - ready].reshape(-1, size)
                pending = [joined[len(joined) - ready :]]
        if ready:
            yield np.concatenate(pending)
        for warning in opened.warnings:
            _log.warning("%s: %s", opened.name, warning)


def _mono(opened: Opened, channel: Channel | None) -> Iterator[F32]:
    """Down-mix and resample."""
    if isinstance(channel, int) and channel > opened.channels:
        raise AudioError(f"{opened.name}: channel {channel} of {opened.channels}; expected 1 to {opened.channels}")
    down_mix = DownMix(opened.channels, channel)
    if opened.channels > 1 and not isinstance(channel, int):
        for frames in opened.frames():
            down_mix.add(frames)
    resampler, count = Resampler(opened.rate), 0
    for frames in opened.frames():
        mono = resampler.push(down_mix.mix(frames))
        count += len(mono)
        yield mono
    rest = resampler.finish()
    if not count + len(rest):
        raise AudioError(f"{opened.name}: too short to be resampled from {opened.rate} Hz; nothing is left at 16 kHz")
    yield rest
    if warning := down_mix.warning():
        opened.warnings.append(warning)
