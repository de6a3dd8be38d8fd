"""Looks after one sandbox: begins its runs, one after another, and decides when it is over.

Started by attach.py as a process of its own, or in its own place. Writes journals and logs as files
and tells followers when to look.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import time

from fleetctl.guest.journal.record import Journal, append, write_unbegun
from fleetctl.guest.remote import place
from fleetctl.guest.remote.loop import Loop
from fleetctl.guest.remote.process.leader import Leader
from fleetctl.guest.remote.run.attempt import Attempt
from fleetctl.guest.remote.visitors import Visitors
from fleetctl.guest.supervision.processes import send
from fleetctl.guest.task.text import compact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any, Optional

    from fleetctl.guest.remote.relay.keeper import Relay
    from fleetctl.guest.remote.story.frames import Offsets


def supervise(
    lock: int,
    order: dict[str, Any],
    secrets: dict[str, str],
    *,
    follower: Optional[socket] = None,
    offsets: Optional[Offsets] = None,
) -> int:
    """The life of the supervisor; its exit code. lock: held until this process ends; follower: who
    tells the run's story; offsets: those from which this process tells it itself, on its stdout.
    """
    output = -1 if offsets is None else os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    errors = os.open("supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for handle, target in ((null, 0), (null, 1), (errors, 2)):
        os.dup2(handle, target)
    os.close(null)
    os.close(errors)
    os.write(lock, b"%d" % os.getpid())
    supervisor = Supervisor()
    if follower is not None:
        supervisor.visitors.adopt(follower)
    if offsets is not None:
        supervisor.tell(output, order["run"], offsets)
    try:
        supervisor.begin(order, secrets)
        while not supervisor.over:
            supervisor.loop.turn()
    except BaseException:
        supervisor.abandon()
        raise
    finally:
        supervisor.finish()
    return 0


class Supervisor:
    def __init__(self) -> None:
        self.loop = Loop(on_term=lambda: self.leave("SandboxEnded"))
        self.visitors = Visitors(self.loop, self._obey)
        self.runs = os.open(place.RUNS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # What runs inherit: the variables of the first attach, without its secrets.
        self.base = dict(os.environ)
        self.marks: list[str] = []  # the names of all runs, which their processes carry
        self.worker: Optional[Leader] = None  # takes one Python task after another
        self.relay: Optional[Relay] = None  # since the first run that may ask models
        self.closing = False  # no further run begins
        self.over = False
        self._fresh = True  # nothing has run in this sandbox
        self._run: Optional[Attempt] = None
        self._last, self._told_open = "", False  # the newest run, once it has ended
        self._stopped_early = ""  # a run whose stop came before its order

    def tell(self, handle: int, run: str, offsets: Offsets) -> None:
        from fleetctl.guest.remote.story.frames import Story
        from fleetctl.guest.remote.story.telling import Telling

        self.visitors.telling = Telling(self.loop, Story(run, offsets), handle)

    def begin(self, order: dict[str, Any], secrets: dict[str, str]) -> None:
        """Begin a run, unless its journal is there: then it has begun, or never must."""
        name = order["run"]
        identity = compact({"keeper": "", "note": "", **order["identity"]})[1:-1]
        try:
            journal = Journal(self.runs, name)
        except FileExistsError:
            return
        if self._run is not None or self.closing or name == self._stopped_early:
            what = "its sandbox runs another task" if self._run is not None else ""
            what = what or ("its sandbox is closed" if self.closing else "it was stopped before")
            write_unbegun(journal, identity, what)
            self.visitors.tell()
            return
        self.loop.cancel("linger")
        self.marks.append(name)
        self._run = Attempt(self, order, secrets, journal)
        journal.begin(self._run.started_at_s, identity)
        if order.get("table"):
            journal.nodes(order["table"])
        self.visitors.tell()
        fresh, self._fresh, self._linger_s = self._fresh, False, order["linger_s"]
        self._run.start(fresh=fresh)

    def may_stay(self, order: dict[str, Any]) -> bool:
        """Whether the sandbox can take another run after this one."""
        serves = order["mode"] == "python" and not order.get("services")
        crashed = serves and (self.worker is None or not self.worker.lives)
        self.closing = self.closing or crashed or not order["reusable"]
        return not self.closing

    def relayed(self, order: dict[str, Any], secrets: dict[str, str]) -> dict[str, str]:
        """The secrets of a run that may ask models through this sandbox. Raises OSError."""
        if self.relay is None:
            from fleetctl.guest.remote.relay.keeper import Relay

            self.relay = Relay(self.loop)
        return self.relay.variables(order, secrets)

    def finished(self, run: str, *, staying: bool) -> None:
        """A run has its end record."""
        if self.relay is not None:
            self.relay.end(run)
        self._run, self._last, self._told_open = None, run, staying
        self.visitors.tell()
        if staying:
            from fleetctl.guest.remote.run.files import forget

            forget("result.json")
            forget("metrics.jsonl")
        self.loop.after("linger", self._linger_s, self.leave)

    def worker_ended(self) -> None:
        """A worker that waited for a task has died: the sandbox takes no more."""
        self.worker = None
        self._close()

    def leave(self, why: str = "Stopped") -> None:
        """End this process and the sandbox's entrypoint; first what still runs."""
        self.closing = True
        if self._run is not None:
            self._run.end(why, self._run.order["grace_s"])
            self.loop.after("leave", 0.1, self.leave)
            return
        self._close()
        if not self.over:
            self.over = True
            self.visitors.close()
            end_entrypoint()

    def finish(self) -> None:
        """The last words of this process."""
        if self.visitors.telling is not None:
            self.visitors.telling.finish()

    def abandon(self) -> None:
        """A fault of ours: whoever follows a run learns that it is over."""
        if self._run is not None:
            self._run.abandon()
        self._close()

    def _obey(self, request: dict[str, Any]) -> None:
        op = request.get("op")
        if op == "run":
            self.begin(request["order"], request["secrets"])
        elif op == "stop" and self._run is not None and self._run.name == request["run"]:
            self._run.end("Stopped", request["grace_s"])
        elif op == "stop" and self._run is None and self._last == request["run"]:
            self._close()
        elif op == "stop":
            self._stopped_early = request["run"]  # its order may still be on its way
        elif op == "leave":
            self.leave(request.get("why", "Stopped"))

    def _close(self) -> None:
        """Take no more runs, and say so where the last run was told that there could be."""
        self.closing = True
        if self.worker is not None:
            self.worker.kill()
            self.worker = None
        if self._told_open:
            self._told_open = False
            append(self.runs, self._last, {"e": "closed", "at": time.time()})
            self.visitors.tell()


def end_entrypoint() -> None:
    try:
        with open(place.idle_pid(), encoding="ascii") as file:
            send(int(file.read()), _signal.SIGTERM)
    except (OSError, ValueError):
        return  # the sandbox has an entrypoint of its own
