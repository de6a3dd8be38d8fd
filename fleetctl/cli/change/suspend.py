"""`fleetctl suspend` and `fleetctl resume`: stop work for a while, and let it continue."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from fleetctl.cli.apply.request import confirm_losses
from fleetctl.cli.command.crash import Refusals
from fleetctl.cli.command.flags import Parser, add_override
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import Refused, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import count_noun, escape_line
from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.socket_client import results_of
from fleetctl.views.kinds import Target, parse_target
from fleetctl.views.objects import SUSPENDED
from fleetctl.views.store_reading import open_reading

_SUMMARY = {
    "suspend": """\
Stop the running tasks and start none until resumed. Finished tasks stay finished.
On a terminal it asks before work is lost; `fleetctl scale KIND/NAME --parallelism 0
--rollout FinishRunning` lets it end. Of a schedule nothing is stopped: it makes
nothing new until resumed; a Source changes nothing; a Queue lets nothing more start.
An apply of a file that does not say `suspend` leaves it suspended.""",
    "resume": "Let suspended objects go on; stopped tasks start again without losing an attempt.",
}
_PAGE = """\
KIND/NAME [KIND/NAME ...]

{summary}

examples:
  fleetctl {verb} job/chunks
  fleetctl {verb} sweep/lr tr/pretrain
  fleetctl {verb} $(fleetctl get jobs -o name)

exit codes:
  0 done, 2 wrong usage,{refused} 4 no such object, 5 conflict
"""


def parser(verb: str) -> Parser:
    refused = " 3 you said no," if verb == "suspend" else ""
    made = Parser(
        verb,
        _PAGE.format(
            verb=verb,
            summary=_SUMMARY[verb],
            refused=refused,
        ),
    )
    made.set_defaults(verb=verb)
    if verb == "suspend":
        made.add_argument(
            "-y", "--yes", action="store_true", help="do not ask before running work is lost"
        )
    add_override(made)
    made.add_argument("objects", nargs="+", metavar="KIND/NAME", help="what to " + verb)
    return made


def run(args: Namespace, screen: Screen) -> int:
    targets = [parse_target(text, args.namespace) for text in args.objects]
    for wanted in targets:
        if not wanted.kind.suspends:
            raise UsageError(f"{wanted.key} runs nothing, so there is nothing to {args.verb}")
    losses: dict[str, str] = {}
    over = _find_ended(targets) if args.verb == "suspend" else set()
    if args.verb == "suspend":
        losses = _find_losses(targets)
        parts = [f"{key}: {loss} would be stopped" for key, loss in losses.items()]
        asked = screen.talk_is_terminal and sys.stdin.isatty()
        if parts and not args.yes and asked and not confirm_losses(parts, screen):
            raise Refused(
                "nothing was suspended",
                hint="add --yes, or `fleetctl scale KIND/NAME --parallelism 0"
                " --rollout=FinishRunning` to let running work end first",
            )
    keys = [wanted.key for wanted in targets]
    request = {"verb": args.verb, "keys": keys, "each": True}
    reply = spawn.require_reply(
        find_state_dir(), request | ({"override": True} if args.override else {})
    )
    report = Refusals(screen)
    for result in results_of(reply):
        if report.take(result):
            continue
        key = str(result.get("key"))
        outcome = str(result.get("outcome"))
        lost = f"  {losses[key]} stopped" if key in losses and outcome == "suspended" else ""
        if outcome == "suspended" and key in over:
            lost = "  it has ended: nothing was stopped, and its next spec waits"
        screen.data(f"{escape_line(key)} {escape_line(outcome)}{lost}")
    return report.tell()


def _find_ended(targets: Sequence[Target]) -> set[str]:
    """Returns keys of ended objects: to suspend them stops no work."""
    with open_reading(find_state_dir()) as reading:
        return {seen.key for seen in map(reading.find, targets) if seen is not None and seen.over}


def _find_losses(targets: Sequence[Target]) -> dict[str, str]:
    """Returns running work by key: `2 running tasks (41 s of work)`. Work that has not begun has no
    loss."""
    found = {}
    now_s = SystemClock().now_s()
    with open_reading(find_state_dir()) as reading:
        for seen in filter(None, map(reading.find, targets)):
            runs = [it for it in reading.live_attempts(seen) if it.started_at_s is not None]
            spent_s = sum(max(0.0, now_s - (it.started_at_s or now_s)) for it in runs)
            if runs and seen.phase != SUSPENDED:
                what = count_noun(len(runs), f"running {seen.kind.unit}")
                found[seen.key] = f"{what} ({spent_s:,.0f} s of work)"
    return found
