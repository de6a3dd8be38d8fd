"""Verbs of the guest: `attach` begins a run through its latch, unless it has begun, and follows it;
`turns` does so for runs of an open sandbox; `idle`, `stop` and `leave` keep or end the sandbox.

The loss of an `attach` loses no run, unless its process has to stay: the supervisor is not its
descendant, and the frames come from files.
"""

from __future__ import annotations

import _signal
import os
import select
import sys
import time

from fleetctl.guest.remote import place
from fleetctl.guest.supervision.processes import reap_children
from fleetctl.guest.task.text import encode_compact, parse_json

TYPE_CHECKING = False

if TYPE_CHECKING:
    from _socket import socket
    from typing import Any, Optional

    from fleetctl.guest.remote.stream import Offsets


# A provider that follows for a moment holds the frames in memory.
MOMENT_LOG_BYTES_MAX = 4 * 1024 * 1024
UNBEGUN = 4  # the exit code of a run that never began here

READ_BYTES = 1024 * 1024

LOOK_S = 3600.0  # an entrypoint sleeps until a signal


def attach_run(
    run: str,
    offsets: Offsets,
    order: Optional[str],
    for_s: Optional[float] = None,
    *,
    stay: bool = False,
    gate: int = -1,
) -> int:
    """Returns the exit code. offsets: where each stream goes on; order: its JSON, or None to
    follow; for_s: how long to follow; stay: this process may live until its sandbox ends, so that
    it may be the supervisor itself, which saves processes at each run; gate: a descriptor that is
    closed once the supervisor's lock is held.
    """
    line = None
    if order is not None and place.create_latch(place.begun_path(run)):
        wanted = parse_json(order)
        secrets = _take_secrets(wanted)
        lock = place.lock_supervisor()
        if gate >= 0:
            os.close(gate)
            gate = -1
        if lock is not None and stay:
            return _become_supervisor(lock, offsets, wanted, secrets)
        line = (
            _send_order(wanted, secrets)
            if lock is None
            else _start_supervisor(lock, wanted, secrets)
        )
    elif not os.path.exists(place.begun_path(run)):
        os.write(1, b'{"e":"unbegun"}\n')
        return UNBEGUN
    if gate >= 0:
        os.close(gate)
    from fleetctl.guest.remote.stream import follow_run

    if for_s is None:
        return follow_run(run, offsets, line or place.connect_supervisor())
    import _signal

    _signal.signal(_signal.SIGALRM, lambda *_: os._exit(0))
    _signal.setitimer(_signal.ITIMER_REAL, for_s)
    return follow_run(run, offsets, line or place.connect_supervisor(), MOMENT_LOG_BYTES_MAX)


def lead_sandbox(run: str, order: str) -> int:
    """Becomes the supervisor of a sandbox whose first run it begins; returns the exit code."""
    from fleetctl.guest.remote.supervise import supervise

    wanted = parse_json(order)
    secrets = _take_secrets(wanted)
    lock = place.lock_supervisor() if place.create_latch(place.begun_path(run)) else None
    return supervise(lock, wanted, secrets) if lock is not None else UNBEGUN


def _take_secrets(order: dict[str, Any]) -> dict[str, str]:
    """Returns the secrets of an order, and removes them from the environment of this process."""
    names = [name for name in order["secret_names"] if name in os.environ]
    return {name: os.environ.pop(name) for name in names}


def _send_order(order: dict[str, Any], secrets: dict[str, str]) -> Optional[socket]:
    """Connects to the supervisor and sends the order; None when there can be no supervisor."""
    line = place.reach_supervisor()
    if line is None:
        from fleetctl.guest.remote.stream import write_unbegun_run

        write_unbegun_run(order["run"])
        return None
    message = {"op": "run", "order": order, "secrets": secrets}
    try:
        line.sendall((encode_compact(message) + "\n").encode())
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


def attach_in_turn() -> int:
    """Serves requests until stdin ends; returns the exit code. A request that is cut off begins no
    run.

    Each request is a line of JSON: {"run", "order", "secrets"}. Its run begins and is followed as
    by an `attach` of its own, which would cost two round trips and the start of an interpreter.
    """
    rest = b""
    code = 0
    while code == 0:
        request, rest = _read_request(rest)
        if request is None:
            break
        os.environ.update(request["secrets"])
        code = attach_run(request["run"], (0, 0, {}, 0), encode_compact(request["order"]))
    return code


def _read_request(rest: bytes) -> tuple[Optional[dict[str, Any]], bytes]:
    """Returns (the next request, the bytes after it)."""
    parts = [rest]
    while b"\n" not in parts[-1]:
        parts.append(os.read(0, READ_BYTES))
        if not parts[-1]:
            return None, b""
    line, _, rest = b"".join(parts).partition(b"\n")
    return parse_json(line.decode()), rest


def wait_idle(begin_s: float) -> int:
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
            list(reap_children())  # as the first process of a sandbox we inherit orphans


def stop_run(run: str, grace_s: float) -> int:
    """Requests a run's end from the supervisor; without one there is no orderly end."""
    if not _send_request({"op": "stop", "run": run, "grace_s": grace_s}):
        _kill_leftovers()
    return 0


def leave_sandbox(why: str) -> int:
    if not _send_request({"op": "leave", "why": why}):
        _kill_leftovers()
        from fleetctl.guest.remote.supervise import end_entrypoint

        end_entrypoint()
    return 0


def _send_request(request: dict[str, Any]) -> bool:
    """Sends a request; False when there is no supervisor."""
    line = place.connect_supervisor()
    if line is None:
        return False
    try:
        line.sendall((encode_compact(request) + "\n").encode())
    except OSError:
        return False
    return True


def _kill_leftovers() -> None:
    """Kills processes of a supervisor that was killed."""
    from fleetctl.guest.remote.process.tree import Tree

    runs = [name[: -len(".begun")] for name in os.listdir(place.RUNS) if name.endswith(".begun")]
    if runs and not place.is_supervised():
        Tree(-1, runs).send(_signal.SIGKILL)
