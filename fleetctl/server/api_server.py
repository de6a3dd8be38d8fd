"""Runs the server until a signal ends it, and bounds what a connection may cost: the time to send
the head of a request, and how many one client holds.

TLS files are read and the socket listens before the address is printed, so that a program that
waits for that line can connect at once. A slow client holds no more than its own socket, and for
seconds; where there are too many, the one that has been idle for longest makes room, so that no
number of them keeps a user out.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fleetctl.common.errors import FleetctlError, Refused, UsageError
from fleetctl.common.remote import MESSAGE_BYTES_MAX
from fleetctl.common.state_paths import deny_writes_of_others, refuse_foreign
from fleetctl.server.app import make_app
from fleetctl.server.callers import ListenAddress, PeerUser, TokenIssuer
from fleetctl.server.page_data import page_routes

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from uvicorn.config import Config
    from uvicorn.server import ServerState


END_S = 5  # for answers under way; streams are cut, and their clients come back

HEAD_S = 10.0  # for the head of a request, of which a browser sends all at once
KEEP_ALIVE_S = 30
HEAD_BYTES_MAX = 32 * 1024
BACKLOG = 128  # connections that are accepted in one turn of the loop
CONNECTIONS_MAX = 2048
FILES_KEPT = 256  # descriptors for all but connections


def serve_api(
    home: Path,
    listens: ListenAddress,
    *,
    cert: str,
    key: str,
    webhook_secret: bytes,
    issued: TokenIssuer | None,
    say: Callable[[str], None],
) -> int:
    """Serves. listens: with the port 0 for a free one. say: gets the address, the first line of
    output. Raises Refused for an address that others reach without TLS or a proxy."""

    def make(found: ListenAddress) -> ASGIApp:
        return make_app(home, found, page_routes(), webhook_secret, issued)

    return serve_application(
        home, listens, make, cert=cert, key=key, sockets=True, announce=lambda it: say(it.url)
    )


def serve_application(
    home: Path,
    listens: ListenAddress,
    make: Callable[[ListenAddress], ASGIApp],
    *,
    cert: str,
    key: str,
    sockets: bool,
    announce: Callable[[ListenAddress], None],
) -> int:
    """Serves an application over a state directory until a signal ends it. make: gets the address
    with the port that was found. sockets: it has websockets. Raises as serve_api."""
    refuse_foreign(home)
    deny_writes_of_others()
    if not (listens.loopback or listens.tls or listens.behind_proxy):
        raise Refused(
            f"`{listens.host}` is reached by others, who could read tokens on their way",
            hint="--tls-cert FILE --tls-key FILE, or --behind-proxy where a proxy does TLS",
        )
    raise_file_limit()
    listener = _bind_socket(listens.host, listens.port)
    found = listens._replace(port=listener.getsockname()[1])
    config = uvicorn.Config(
        make(found),
        http=GuardedConnection,
        ws="wsproto" if sockets else "none",
        ws_max_size=MESSAGE_BYTES_MAX,
        ws_per_message_deflate=False,  # a few bytes could become many here
        ws_ping_timeout=None,  # a reader that a user has paused answers no ping
        loop="auto",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=END_S,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        ssl_certfile=cert or None,
        ssl_keyfile=key or None,
    )
    _load_tls(config, cert, key)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    server = _AnnouncedServer(config, lambda: announce(found))
    server.run(sockets=[listener])
    return 0 if server.started else 1


class _AnnouncedServer(uvicorn.Server):
    """A server that reports when it can be reached."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()


def _bind_socket(host: str, port: int) -> socket.socket:
    """Returns a bound socket. Raises UsageError and FleetctlError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        raise UsageError(
            f"`{host}` is no address of this machine", hint="--listen 127.0.0.1:8123"
        ) from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise FleetctlError(
            f"the server cannot listen at `{host}:{port}`: {(error.strerror or '').lower()}",
            hint="another port: --listen 127.0.0.1:0 takes a free one",
        ) from None
    return listener


def _load_tls(config: uvicorn.Config, cert: str, key: str) -> None:
    """Reads the certificate. Raises UsageError."""
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"the certificate `{cert}` and its key `{key}` cannot be used:"
            f" {(error.strerror or str(error)).lower()}",
            hint="--tls-cert FILE --tls-key FILE, both PEM",
        ) from None
    if isinstance(config.ssl, ssl.SSLContext):
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2


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
