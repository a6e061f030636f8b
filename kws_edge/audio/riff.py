"""WAV headers: where the chunks are, which sizes were never filled in, and what is wrong with a format.

Source: Microsoft's RIFF and WAVE formats; ITU-R BS.2088 for RF64.
"""

from collections.abc import Callable, Iterator
from typing import Final, Literal

from kws_edge.audio.resample import MAX_RATE, MIN_RATE

MAX_CHANNELS: Final = 16
NO_SIZE: Final = 0x7FFF_0000
"""Sizes from here on are what writers to a pipe put where they cannot know the size."""

_LARGE_DATA = 28  # where RF64 has the size of its data, in the chunk that comes first
_NO_LARGE_SIZE = 1 << 63  # the same for sizes of eight bytes
_MAX_CHUNKS = 10_000  # of a file: each costs a read
_TAGS = {0x0042: "G.723.1", 0x0050: "MPEG layer 1 or 2", 0x00FF: "AAC", 0x0161: "WMA"}
_TAGS |= {0x0270: "ATRAC3", 0x2000: "AC-3", 0x2001: "DTS"}
_READABLE = {0x01, 0x02, 0x03, 0x06, 0x07, 0x11, 0x31, 0x55}
"""PCM, Microsoft ADPCM, float, A-law, µ-law, IMA ADPCM, GSM, MP3."""

ReadAt = Callable[[int, int], bytes]
"""(position, n) → the bytes of a file there, fewer at its end."""


def is_wav(head: bytes) -> bool:
    """Whether a file begins as WAV does, of either byte order."""
    return head[:4] in (b"RIFF", b"RIFX", b"RF64") and head[8:12] == b"WAVE"


def _order(head: bytes) -> Literal["big", "little"]:
    return "big" if head[:4] == b"RIFX" else "little"


def chunks(read: ReadAt, order: Literal["big", "little"], start: int = 12) -> Iterator[tuple[bytes, int, int]]:
    """Each chunk from `start` on: its name, where its size stands, and the size."""
    for _ in range(_MAX_CHUNKS):
        head = read(start, 8)
        if len(head) < 8:
            return
        size = int.from_bytes(head[4:], order)
        yield head[:4], start + 4, size
        start += 8 + size + size % 2


def unfinished_sizes(read: ReadAt, size: int) -> list[tuple[int, bytes]]:
    """What to write where in place of a data size that the writer of a WAV file never came back to fill in.

    In a finished file without samples, what follows are chunks, up to where the RIFF size says that the file ends.
    """
    head = read(0, 12)
    if not is_wav(head) or _order(head) == "big":
        return []
    for name, at, length in chunks(read, "little"):
        if name == b"data":
            start, large = at + 4, head[:4] == b"RF64"
            claimed = int.from_bytes(read(_LARGE_DATA, 8), "little") if large else length
            empty = not claimed and start < size and not _ends_in_chunks(read, start, size)
            if large and (empty or claimed > _NO_LARGE_SIZE):
                return [(_LARGE_DATA, (size - start).to_bytes(8, "little"))]
            return [(at, b"\xff\xff\xff\xff")] if empty and not large else []
    return []


def _ends_in_chunks(read: ReadAt, start: int, size: int) -> bool:
    """Whether everything from `start` to the file's end is chunks, with names as chunks have."""
    end = start
    for name, at, length in chunks(read, "little", start):
        if not all(0x20 <= byte < 0x7F for byte in name):
            return False
        end = at + 4 + length
    return size <= end <= size + 1 or end + end % 2 == size


def explain(read: ReadAt) -> str | None:
    """What is wrong with a WAV file's 'fmt ' chunk, as far as it shows there; None where nothing does."""
    order = _order(read(0, 12))
    for name, at, size in chunks(read, order):
        if name == b"fmt ":
            return _explain_format(read(at + 4, min(size, 40)), order)
    return None


def _explain_format(fmt: bytes, order: Literal["big", "little"]) -> str | None:
    if len(fmt) < 16:
        return f"'fmt ' chunk of {len(fmt)} bytes; expected at least 16"
    tag, channels, bits = (int.from_bytes(fmt[i : i + 2], order) for i in (0, 2, 14))
    rate = int.from_bytes(fmt[4:8], order)
    if tag == 0xFFFE:  # extensible: the tag is the start of the sub-format
        tag = int.from_bytes(fmt[24:26], order)
    widths = {1: (8, 16, 24, 32), 3: (32, 64)}.get(tag, (bits,))
    if tag not in _READABLE:
        codec = _TAGS.get(tag, "an unknown codec")
        problem = f"{codec} (WAVE format 0x{tag:04X}) is not supported; expected PCM, float, A-law, µ-law, ADPCM or GSM"
    elif not 1 <= channels <= MAX_CHANNELS:
        problem = f"{channels} channels; expected 1 to {MAX_CHANNELS}"
    elif not MIN_RATE <= rate <= MAX_RATE:
        problem = f"sample rate of {rate} Hz; expected {MIN_RATE} to {MAX_RATE} Hz"
    elif bits not in widths:
        problem = f"{bits} bits per sample; expected {', '.join(map(str, widths))}"
    else:
        return None
    return problem
