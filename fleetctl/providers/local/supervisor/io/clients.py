"""The supervisor's side of its Unix socket: JSON lines in, JSON lines out, many clients at a time.

Never blocks on a client: one that does not read is dropped, and asks again when it comes back.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Callable, Optional

from .poller import Poller

UNREAD_BYTES_MAX = 64 * 1024 * 1024  # in a single unfinished line: an order with its parameters
DESCRIPTORS_MAX = 3  # in one message: the streams of a visit
UNSENT_BYTES_MAX = 16 * 1024 * 1024

Handler = Callable[["SocketClient", dict[str, Any]], None]


class SocketClient:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.incoming = bytearray()
        self.outgoing = bytearray()
        self.descriptors: list[int] = []  # that came and were not asked for yet


class SocketClients:
    """Holds all connections; `handle` is called for each message."""

    def __init__(
        self,
        poller: Poller,
        listener: socket.socket,
        hello: dict[str, Any],
        handle: Handler,
        gone: Callable[[SocketClient], None],
    ) -> None:
        """gone: called with a client that has left."""
        self._poller = poller
        self._listener = listener
        self._hello = hello
        self._handle = handle
        self._gone = gone
        self._all: list[SocketClient] = []
        listener.setblocking(False)
        poller.watch(listener.fileno(), self._accept)

    def __len__(self) -> int:
        return len(self._all)

    def tell(self, client: Optional[SocketClient], message: str) -> None:
        """Queues a JSON text for one client, or for all when client is None."""
        data = (message + "\n").encode()
        for one in self._all if client is None else [client]:
            one.outgoing += data

    def flush(self) -> None:
        """Sends what is queued, as far as each client takes it."""
        for client in list(self._all):
            if client.outgoing:
                self._send(client)

    def close(self) -> None:
        self._poller.forget(self._listener.fileno())
        self._listener.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        self.adopt(connection)

    def adopt(self, connection: socket.socket) -> None:
        """Greets and serves the client at the other end."""
        connection.setblocking(False)
        client = SocketClient(connection)
        self._all.append(client)
        self._poller.watch(connection.fileno(), self._read, client)
        self.tell(client, json.dumps(self._hello))

    def _read(self, client: SocketClient) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(
                client.connection, 1024 * 1024, DESCRIPTORS_MAX
            )
            client.descriptors += descriptors
        except BlockingIOError:
            return
        except OSError:
            data = b""
        client.incoming += data
        if not data or len(client.incoming) > UNREAD_BYTES_MAX:
            self._drop(client)
            return
        *lines, rest = client.incoming.split(b"\n")
        client.incoming = rest
        for line in lines:
            self._handle(client, json.loads(line))

    def _send(self, client: SocketClient) -> None:
        try:
            sent = client.connection.send(client.outgoing)
            del client.outgoing[:sent]
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(client)
            return
        if len(client.outgoing) > UNSENT_BYTES_MAX:
            self._drop(client)

    def _drop(self, client: SocketClient) -> None:
        if client in self._all:
            self._all.remove(client)
            self._poller.forget(client.connection.fileno())
            client.connection.close()
            for descriptor in client.descriptors:
                os.close(descriptor)
            self._gone(client)
