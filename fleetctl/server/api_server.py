"""Runs the server until a signal ends it. Called by `fleetctl serve`.

Reads TLS files and listens before it prints its address, so that whoever waits for that line can
connect at once.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import uvicorn

from fleetctl.common.errors import FleetctlError, Refused, UsageError
from fleetctl.common.exec_frames import MESSAGE_BYTES_MAX
from fleetctl.common.ownership import deny_writes_of_others, refuse_foreign
from fleetctl.server.app import make_app
from fleetctl.server.callers import ListenAddress
from fleetctl.server.connections import (
    BACKLOG,
    HEAD_BYTES_MAX,
    KEEP_ALIVE_S,
    GuardedConnection,
    raise_file_limit,
)
from fleetctl.server.pages import page_routes

END_S = 5  # for answers under way; streams are cut, and their clients come back


def serve_api(
    home: Path,
    listens: ListenAddress,
    *,
    cert: str,
    key: str,
    webhook_secret: bytes,
    say: Callable[[str], None],
) -> int:
    """Serves. listens: with the port 0 for a free one. say: gets the address, the first line of
    output. Raises Refused for an address that others reach without TLS or a proxy."""
    refuse_foreign(home)
    deny_writes_of_others()
    if not (listens.loopback or listens.tls or listens.behind_proxy):
        raise Refused(
            f"`{listens.host}` is reached by others, who could read tokens on their way",
            hint="--tls-cert FILE --tls-key FILE, or --behind-proxy where a proxy does TLS",
        )
    raise_file_limit()
    listener = _bind_socket(listens.host, listens.port)
    listens = listens._replace(port=listener.getsockname()[1])
    config = uvicorn.Config(
        make_app(home, listens, page_routes(), webhook_secret),
        http=GuardedConnection,
        ws="wsproto",
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
    server = _AnnouncedServer(config, lambda: say(listens.url))
    server.run(sockets=[listener])
    return 0 if server.started else 1


class _AnnouncedServer(uvicorn.Server):
    """A server that tells when it can be reached."""

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
