"""`fleetctl up`, `down` and `status`: run, stop and show the controller process."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from fleetctl.cli.command.flags import Parser, add_output
from fleetctl.cli.command.values import duration_s
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.system.down import stop_controller
from fleetctl.cli.system.version import VERSION
from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import count_noun
from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.socket_client import ping_controller
from fleetctl.daemon.client.timeouts import ControllerHung, ControllerUnanswered
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
        from fleetctl.cli.system.down import end_by_force

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
