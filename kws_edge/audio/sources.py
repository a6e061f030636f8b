"""Where a stream comes from: each source is an iterable of blocks, mono at 16 kHz.

`WavFile` and `StandardInput` are here, `kws_edge.audio.microphone` has the microphone.
"""

import io
import logging
import math
import os
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.channels import Channel, DownMix, check_channel
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import read_blocks
from kws_edge.audio.mute import MuteWatch
from kws_edge.audio.opened import Source
from kws_edge.audio.pcm import as_float
from kws_edge.audio.resample import MAX_RATE, MIN_RATE, Resampler
from kws_edge.audio.riff import MAX_CHANNELS, NO_SIZE, chunks
from kws_edge.errors import AudioError, SettingError
from kws_edge.files import make_blocking

BLOCK_SECONDS: Final = 0.1
CHANNEL_MEMORY: Final = 2.0
"""Seconds over which a live source's channels are compared."""


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A stretch of a stream.

    Attributes
    ----------
    samples : float32 [n], mono at 16 kHz, full scale ±1.
    dropped : samples at 16 kHz that were lost just before this block. Sound must not be joined across a loss, so a loss
        of unknown length counts as 1.

    Examples
    --------
    >>> import numpy as np
    >>> from kws_edge import Block
    >>> Block(np.zeros(1600, np.float32), dropped=800).dropped  # 0.05 s were lost before these 0.1 s
    800
    """

    samples: F32
    dropped: int = 0


class AudioSource(Protocol):
    """What `Spotter.listen` takes. Iterating yields blocks until the source ends; `close` ends it from any thread."""

    def __iter__(self) -> Iterator[Block]:
        """The blocks, in order."""

    def close(self) -> None:
        """Release what the source holds; iterating it then ends."""


class WavFile:
    """A recording of any format that `KeywordModel.classify` reads, in blocks, in bounded memory.

    Examples
    --------
    >>> from kws_edge import WavFile
    >>> sum(len(block.samples) for block in WavFile("kws_edge/samples/yes.flac")) / 16000  # seconds
    1.0
    """

    def __init__(self, source: Source, *, realtime: bool = False, channel: Channel | None = None) -> None:
        """Read a file.

        Parameters
        ----------
        source : a path, the bytes of a file, or a seekable binary file.
        realtime : hand each block over no earlier than a microphone would.
        channel : as for `Microphone`.

        Raises
        ------
        SettingError : an impossible channel.
        """
        check_channel(channel)
        self._source, self._realtime, self._channel, self._closed = source, realtime, channel, False
        name = os.fspath(source) if isinstance(source, str | os.PathLike) else "the recording"
        self._mute = MuteWatch(name, "it is digitally silent")

    @property
    def problem(self) -> str | None:
        """What is wrong at the moment, in words; None where all is well."""
        return self._mute.problem

    def __iter__(self) -> Iterator[Block]:
        """The blocks, from the start of the file, also after a `close`.

        Raises
        ------
        AudioError, SettingError : as `audio.read_blocks` does.
        """
        self._closed = False  # here and not at the first block, so that a `close` between the two counts
        return self._blocks()

    def _blocks(self) -> Iterator[Block]:
        start, position = time.monotonic(), 0.0
        for samples in read_blocks(self._source, BLOCK_SECONDS, channel=self._channel):
            self._mute.add(len(samples) / SAMPLE_RATE, zeros=not samples.any())
            position += len(samples) / SAMPLE_RATE
            if self._realtime:
                time.sleep(max(0.0, start + position - time.monotonic()))
            if self._closed:
                return
            yield Block(samples)

    def close(self) -> None:
        """End the iteration at the next block."""
        self._closed = True


_FILES = (b"fLaC", b"OggS", b"RF64", b"caff")
"""How files that are no raw PCM begin: four bytes that two samples hardly ever are."""


class StandardInput:
    """Raw PCM from a pipe: 16-bit little-endian, mono.

    A WAV header in front of it, as `arecord` writes without `-t raw`, is read and left out; it may say another rate,
    and several channels, which become one (`channel`). Where it says how many bytes of samples there are, what
    follows them is no sound.

    Examples
    --------
    >>> import io
    >>> from kws_edge import StandardInput
    >>> pipe = io.BytesIO(bytes(2 * 16000))  # a second of 16-bit silence; sys.stdin.buffer where none is given
    >>> len(list(StandardInput(rate=16000, stream=pipe)))
    10
    """

    def __init__(
        self, rate: int = SAMPLE_RATE, stream: BinaryIO | None = None, *, channel: Channel | None = None
    ) -> None:
        """Read samples from a pipe.

        Parameters
        ----------
        rate : sample rate in Hz, 4,000 to 192,000; a WAV header replaces it.
        stream : a binary file; None for standard input.
        channel : as for `Microphone`.

        Raises
        ------
        SettingError : a rate out of its range, an impossible channel, or a stream that is text or none.
        """
        if isinstance(rate, bool) or not isinstance(rate, int) or not MIN_RATE <= rate <= MAX_RATE:
            raise SettingError(f"rate={rate!r} Hz; expected a whole number from {MIN_RATE} to {MAX_RATE}")
        check_channel(channel)
        if stream is None and sys.stdin is None:
            raise SettingError("standard input is closed; expected samples in it, or another stream")
        stream = sys.stdin.buffer if stream is None else stream
        if not hasattr(stream, "read") or isinstance(stream, io.TextIOBase):
            raise SettingError(
                f"stream of type {type(stream).__name__}; expected a binary one, such as sys.stdin.buffer or "
                'open(path, "rb")'
            )
        self._rate, self._stream, self._channel, self._closed = rate, stream, channel, False
        self._mute = MuteWatch("standard input", "what writes to it is muted, or may not record")
        self._down_mix = DownMix(1)

    @property
    def problem(self) -> str | None:
        """What is wrong at the moment, in words; None where all is well."""
        return self._mute.problem or self._down_mix.warning()

    def __iter__(self) -> Iterator[Block]:
        """The blocks, as they come, each up to `BLOCK_SECONDS`, and the first a few samples more.

        An incomplete sample at the end is left out.

        Raises
        ------
        AudioError : a WAV header that says anything else than 16 bits and 1 to `MAX_CHANNELS` channels, another kind of
            audio file, or fewer channels than the one that is wanted.
        """
        make_blocking(self._stream)
        head = self._read(12)
        if head.startswith(_FILES):
            raise AudioError(
                "standard input: an audio file, not raw PCM; expected 16-bit mono samples (arecord -t raw), "
                "or the file itself with --replay"
            )
        rate, channels, carry, left = self._rate, 1, head, math.inf
        if head[:4] == b"RIFF" and head[8:] == b"WAVE":
            (rate, channels, left), carry = self._skip_header(), b""
        if isinstance(self._channel, int) and self._channel > channels:
            raise AudioError(f"standard input: channel {self._channel} of {channels}; expected 1 to {channels}")
        self._down_mix = DownMix(channels, self._channel, memory=CHANNEL_MEMORY * rate)
        resampler, width, told = Resampler(rate), 2 * channels, False
        size = width * round(BLOCK_SECONDS * rate)
        read1 = getattr(self._stream, "read1", self._stream.read)  # what is there, without waiting for more
        while not self._closed:
            more = read1(int(min(size, left)))
            left -= len(more)
            data = carry + more
            carry = data[len(data) // width * width :]
            frames = as_float(np.frombuffer(data[: len(data) - len(carry)], "<i2").reshape(-1, channels))
            if len(frames):
                self._mute.add(len(frames) / rate, zeros=not frames.any())
                self._down_mix.add(frames)
                samples = resampler.push(self._down_mix.mix(frames))
                if len(samples):
                    yield Block(samples)
            if not told and (warning := self._down_mix.warning()):
                _log.warning("standard input: %s", warning)
                told = True
            if not more:
                break
        if len(rest := resampler.finish()) and not self._closed:
            yield Block(rest)

    def close(self) -> None:
        """End the iteration when the next bytes come, or the pipe ends."""
        self._closed = True

    def _read(self, n: int) -> bytes:
        data = b""
        while len(data) < n and (more := self._stream.read(n - len(data))):
            data += more
        return data

    def _skip_header(self) -> tuple[int, int, float]:
        """Read up to the first sample: the rate, the number of channels, and the bytes of samples, inf if not known."""
        rate = channels = 0
        at = 12

        def read(position: int, n: int) -> bytes:
            nonlocal at
            self._read(position - at)  # a pipe only goes forward
            data = self._read(n)
            at = position + len(data)
            return data

        for chunk, start, size in chunks(read, "little"):
            if chunk == b"data" and rate:
                return rate, channels, size if 0 < size < NO_SIZE else math.inf
            if not chunk.strip(b"\0") or chunk == b"data" or size > 1 << 16:
                break
            if chunk == b"fmt ":
                body = read(start + 4, min(size, 16))
                if len(body) < 16:
                    break
                tag, channels, rate = struct.unpack_from("<HHI", body)
                bits = struct.unpack_from("<H", body, 14)[0]
                known = tag in (1, 0xFFFE) and bits == 16 and 1 <= channels <= MAX_CHANNELS
                if not known or not MIN_RATE <= rate <= MAX_RATE:
                    raise AudioError(
                        f"standard input: {channels} channels of {bits} bits at {rate} Hz; expected 16-bit samples "
                        f"(arecord -f S16_LE -r 16000 -c 1 -t raw), in 1 to {MAX_CHANNELS} channels"
                    )
        raise AudioError("standard input: a damaged WAV header; expected raw PCM (arecord -t raw)")
