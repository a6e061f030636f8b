"""The part of protobuf's encoding that model files need, in place of the onnx package.

A message is a sequence of fields, each a key (its number and how its value is stored) and the value.

Source: the protobuf encoding specification.
"""

from collections.abc import Iterator
from typing import Final

from kws_edge.errors import ModelError

VARINT: Final = 0
BYTES: Final = 2
_FIXED64, _FIXED32 = 1, 5


def fields(message: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Each field of a message: its number, where it starts, where its value starts (after a length), where it ends.

    Raises ModelError where the message is damaged.
    """
    position = 0
    while position < len(message):
        start = position
        key, position = read_varint(message, position)
        kind = key & 7
        value = position
        if kind == VARINT:
            _, position = read_varint(message, position)
        elif kind == BYTES:
            length, value = read_varint(message, position)
            position = value + length
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        else:
            raise ModelError(f"a protobuf field of type {kind} at byte {start}; expected an ONNX file")
        if position > len(message):
            raise ModelError(f"ends within the field at byte {start}; expected a whole ONNX file")
        yield key >> 3, start, value, position


def values(message: bytes, number: int) -> list[bytes]:
    """What the fields of a number hold, in order; of a number that is stored as a varint, its bytes."""
    return [message[value:end] for n, _, value, end in fields(message) if n == number]


def read_varint(message: bytes, position: int = 0) -> tuple[int, int]:
    """A number of 7 bits a byte, lowest first, the top bit set on all but the last; and where it ends."""
    result = 0
    for i, byte in enumerate(message[position : position + 10]):
        result |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return result, position + i + 1
    raise ModelError(f"no end to the number at byte {position}; expected a whole ONNX file")


def varint_field(number: int, value: int) -> bytes:
    """A field that holds a number of at least 0."""
    return _varint(number << 3 | VARINT) + _varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """A field that holds bytes, a text or another message."""
    return _varint(number << 3 | BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
