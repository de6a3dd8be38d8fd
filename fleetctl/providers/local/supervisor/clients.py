"""Descriptors and times of the supervisor: the clients of its Unix socket, JSON lines in and out,
the poller that waits for descriptors, and later calls.

The supervisor never blocks on a client: one that does not read is dropped, and asks again when it
comes back.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import select
import socket
import time
from typing import Any, Callable, Optional

UNREAD_BYTES_MAX = 64 * 1024 * 1024  # in a single unfinished line: an order with its parameters
DESCRIPTORS_MAX = 3  # in one message: the streams of a visit
UNSENT_BYTES_MAX = 16 * 1024 * 1024

Handler = Callable[["SocketClient", dict[str, Any]], None]

Act = Callable[..., Any]


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


class Poller:
    """Waits for descriptors to become readable. Does the work of `selectors`, without its objects.

    The supervisor's memory is shared with the tasks that it forks: memory that it touches for a
    task must be copied for each task, so its inner loop makes do with little.
    """

    def __init__(self) -> None:
        self._acts: dict[int, tuple[Act, tuple[Any, ...]]] = {}
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._poll = None if self._epoll else select.poll()

    def watch(
        self,
        descriptor: int,
        act: Act,
        *arguments: Any,
    ) -> None:
        """Calls `act(*arguments)` whenever there is data to read, or the other end closed."""
        self._acts[descriptor] = (act, arguments)
        if self._epoll is not None:
            self._epoll.register(descriptor, select.EPOLLIN)
        elif self._poll is not None:
            self._poll.register(descriptor, select.POLLIN)

    def forget(self, descriptor: int) -> None:
        """Stops watching a descriptor; to be called before it is closed."""
        del self._acts[descriptor]
        if self._epoll is not None:
            self._epoll.unregister(descriptor)
        elif self._poll is not None:
            self._poll.unregister(descriptor)

    def wait(self, timeout_s: Optional[float]) -> None:
        """Waits once, and acts on all that is readable."""
        for descriptor, _ in self._ready(timeout_s):
            act = self._acts.get(descriptor)  # an earlier act may have made it be forgotten
            if act is not None:
                act[0](*act[1])

    def _ready(self, timeout_s: Optional[float]) -> list[tuple[int, int]]:
        if self._epoll is not None:
            return self._epoll.poll(-1 if timeout_s is None else timeout_s)
        assert self._poll is not None
        return self._poll.poll(None if timeout_s is None else timeout_s * 1000)


class Timers:
    """Later calls: a heap with their monotonic times."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = itertools.count()

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """There is no cancelling: `act` looks whether it still applies."""
        heapq.heappush(self._heap, (time.monotonic() + delay_s, next(self._counter), act))

    def wait_s(self) -> Optional[float]:
        """Returns the seconds until the next call is due; None without calls."""
        if self._heap:
            return max(0.0, self._heap[0][0] - time.monotonic())
        return None

    def run_due(self) -> None:
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2]()
