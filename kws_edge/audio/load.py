"""Sound in: a file, bytes or an array becomes mono float32 at 16 kHz, with typed errors and measured levels.

libsndfile decodes (decode.py) and soxr resamples. Everything is decoded in pieces until the data end, so no length
that a header claims is ever allocated, and `load` and `read_blocks` give the same samples.

Policies
--------
Full scale is ±1. Integers are divided by 2**(bits - 1); unsigned 8-bit has its zero at 128. Floating-point samples
beyond ±1 are kept as they are (`Level.clipped` counts them), up to `MAX_PEAK`, above which they are taken for integers
that somebody forgot to scale, and refused.

Channels are averaged, leaving out those that are silent from start to end by the rule of `Level.is_silent`: a word
that is in one of two channels keeps its level. A noisy second channel is averaged in, and channels of opposite
polarity cancel.

n samples at rate r become n * 16000 / r samples, rounded to the nearest, with the first at time 0. The filter of soxr's
HQ setting passes up to 0.9 of the lower Nyquist frequency and removes what would alias.
"""

import contextlib
import io
import logging
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32
from kws_edge.audio.decode import MAX_CHANNELS, MAX_RATE, MIN_RATE, PIECE, open_file
from kws_edge.audio.level import SAMPLE_RATE, SILENCE_PEAK
from kws_edge.errors import AudioError, SettingError, TooMuchAudioError

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | npt.NDArray[Any]

MAX_PEAK = 16.0  # 24 dB over full scale
EXTENSIONS = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aif", ".aiff", ".aifc", ".au", ".snd", ".caf")
MAX_SECONDS = 600.0  # of one `load`: 38 MB of samples, however few compressed bytes they came from


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
    source: Source, rate: int | None = None, *, max_seconds: float = MAX_SECONDS, max_samples: float = np.inf
) -> Audio:
    """Decode a whole clip.

    Parameters
    ----------
    source : a path, the bytes of a file, a seekable binary file (read from its start, left open), or an array [n] or
        [n, channels] of int16, int32, uint8 or floating point.
    rate : sample rate of an array in Hz; a file says its own.
    max_seconds, max_samples : the longest clip, and the most samples of all channels together, that are decoded. A
        header that announces more is refused before anything is, and decoding ends where there is more than it says.

    Returns
    -------
    Audio : for its length, down-mix and scaling see the policies of this module. A file whose data end before its
        header says is decoded as far as it goes, with a warning, unless its codec notices (FLAC) and it is refused.

    Raises
    ------
    AudioError : the source cannot be read or is not audio in a supported format; it has no samples, NaN or infinite
        samples, a rate outside `MIN_RATE` to `MAX_RATE`, more than `MAX_CHANNELS` channels, or more than
        `max_seconds` (for which there is `read_blocks`) or `max_samples`, a TooMuchAudioError.
    SettingError : an array without a rate, or a file with one.
    """
    with _open(source, rate, max_seconds, max_samples) as opened:
        samples = np.concatenate(list(_mono(opened)))
        return Audio(samples, opened.rate, opened.channels, tuple(opened.warnings))


