"""`fleetctl suspend` and `fleetctl resume`: stop work for a while, and let it go on."""

from __future__ import annotations

from argparse import Namespace

from fleetctl.cli import starting
from fleetctl.cli.client import results_of
from fleetctl.cli.flags import Parser
from fleetctl.cli.kinds import target
from fleetctl.cli.render import Screen
from fleetctl.cli.text import safe
from fleetctl.errors import UsageError
from fleetctl.home import home

_SUMMARY = {
    "suspend": "Stop the running tasks and start none until resumed. Finished tasks stay finished.",
    "resume": "Let suspended objects go on; stopped tasks start again without losing an attempt.",
}


def parser(verb: str) -> Parser:
    made = Parser(
        verb=verb,
        usage="KIND/NAME [KIND/NAME ...]",
        summary=_SUMMARY[verb],
        examples=(
            f"fleetctl {verb} job/chunks",
            f"fleetctl {verb} sweep/lr tr/pretrain",
            f"fleetctl {verb} $(fleetctl get jobs -o name)",
        ),
        codes="0 done, 2 wrong usage, 4 no such object, 5 conflict",
    )
    made.set_defaults(verb=verb)
    made.add_argument("objects", nargs="+", metavar="KIND/NAME", help="what to " + verb)
    return made


def run(args: Namespace, screen: Screen) -> int:
    targets = [target(text, args.namespace) for text in args.objects]
    for wanted in targets:
        if not wanted.kind.runs:
            raise UsageError(f"{wanted.key} does no work that one could {args.verb}")
    keys = [wanted.key for wanted in targets]
    reply = starting.demand(home(), {"verb": args.verb, "keys": keys})
    for result in results_of(reply):
        screen.data(f"{safe(str(result.get('key')))} {safe(str(result.get('outcome')))}")
    return 0
