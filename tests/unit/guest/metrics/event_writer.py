"""Writes event files as TensorBoard has them, from their description alone.

Needs the standard library alone, so that a program in a sandbox can be given it.
"""

import os
import struct


def varint(number):
    number &= (1 << 64) - 1
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def crc32c(data):
    """Bit by bit, as the standard says it."""
    total = 0xFFFFFFFF
    for byte in data:
        total ^= byte
        for _ in range(8):
            total = total >> 1 ^ (0x82F63B78 * (total & 1))
    return total ^ 0xFFFFFFFF


def masked(data):
    total = crc32c(data)
    return struct.pack("<I", ((total >> 15 | total << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(data):
    size = struct.pack("<Q", len(data))
    return size + masked(size) + data + masked(data)


def event(step, summary=b"", at_s=1.5):
    return framed(b"\x09" + struct.pack("<d", at_s) + b"\x10" + varint(step) + summary)


def value(tag, more):
    """A summary of one value."""
    return field(5, field(1, field(1, tag.encode()) + more))


def simple(tag, number):
    return value(tag, b"\x15" + struct.pack("<f", number))


def tensor(tag, number, form="f", *, content=False):
    """As `tf.summary.scalar` writes it."""
    data = struct.pack("<" + form, number)
    kind, place = {"f": (1, 5), "d": (2, 6)}[form]
    return value(tag, field(8, b"\x08" + varint(kind) + field(4 if content else place, data)))


def write_events(directory, *events, name="events.out.tfevents.1700000000.host"):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "ab") as file:
        file.write(b"".join((framed(field(3, b"brain.Event:2")), *events)))
        return file.name