def read_blocks(source: Source, seconds: float = 10.0, rate: int | None = None) -> Iterator[F32]:
    """Decode a source of any length in bounded memory: the samples of `load`, a block at a time.

    A source of several channels is decoded twice, first to find the silent ones. Warnings go to the log.

    Parameters
    ----------
    source, rate : as for `load`.
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
    return _read_blocks(source, round(seconds * SAMPLE_RATE), rate)


def _read_blocks(source: Source, size: int, rate: int | None) -> Iterator[F32]:
    with _open(source, rate) as opened:
        pending, ready = [], 0
        for piece in _mono(opened):
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


@dataclass(slots=True)
class _Opened:
    """A source that is ready to be decoded, from the start, as often as needed."""

    name: str
    rate: int
    channels: int
    announced: int  # samples of each channel, as far as the header says; 0 where it does not
    pieces: Callable[[], Iterator[F32]]  # each [m, channels], m ≥ 1
    warnings: list[str]
    max_seconds: float = np.inf
    max_samples: float = np.inf  # of all channels together

    def __post_init__(self) -> None:
        if not MIN_RATE <= self.rate <= MAX_RATE:
            raise AudioError(f"{self.name}: sample rate of {self.rate} Hz; expected {MIN_RATE} to {MAX_RATE} Hz")
        if not 1 <= self.channels <= MAX_CHANNELS:
            raise AudioError(f"{self.name}: {self.channels} channels; expected 1 to {MAX_CHANNELS}")
        self._check(self.announced)

    def _check(self, frames: int) -> None:
        """Raise a TooMuchAudioError where a clip of so many samples in each channel is more than wanted."""
        length = f"{self.name}: {frames / self.rate:.1f} s or more"
        if frames > self.max_seconds * self.rate:
            raise TooMuchAudioError(
                f"{length} of audio; expected at most {self.max_seconds:g} s for one clip: cut it, or stream it, as "
                "read_blocks and a server's stream do"
            )
        if frames * self.channels > self.max_samples:
            raise TooMuchAudioError(
                f"{length} at {self.rate} Hz in {self.channels} channels; expected at most {self.max_samples:g} "
                f"samples in all: resample it to {SAMPLE_RATE} Hz, or mix it down"
            )

    def frames(self) -> Iterator[F32]:
        """The pieces, checked: finite, of a plausible scale, no more than wanted, and some."""
        count = 0
        for piece in self.pieces():
            peak = max(piece.max(), -piece.min())
            if not np.isfinite(peak):
                raise AudioError(f"{self.name}: samples that are NaN or infinite; expected finite numbers")
            if peak > MAX_PEAK:
                raise AudioError(
                    f"{self.name}: floating-point samples of up to {peak:g}; expected a full scale of ±1 (at most "
                    f"{MAX_PEAK:g}): divide integers by 2**(bits - 1)"
                )
            count += len(piece)
            self._check(count)
            yield piece
        if not count:
            raise AudioError(f"{self.name}: no samples; expected at least one")


def _mono(opened: _Opened) -> Iterator[F32]:
    """Down-mix and resample."""
    keep = _sounding_channels(opened) if opened.channels > 1 else [0]
    stream = None
    if opened.rate != SAMPLE_RATE:
        import soxr

        stream = soxr.ResampleStream(opened.rate, SAMPLE_RATE, 1)
    count = 0
    for frames in opened.frames():
        mono = frames[:, keep].mean(axis=1)
        if stream:
            mono = stream.resample_chunk(mono)
        count += len(mono)
        yield mono
    if stream:
        rest = stream.resample_chunk(np.empty(0, np.float32), last=True)
        count += len(rest)
        yield rest
    if not count:
        raise AudioError(f"{opened.name}: too short to be resampled from {opened.rate} Hz; nothing is left at 16 kHz")


def _sounding_channels(opened: _Opened) -> list[int]:
    """The channels that are not silent from start to end; all where all are silent."""
    low, high = np.full(opened.channels, np.inf), np.full(opened.channels, -np.inf)
    for frames in opened.frames():
        low, high = np.minimum(low, frames.min(axis=0)), np.maximum(high, frames.max(axis=0))
    sounding = np.flatnonzero((high - low) / 2 >= SILENCE_PEAK)
    return list(sounding) if len(sounding) else list(range(opened.channels))


@contextlib.contextmanager
def _open(source: Source, rate: int | None, *limits: float) -> Iterator[_Opened]:
    if isinstance(source, np.ndarray):
        yield _open_array(source, rate, *limits)
        return
    if rate is not None:
        raise SettingError(f"rate={rate} for a file, which says its own; expected a rate with an array only")
    if isinstance(source, bytes | bytearray | memoryview):
        yield _of_file(io.BytesIO(source), "bytes", *limits)
    elif isinstance(source, str | os.PathLike):
        with _open_path(source) as file:
            yield _of_file(file, os.fspath(source), *limits)
    elif hasattr(source, "read") and hasattr(source, "seek"):
        name = getattr(source, "name", None)
        yield _of_file(source, name if isinstance(name, str) else "file object", *limits)
    else:
        raise AudioError(f"audio of type {type(source).__name__}; expected a path, bytes, a binary file or an array")


def _of_file(file: BinaryIO, name: str, *limits: float) -> _Opened:
    return _Opened(name, *open_file(file, name), *limits)


_SCALES = {"uint8": (128, 2**7), "int16": (0, 2**15), "int32": (0, 2**31)}  # dtype: zero, full scale
_SCALES |= {"float16": (0, 1), "float32": (0, 1), "float64": (0, 1)}


def _open_array(samples: npt.NDArray[Any], rate: int | None, *limits: float) -> _Opened:
    if rate is None:
        raise SettingError("an array of samples without its rate; expected rate= in Hz")
    if samples.ndim not in (1, 2):
        raise AudioError(f"array of shape {samples.shape}; expected [n] or [n, channels]")
    if samples.dtype.name not in _SCALES:
        raise AudioError(f"array of {samples.dtype}; expected one of {', '.join(_SCALES)}")
    zero, scale = _SCALES[samples.dtype.name]
    frames = samples[:, np.newaxis] if samples.ndim == 1 else samples

    def pieces() -> Iterator[F32]:
        for i in range(0, len(frames), PIECE):
            piece = frames[i : i + PIECE]
            with np.errstate(over="ignore"):  # a float64 too large becomes infinite, and is refused as such
                scaled = ((piece.astype(np.float64) - zero) / scale).astype(np.float32)
            yield scaled  # outside, or the caller's own warnings would be ignored meanwhile

    return _Opened("array", rate, frames.shape[1], len(frames), pieces, [], *limits)


def _open_path(path: str | os.PathLike[str]) -> BinaryIO:
    try:
        if stat.S_ISREG(os.stat(path).st_mode):  # opening a named pipe would wait for its writer
            return open(path, "rb")
        problem = "a directory, pipe or device"
    except (OSError, ValueError) as e:
        problem = getattr(e, "strerror", None) or str(e)
    raise AudioError(f"{os.fspath(path)}: {problem}; expected a readable file")
