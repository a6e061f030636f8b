"""Where a stream comes from: each source is an iterable of blocks, mono at 16 kHz.

`WavFile` and `StandardInput` are here, `kws_edge.audio.microphone` has the microphone.
"""

import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

import numpy as np
import soxr

from kws_edge.arrays import F32
from kws_edge.audio.decode import MAX_RATE, MIN_RATE
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.load import Source, read_blocks
from kws_edge.errors import AudioError, SettingError

BLOCK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A stretch of a stream.

    Attributes
    ----------
    samples : float32 [n], mono at 16 kHz, full scale ±1.
    dropped : samples at 16 kHz that were lost just before; what comes after a loss must not be joined to what came
        before it, so a loss of unknown length is given as 1.

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
    """A recording of any format that `audio.load` reads, in blocks, in bounded memory.

    Examples
    --------
    >>> from kws_edge import WavFile
    >>> sum(len(block.samples) for block in WavFile("kws_edge/samples/yes.flac")) / 16000  # seconds
    1.0
    """

    def __init__(self, source: Source, *, realtime: bool = False) -> None:
        """Read a file; `realtime` hands each block over no earlier than a microphone would."""
        self._source, self._realtime, self._closed = source, realtime, False

    def __iter__(self) -> Iterator[Block]:
        """The blocks, from the start of the file.

        Raises
        ------
        AudioError, SettingError : as `audio.read_blocks` does.
        """
        start, position = time.monotonic(), 0.0
        for samples in read_blocks(self._source, BLOCK_SECONDS):
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

    A WAV header in front of it, as `arecord` writes without `-t raw`, is read and left out.

    Examples
    --------
    >>> import io
    >>> from kws_edge import StandardInput
    >>> pipe = io.BytesIO(bytes(2 * 16000))  # a second of 16-bit silence; sys.stdin.buffer where none is given
    >>> len(list(StandardInput(rate=16000, stream=pipe)))
    10
    """

    def __init__(self, rate: int = SAMPLE_RATE, stream: BinaryIO | None = None) -> None:
        """Read samples of so many Hz, from standard input unless another stream is given.

        Raises
        ------
        SettingError : a rate outside `MIN_RATE` to `MAX_RATE`.
        """
        if isinstance(rate, bool) or not isinstance(rate, int) or not MIN_RATE <= rate <= MAX_RATE:
            raise SettingError(f"rate={rate!r} Hz; expected a whole number from {MIN_RATE} to {MAX_RATE}")
        self._rate, self._stream, self._closed = rate, stream or sys.stdin.buffer, False

    def __iter__(self) -> Iterator[Block]:
        """The blocks, as they come, each up to `BLOCK_SECONDS`. An odd byte at the end is left out.

        Raises
        ------
        AudioError : a WAV header that says anything else than 16 bits and one channel, or another kind of audio file.
        """
        head = self._read(12)
        if head.startswith(_FILES):
            raise AudioError(
                "standard input: an audio file, not raw PCM; expected 16-bit mono samples (arecord -t raw), "
                "or the file itself with --replay"
            )
        rate, carry = self._rate, head
        if head[:4] == b"RIFF" and head[8:] == b"WAVE":
            rate, carry = self._skip_header(), b""
        resample = soxr.ResampleStream(rate, SAMPLE_RATE, 1) if rate != SAMPLE_RATE else None
        size = 2 * round(BLOCK_SECONDS * rate)
        read1 = getattr(self._stream, "read1", self._stream.read)  # what is there, without waiting for more
        while not self._closed:
            more = read1(size)
            data = carry + more
            carry = data[len(data) // 2 * 2 :]
            samples = np.frombuffer(data[: len(data) - len(carry)], "<i2").astype(np.float32) / np.float32(32768)
            if resample:
                samples = resample.resample_chunk(samples, last=not more)
            if len(samples):
                yield Block(samples)
            if not more:
                return

    def close(self) -> None:
        """End the iteration when the next bytes come, or the pipe ends."""
        self._closed = True

    def _read(self, n: int) -> bytes:
        data = b""
        while len(data) < n and (more := self._stream.read(n - len(data))):
            data += more
        return data

    def _skip_header(self) -> int:
        """Read up to the first sample, and give the rate."""
        rate = 0
        while True:
            chunk, size = struct.unpack("<4sI", self._read(8).ljust(8, b"\0"))
            if chunk == b"data" and rate:
                return rate
            body = self._read(min(size, 1 << 16))
            if not chunk.strip(b"\0") or chunk == b"data" or size > 1 << 16 or (chunk == b"fmt " and len(body) < 16):
                raise AudioError("standard input: a damaged WAV header; expected raw PCM (arecord -t raw)")
            if chunk == b"fmt ":
                tag, channels, rate = struct.unpack_from("<HHI", body)
                bits = struct.unpack_from("<H", body, 14)[0]
                if (channels, bits) != (1, 16) or tag not in (1, 0xFFFE) or not MIN_RATE <= rate <= MAX_RATE:
                    raise AudioError(
                        f"standard input: {channels} channels of {bits} bits at {rate} Hz; expected 16-bit mono "
                        "(arecord -f S16_LE -r 16000 -c 1 -t raw)"
                    )
