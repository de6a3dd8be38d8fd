"""`fleetctl up`, `down` and `status`: run, stop and show the controller process; `down --force`
ends one that does not respond, and no other process.

A pid alone identifies no process: it may be another one by now. The signal goes to the process
that holds the lock of this state directory according to the kernel, that wrote its name into it,
and that began when that line says, in this boot; a handle on it is held from before the check, so
that between check and signal it cannot become another.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from fleetctl.cli.command.flags import Parser, add_output, duration_s
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.system.version import VERSION
from fleetctl.common.clock import Deadline
from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.common.state_paths import LOCK, LOG, find_state_dir
from fleetctl.common.text import count_noun
from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.lock_holder import (
    ControllerHung,
    ControllerUnanswered,
    LockHolder,
    is_same,
    kernel_says,
    read_lock_holder,
    read_pulse,
)
from fleetctl.daemon.client.socket_client import (
    REPLY_WAIT_S,
    NotRunning,
    ping_controller,
    raise_refusal,
    send_request,
)
from fleetctl.views.store_reading import open_reading

UI_LISTEN = "127.0.0.1:8123"
SERVER_START_S = 120.0  # it takes a second, and longer on a busy machine
SERVER_END_S = 15.0  # longer than it waits for answers under way
_STATE_UNREADY = "does not listen: it starts or stops, or creates a lost socket again"

PAGES = {
    "up": """\
[--detach | --ui [ADDRESS:PORT]] [--idle-exit TIME]

Run the controller. `apply` starts one by itself; this is for watching it, or a service.
With --ui `fleetctl serve` runs beside it, and its address is the first line of output.

examples:
  fleetctl up
  fleetctl up --ui
  fleetctl up --detach
  fleetctl up --idle-exit 10m

exit codes:
  0 ended in order (with --detach: runs), 1 failed, 2 wrong usage, 3 one runs already
""",
    "down": """\
[--force]

Stop the controller. Running tasks go on; the next controller finds them again.
--force ends one that hangs, once it is sure that this is the controller of this state directory.

examples:
  fleetctl down
  fleetctl down && fleetctl up --detach
  fleetctl down --force
  FLEETCTL_HOME=/srv/fleet fleetctl down

exit codes:
  0 ok, 1 failed, 2 wrong usage
""",
    "status": """\
[-o table|json]

Show whether the controller runs, where the state is and how much there is.

examples:
  fleetctl status
  fleetctl status -o json
  FLEETCTL_HOME=/srv/fleet fleetctl status

exit codes:
  0 ok, 1 failed, 2 wrong usage
