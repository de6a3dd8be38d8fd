"""Writes what wandb writes, from the description of its file alone: for programs without wandb.

Needs the standard library alone, so that a program in a sandbox can be given it.
"""

from __future__ import annotations

import json
import os
import struct
import zlib

BLOCK = 32 * 1024
MAGIC = b":W&B\xe1\xbe\x00"


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def item(name: str | list[str], text: str) -> bytes:
    """name: one text, or the parts of a nested key; text: JSON."""
    if isinstance(name, str):
        key = field(1, name.encode())
    else:
        key = b"".join(field(2, part.encode()) for part in name)
    return key + field(16, text.encode())


def history(items: dict[str | tuple[str, ...], object], step: int | None = None) -> bytes:
    """A record of one row; values as Python's JSON writes them, NaN and Infinity too."""
    inside = b"".join(field(1, item(_key(name), json.dumps(it))) for name, it in items.items())
    if step is not None:
        inside += field(2, varint(1 << 3) + varint(step))
    return varint(1 << 3) + varint(7) + field(2, inside) + field(200, b"more")


def summary(items: dict[str | tuple[str, ...], object], remove: tuple[str, ...] = ()) -> bytes:
    inside = b"".join(field(1, item(_key(name), json.dumps(it))) for name, it in items.items())
    inside += b"".join(field(2, field(1, name.encode())) for name in remove)
    return field(3, inside)


def header(version: str) -> bytes:
    return field(21, field(1, field(1, f"{version}+0123abcd".encode()) + field(2, b"0.70.0")))


def _key(name: str | tuple[str, ...]) -> str | list[str]:
    return name if isinstance(name, str) else list(name)


def chunk(kind: int, data: bytes) -> bytes:
    total = zlib.crc32(bytes([kind]) + data)
    return struct.pack("<IHB", total, len(data), kind) + data


def blocks(records: list[bytes]) -> bytes:
    """The whole file: records cut so that none crosses the end of a block."""
    out = bytearray(MAGIC)
    for record in records:
        rest, first = record, True
        while True:
            left = BLOCK - len(out) % BLOCK
            if left < 7:
                out += bytes(left)
                left = BLOCK
            piece, rest = rest[: left - 7], rest[left - 7 :]
            kind = (1 if first else 4) if not rest else (2 if first else 3)
            out += chunk(kind, piece)
            first = False
            if not rest:
                break
    return bytes(out)


def write_run(top: str, run: str, data: bytes, *, at: str = "20260101_000000") -> str:
    """Where wandb puts the file of an offline run below WANDB_DIR; its path."""
    directory = os.path.join(top, "wandb", f"offline-run-{at}-{run}")
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, f"run-{run}.wandb")
    with open(path, "wb") as file:
        file.write(data)
    return path
