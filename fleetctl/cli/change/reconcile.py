"""`fleetctl reconcile source/NAME`: look at a repository now, and tell what came of it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fleetctl.cli.apply.consent import accepts
from fleetctl.cli.command.flags import Parser, add_timeout
from fleetctl.cli.follow.supervise import INTERRUPTED, Supervisor
from fleetctl.cli.output.render import Screen
from fleetctl.common.deadline import Deadline
from fleetctl.common.errors import UsageError
from fleetctl.common.home import home
from fleetctl.common.text import duration, safe
from fleetctl.daemon.reach import spawn
from fleetctl.daemon.reach.client import results_of
from fleetctl.tracking.kept_by import HELD
from fleetctl.views.kinds import Target, target
from fleetctl.views.objects import READY, SUSPENDED, View, mapping
from fleetctl.views.reading import Reading, open_reading

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
    made.add_argument("objects", nargs="+", metavar="source/NAME", help="what to look at")
    made.add_argument(
        "-y", "--yes", action="store_true", help="do not ask before work or data is lost"
    )
    made.add_argument("--no-wait", action="store_true", help="return as soon as it is asked for")
    add_timeout(made, default_s=WAIT_S, meaning="stop waiting after this")
    return made


def run(args: Namespace, screen: Screen) -> int:
    targets = list(dict.fromkeys(target(text, args.namespace) for text in args.objects))
    for one in targets:
        if one.kind.name != "Source":
            raise UsageError(
                f"{one.key} is of no repository; `reconcile` looks at Sources",
                hint=f"`fleetctl describe {one.key}` tells why it stands as it does",
            )
    state_dir = home()
    requests = _asked(state_dir, targets, yes=args.yes)
    if args.no_wait:
        for key in requests:
            screen.data(f"{safe(key)} is asked to look")
        return 0
    try:
        return _wait(state_dir, targets, requests, screen, timeout_s=args.timeout)
    except KeyboardInterrupt:
        screen.close_line()
        screen.talk("detached; the controller goes on")
        return INTERRUPTED


def _asked(
    state_dir: Path, targets: Sequence[Target], *, yes: bool, revision: str = ""
) -> dict[str, str]:
    """By key, the name of the request, which the status names once it is answered. revision: what
    was shown to who says yes.
    """
    request = {"verb": "reconcile", "keys": [one.key for one in targets], "yes": yes}
    reply = spawn.demand(state_dir, request | ({"revision": revision} if revision else {}))
    return {str(it.get("key")): str(it.get("request")) for it in results_of(reply)}


def _wait(
    state_dir: Path,
    targets: Sequence[Target],
    requests: dict[str, str],
    screen: Screen,
    *,
    timeout_s: float | None,
) -> int:
    deadline, code = Deadline(timeout_s), 0
    pending = {one.key: one for one in targets}
    with open_reading(state_dir) as reading, Supervisor(state_dir, screen) as supervisor:
        before = {key: _applied(reading, one) for key, one in pending.items()}
        while pending:
            for key, one in list(pending.items()):
                seen = reading.find(one)
                if seen is None:
                    screen.error(f"{safe(key)} was deleted")
                    code = max(code, 1)
                elif seen.phase != SUSPENDED and seen.text("request") != requests[key]:
                    continue
                elif _held(seen) and accepts(_losses(seen), screen):
                    commit = seen.text("attemptedRevision")
                    requests |= _asked(state_dir, [one], yes=True, revision=commit)
                    continue
                else:
                    code = max(code, _tell(seen, before[key], screen))
                del pending[key]
            if not pending:
                return code
            if deadline.passed:
                names = ", ".join(map(safe, pending))
                screen.error(f"timed out after {duration(timeout_s or 0.0)}: {names} still at it")
                return 124
            supervisor.check()
            reading.wait_for_change(deadline)
    return code


def _applied(reading: Reading, one: Target) -> tuple[str, float | None]:
    seen = reading.find(one)
    return ("", None) if seen is None else (seen.text("appliedRevision"), seen.time_s("appliedAt"))


def _held(seen: View) -> bool:
    return seen.text("reason") == HELD


def _losses(seen: View) -> list[str]:
    return [seen.text("message")]


def _tell(seen: View, before: tuple[str, float | None], screen: Screen) -> int:
    key = safe(seen.key)
    if seen.phase == READY:
        revision = seen.text("appliedRevision")
        changed = mapping(seen.status.get("changed"))
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
        screen.error(safe(line) if line.startswith("error") else f"{key}: {safe(line)}")
    if hint := seen.text("hint"):
        screen.hint(safe(hint))
    return 3 if _held(seen) else 1
