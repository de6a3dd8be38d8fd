"""Messages over a Unix stream socket: four bytes of length, JSON, descriptors beside the length.

Shared by both ends, so: standard library only, and no import of a sibling.
"""

from __future__ import annotations

import array
import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

DESCRIPTORS_MAX = 8
_HEAD = struct.Struct("!I")


def packed(message: dict[str, Any]) -> tuple[bytes, bytes]:
    """Head and body; the descriptors belong to the head."""
    body = json.dumps(message).encode("utf-8", "surrogateescape")
    return _HEAD.pack(len(body)), body


def send(end: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    head, body = packed(message)
    socket.send_fds(end, [head], list(descriptors))
    end.sendall(body)


def receive(end: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message, or None at the end. Blocks."""
    head, descriptors = receive_head(end)
    if not head:
        return None
    rest = _exactly(end, _HEAD.size - len(head))
    (size,) = _HEAD.unpack(head + rest)
    return json.loads(_exactly(end, size)), descriptors


def receive_head(end: socket.socket) -> tuple[bytes, list[int]]:
    space = socket.CMSG_SPACE(DESCRIPTORS_MAX * array.array("i").itemsize)
    head, ancillary, _flags, _address = end.recvmsg(_HEAD.size, space, socket.MSG_CMSG_CLOEXEC)
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return head, list(found)


def size_of(head: bytes) -> int:
    return int(_HEAD.unpack(head)[0])


HEAD_BYTES = _HEAD.size


def _exactly(end: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = end.recv(size - len(parts))
        if not part:
            raise ConnectionError("the other end left in the middle of a message")
        parts += part
    return bytes(parts)
