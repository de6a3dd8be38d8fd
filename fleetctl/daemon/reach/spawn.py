"""Start the controller in the background when a command needs it and none runs.

Called by the verbs that write or wait. The controller itself is in serve.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.daemon.reach.client import raise_refusal

if TYPE_CHECKING:
    pass
import sys
from typing import IO, TYPE_CHECKING

from fleetctl.common.deadline import Deadline
from fleetctl.common.errors import FleetctlError
from fleetctl.common.home import LOCK, LOG
from fleetctl.daemon.reach.client import NotRunning, ask, ping
from fleetctl.daemon.reach.holder import held_by
from fleetctl.daemon.reach.patience import Hung, Patience, Unanswered

if TYPE_CHECKING:
    import subprocess

# Ready within 1 s is promised; a machine that is very busy gets thirty times that. One that ends
# before is noticed at once.
READY_WAIT_S = 30.0
READY_POLL_S = 0.02
# The first may lose a race against another one that is just ending; the second tells the reason.
SPAWNS_MAX = 2
# With nothing live for so long, a controller that started by itself ends by itself.
IDLE_EXIT_S = 600
TAIL_BYTES = 16 * 1024
LOG_BYTES_MAX = 5 * 1024 * 1024
LOG_TAIL_LINES = 12


def request(home: Path, message: Mapping[str, object]) -> dict[str, object]:
    """The reply to `message`, also one that says no; starts a controller if none listens."""
    try:
        return ask(home, message)
    except NotRunning:
        start(home)
    try:
        return ask(home, message)
    except NotRunning:
        raise FleetctlError(
            "the controller ended right after its start", hint=f"its log is `{home / LOG}`"
        ) from None


def answered(home: Path, message: Mapping[str, object]) -> dict[str, object]:
    """`request`; variables of our environment are sent only when they are asked for."""
    reply = request(home, message)
    names = reply.get("needEnv")
    if not isinstance(names, list):
        return reply
    env = {str(name): os.environ[str(name)] for name in names if str(name) in os.environ}
    return request(home, {**message, "env": env})


def demand(home: Path, message: Mapping[str, object]) -> dict[str, object]:
    """`request`, with a reply that says no raised as a Refusal."""
    reply = request(home, message)
    if not reply.get("ok"):
        raise_refusal(reply)
    return reply


def holder(home: Path) -> int | None:
    """The process that holds the store's lock, or None. The kernel's word, not a pid file's."""
    found = held_by(home)
    return None if found is None else found.pid


def ended_orderly(home: Path) -> bool:
    """Whether the last controller said goodbye (`down`, idle) instead of being killed."""
    try:
        return (home / LOCK).stat().st_size == 0
    except FileNotFoundError:
        return True


def start(home: Path, *, idle_exit_s: float | None = IDLE_EXIT_S) -> dict[str, object]:
    """Make sure that a controller runs and is ready; what it says of itself.

    One that is starting or ending is waited for. Raises FleetctlError with the end of the log when
    none comes up, and Hung for one that does nothing.
    """
    child: subprocess.Popen[bytes] | None = None
    spawned, log_at = 0, 0
    deadline, patience = Deadline(READY_WAIT_S), Patience(home)
    while not deadline.passed:
        patience.look()
        found = _said(home)
        if found and found.get("ready"):
            return found
        on_its_way = found is not None or (child is not None and child.poll() is None)
        if not on_its_way and holder(home) is None:
            if spawned == SPAWNS_MAX:
                break
            child, log_at = _spawn(home, idle_exit_s=idle_exit_s)
            spawned += 1
        deadline.sleep(READY_POLL_S)
    raise FleetctlError(
        "the controller did not become ready" + _tail(home, log_at),
        hint=f"the whole log is `{home / LOG}`; `fleetctl up` runs it in the foreground",
    )


def _said(home: Path) -> dict[str, object] | None:
    """What a controller says of itself; nothing while it is too busy or ends, None without one."""
    try:
        return ping(home)
    except Hung:
        raise
    except Unanswered:
        return {}


def _spawn(home: Path, *, idle_exit_s: float | None) -> tuple[subprocess.Popen[bytes], int]:
    """A controller, and the offset in the log at which its own words begin."""
    import subprocess

    with _open_log(home) as log:
        # -P: the directory that we are started in must not shadow modules of ours.
        words = [sys.executable, "-P", "-m", "fleetctl.cli.main", "up"]
        if idle_exit_s is not None:
            words += ["--idle-exit", f"{idle_exit_s:.3f}"]
        log_at = log.seek(0, os.SEEK_END)
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            env={**os.environ, "FLEETCTL_HOME": str(home)},
            start_new_session=True,
        )
    return child, log_at


def _open_log(home: Path) -> IO[bytes]:
    """The controller's log for appending; a full one is kept once as `.1`."""
    path = home / LOG
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
            path.replace(path.with_name(path.name + ".1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise FleetctlError(
            f"fleetctl cannot keep its state in `{home}`: {error.strerror}",
            hint="set FLEETCTL_HOME to a directory on a local disk that you can write",
        ) from None
    return os.fdopen(descriptor, "ab")


def _tail(home: Path, log_at: int) -> str:
    """What the log says from an offset on. Another try before it may have said the same."""
    from fleetctl.common.text import safe_lines

    try:
        with open(home / LOG, "rb") as log:
            log.seek(max(log_at, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = safe_lines(text)[-LOG_TAIL_LINES:]
    return "; its log ends with:\n" + "\n".join(f"  {line}" for line in lines)
