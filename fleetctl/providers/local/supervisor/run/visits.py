"""Runs a user's commands beside a task, in its sandbox: `fleetctl exec`. Called by serve.py with
the descriptors that came over the socket, and by the supervisor when a child ends.

A visit has the namespaces, limits, variables and directory of the task. It ends with the task.
"""

from __future__ import annotations

import os
import signal
from typing import Any, Callable, Sequence

from fleetctl.guest.supervision.processes import send_signal

from .child import Birth, become_visit
from .sandbox import RunSandbox

STREAMS = 3  # stdin, stdout and stderr
Told = Callable[[int], None]


class ExecSessions:
    def __init__(self, config: dict[str, Any], sandboxes: dict[str, RunSandbox]) -> None:
        self._config = config
        self._sandboxes = sandboxes
        self._told: dict[int, Told] = {}
        self._guests: dict[int, object] = {}  # pid -> who asked

    def begin(
        self,
        guest: object,
        message: dict[str, Any],
        streams: Sequence[int],
        on_end: Told,
    ) -> str:
        """Starts the command; returns the fault when that cannot be, else "". Closes the streams.

        on_end: called with the exit code.
        """
        try:
            return self._begin(guest, message, streams, on_end)
        except OSError as error:
            return f"the command cannot be started: {error}"
        finally:
            for stream in streams:
                os.close(stream)

    def ended(self, pid: int, status: int) -> bool:
        """Returns whether the process was a visit, which has ended then."""
        answer = self._told.pop(pid, None)
        self._guests.pop(pid, None)
        if answer is None:
            return False
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        answer(code)
        return True

    def hang_up(self, guest: object) -> None:
        """Hangs up on the commands of a caller that has gone, as a closed terminal does."""
        for pid, asked in list(self._guests.items()):
            if asked is guest:
                send_signal(-pid, signal.SIGHUP)

    def _begin(
        self,
        guest: object,
        message: dict[str, Any],
        streams: Sequence[int],
        on_end: Told,
    ) -> str:
        sandbox = self._sandboxes.get(message["sandbox"])
        run = sandbox.run if sandbox is not None else None
        if sandbox is None or run is None or run.name != message["run"]:
            return "it does not run"
        if len(streams) != STREAMS:
            return "its streams did not arrive"
        order = {**run.order, "argv": message["argv"]}
        birth = Birth(self._config, order, sandbox.work, sandbox.mark)
        pid = os.fork()
        if pid == 0:
            become_visit(birth, streams, terminal=bool(message["tty"]))
        self._told[pid], self._guests[pid] = on_end, guest
        return ""
