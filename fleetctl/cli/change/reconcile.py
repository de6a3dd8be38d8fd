"""`fleetctl reconcile source/NAME`: makes a Source read its repository now, and prints the
result."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fleetctl.cli.apply.request import confirm_losses
from fleetctl.cli.command.flags import Parser, add_timeout
from fleetctl.cli.follow.wait_supervisor import INTERRUPTED, WaitSupervisor
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import Deadline
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line, format_duration
from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.socket_client import results_of
from fleetctl.tracking.kept_by import HELD
from fleetctl.views.kinds import Target, parse_target
from fleetctl.views.objects import READY, SUSPENDED, View, as_mapping
from fleetctl.views.store_reading import StoreReading, open_reading

WAIT_S = 600.0

PAGE = """\
source/NAME [source/NAME ...] [--yes] [--no-wait] [--timeout TIME]

Look at the repository of a Source now, whatever its interval, and make its objects equal
to it. Returns when that is done, or cannot be. What would end running work or delete data
is asked about; without a terminal it needs --yes.

examples:
  fleetctl reconcile source/fleet
  fleetctl reconcile source/fleet --yes
  fleetctl reconcile source/fleet source/nightly --no-wait

exit codes:
  0 equal, 1 the commit is not applied, 2 wrong usage, 3 needs consent (add --yes),
  4 no such object, 124 timed out, 130 interrupted (the controller goes on)
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("objects", nargs="+", metavar="source/NAME", help="Sources to look at")
    made.add_argument(
        "-y", "--yes", action="store_true", help="do not ask before work or data is lost"
    )
    made.add_argument("--no-wait", action="store_true", help="return as soon as it is asked for")
    add_timeout(made, default_s=WAIT_S, meaning="stop waiting after this")
    return made


def run(args: Namespace, screen: Screen) -> int:
    targets = list(dict.fromkeys(parse_target(text, args.namespace) for text in args.objects))
    for one in targets:
        if one.kind.name != "Source":
            raise UsageError(
                f"{one.key} is not a Source; `reconcile` takes Sources",
                hint=f"`fleetctl describe {one.key}` shows the reason of its state",
            )
    state_dir = find_state_dir()
    requests = _request_reconcile(state_dir, targets, yes=args.yes)
    if args.no_wait:
        for key in requests:
            screen.data(f"{escape_line(key)} is asked to look")
        return 0
    try:
        return _wait_reconciled(
            state_dir,
            targets,
            requests,
            screen,
            timeout_s=args.timeout,
        )
    except KeyboardInterrupt:
        screen.close_line()
        screen.talk("detached; the controller goes on")
        return INTERRUPTED


def _request_reconcile(
    state_dir: Path,
    targets: Sequence[Target],
    *,
    yes: bool,
    revision: str = "",
) -> dict[str, str]:
    """Returns by key the name of the request, which the status shows once it is done. revision: the
    commit that the user saw and accepts.
    """
    request = {"verb": "reconcile", "keys": [one.key for one in targets], "yes": yes}
    reply = spawn.require_reply(state_dir, request | ({"revision": revision} if revision else {}))
    return {str(it.get("key")): str(it.get("request")) for it in results_of(reply)}


def _wait_reconciled(
    state_dir: Path,
    targets: Sequence[Target],
    requests: dict[str, str],
    screen: Screen,
    *,
    timeout_s: float | None,
) -> int:
    deadline = Deadline(timeout_s)
    code = 0
    pending = {one.key: one for one in targets}
    with open_reading(state_dir) as reading, WaitSupervisor(state_dir, screen) as supervisor:
        before = {key: _read_applied(reading, one) for key, one in pending.items()}
        while pending:
            for key, one in list(pending.items()):
                seen = reading.find(one)
                if seen is None:
                    screen.error(f"{escape_line(key)} was deleted")
                    code = max(code, 1)
                elif seen.phase != SUSPENDED and seen.text("request") != requests[key]:
                    continue
                elif _is_held(seen) and confirm_losses(_list_losses(seen), screen):
                    commit = seen.text("attemptedRevision")
                    requests |= _request_reconcile(state_dir, [one], yes=True, revision=commit)
                    continue
                else:
                    code = max(code, _report_outcome(seen, before[key], screen))
                del pending[key]
            if not pending:
                return code
            if deadline.passed:
                names = ", ".join(map(escape_line, pending))
                screen.error(
                    f"timed out after {format_duration(timeout_s or 0.0)}: {names} still at it"
                )
                return 124
            supervisor.check()
            reading.wait_for_change(deadline)
    return code


def _read_applied(reading: StoreReading, one: Target) -> tuple[str, float | None]:
    seen = reading.find(one)
    if seen is None:
        return ("", None)
    return (seen.text("appliedRevision"), seen.time_s("appliedAt"))


def _is_held(seen: View) -> bool:
    return seen.text("reason") == HELD


def _list_losses(seen: View) -> list[str]:
    return [seen.text("message")]


def _report_outcome(
    seen: View,
    before: tuple[str, float | None],
    screen: Screen,
) -> int:
    key = escape_line(seen.key)
    if seen.phase == READY:
        revision = seen.text("appliedRevision")
        changed = as_mapping(seen.status.get("changed"))
        counts = ", ".join(f"{count} {word}" for word, count in changed.items() if count)
        if revision == before[0]:
            screen.data(f"{key} is equal to {revision[:7]}")
        else:
            screen.data(f"{key} applied {revision[:7]}  {counts or 'no change'}")
        return 0
    if seen.phase == SUSPENDED:
        screen.error(f"{key} is suspended", hint=f"fleetctl resume {key}")
        return 1
    for line in seen.text("message").splitlines():
        screen.error(
            escape_line(line) if line.startswith("error") else f"{key}: {escape_line(line)}"
        )
    if hint := seen.text("hint"):
        screen.hint(escape_line(hint))
    if _is_held(seen):
        return 3
    return 1
