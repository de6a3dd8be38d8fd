"""The supervisor's loop: takes orders, watches children, reports changes, leaves when there is no
more work.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import Any

from fleetctl.guest.supervision.processes import is_removed
from fleetctl.guest.task.text import encode_compact, quote

from .clients import Poller, SocketClient, SocketClients
from .run.sandbox import BeginLog
from .run.supervise import OK, RunSupervisor

ALONE_S = 2.0  # without a client and without a run
TERM_POLL_S = 1.0  # how late a request to end is seen
_OK = '{"answer":%s,"ok":true}'
IDLE_S = 60.0  # with clients, but without an order or a run


class LocalSupervisor:
    def __init__(
        self,
        config: dict[str, Any],
        listener: socket.socket,
        places: tuple[int, BeginLog],
    ) -> None:
        self._config = config
        self._directory = places[0]
        self._poller = Poller()
        self._changed: list[str] = []
        self._runs = RunSupervisor(config, self._poller, places, self._changed.append)
        hello = {
            "hello": config["identity"]["keeper"],
            "owner": config["owner"],
            "note": config["note"],
            "resource": config["resource"],
        }
        self._clients = SocketClients(
            self._poller,
            listener,
            hello,
            self._handle,
            self._runs.visits.hang_up,
        )
        self._busy_at_s = time.monotonic()
        self._ordered: list[tuple[SocketClient, dict[str, Any]]] = []  # starts of this turn
        self._over = False
        self._ending = False
        self._wake_on_signals()

    def greet(self, connection: socket.socket) -> None:
        """Serves a client that has not come through the listening socket."""
        self._clients.adopt(connection)
        self._clients.flush()

    def serve(self) -> None:
        """Serves until there is no run or sandbox to keep."""
        supervisor = self._runs
        while not self._over:
            self._poller.wait(supervisor.timers.wait_s())
            self._begin_ordered()
            supervisor.timers.run_due()
            if self._changed:
                names = ",".join(map(quote, dict.fromkeys(self._changed)))
                self._clients.tell(None, '{"changed":[' + names + "]}")
                self._changed.clear()
            self._clients.flush()
            self._over = self._over or self._nothing_to_do()
        self._clients.close()
        supervisor.leave()

    def _nothing_to_do(self) -> bool:
        now = time.monotonic()
        if not self._runs.idle:
            self._busy_at_s = now
            return False
        if self._ending:
            return True
        return now - self._busy_at_s > (IDLE_S if len(self._clients) else ALONE_S)

    def _handle(self, client: SocketClient, message: dict[str, Any]) -> None:
        self._busy_at_s = time.monotonic()
        if message["op"] == "start":
            self._ordered.append((client, message))
            return
        self._begin_ordered()  # orders begin in the order of arrival
        if message["op"] == "stop":
            owner = message.get("owner", self._config["owner"])
            self._runs.stop(owner, message["run"], message["sandbox"], message["grace_s"])
        elif message["op"] == "end":
            self._runs.end_named(message["sandbox"])
        elif message["op"] == "exec":
            self._visit(client, message)
        elif message["op"] == "list":
            self._clients.tell(client, encode_compact({"listed": self._runs.listing()}))
        elif message["op"] == "own":
            self._runs.own(message["sandbox"], message["owner"])
        elif message["op"] == "leave":
            self._ending = True  # as soon as it is idle

    def _visit(self, client: SocketClient, message: dict[str, Any]) -> None:
        """Begins a user's command beside a run; its streams came with the message."""

        def told(code: int) -> None:
            self._clients.tell(client, encode_compact({"exited": code}))

        streams = client.descriptors
        client.descriptors = []
        problem = self._runs.visits.begin(client, message, streams, told)
        self._clients.tell(client, encode_compact({"visit": problem}))

    def _begin_ordered(self) -> None:
        """Begins all starts of this turn: their names reach the disk together."""
        ordered = self._ordered
        self._ordered = []
        if not ordered:
            return
        problem = self._runs.announce([message["run"] for _, message in ordered])
        for client, message in ordered:
            reply = problem or self._runs.start(message)
            self._clients.tell(
                client,
                _OK % quote(message["run"])
                if reply is OK
                else encode_compact({"answer": message["run"], **reply}),
            )

    def _wake_on_signals(self) -> None:
        """Ended children arrive as bytes on a pipe, so that the loop sees them in turn."""
        readable, writable = os.pipe()
        os.set_blocking(readable, False)
        os.set_blocking(writable, False)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore_signal)
        # As pid 1 of a namespace, what has no handler cannot be used against us by a run.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._poller.watch(readable, self._reap, readable)
        self._runs.timers.after(TERM_POLL_S, self._look_for_term)

    def _reap(self, readable: int) -> None:
        os.read(readable, 4096)
        self._runs.reap()

    def _look_for_term(self) -> None:
        """Looks for a request to end, which counts when it comes from outside: a run's has a
        process number in here. A removed state directory is a request, too: its runs will never be
        asked for again.
        """
        self._runs.timers.after(TERM_POLL_S, self._look_for_term)
        about = (
            signal.sigtimedwait({signal.SIGTERM}, 0) if hasattr(signal, "sigtimedwait") else None
        )
        asked = about is not None and not (self._config["namespaces"] and about.si_pid != 0)
        if not asked and not is_removed(self._directory):
            return
        for sandbox in list(self._runs.sandboxes.values()):
            self._runs.end(sandbox, "KeeperEnded", 0.0)
        self._ending = True


def _ignore_signal(number: int, frame: object) -> None:
    """The wakeup descriptor carries the number; there is no work to do here."""
