"""The emulator's end of a socket to a nursery or to a box's pid 1: asyncio over inner/wire.py."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tests.emulators.boxes.inner import wire

READ_BYTES = 16 * 1024  # most messages are far smaller
Received = tuple[dict[str, Any], list[int]]  # a message, and the descriptors beside it


class Channel:
    """Sends whole messages, in the order of the calls. One reader at a time."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()
        self._rest = bytearray()  # of a message whose end is still to come
        self._descriptors: list[int] = []  # that message's
        self._arrived: deque[Received | None] = deque()
        self._news: asyncio.Future[None] | None = None
        self._take: Callable[[Received | None], None] = self._keep
        self._loop.add_reader(end.fileno(), self._on_readable)

    async def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Raises OSError when the other end is gone."""
        # In one piece, which wakes the other end once.
        data = b"".join(wire.packed(message))
        async with self._sending:
            while True:
                try:
                    sent = socket.send_fds(self._end, [data], list(descriptors))
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.001)
            if sent < len(data):
                await self._loop.sock_sendall(self._end, data[sent:])

    async def receive(self) -> Received | None:
        """The next message, or None at the end."""
        while not self._arrived:
            self._news = self._loop.create_future()
            await self._news
        return self._arrived.popleft()

    def follow(self, take: Callable[[Received | None], None]) -> None:
        """Hand over each message from here on, and None at the end, instead of keeping them."""
        self._take = take
        while self._arrived:
            take(self._arrived.popleft())

    def finish(self) -> None:
        """Let the other end see the end of our messages; what it still sends arrives."""
        if self._end.fileno() >= 0:
            self._end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        if self._end.fileno() >= 0:
            self._loop.remove_reader(self._end.fileno())
            self._end.close()
            close_all(self._descriptors)

    def _keep(self, received: Received | None) -> None:
        self._arrived.append(received)
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _on_readable(self) -> None:
        flags = socket.MSG_CMSG_CLOEXEC
        try:
            data, descriptors, _flags, _address = socket.recv_fds(
                self._end, READ_BYTES, wire.DESCRIPTORS_MAX, flags
            )
        except BlockingIOError:
            return
        except ConnectionError:
            data, descriptors = b"", []
        if not data:
            self._loop.remove_reader(self._end.fileno())
            self._take(None)
            return
        self._rest += data
        for received in self._whole(descriptors):
            self._take(received)

    def _whole(self, descriptors: list[int]) -> list[Received]:
        """The messages that are complete now."""
        found: list[Received] = []
        while (body := self._next_body()) is not None:
            found.append((wire.unpacked(body), self._descriptors))
            self._descriptors = []
        # They come with the first bytes of a message, and the kernel ends a read behind those.
        (self._descriptors if self._rest else found[-1][1]).extend(descriptors)
        return found

    def _next_body(self) -> bytes | None:
        if len(self._rest) < wire.HEAD_BYTES:
            return None
        end = wire.HEAD_BYTES + wire.size_of(self._rest[: wire.HEAD_BYTES])
        if len(self._rest) < end:
            return None
        body = bytes(self._rest[wire.HEAD_BYTES : end])
        del self._rest[:end]
        return body


def pid_of(pidfd: int) -> int:
    """The process's id as this process sees it, whatever namespace told of it; -1 once reaped."""
    # Not `open`: to make a file of text of it takes several times as long as to read it.
    file = os.open(f"/proc/self/fdinfo/{pidfd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _before, told, after = os.read(file, 4096).partition(b"\nPid:")
    finally:
        os.close(file)
    if not told:
        raise OSError(f"descriptor {pidfd} is no pidfd")
    return int(after.split(None, 1)[0])


def close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
