"""How long to wait for the controller: as long as it does something, and ten seconds for one that
does not. Called by client.py and starting.py while they wait.

A busy controller, or one that waits for a slow server in a long request, is not a hung one: it
answers a ping, or uses its processor. One that a signal has stopped, or that does neither, hangs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fleetctl.common.errors import FleetctlError
from fleetctl.daemon.reach.holder import Pulse, held_by, pulse

STOPPED_S = 1.0  # a debugger, or a shell that resumes it at once, stops it for less
PING_AFTER_S = 3.0  # most answers come in milliseconds
HANGS_AFTER_S = 9.0  # told within ten
_WANTS_ON = ("R", "D")  # it waits for its turn on a busy machine, or for the disk


class Unanswered(FleetctlError):
    """A controller listens and has not answered: it is very busy, hangs or has just ended."""


class Hung(Unanswered):
    """It is there, holds the store, and does nothing."""


def hung(pid: int | None, why: str) -> Hung:
    who = f"the controller (pid {pid})" if pid else "the controller"
    on = f"`kill -CONT {pid}` lets it go on; " if pid and why.startswith("it is stopped") else ""
    return Hung(
        f"{who} hangs: {why}",
        hint=f"{on}`fleetctl down --force` ends it, and running tasks go on",
    )


class Patience:
    """One wait. `look` is called now and then, at least twice a second; it raises Hung.

    answers: asks it something short on another connection, and returns whether it answered; None:
    what is waited for is short itself.
    """

    def __init__(self, home: Path, answers: Callable[[float], bool] | None = None) -> None:
        self._home = home
        self._answers = answers
        self._began_s = self._heard_s = time.monotonic()
        self._first: Pulse | None = None

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._began_s

    def look(self) -> None:
        silent_s = time.monotonic() - self._heard_s
        if silent_s < STOPPED_S:
            return
        held = held_by(self._home)
        seen = pulse(held.pid) if held is not None and held.pid is not None else None
        if held is None or seen is None:
            return
        if seen.stopped:
            raise hung(held.pid, "it is stopped by a signal (SIGSTOP, or Ctrl-Z where it runs)")
        if self._first is None or self._first.begun != seen.begun:
            self._first = seen
        if self._answers is not None and silent_s >= PING_AFTER_S:
            if self._answers(HANGS_AFTER_S - PING_AFTER_S):
                self._heard()
                return
            silent_s = time.monotonic() - self._heard_s
        if silent_s < HANGS_AFTER_S:
            return
        now = pulse(held.pid) if held.pid is not None else None
        idle = now is not None and now.cpu_ticks == self._first.cpu_ticks
        if now is not None and idle and now.state not in _WANTS_ON:
            raise hung(held.pid, f"it has not answered for {silent_s:.0f} s and does no work")
        self._heard()  # it works: it is only busy

    def _heard(self) -> None:
        self._heard_s, self._first = time.monotonic(), None
