"""`fleetctl set` and `fleetctl scale`: change a field of a stored object without its file."""

from __future__ import annotations

from argparse import Namespace

from fleetctl.cli import starting
from fleetctl.cli.client import results_of
from fleetctl.cli.flags import Parser, count
from fleetctl.cli.kinds import target
from fleetctl.cli.render import Screen
from fleetctl.cli.text import safe
from fleetctl.errors import UsageError
from fleetctl.home import home

_HELP = {
    "set": (
        "KIND/NAME FIELD=VALUE [FIELD=VALUE ...] [--yes]",
        "Change fields of a stored object, checked as an apply would. `FIELD=null` takes one\n"
        "away. The next apply of its file brings back what the file says.",
        (
            "fleetctl set budget/team-vision maxCost=520",
            "fleetctl set job/embed budget.maxCost=40 parallelism=16",
            "fleetctl set sweep/lr budget=null",
        ),
    ),
    "scale": (
        "KIND/NAME --parallelism N [--yes]",
        "Let more or fewer tasks of an object run at the same time; 0 pauses it.",
        (
            "fleetctl scale job/embed --parallelism 16",
            "fleetctl scale sweep/lr --parallelism 0",
            "fleetctl scale job/embed --parallelism 1 --yes",
        ),
    ),
}


def parser(verb: str) -> Parser:
    usage, summary, examples = _HELP[verb]
    made = Parser(
        verb=verb,
        usage=usage,
        summary=summary,
        examples=examples,
        codes="0 done or unchanged, 2 wrong usage or value, 3 running work would be lost,\n"
        "  4 no such object, 5 conflict",
    )
    made.set_defaults(verb=verb)
    made.add_argument("object", metavar="KIND/NAME", help="what to change")
    if verb == "set":
        made.add_argument("fields", nargs="+", metavar="FIELD=VALUE", help="such as maxCost=520")
    else:
        made.add_argument(
            "--parallelism", type=count, required=True, metavar="N", help="runs at the same time"
        )
    made.add_argument("--yes", action="store_true", help="also when running work is lost by it")
    return made


def run(args: Namespace, screen: Screen) -> int:
    wanted = target(args.object, args.namespace)
    if args.verb == "scale" and not wanted.kind.runs:
        raise UsageError(f"{wanted.key} runs nothing that one could scale")
    fields = args.fields if args.verb == "set" else [f"parallelism={args.parallelism}"]
    request = {"verb": "set", "key": wanted.key, "fields": fields, "yes": args.yes}
    for result in results_of(starting.demand(home(), request)):
        message = str(result.get("message") or "")
        said = f"{safe(str(result.get('key')))} {safe(str(result.get('outcome')))}"
        screen.data(f"{said}  {safe(message)}" if message else said)
    return 0