""",
}

# A running one may want to finish its transaction; a stopped one never will.
TERM_WAIT_S = 3.0
# Asked to end, a busy one is silent; after the first time the user gets a message, after the second
# a signal follows.
SILENT_S = 2.0
BUSY_S = 13.0
KILL_WAIT_S = 10.0
RELEASE_POLL_S = 0.02


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGES[verb])
    made.set_defaults(verb=verb)
    if verb == "up":
        how = made.add_mutually_exclusive_group()
        how.add_argument(
            "--detach", action="store_true", help="run in the background; return when it is ready"
        )
        how.add_argument(
            "--ui",
            nargs="?",
            const=UI_LISTEN,
            metavar="ADDRESS:PORT",
            help=f"serve the page and the API, too (default {UI_LISTEN})",
        )
        made.add_argument(
            "--idle-exit",
            type=duration_s,
            metavar="TIME",
            help="end after so long with nothing to do",
        )
    if verb == "down":
        made.add_argument(
            "--force",
            action="store_true",
            help="end it also where it does not answer; work goes on",
        )
    if verb == "status":
        add_output(made, "table", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    state_dir = find_state_dir()
    if args.verb == "up":
        return _bring_up(state_dir, args, screen)
    if args.verb == "status":
        return _show_status(state_dir, args.output, screen)
    if args.force:
        return end_by_force(state_dir, screen)
    return stop_controller(state_dir, screen)


def _bring_up(
    state_dir: Path,
    args: Namespace,
    screen: Screen,
) -> int:
    if args.detach:
        before = spawn.find_holder_pid(state_dir)
        found = spawn.start_controller(state_dir, idle_exit_s=args.idle_exit)
        already = " already" if before == found.get("pid") else ""
        screen.data(f"controller runs{already}, pid {found.get('pid')}")
        return 0
    running = spawn.find_holder_pid(state_dir)
    if running is not None:
        raise Refused(
            f"a controller runs already, pid {running}",
            hint="`fleetctl down` stops it; work goes on",
        )
    from fleetctl.daemon.serve import serve_controller

    with nullcontext() if args.ui is None else _run_page_server(args.ui, screen):
        return serve_controller(
            state_dir, idle_exit_s=args.idle_exit, foreground=screen.talk_is_terminal
        )


@contextmanager
def _run_page_server(listen: str, screen: Screen) -> Iterator[None]:
    """Runs `fleetctl serve` until the controller ends. Raises FleetctlError where it does not come
    up; its own error is above.
    """
    import select
    import subprocess

    words = [sys.executable, "-P", "-m", "fleetctl", "serve", "--listen", listen]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            replies, _, _ = select.select([server.stdout], [], [], SERVER_START_S)
            address = server.stdout.readline().decode().strip() if replies else ""
            if not address:
                raise FleetctlError(
                    f"the server did not come up at `{listen}`",
                    hint="`--ui 127.0.0.1:0` takes a free port",
                )
            screen.data(address)
            screen.flush()
            yield
        finally:
            server.terminate()
            try:
                server.wait(SERVER_END_S)
            except subprocess.TimeoutExpired:
                server.kill()


def _show_status(
    state_dir: Path,
    output: str,
    screen: Screen,
) -> int:
    pid = spawn.find_holder_pid(state_dir)
    answer, why = _ping_controller(state_dir) if pid is not None else (None, None)
    facts: dict[str, object] = {
        "pid": pid,
        "ready": bool(answer and answer.get("ready")),
        "hangs": isinstance(why, ControllerHung),
        "home": str(state_dir),
        "version": VERSION,
    }
    with open_reading(state_dir) as reading:
        objects = Counter(seen.resource.kind for seen in reading.views())
        facts |= {"objects": dict(objects), "liveRuns": reading.live_runs()}
    code = int(isinstance(why, ControllerHung))
    if output == "json":
        screen.data(json.dumps(facts))
        return code
    state = "ready" if facts["ready"] else _STATE_UNREADY
    if why is not None:
        state = "hangs" if code else "does not answer"
    counts = ", ".join(count_noun(count, name) for name, count in objects.items())
    screen.data(f"Controller:  {f'runs, pid {pid}, {state}' if pid else 'does not run'}")
    screen.data(f"State dir:   {state_dir}")
    screen.data(f"Version:     {VERSION}")
    screen.data(f"Objects:     {counts or 'none'}")
    screen.data(f"Live runs:   {facts['liveRuns']}")
    if why is not None:
        screen.warn(str(why))
        screen.hint(why.hint)
    return code


def _ping_controller(
    state_dir: Path,
) -> tuple[dict[str, object] | None, ControllerUnanswered | None]:
    """Returns the controller's report of itself, or the error that there is none."""
    try:
        return ping_controller(state_dir), None
    except ControllerUnanswered as error:
        return None, error


def end_by_force(state_dir: Path, screen: Screen) -> int:
    """Ends it in order where it responds; else by a signal. Raises Refused where the process is
    uncertain."""
    try:
        return _stop_soon(state_dir, screen)
    except FleetctlError as error:
        held = read_lock_holder(state_dir)
        if held is None:
            screen.data("controller stopped; running tasks go on")
            return 0
        screen.talk(str(error))
    pid = _end_process(state_dir, held)
    _mark_intended_end(state_dir)
    screen.data(f"controller (pid {pid}) ended by force; running tasks go on")
    screen.hint("`fleetctl up --detach` starts the next one, which finds them again")
    return 0


def _stop_soon(state_dir: Path, screen: Screen) -> int:
    """Ends it as `down`, within a time that a user waits for. Raises FleetctlError."""
    try:
        return stop_controller(state_dir, screen, wait_s=SILENT_S)
    except ControllerHung:
        raise
    except ControllerUnanswered:
        screen.talk(
            f"the controller is busy and does not answer; it is ended by force in {BUSY_S:g} s,"
            " unless it answers before"
        )
    return stop_controller(state_dir, screen, wait_s=BUSY_S)


