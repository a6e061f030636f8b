"""CAF headers: a size of the data that its writer left open, or that is larger than what is there.

Source: Apple Core Audio Format Specification, "Audio Data Chunk".
"""

from typing import Final

from kws_edge.audio.riff import ReadAt

_CHUNKS: Final = 8  # where the first chunk begins
_MOST: Final = 1_000  # chunks of a file: each costs a read


def data_size(read: ReadAt, size: int) -> tuple[int, int, int]:
    """Where the size of the data stands, what it says, and how many bytes there are; (0, 0, 0) where there are none.

    It says -1 where the data go on to the end of the file.
    """
    at = _CHUNKS
    for _ in range(_MOST):
        head = read(at, 12)
        length = int.from_bytes(head[4:], "big", signed=True)
        if head[:4] == b"data" and len(head) == 12:
            return at + 4, length, size - at - 12
        if len(head) < 12 or not 0 <= length < size:
            break
        at += 12 + length
    return 0, 0, 0
