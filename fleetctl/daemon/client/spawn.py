"""Starts the controller in the background when a command needs it and none runs, and keeps one at
work while a command waits.

The controller itself is in serve.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fleetctl.common.author import find_agent
from fleetctl.common.clock import Deadline, RepeatTimer
from fleetctl.common.errors import FleetctlError
from fleetctl.common.remote import REMOTE
from fleetctl.common.state_paths import LOCK, LOG, refuse_foreign
from fleetctl.daemon.client.lock_holder import (
    ControllerHung,
    ControllerTimeout,
    ControllerUnanswered,
    find_stall_reason,
    read_lock_holder,
)
from fleetctl.daemon.client.socket_client import (
    NotRunning,
    ping_controller,
    raise_refusal,
    send_request,
)

if TYPE_CHECKING:
    import subprocess


CHECK_EVERY_S = 1.0


if TYPE_CHECKING:
    pass

# Ready within 1 s is promised; a machine that is very busy gets thirty times that. One that ends
# before is noticed at once.
READY_WAIT_S = 120.0  # of a machine with ten jobs a core; most are there within a second
READY_POLL_S = 0.02
# The first may lose a race against another one that is just ending; the second shows the reason.
SPAWNS_MAX = 2
ELSEWHERE_PID = 0  # stands for the controller of a server
# Without live work for this long, a controller that started by itself ends by itself.
IDLE_EXIT_S = 600
TAIL_BYTES = 16 * 1024
LOG_BYTES_MAX = 5 * 1024 * 1024
LOG_TAIL_LINES = 12


def request_or_start(home: Path, message: Mapping[str, object]) -> dict[str, object]:
    """Returns the reply to `message`, also a refusing one; starts a controller where needed. A
    message that names no agent has that of this process's environment."""
    if agent := find_agent(os.environ):
        message = {"agent": agent, **message}
    if caller := os.environ.get("TRACEPARENT"):
        message = {"traceparent": caller, **message}
    try:
        return send_request(home, message)
    except NotRunning:
        start_controller(home)
    try:
        return send_request(home, message)
    except NotRunning:
        raise FleetctlError(
            "the controller ended right after its start", hint=f"its log is `{home / LOG}`"
        ) from None


def request_with_env(
    home: Path,
    message: Mapping[str, object],
    values: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Returns the reply as `request`; variables of our environment are sent only on demand.
    values: of variables that come before those of the environment."""
    reply = request_or_start(home, message)
    names = reply.get("needEnv")
    if not isinstance(names, list):
        return reply
    known = {**os.environ, **(values or {})}
    env = {str(name): known[str(name)] for name in names if str(name) in known}
    return request_or_start(home, {**message, "env": env})


def require_reply(home: Path, message: Mapping[str, object]) -> dict[str, object]:
    """Returns the reply as `request`, with a refusing one raised as RequestRefused."""
    reply = request_or_start(home, message)
    if not reply.get("ok"):
        raise_refusal(reply)
    return reply


def find_holder_pid(home: Path) -> int | None:
    """Returns the pid that holds the store's lock, or None: from the kernel, not from a pid
    file."""
    if REMOTE.get() is not None:
        return ELSEWHERE_PID  # the server starts one where it needs it
    found = read_lock_holder(home)
    if found is None:
        return None
    return found.pid


def has_ended_orderly(home: Path) -> bool:
    """Returns true where the last controller ended in order (`down`, idle) instead of being
    killed."""
    try:
        return (home / LOCK).stat().st_size == 0
    except FileNotFoundError:
        return True


def start_controller(home: Path, *, idle_exit_s: float | None = IDLE_EXIT_S) -> dict[str, object]:
    """Makes sure that a controller runs and is ready; returns its report of itself.

    One that is starting or ending is waited for. Raises FleetctlError with the end of the log when
    none comes up, and ControllerHung for one that makes no progress.
    """
    child: subprocess.Popen[bytes] | None = None
    spawned = 0
    log_at = 0
    deadline = Deadline(READY_WAIT_S)
    patience = ControllerTimeout(home)
    while not deadline.passed:
        patience.look()
        found = _ping_ready(home)
        if found and found.get("ready"):
            return found
        on_its_way = found is not None or (child is not None and child.poll() is None)
        if not on_its_way and find_holder_pid(home) is None:
            if spawned == SPAWNS_MAX:
                break
            child, log_at = _spawn_controller(home, idle_exit_s=idle_exit_s)
            spawned += 1
        deadline.sleep(READY_POLL_S)
    raise FleetctlError(
        "the controller did not become ready" + _tail_log(home, log_at),
        hint=f"the whole log is `{home / LOG}`; `fleetctl up` runs it in the foreground",
    )


def _ping_ready(home: Path) -> dict[str, object] | None:
    """Returns the controller's report of itself; empty while it is too busy or ends, None without
    one."""
    try:
        return ping_controller(home)
    except ControllerHung:
        raise
    except ControllerUnanswered:
        return {}


def _spawn_controller(
    home: Path, *, idle_exit_s: float | None
) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a controller; returns its process, and the offset in the log at which its own lines
    begin."""
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
    """Opens the controller's log for appending; a full one is kept once as `.1`."""
    path = home / LOG
    try:
        home.mkdir(
            mode=0o700,
            parents=True,
            exist_ok=True,
        )
        refuse_foreign(home)
        if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
            path.replace(path.with_name(path.name + ".1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise FleetctlError(
            f"fleetctl cannot keep its state in `{home}`: {error.strerror}",
            hint="set FLEETCTL_HOME to a directory on a local disk that you can write",
        ) from None
    return os.fdopen(descriptor, "ab")


def _tail_log(home: Path, log_at: int) -> str:
    """Returns the log from an offset on. An earlier try may have logged the same lines."""
    from fleetctl.common.text import escape_lines

    try:
        with open(home / LOG, "rb") as log:
            log.seek(max(log_at, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = escape_lines(text)[-LOG_TAIL_LINES:]
    return "; its log ends with:\n" + "\n".join(f"  {line}" for line in lines)


class ControllerSupervision:
    """Starts a controller when there is none, and again when it was killed.

    A controller that the user stopped is not started. talk: receives a sentence about that; warn:
    a sentence and a hint about a standstill.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        talk: Callable[[str], None],
        warn: Callable[[str, str], None],
    ) -> None:
        self._place = state_dir
        self._talk = talk
        self._warn = warn
        self._turn = RepeatTimer(CHECK_EVERY_S, first_s=0.0)
        self._began = False
        self._said = False

    def check(self) -> None:
        """Checks at most once a second, so that a loop may call it in every turn."""
        if not self._turn.due():
            return
        first = not self._began
        self._began = True
        if find_holder_pid(self._place) is not None:
            self._said = self._report_stall()
        elif first:
            start_controller(self._place)
        elif not has_ended_orderly(self._place):
            self._talk("the controller was killed; starting it again")
            start_controller(self._place)
        elif not self._said:
            self._said = True
            self._talk("the controller was stopped; nothing moves on until `fleetctl up --detach`")

    def _report_stall(self) -> bool:
        """Returns true for a standstill in spite of a controller, which is reported once."""
        found = find_stall_reason(self._place)
        if found is not None and not self._said:
            self._warn(found.why, found.hint)
        return found is not None
