"""Waits for the controller: as long as it makes progress, and ten seconds for one that does not.
Called by socket_client.py and spawn.py while they wait.

A busy controller, or one that waits for a slow server in a long request, is not a hung one: it
replies to a ping, or uses its processor. One that a signal has stopped, or that does neither,
hangs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fleetctl.common.errors import FleetctlError
from fleetctl.daemon.client.lock_holder import ProcessPulse, read_lock_holder, read_pulse

STOPPED_S = 1.0  # a debugger, or a shell that resumes it at once, stops it for less
PING_AFTER_S = 3.0  # most replies come in milliseconds
HANGS_AFTER_S = 9.0  # reported within ten
_WANTS_ON = ("R", "D")  # it waits for its turn on a busy machine, or for the disk


class ControllerUnanswered(FleetctlError):
    """Raised where a controller listens and has not replied: it is very busy, hangs or has just
    ended."""


class ControllerHung(ControllerUnanswered):
    """Raised where it exists, holds the store, and makes no progress."""


def build_hung_error(pid: int | None, why: str) -> ControllerHung:
    who = f"the controller (pid {pid})" if pid else "the controller"
    on = f"`kill -CONT {pid}` lets it go on; " if pid and why.startswith("it is stopped") else ""
    return ControllerHung(
        f"{who} hangs: {why}",
        hint=f"{on}`fleetctl down --force` ends it, and running tasks go on",
    )


class ControllerTimeout:
    """One wait. `look` is called at least twice a second; it raises ControllerHung.

    answers: sends a short request on another connection, and returns true for a reply; None: the
    pending request is short itself.
    """

    def __init__(self, home: Path, answers: Callable[[float], bool] | None = None) -> None:
        self._home = home
        self._answers = answers
        self._began_s = self._heard_s = time.monotonic()
        self._first: ProcessPulse | None = None

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._began_s

    def look(self) -> None:
        silent_s = time.monotonic() - self._heard_s
        if silent_s < STOPPED_S:
            return
        held = read_lock_holder(self._home)
        seen = read_pulse(held.pid) if held is not None and held.pid is not None else None
        if held is None or seen is None:
            return
        if seen.stopped:
            raise build_hung_error(
                held.pid, "it is stopped by a signal (SIGSTOP, or Ctrl-Z where it runs)"
            )
        if self._first is None or self._first.begun != seen.begun:
            self._first = seen
        if self._answers is not None and silent_s >= PING_AFTER_S:
            if self._answers(HANGS_AFTER_S - PING_AFTER_S):
                self._note_reply()
                return
            silent_s = time.monotonic() - self._heard_s
        if silent_s < HANGS_AFTER_S:
            return
        now = read_pulse(held.pid) if held.pid is not None else None
        idle = now is not None and now.cpu_ticks == self._first.cpu_ticks
        if now is not None and idle and now.state not in _WANTS_ON:
            raise build_hung_error(
                held.pid, f"it has not answered for {silent_s:.0f} s and does no work"
            )
        self._note_reply()  # it works: it is only busy

    def _note_reply(self) -> None:
        self._heard_s = time.monotonic()
        self._first = None
