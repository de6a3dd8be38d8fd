"""The verb `attach`: begins a run through its latch, unless it has begun, and follows it.

Losing this process loses no run, unless it has to stay: the supervisor is not its descendant,
and the frames come from files.
"""

from __future__ import annotations

import os
import sys

from fleetctl.guest.remote import place
from fleetctl.guest.task.text import compact, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any, Optional

    from fleetctl.guest.remote.story.frames import Offsets

# A provider that follows for a moment holds the frames in memory.
MOMENT_LOG_BYTES_MAX = 4 * 1024 * 1024
UNBEGUN = 4  # the exit code of a run that never began here


def attach(
    run: str,
    offsets: Offsets,
    order: Optional[str],
    for_s: Optional[float] = None,
    *,
    stay: bool = False,
) -> int:
    """Returns the exit code. offsets: as Story takes them; order: its JSON, or None to follow;
    for_s: how long to follow; stay: this process lives until its sandbox ends, so that it may be
    the supervisor itself, which saves a process at each run.
    """
    line = None
    if order is not None and place.latched(place.begun(run)):
        wanted = parse(order)
        names = [name for name in wanted["secret_names"] if name in os.environ]
        secrets = {name: os.environ.pop(name) for name in names}
        lock = place.lock()
        if lock is not None and stay:
            return _become_supervisor(lock, offsets, wanted, secrets)
        line = (
            _send_order(wanted, secrets)
            if lock is None
            else _start_supervisor(lock, wanted, secrets)
        )
    elif not os.path.exists(place.begun(run)):
        os.write(1, b'{"e":"unbegun"}\n')
        return UNBEGUN
    from fleetctl.guest.remote.story.follow import follow

    if for_s is None:
        return follow(run, offsets, line or place.connect())
    import _signal

    _signal.signal(_signal.SIGALRM, lambda *_: os._exit(0))
    _signal.setitimer(_signal.ITIMER_REAL, for_s)
    return follow(run, offsets, line or place.connect(), MOMENT_LOG_BYTES_MAX)


def _send_order(order: dict[str, Any], secrets: dict[str, str]) -> Optional[socket]:
    """Connects to the supervisor and sends the order; None when there can be no supervisor."""
    line = place.reach()
    if line is None:
        from fleetctl.guest.remote.story.unbegun import write_unbegun_run

        write_unbegun_run(order["run"])
        return None
    message = {"op": "run", "order": order, "secrets": secrets}
    try:
        line.sendall((compact(message) + "\n").encode())
    except OSError:
        return None
    return line


def _become_supervisor(
    lock: int,
    offsets: Offsets,
    order: dict[str, Any],
    secrets: dict[str, str],
) -> int:
    """Becomes the supervisor, and streams the run, too; returns the exit code."""
    from fleetctl.guest.remote.supervise import supervise

    if os.getpgrp() != os.getpid():  # else signals to another group do not reach us
        os.setsid()
    return supervise(lock, order, secrets, offsets=offsets)


def _start_supervisor(
    lock: int,
    order: dict[str, Any],
    secrets: dict[str, str],
) -> socket:
    """Starts the supervisor as a process that is independent of this one."""
    import _socket
    import select  # noqa: F401 - both processes need it, and it is loaded once

    ours, theirs = _socket.socketpair()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.setsid()
            if os.fork():
                os._exit(0)
            ours.close()
            from fleetctl.guest.remote.supervise import supervise

            code = supervise(lock, order, secrets, follower=theirs)
        except BaseException:  # no exception may reach the code of attach
            sys.excepthook(*sys.exc_info())
        os._exit(code)
    os.waitpid(pid, 0)
    theirs.close()
    os.close(lock)
    return ours
