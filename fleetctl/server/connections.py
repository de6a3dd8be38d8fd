"""Bounds what a connection may cost: how long it takes to send the head of a request, and how many
connections wait for one. Called by uvicorn for every connection.

A slow client holds no more than its own socket, and for seconds; where there are too many, the one
that has been idle for longest makes room, so that no number of them keeps a user out.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fleetctl.server.callers import PeerUser

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

HEAD_S = 10.0  # for the head of a request, of which a browser sends all at once
KEEP_ALIVE_S = 30
HEAD_BYTES_MAX = 32 * 1024
BACKLOG = 128  # connections that are accepted in one turn of the loop
CONNECTIONS_MAX = 2048
FILES_KEPT = 256  # descriptors for all but connections


class GuardedConnection(H11Protocol):
    """A connection that must send whole heads in time."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._head_task: asyncio.TimerHandle | None = None
        self.since_s = self.loop.time()  # that it waits for a request
        self._upgraded = False  # to a websocket, which has limits of its own

    @property
    def idle(self) -> bool:
        """Returns whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        while len(self.connections) >= connections_max():
            waiting = [
                it for it in self.connections if isinstance(it, GuardedConnection) and it.idle
            ]
            oldest = min(waiting, key=lambda it: it.since_s, default=None)
            if oldest is None:
                transport.abort()
                return
            self.connections.discard(oldest)
            oldest.transport.abort()
        super().connection_made(transport)
        name = transport.get_extra_info("sockname")
        peer = transport.get_extra_info("peername")
        self.app_state = {**self.app_state, "peer": PeerUser(name, peer)}
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        if self.flow is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._upgraded:
            return
        if not self.idle:
            self._end_wait()
        elif self._head_task is None:
            self._await_head()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._end_wait()
        self._upgraded = True
        raw = self.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        self._end_wait()
        self.since_s = self.loop.time()
        super().on_response_complete()

    def _await_head(self) -> None:
        self._head_task = self.loop.call_later(HEAD_S, self._give_up)

    def _end_wait(self) -> None:
        if self._head_task is not None:
            self._head_task.cancel()
            self._head_task = None

    def _give_up(self) -> None:
        self._head_task = None
        if self.idle:
            self.transport.abort()


def raise_file_limit() -> None:
    """Lets this process have as many open files as its user may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX * 2 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_max() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(16, min(CONNECTIONS_MAX, soft - FILES_KEPT))
