"""Open any source of sound (path, bytes, file object or array) and read its frames in pieces.

Everything is decoded until the data end, so no length that a header claims is ever allocated. Floating-point samples
beyond ±1 are kept as they are (`Level.clipped` counts them), up to `pcm.MAX_PEAK`.
"""

import contextlib
import io
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32
from kws_edge.audio import pcm
from kws_edge.audio.decode import PIECE, open_file
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.resample import MAX_RATE, MIN_RATE
from kws_edge.audio.riff import MAX_CHANNELS
from kws_edge.errors import AudioError, SettingError, TooMuchAudioError

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | npt.NDArray[Any]


@dataclass(slots=True)
class Opened:
    """A source that is ready to be decoded, from the start, as often as needed.

    Attributes
    ----------
    name : for messages.
    pieces : float32 [m, channels] each, m at least 1, unchecked; see `frames`.
    warnings : a line for each thing wrong that does not stop it; grows while it is decoded.
    announced : samples of each channel, as far as a header says; 0 where it does not.
    max_seconds, max_samples : the longest, and the most samples of all channels together, that are wanted.
    kind : the type of an array; "" for a file.
    """

    name: str
    rate: int
    channels: int
    announced: int
    pieces: Callable[[], Iterator[F32]]
    warnings: list[str]
    max_seconds: float = np.inf
    max_samples: float = np.inf
    kind: str = ""

    def __post_init__(self) -> None:
        """Refuse an impossible rate or number of channels."""
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
        """The pieces, checked: finite, of a plausible scale, no more than wanted, and some; else AudioError."""
        count, loudest = 0, 0.0
        for piece in self.pieces():
            peak = max(piece.max(), -piece.min())
            if not np.isfinite(peak):
                raise AudioError(f"{self.name}: samples that are NaN or infinite; expected finite numbers")
            if peak > pcm.MAX_PEAK:
                raise AudioError(
                    f"{self.name}: floating-point samples of up to {peak:g}; expected a full scale of ±1 (at most "
                    f"{pcm.MAX_PEAK:g}): divide integers by 2**(bits - 1)"
                )
            count, loudest = count + len(piece), max(loudest, float(peak))
            self._check(count)
            yield piece
        if not count:
            raise AudioError(f"{self.name}: no samples; expected at least one")
        mistake = pcm.mistaken_scale(self.kind, loudest)
        if mistake and mistake not in self.warnings:
            self.warnings.append(mistake)


@contextlib.contextmanager
def open_source(
    source: Source, rate: int | None, max_seconds: float = np.inf, max_samples: float = np.inf
) -> Iterator[Opened]:
    """Open what `load` takes, and close what was opened; limits and errors are those of `load`."""
    if isinstance(source, np.ndarray):
        samples = np.asarray(source) if isinstance(source, np.matrix) else source  # whose rows are matrices, too
        yield _open_array(samples, rate, max_seconds, max_samples)
        return
    if not (isinstance(source, str | os.PathLike | bytes | bytearray | memoryview) or _is_binary_file(source)):
        raise AudioError(f"audio of type {type(source).__name__}; expected a path, bytes, a binary file or an array")
    if rate is not None:
        raise SettingError(f"rate={rate} for a file, which has its own; expected a rate only with an array")
    if isinstance(source, bytes | bytearray | memoryview):
        yield _of_file(io.BytesIO(bytes(source)), "bytes", max_seconds, max_samples)
    elif isinstance(source, str | os.PathLike):
        with open_path(source) as file:
            yield _of_file(file, os.fspath(source), max_seconds, max_samples)
    else:
        name = getattr(source, "name", None)
        yield _of_file(source, name if isinstance(name, str) else "file object", max_seconds, max_samples)


def _is_binary_file(source: object) -> TypeGuard[BinaryIO]:
    return hasattr(source, "read") and hasattr(source, "seek")


def _of_file(file: BinaryIO, name: str, max_seconds: float, max_samples: float) -> Opened:
    return Opened(name, *open_file(file, name), max_seconds, max_samples)


def _open_array(samples: npt.NDArray[Any], rate: int | None, max_seconds: float, max_samples: float) -> Opened:
    if rate is None:
        raise SettingError("an array without a sample rate; expected rate= in Hz")
    if not isinstance(rate, int | float | np.integer | np.floating):
        raise SettingError(f"rate={rate!r} of an array; expected a number, in Hz")
    if samples.ndim not in (1, 2):
        raise AudioError(f"array of shape {samples.shape}; expected [n] or [n, channels]")
    pcm.check_type(samples)
    frames = samples[:, np.newaxis] if samples.ndim == 1 else samples

    def pieces() -> Iterator[F32]:
        for i in range(0, len(frames), PIECE):
            yield pcm.scaled(frames[i : i + PIECE])

    return Opened("array", rate, frames.shape[1], len(frames), pieces, [], max_seconds, max_samples, samples.dtype.name)


def open_path(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a recording by its path; raises AudioError where it is no file that can be read."""
    try:
        if stat.S_ISREG(os.stat(path).st_mode):  # opening a named pipe would wait for its writer
            return open(path, "rb")
        problem = "a directory, pipe or device"
    except (OSError, ValueError) as e:
        problem = getattr(e, "strerror", None) or str(e)
    raise AudioError(f"{os.fspath(path)}: {problem}; expected a readable file")
