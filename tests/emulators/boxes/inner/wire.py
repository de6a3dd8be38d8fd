"""Messages over a Unix stream socket: four bytes of length, a marshalled value, descriptors beside
the length.

Shared by both ends, so: standard library only, and no import of a sibling; `_socket` alone, as
each module that the nursery imports makes each fork of it dearer.
"""

from __future__ import annotations

import _socket
import marshal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

HEAD_BYTES = DESCRIPTOR_BYTES = 4
DESCRIPTORS_MAX = 8


def packed(message: dict[str, Any]) -> tuple[bytes, bytes]:
    """Head and body; the descriptors belong to the head."""
    body = marshal.dumps(message)
    return len(body).to_bytes(HEAD_BYTES, "big"), body


def unpacked(body: bytes) -> dict[str, Any]:
    message: dict[str, Any] = marshal.loads(body)
    return message


def send(end: _socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """In one piece, which wakes the other end once."""
    head, body = packed(message)
    data = head + body
    given = b"".join(one.to_bytes(DESCRIPTOR_BYTES, sys.byteorder) for one in descriptors)
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, given)] if given else []
    sent = end.sendmsg([data], rights)
    if sent < len(data):
        end.sendall(data[sent:])


def receive(end: _socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message, or None at the end. Blocks."""
    head, descriptors = receive_head(end)
    if not head:
        return None
    rest = _exactly(end, HEAD_BYTES - len(head))
    return unpacked(_exactly(end, size_of(head + rest))), descriptors


def receive_head(end: _socket.socket) -> tuple[bytes, list[int]]:
    space = _socket.CMSG_SPACE(DESCRIPTORS_MAX * DESCRIPTOR_BYTES)
    head, ancillary, _flags, _address = end.recvmsg(HEAD_BYTES, space, _socket.MSG_CMSG_CLOEXEC)
    found = []
    for level, kind, data in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            for at in range(0, len(data) - DESCRIPTOR_BYTES + 1, DESCRIPTOR_BYTES):
                found.append(int.from_bytes(data[at : at + DESCRIPTOR_BYTES], sys.byteorder))
    return head, found


def size_of(head: bytes) -> int:
    return int.from_bytes(head, "big")


def _exactly(end: _socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = end.recv(size - len(parts))
        if not part:
            raise ConnectionError("the other end left in the middle of a message")
        parts += part
    return bytes(parts)
