"""A transport that sends once in a turn of the event loop what was written in it.

grpclib writes the head, the message and the end of an answer one by one; servers in compiled
languages send them together. Each send that is saved also saves the client a wake-up.
"""

from __future__ import annotations

import asyncio
from typing import Any


class Gathering:
    """Wraps a transport of asyncio; what is not here is the transport's own."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._written: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)

    def close(self) -> None:
        self._send()
        self._transport.close()

    def abort(self) -> None:
        self._written.clear()
        self._transport.abort()

    def _send(self) -> None:
        data = b"".join(self._written)
        self._written.clear()
        if data and not self._transport.is_closing():
            self._transport.write(data)
