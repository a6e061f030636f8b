"""Correct Ogg pages of Opus whose positions contradict their packets.

A page says at which sample it ends, its granule position, and libsndfile 1.2 takes one that is before the end of the
packets decoded so far for damage. ffmpeg writes such positions where it makes them from rounded time stamps: now and
then a page's is some 10 ms early. Players go by the packets. So the pages are numbered anew from their packets before
libsndfile sees them. It also takes the rate before encoding, which a writer need not know, for the one to decode at.

Source: RFC 3533 (Ogg), RFC 6716 section 3.1 (the packet's first byte), RFC 7845 section 4 (granule positions).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from kws_edge.audio.resample import MAX_RATE, MIN_RATE
from kws_edge.audio.riff import ReadAt

_HEAD: Final = 27  # bytes of a page before its segment table
_FLAGS, _GRANULE, _SERIAL, _CRC, _SEGMENTS = 5, 6, 14, 22, 26
_FIRST, _LAST = 2, 4  # flags of a stream's first and last page
_NONE: Final = 2**64 - 1  # the position of a page on which no packet ends
_RATE: Final = 12  # where the rate before encoding stands in the first packet of Opus, a number of four bytes
_FULL_RATE: Final = 48_000  # at which all that Opus can hold is decoded


@dataclass(frozen=True, slots=True)
class _OggPage:
    """A page on which packets of sound end: where it is, its numbers, and the samples at 48 kHz of those packets."""

    at: int
    length: int
    crc: int
    granule: int
    samples: int
    last: bool

    def corrected(self, granule: int) -> Iterator[tuple[int, bytes]]:
        """The bytes to put in place for another position, and for the checksum that goes with it."""
        old, new = self.granule.to_bytes(8, "little"), granule.to_bytes(8, "little")
        return _replaced(self.at, self.length, self.crc, _GRANULE, old, new)


@dataclass(slots=True)
class _OggStream:
    packets: int = 0
    begun: bytes = b""  # the first two bytes of a packet that goes on in the next page
    pages: list[_OggPage] = field(default_factory=list)

    def take(self, at: int, head: bytes, sizes: bytes, body: bytes) -> None:
        samples, position = 0, 0
        for size in sizes:
            self.begun += body[position : position + size][: 2 - len(self.begun)]
            position += size
            if size < 255:  # the packet ends
                samples += duration(self.begun) if self.packets >= 2 else 0  # the first two are headers
                self.packets, self.begun = self.packets + 1, b""
        crc, granule = (int.from_bytes(head[i:j], "little") for i, j in ((_CRC, _SEGMENTS), (_GRANULE, _SERIAL)))
        if samples:
            length = len(head) + len(sizes) + len(body)
            self.pages.append(_OggPage(at, length, crc, granule, samples, bool(head[_FLAGS] & _LAST)))

    def contradicts_itself(self) -> bool:
        before = 0
        for page in self.pages:
            if page.granule == _NONE or (page.granule < before + page.samples and not page.last):
                return True
            before = page.granule
        return False

    def corrections(self) -> Iterator[tuple[int, bytes]]:
        ends = list(accumulate(page.samples for page in self.pages))
        offsets = [page.granule - end for page, end in zip(self.pages, ends, strict=True) if not page.last]
        offset = min(offsets, key=abs, default=0)  # of the whole stream, beside which some pages are off
        for page, end in zip(self.pages, ends, strict=True):
            cut = page.granule - offset  # the last page may cut samples off
            wanted = cut if page.last and end - page.samples < cut <= end else end
            if wanted != page.granule:
                yield from page.corrected(wanted)


def _replaced(page: int, length: int, crc: int, at: int, old: bytes, new: bytes) -> Iterator[tuple[int, bytes]]:
    """Other bytes at a place of a page, and the checksum that goes with them.

    The checksum is linear: it changes by that of the difference alone, so a damaged page stays damaged.
    """
    difference = bytes(a ^ b for a, b in zip(old, new, strict=True))
    changed = crc ^ _checksum(difference + bytes(length - at - len(old)))
    yield from sorted([(page + at, new), (page + _CRC, changed.to_bytes(4, "little"))])


def _rate(page: int, head: bytes, sizes: bytes, body: bytes) -> Iterator[tuple[int, bytes]]:
    """The full rate in place of one that says nothing, such as the 0 of a writer that does not know it.

    libsndfile would decode at 8 kHz, without what is above 4 kHz.
    """
    rate = body[_RATE : _RATE + 4]
    if body.startswith(b"OpusHead") and len(rate) == 4 and not MIN_RATE <= int.from_bytes(rate, "little") <= MAX_RATE:
        start, crc = len(head) + len(sizes), int.from_bytes(head[_CRC:_SEGMENTS], "little")
        yield from _replaced(page, start + len(body), crc, start + _RATE, rate, _FULL_RATE.to_bytes(4, "little"))


def is_opus(head: bytes) -> bool:
    """Whether a file begins as Ogg Opus does."""
    return head[:4] == b"OggS" and b"OpusHead" in head[:512]


def second_link(read: ReadAt) -> int:
    """Where another stream follows the first, as in what is kept of an internet radio; 0 where none does.

    Streams that belong together begin together, before any of them goes on.
    """
    at, begun = 0, False
    while (head := read(at, _HEAD))[:4] == b"OggS" and len(head) == _HEAD:
        first = bool(head[_FLAGS] & _FIRST)
        if first and begun:
            return at
        begun = begun or not first
        sizes = read(at + _HEAD, head[_SEGMENTS])
        at += _HEAD + len(sizes) + sum(sizes)
    return 0


def corrections(read: ReadAt) -> tuple[list[tuple[int, bytes]], float]:
    """What to write where in an Ogg Opus file whose positions or rate would mislead, in order; nothing elsewhere.

    And where the last page ends: libsndfile takes what is behind it, as a tag, for damage. Infinite where none says
    that it is the last.
    """
    streams: dict[bytes, _OggStream] = {}
    rates: list[tuple[int, bytes]] = []
    at, ended = 0, False
    while (head := read(at, _HEAD))[:4] == b"OggS" and len(head) == _HEAD:
        sizes = read(at + _HEAD, head[_SEGMENTS])
        body = read(at + _HEAD + len(sizes), sum(sizes))
        rates += _rate(at, head, sizes, body)
        streams.setdefault(head[_SERIAL : _SERIAL + 4], _OggStream()).take(at, head, sizes, body)
        at += _HEAD + len(sizes) + len(body)
        ended = bool(head[_FLAGS] & _LAST)
    wrong = [stream for stream in streams.values() if stream.contradicts_itself()]
    changes = [change for stream in wrong for change in stream.corrections()]
    return sorted([*rates, *changes]), at if ended else math.inf


def duration(packet: bytes) -> int:
    """Samples at 48 kHz in an Opus packet, by its first two bytes; 0 for an empty one."""
    if not packet:
        return 0
    config, code = packet[0] >> 3, packet[0] & 3
    if config < 12:
        frame = (480, 960, 1920, 2880)[config & 3]
    elif config < 16:
        frame = (480, 960)[config & 1]
    else:
        frame = (120, 240, 480, 960)[config & 3]
    frames = (1, 2, 2, packet[1] & 0x3F if len(packet) > 1 else 0)[code]
    return frame * frames


def _checksum_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte << 24
        for _ in range(8):
            value = value << 1 ^ (0x1_04C1_1DB7 if value & 0x8000_0000 else 0)
        table.append(value)
    return tuple(table)


_TABLE: Final = _checksum_table()


def _checksum(data: bytes) -> int:
    """Ogg's CRC-32: polynomial 0x04C11DB7, highest bit first, from 0."""
    crc = 0
    for byte in data:
        crc = (crc << 8 & 0xFFFF_FFFF) ^ _TABLE[crc >> 24 ^ byte]
    return crc
