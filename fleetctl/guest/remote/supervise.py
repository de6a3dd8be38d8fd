"""Supervises one sandbox: begins its runs, one after another, and decides when it ends.

Started by verbs.py as a process of its own, or in attach's own process. Writes journals and logs
as files and notifies followers when to look.
"""

from __future__ import annotations

import _signal
import os
import time

from fleetctl.guest.journal.record import Journal, append_event, masking_of, write_unbegun
from fleetctl.guest.remote import place
from fleetctl.guest.remote.loop import Loop
from fleetctl.guest.remote.process.child import Leader
from fleetctl.guest.remote.run.attempt import Attempt
from fleetctl.guest.remote.visitors import Visitors
from fleetctl.guest.supervision.processes import (
    adopt_orphans,
    has_children,
    is_held,
    send_signal,
)
from fleetctl.guest.task.text import encode_compact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any, Optional

    from fleetctl.guest.remote.relay.keeper import Relay
    from fleetctl.guest.remote.stream import Offsets

HOME_LOOK_S = 10.0  # between two looks whether the state directory is there


def supervise(
    lock: int,
    order: dict[str, Any],
    secrets: dict[str, str],
    *,
    follower: Optional[socket] = None,
    offsets: Optional[Offsets] = None,
) -> int:
    """Runs the supervisor; returns its exit code. lock: held until this process ends; follower: the
    socket of the run's reader; offsets: those from which this process streams to its own stdout.
    """
    output = -1 if offsets is None else os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    errors = os.open("supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for handle, target in ((null, 0), (null, 1), (errors, 2)):
        os.dup2(handle, target)
    os.close(null)
    os.close(errors)
    os.write(lock, b"%d" % os.getpid())
    adopts = adopt_orphans()
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
    if adopts and not has_children():
        # So the end of the sandbox needs no search of the machine's processes for ours.
        place.create_latch(place.EMPTY)
    return 0


class Supervisor:
    def __init__(self) -> None:
        self.loop = Loop(on_term=lambda: self.leave("SandboxEnded"))
        self.visitors = Visitors(self.loop, self._obey)
        self.runs = os.open(place.RUNS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Runs inherit the variables of the first attach, without its secrets.
        self.base = dict(os.environ)
        self.marks: list[str] = []  # the names of all runs, which their processes carry
        self.worker: Optional[Leader] = None  # takes one Python task after another
        self.relay: Optional[Relay] = None  # since the first run that may call models
        self.closing = False  # no further run begins
        self.over = False
        self._fresh = True  # no run has begun in this sandbox
        self._run: Optional[Attempt] = None
        self._last, self._told_open = "", False  # the newest run, once it has ended
        self._stopped_early = ""  # a run whose stop came before its order
        self._look_home()

    def tell(
        self,
        handle: int,
        run: str,
        offsets: Offsets,
    ) -> None:
        from fleetctl.guest.remote.stream import Story, Telling

        self.visitors.telling = Telling(self.loop, Story(run, offsets), handle)

    def begin(self, order: dict[str, Any], secrets: dict[str, str]) -> None:
        """Begins a run, unless its journal exists: then it has begun, or never must."""
        name = order["run"]
        identity = encode_compact({"keeper": "", "note": "", **order["identity"]})[1:-1]
        try:
            journal = Journal(self.runs, name, masking_of(order, secrets))
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
        """Returns whether the sandbox can take another run after this one."""
        serves = order["mode"] == "python" and not order.get("services")
        crashed = serves and (self.worker is None or not self.worker.lives)
        self.closing = self.closing or crashed or not order["reusable"]
        return not self.closing

    def relay_secrets(self, order: dict[str, Any], secrets: dict[str, str]) -> dict[str, str]:
        """Returns secrets of a run that may call models through this sandbox. Raises OSError."""
        if self.relay is None:
            from fleetctl.guest.remote.relay.keeper import Relay

            self.relay = Relay(self.loop)
        return self.relay.variables(order, secrets)

    def finished(self, run: str, *, staying: bool) -> None:
        """Continues after a run's end record."""
        if self.relay is not None:
            self.relay.end(run)
        self._run = None
        self._last = run
        self._told_open = staying
        self.visitors.tell()
        if staying:
            from fleetctl.guest.remote.run.files import remove_task_file

            remove_task_file("result.json")
            remove_task_file("metrics.jsonl")
        self.loop.after("linger", self._linger_s, self.leave)

    def worker_ended(self) -> None:
        """Closes the sandbox to new runs: a worker that waited for a task has died."""
        self.worker = None
        self._close()

    def _look_home(self) -> None:
        """Leaves without a state directory: nobody could find this sandbox again. Also once the
        process outside that holds the leash, where there is one, has ended.
        """
        let_go = os.path.exists(place.LEASH) and not is_held(place.LEASH)
        if os.path.exists(place.LOCK) and not let_go:
            self.loop.after("home", HOME_LOOK_S, self._look_home)
        else:
            self.leave("SandboxEnded")

    def leave(self, why: str = "Stopped") -> None:
        """Ends all that runs, then this process and the sandbox's entrypoint."""
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
        """Writes the last frames of this process."""
        if self.visitors.telling is not None:
            self.visitors.telling.finish()

    def abandon(self) -> None:
        """Ends the runs after a fault of ours, so that their followers learn it."""
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
        """Takes no more runs, and reports so where the last run's end promised more."""
        self.closing = True
        if self.worker is not None:
            self.worker.kill()
            self.worker = None
        if self._told_open:
            self._told_open = False
            append_event(self.runs, self._last, {"e": "closed", "at": time.time()})
            self.visitors.tell()


def end_entrypoint() -> None:
    try:
        with open(place.idle_pid(), encoding="ascii") as file:
            send_signal(int(file.read()), _signal.SIGTERM)
    except (OSError, ValueError):
        return  # the sandbox has an entrypoint of its own
