"""Header blocks of HTTP/2 (RFC 7541): read with the table that a connection keeps, written without.

The tables and the Huffman code are the library's; around them it makes several objects and log
records of each header, which was a tenth of what an emulated call cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

TEXTS_KEPT_MAX = 4096
_unpacked = lru_cache(TEXTS_KEPT_MAX)(decode_huffman)  # names come again with each connection


class Reader:
    """Of one connection, whose blocks it has to see in their order."""

    def __init__(self) -> None:
        self._table = HeaderTable()

    def read(self, block: bytes) -> list[tuple[str, str]]:
        """Raises IndexError, ValueError or HPACKError for what is no header block."""
        found: list[tuple[bytes, bytes]] = []
        at = 0
        while at < len(block):
            first = block[at]
            if first & 0x80:
                index, at = _number(block, at, 7)
                found.append(self._table.get_by_index(index))
            elif first & 0xE0 == 0x20:
                self._table.maxsize, at = _number(block, at, 5)
            else:
                index, at = _number(block, at, 6 if first & 0x40 else 4)
                if index:
                    name = self._table.get_by_index(index)[0]
                else:
                    name, at = _text(block, at)
                value, at = _text(block, at)
                if first & 0x40:
                    self._table.add(name, value)
                found.append((name, value))
        return [(name.decode(), value.decode()) for name, value in found]


def written(headers: Iterable[tuple[str, str]]) -> bytes:
    """A block of literals that leaves the other end's table as it is."""
    block = bytearray()
    for pair in headers:
        block.append(0)
        for text in pair:
            data = text.encode()
            block += _sized(len(data)) + data
    return bytes(block)


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """An integer in the last bits of a byte and those after it, and where it ends."""
    most = (1 << bits) - 1
    number = block[at] & most
    at += 1
    if number < most:
        return number, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    packed = block[at] & 0x80
    size, at = _number(block, at, 7)
    data = block[at : at + size]
    if len(data) < size:
        raise ValueError("a header block ends in the middle of a text")
    return (_unpacked(data) if packed else data), at + size


def _sized(size: int) -> bytes:
    """The length of a text that is not packed."""
    if size < 0x7F:
        return bytes((size,))
    head, size = bytearray((0x7F,)), size - 0x7F
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head)
