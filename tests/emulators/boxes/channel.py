"""The emulator's end of a socket to a nursery or to a box's pid 1: asyncio over inner/wire.py."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from typing import Any

from tests.emulators.boxes.inner import wire


class Channel:
    """Sends whole messages, in the order of the calls. One reader at a time."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()

    async def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Raises OSError when the other end is gone."""
        head, body = wire.packed(message)
        async with self._sending:
            # Four bytes always fit where a socket is writable at all; wait until it is.
            while True:
                try:
                    wire.send_head(self._end, head, descriptors)
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.001)
            await self._loop.sock_sendall(self._end, body)

    async def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        head, descriptors = await self._head()
        while head and len(head) < wire.HEAD_BYTES:
            head += await self._loop.sock_recv(self._end, wire.HEAD_BYTES - len(head))
        if not head:
            return None
        body = bytearray()
        size = wire.size_of(head)
        while len(body) < size:
            part = await self._loop.sock_recv(self._end, size - len(body))
            if not part:
                return None
            body += part
        return wire.unpacked(bytes(body)), descriptors

    def finish(self) -> None:
        """Let the other end see the end of our messages; what it still sends arrives."""
        if self._end.fileno() >= 0:
            self._end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        if self._end.fileno() >= 0:
            self._loop.remove_reader(self._end.fileno())
            self._end.close()

    async def _head(self) -> tuple[bytes, list[int]]:
        while True:
            try:
                return wire.receive_head(self._end)
            except BlockingIOError:
                await _readable(self._loop, self._end)
            except ConnectionError:
                return b"", []


async def _readable(loop: asyncio.AbstractEventLoop, end: socket.socket) -> None:
    done = loop.create_future()
    # By number: to look up a socket that is not there yet writes its addresses out, each time.
    number = end.fileno()
    loop.add_reader(number, lambda: done.done() or done.set_result(None))
    try:
        await done
    finally:
        if end.fileno() >= 0:
            loop.remove_reader(number)


def pid_of(pidfd: int) -> int:
    """The process's id as this process sees it, whatever namespace told of it; -1 once reaped."""
    with open(f"/proc/self/fdinfo/{pidfd}") as file:
        for line in file:
            if line.startswith("Pid:"):
                return int(line.split()[1])
    raise OSError(f"descriptor {pidfd} is no pidfd")


def close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
