"""Limits the connections to the tasks' port, and how long one stays open without a request.

Any user of this machine can connect. A client that has not sent the head of a request is a
stranger: there are few at a time and each for a short while; a client without a token is refused
and closed (task_api.py). So descriptors stay for tasks, and for servers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import cast

HEAD_S = 10.0  # for the head of a first request
STRANGERS_MAX = 256  # strangers outside of a burst, as tasks that all connect at once make
BURST_S = 1.0
_HEAD_ENDS = (b"\r\n\r\n", b"\n\n")
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Entrance:
    """Makes the protocol of each connection. serving: makes the HTTP protocol; most: number of
    connections at the same time.
    """

    def __init__(self, serving: Callable[[], asyncio.Protocol], most: int) -> None:
        self._serving = serving
        self._most = most
        self._open: set[Connection] = set()
        self._strangers: dict[Connection, None] = {}  # longest wait first

    def __call__(self) -> asyncio.Protocol:
        return Connection(self._serving(), self)

    def came(self, connection: Connection) -> bool:
        """Admits a connection; returns False if there is no room for another one."""
        if len(self._strangers) >= STRANGERS_MAX:
            oldest = next(iter(self._strangers))
            if time.monotonic() - oldest.came_s > BURST_S:
                oldest.abort()
        if len(self._open) >= self._most:
            return False
        self._open.add(connection)
        self._strangers[connection] = None
        return True

    def admit(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)

    def forget(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)
        self._open.discard(connection)


class Connection(asyncio.Protocol):
    """A connection; everything after its beginning is the business of the HTTP protocol."""

    def __init__(self, serving: asyncio.Protocol, entrance: Entrance) -> None:
        self._serving = serving
        self._entrance = entrance
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._end = b""  # last bytes received of its first request head
        self._refused = False
        self.came_s = time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's class is not one of asyncio's
        self._transport = transport
        if not self._entrance.came(self):
            self._refused = True
            transport.write(_FULL)
            transport.close()
            return
        self._timer = asyncio.get_running_loop().call_later(HEAD_S, self.abort)
        self._serving.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._timer is not None:
            seen = self._end + data
            if any(it in seen for it in _HEAD_ENDS):
                self._known()
            self._end = seen[-3:]
        self._serving.data_received(data)

    def eof_received(self) -> bool | None:
        if self._refused:
            return None
        return self._serving.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._known()
        self._entrance.forget(self)
        if not self._refused:
            self._serving.connection_lost(error)

    def pause_writing(self) -> None:
        self._serving.pause_writing()

    def resume_writing(self) -> None:
        self._serving.resume_writing()

    def abort(self) -> None:
        assert self._transport is not None
        self._entrance.forget(self)
        self._transport.abort()

    def _known(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._entrance.admit(self)
