"""Files of sound one after the other in one file, as `cat a.flac b.flac` makes them: where the second begins.

Decoders end with the first, or refuse the whole for what they find behind it.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal

from kws_edge.audio import ogg, riff
from kws_edge.audio.riff import ReadAt

_BLOCK: Final = 1 << 20
_AHEAD: Final = 1 << 18
_MAX_CHUNKS: Final = 10_000
_FLAC: Final = re.compile(rb"fLaC[\x00\x80]\x00\x00\x22")  # with the block that comes first, of always 34 bytes
_W64: Final = b"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb"


def second(kind: str, read: ReadAt) -> int:
    """Where a second file or stream begins; 0 where none does, or the first does not say where it ends.

    Parameters
    ----------
    kind : as libsndfile names it. Of MP3, which has no header for all of it, nothing is known here (mp3.py).
    """
    if kind == "OGG":
        return ogg.second_link(read)
    if kind == "FLAC":  # one that says how long it is need not be looked through before it is decoded
        return 0 if flac_samples(read(0, 26)) else after_flac(read, 0)
    head = read(0, 12)
    begins = {"WAV": head[:4], "AIFF": b"FORM", "W64": _W64, "CAF": b"caff", "AU": head[:4]}.get(kind)
    if begins is None:
        return 0
    return next((at for at in _ends(kind, head, read) if read(at, len(begins)) == begins), 0)


def _ends(kind: str, head: bytes, read: ReadAt) -> Iterator[int]:
    """Where chunks of a file end, and so another file may begin."""
    if kind == "AU":
        order: Literal["big", "little"] = "big" if head[:1] == b"." else "little"
        yield int.from_bytes(head[4:8], order) + int.from_bytes(head[8:12], order)
    elif head[:4] == b"RF64":
        yield 8 + int.from_bytes(read(20, 8), "little")  # the size of all, in a chunk that comes first
    elif kind in ("WAV", "AIFF"):
        for _, at, _ in riff.chunks(read, "big" if head[:4] in (b"RIFX", b"FORM") else "little"):
            yield at - 4
    else:
        # CAF: name, size of what follows. W64: name, size of all, padded to eight bytes.
        at, name, own = (8, 4, 12) if kind == "CAF" else (40, 16, 0)
        for _ in range(_MAX_CHUNKS):
            number = read(at + name, 8)
            size = int.from_bytes(number, "big" if kind == "CAF" else "little", signed=True)
            if len(number) < 8 or (size <= 0 and not own):
                return
            at += own + max(size, 0) if own else (size + 7) // 8 * 8
            yield at


def flac_samples(head: bytes) -> int:
    """How many samples a FLAC file says that a channel has; 0 where it does not."""
    return int.from_bytes(head[21:26], "big") & (1 << 36) - 1 if head[:4] == b"fLaC" else 0


def after_flac(read: ReadAt, position: int) -> int:
    """Where a FLAC file begins behind the one at the start, in what the decoder read last, or later; 0 where none does.

    Its frames do not say how long they are, so the beginning of one is looked for everywhere.

    Parameters
    ----------
    position : up to where the decoder has read, which is `_AHEAD` at most behind the end of the first.
    """
    at = max(4, position - _AHEAD)
    while len(block := read(at, _BLOCK)) >= 8:
        if found := _FLAC.search(block):
            return at + found.start()
        at += len(block) - 7
    return 0
