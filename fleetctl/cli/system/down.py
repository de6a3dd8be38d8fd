"""`fleetctl down --force`: end a controller that does not answer, and nothing else.

A pid says nothing by itself: it may be another process by now. What is ended is the process that
holds the lock of this home by the kernel's word, that wrote its name into it, and that began when
that line says, in this boot; a handle on it is held from before it is looked at, so that between
look and signal it cannot become another.
"""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

from fleetctl.cli.output.render import Screen
from fleetctl.common.deadline import Deadline
from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.common.home import LOCK, LOG
from fleetctl.daemon.reach import spawn
from fleetctl.daemon.reach.client import NotRunning, ask, raise_refusal
from fleetctl.daemon.reach.holder import Holder, held_by, is_same, kernel_says, pulse

# One that still runs may want to finish its transaction; one that is stopped never will.
TERM_WAIT_S = 3.0
KILL_WAIT_S = 10.0
RELEASE_POLL_S = 0.02


def end_by_force(state_dir: Path, screen: Screen) -> int:
    """In order where it answers; else by a signal. Raises Refused where it is not sure whom."""
    try:
        return down(state_dir, screen)
    except FleetctlError as error:
        held = held_by(state_dir)
        if held is None:
            screen.data("controller stopped; running tasks go on")
            return 0
        screen.talk(str(error))
    pid = _end(state_dir, held)
    _say_that_it_was_meant(state_dir)
    screen.data(f"controller (pid {pid}) ended by force; running tasks go on")
    screen.hint("`fleetctl up --detach` starts the next one, which finds them again")
    return 0


def _end(state_dir: Path, held: Holder) -> int:
    if held.pid is None:
        raise _unsure(state_dir, "the lock does not say which process it is")
    try:
        handle = os.pidfd_open(held.pid)
    except ProcessLookupError:
        raise _unsure(
            state_dir, f"there is no process {held.pid} here; it may be in a container"
        ) from None
    except (AttributeError, OSError) as error:
        raise _unsure(
            state_dir, f"this system gives no safe hold of process {held.pid}: {error}"
        ) from None
    try:
        stopped = _verified(state_dir, held)
        if not stopped:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            if _ended(handle, TERM_WAIT_S):
                return held.pid
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        if not _ended(handle, KILL_WAIT_S):
            raise FleetctlError(
                f"process {held.pid} was killed and is still there: it waits for a disk",
                hint="look for disk errors in the system log",
            )
        return held.pid
    except ProcessLookupError:
        return held.pid  # it ended by itself
    finally:
        os.close(handle)


def _verified(state_dir: Path, held: Holder) -> bool:
    """Whether a signal has stopped it. Raises Refused unless it is the controller of this home."""
    assert held.pid is not None
    seen = pulse(held.pid)
    if seen is None or not is_same(held, seen):
        raise _unsure(state_dir, f"process {held.pid} is not the one that took the lock")
    if kernel_says(state_dir, held.pid) is False:
        raise _unsure(state_dir, f"the kernel says that another process than {held.pid} holds it")
    if held_by(state_dir) != held:
        raise _unsure(state_dir, "the lock has just passed to another process")
    return seen.stopped


def _ended(handle: int, wait_s: float) -> bool:
    """A handle on a process is readable once that has ended."""
    return bool(select.select([handle], [], [], wait_s)[0])


def _unsure(state_dir: Path, why: str) -> Refused:
    return Refused(
        f"nothing was ended: {why}",
        hint=f"`fuser -v {state_dir / LOCK}` shows who has it open; end it by hand if it is yours",
    )


def _say_that_it_was_meant(state_dir: Path) -> None:
    """An empty lock file tells commands that wait that nobody killed it behind their back."""
    import fcntl

    deadline = Deadline(KILL_WAIT_S)
    while not deadline.passed:
        with open(state_dir / LOCK, "rb+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Another one has started already, or somebody asks for the holder just now.
                if held_by(state_dir) is not None:
                    return
            else:
                lock.truncate(0)
                return
        deadline.sleep(RELEASE_POLL_S)


# A controller finishes its transaction and lets go of its connections; runs go on without it.
DOWN_WAIT_S = 15.0


DOWN_POLL_S = 0.02


def down(state_dir: Path, screen: Screen) -> int:
    pid = spawn.holder(state_dir)
    try:
        reply = ask(state_dir, {"verb": "shutdown"})
    except NotRunning:
        if pid is None:
            screen.talk("no controller runs")
            return 0
        raise FleetctlError(
            f"process {pid} holds the store but does not listen: it is starting or ending, or will "
            "make a lost socket anew within seconds",
            hint=f"try again; `fleetctl down --force` ends it; its log is `{state_dir / LOG}`",
        ) from None
    if not reply.get("ok"):
        raise_refusal(reply)
    deadline = Deadline(DOWN_WAIT_S)
    while spawn.holder(state_dir) == pid and pid is not None:
        if deadline.passed:
            raise FleetctlError(
                f"the controller (pid {pid}) did not end within {DOWN_WAIT_S:g} s",
                hint=f"`fleetctl down --force` ends it; its log is `{state_dir / LOG}`",
            )
        deadline.sleep(DOWN_POLL_S)
    screen.data("controller stopped; running tasks go on")
    return 0
