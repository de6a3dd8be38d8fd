"""The verbs `idle`, `stop` and `leave`."""

from __future__ import annotations

import _signal
import os
import select
import time

from fleetctl.guest.remote import place
from fleetctl.guest.supervision.processes import ended
from fleetctl.guest.task.text import compact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOOK_S = 3600.0  # an entrypoint sleeps until a signal


def idle(begin_s: float) -> int:
    """Waits for a signal to end; not longer than `begin_s` for a run to begin."""
    waker, writable = os.pipe()
    os.set_blocking(writable, False)
    _signal.set_wakeup_fd(writable)
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGCHLD):
        _signal.signal(number, lambda *_: None)
    # The reader of this line may send the signal at once.
    with open(place.idle_pid(), "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    begin_by_s = time.monotonic() + begin_s
    while True:
        begun = os.path.exists(place.LOCK)
        left_s = LOOK_S if begun else begin_by_s - time.monotonic()
        if left_s <= 0:
            return 0
        if select.select([waker], [], [], left_s)[0]:
            signals = os.read(waker, 4096)
            if set(signals) - {_signal.SIGCHLD}:
                return 0
            list(ended())  # as the first process of a sandbox we inherit orphans


def stop(run: str, grace_s: float) -> int:
    """Requests a run's end from the supervisor; without one there is no orderly end."""
    if not _send_request({"op": "stop", "run": run, "grace_s": grace_s}):
        _kill_leftovers()
    return 0


def leave(why: str) -> int:
    if not _send_request({"op": "leave", "why": why}):
        _kill_leftovers()
        from fleetctl.guest.remote.supervise import end_entrypoint

        end_entrypoint()
    return 0


def _send_request(request: dict[str, Any]) -> bool:
    """Sends a request; False when there is no supervisor."""
    line = place.connect()
    if line is None:
        return False
    try:
        line.sendall((compact(request) + "\n").encode())
    except OSError:
        return False
    return True


def _kill_leftovers() -> None:
    """Kills processes of a supervisor that was killed."""
    from fleetctl.guest.remote.process.tree import Tree

    runs = [name[: -len(".begun")] for name in os.listdir(place.RUNS) if name.endswith(".begun")]
    if runs and not place.supervised():
        Tree(-1, runs).send(_signal.SIGKILL)
