"""MP3 files that are longer than their header says: several one after the other, or one that was added to.

A Xing, Info or VBRI header in the first frame says how many frames follow, and libsndfile ends with these.

Source: ISO/IEC 11172-3 and 13818-3 (the frame's header); the Xing and VBRI headers as LAME and Fraunhofer write them.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kws_edge.audio.riff import ReadAt

_BLOCK: Final = 1 << 16
_MARKS: Final = (b"Xing", b"Info", b"VBRI")
_MOST_LOST: Final = 10_000
"""Places in which a frame is looked for where none should be."""
_SPARE: Final = 2
"""Frames more than announced, or of another kind, that are no second file: what counts is not agreed on, and what looks
like a frame may be none."""
_KBITS: Final = (
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),  # MPEG 2 and 2.5
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),  # MPEG 1
)
_RATES: Final = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}


class Survey(NamedTuple):
    """What the frames of a file say.

    Attributes
    ----------
    mark : where the header is that counts the frames; None where there is none.
    longer : whether more follow than it counts.
    changes : the second from which on they have another rate or number of channels; None where they never do.
    """

    mark: int | None
    longer: bool
    changes: float | None


class _Frame(NamedTuple):
    at: int
    length: int
    samples: int
    rate: int
    mono: bool


def survey(read: ReadAt) -> Survey:
    """Look at every frame, from the first on."""
    frames = _frames(_buffered(read))
    first = next(frames, None)
    if first is None:
        return Survey(None, longer=False, changes=None)
    content = read(first.at, first.length)
    marks = [content.find(mark) for mark in _MARKS if mark in content]
    mark = first.at + min(marks) if marks else None
    announced = _announced(content[min(marks) :]) if marks else None
    count = 0 if mark is not None else 1  # that with the header has no sound
    others, changes = 0, None
    for frame in frames:
        if (frame.rate, frame.mono) == (first.rate, first.mono):
            count, others = count + 1, 0
        elif (others := others + 1) > _SPARE:
            changes = count * first.samples / first.rate
            break
    return Survey(mark, announced is not None and count > announced + _SPARE, changes)


def _announced(header: bytes) -> int | None:
    """How many frames a Xing, Info or VBRI header says that there are; None where it does not."""
    if header[:4] == b"VBRI":
        return int.from_bytes(header[14:18], "big") or None
    return int.from_bytes(header[8:12], "big") if header[7:8] and header[7] & 1 else None


def _frames(read: ReadAt) -> Iterator[_Frame]:
    """The frames of layer III. Tags between them are passed over, and some of what is none of both."""
    at, lost = 0, 0
    while lost < _MOST_LOST and (head := read(at, 10)):
        frame = _frame(at, head)
        if frame and _may_follow(read(at + frame.length, 4)):
            yield frame
            at += frame.length
        elif head[:3] == b"ID3":
            at += 10 + sum((byte & 0x7F) << shift for byte, shift in zip(head[6:], (21, 14, 7, 0), strict=False))
        elif head[:8] == b"APETAGEX":
            at += 32 + int.from_bytes(read(at + 12, 4), "little")
        else:
            junk = read(at + 1, _BLOCK)
            found = junk.find(b"\xff")
            at += 1 + (len(junk) if found < 0 else found)
            lost += 1


def _frame(at: int, head: bytes) -> _Frame | None:
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:  # the sync word, and layer III
        return None
    version, bits, rate = head[1] >> 3 & 3, head[2] >> 4, head[2] >> 2 & 3
    if version not in _RATES or not 0 < bits < 15 or rate == 3:
        return None
    hertz, samples = _RATES[version][rate], 1152 if version == 3 else 576
    length = samples // 8 * _KBITS[version == 3][bits] * 1000 // hertz + (head[2] >> 1 & 1)
    return _Frame(at, length, samples, hertz, head[3] >> 6 == 3)


def _may_follow(head: bytes) -> bool:
    """Whether what comes after a frame may do so: another, a tag, or nothing."""
    return not head or _frame(0, head) is not None or head[:3] in (b"ID3", b"TAG", b"APE", b"LYR") or not any(head)


def _buffered(read: ReadAt) -> ReadAt:
    """The same, by larger pieces."""
    start, block = 0, b""

    def piece(position: int, n: int) -> bytes:
        nonlocal start, block
        if not start <= position <= start + len(block) - n:
            start, block = position, read(position, max(n, _BLOCK))
        return block[position - start : position - start + n]

    return piece