def _end_process(state_dir: Path, held: LockHolder) -> int:
    if held.pid is None:
        raise _refuse_unsure(state_dir, "the lock does not say which process it is")
    try:
        handle = os.pidfd_open(held.pid)
    except ProcessLookupError:
        raise _refuse_unsure(
            state_dir, f"there is no process {held.pid} here; it may be in a container"
        ) from None
    except (AttributeError, OSError) as error:
        raise _refuse_unsure(
            state_dir, f"this system gives no safe hold of process {held.pid}: {error}"
        ) from None
    try:
        stopped = _verify_holder(state_dir, held)
        if not stopped:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            if _has_ended(handle, TERM_WAIT_S):
                return held.pid
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        if not _has_ended(handle, KILL_WAIT_S):
            raise FleetctlError(
                f"process {held.pid} was killed and is still there: it waits for a disk",
                hint="look for disk errors in the system log",
            )
        return held.pid
    except ProcessLookupError:
        return held.pid  # it ended by itself
    finally:
        os.close(handle)


def _verify_holder(state_dir: Path, held: LockHolder) -> bool:
    """Returns true where a signal has stopped it. Raises Refused unless it is the controller of
    this state directory."""
    assert held.pid is not None
    seen = read_pulse(held.pid)
    if seen is None or not is_same(held, seen):
        raise _refuse_unsure(state_dir, f"process {held.pid} is not the one that took the lock")
    if kernel_says(state_dir, held.pid) is False:
        raise _refuse_unsure(
            state_dir, f"the kernel says that another process than {held.pid} holds it"
        )
    if read_lock_holder(state_dir) != held:
        raise _refuse_unsure(state_dir, "the lock has just passed to another process")
    return seen.stopped


def _has_ended(handle: int, wait_s: float) -> bool:
    """Waits on the handle, which is readable once the process has ended."""
    poller = select.poll()  # `select` takes no descriptor above 1,023
    poller.register(handle, select.POLLIN)
    return bool(poller.poll(wait_s * 1000))


def _refuse_unsure(state_dir: Path, why: str) -> Refused:
    return Refused(
        f"nothing was ended: {why}",
        hint=f"`fuser -v {state_dir / LOCK}` shows who has it open; end it by hand if it is yours",
    )


def _mark_intended_end(state_dir: Path) -> None:
    """Empties the lock file, which shows waiting commands that the end was orderly."""
    import fcntl

    deadline = Deadline(KILL_WAIT_S)
    while not deadline.passed:
        with open(state_dir / LOCK, "rb+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Another one has started already, or another command is reading the holder just
                # now.
                if read_lock_holder(state_dir) is not None:
                    return
            else:
                lock.truncate(0)
                return
        deadline.sleep(RELEASE_POLL_S)


# A controller finishes its transaction and closes its connections; runs continue without it.
DOWN_WAIT_S = 15.0


DOWN_POLL_S = 0.02


def stop_controller(
    state_dir: Path,
    screen: Screen,
    *,
    wait_s: float = REPLY_WAIT_S,
) -> int:
    """Asks the controller to end. wait_s: for its reply. Raises FleetctlError."""
    pid = spawn.find_holder_pid(state_dir)
    try:
        reply = send_request(state_dir, {"verb": "shutdown"}, wait_s=wait_s)
    except NotRunning:
        if pid is None:
            screen.talk("no controller runs")
            return 0
        raise FleetctlError(
            f"process {pid} holds the store but does not listen: it is starting or ending, or will "
            "create a lost socket again within seconds",
            hint=f"try again; `fleetctl down --force` ends it; its log is `{state_dir / LOG}`",
        ) from None
    if not reply.get("ok"):
        raise_refusal(reply)
    deadline = Deadline(DOWN_WAIT_S)
    while spawn.find_holder_pid(state_dir) == pid and pid is not None:
        if deadline.passed:
            raise FleetctlError(
                f"the controller (pid {pid}) did not end within {DOWN_WAIT_S:g} s",
                hint=f"`fleetctl down --force` ends it; its log is `{state_dir / LOG}`",
            )
        deadline.sleep(DOWN_POLL_S)
    screen.data("controller stopped; running tasks go on")
    return 0
