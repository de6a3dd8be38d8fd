"""Reads the wire form of protobuf by hand: a sandbox has the standard library alone.

Pure; called by wandb/file.py and events.py.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5
VARINT_BITS_MAX = 63


def read_fields(
    data: bytes,
    at: int,
    end: int,
) -> Iterator[tuple[int, int, int]]:
    """Yields (number, begin, end) of each field's bytes between two offsets; for a whole number,
    (number, its value, its end). Raises IndexError or ValueError.
    """
    while at < end:
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = read_varint(data, at - 1)
        wire = tag & 7
        if wire == BYTES:
            size = data[at]
            at += 1
            if size > 127:
                size, at = read_varint(data, at - 1)
        elif wire == VARINT:
            value, at = read_varint(data, at)
            yield tag >> 3, value, at
            continue
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise ValueError("no such form of a field")
        if at + size > end:
            raise ValueError("a field is longer than what it is in")
        yield tag >> 3, at, at + size
        at += size


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns (the whole number at this offset, its end). Raises IndexError or ValueError."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128 and value < 1 << 64:
            return value, at
        shift += 7
        if shift > VARINT_BITS_MAX:
            raise ValueError("a whole number has more than 64 bits")


def convert_signed(value: int) -> int:
    """Converts to an int64, which is written as if it had no sign."""
    if value >= 1 << 63:
        return value - (1 << 64)
    return value
