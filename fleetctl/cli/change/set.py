"""`fleetctl set` and `fleetctl scale`: change a field of a stored object without its file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from functools import partial

from fleetctl.cli.apply.consent import agreed
from fleetctl.cli.command.flags import Parser, add_override
from fleetctl.cli.command.values import count, rollout
from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import UsageError
from fleetctl.common.home import home
from fleetctl.common.text import safe
from fleetctl.daemon.reach import spawn
from fleetctl.daemon.reach.client import results_of
from fleetctl.views.kinds import target

PAGES = {
    "set": """\
KIND/NAME FIELD=VALUE [FIELD=VALUE ...] [--rollout ...] [--yes]

Change fields of a stored object, checked as an apply would. `FIELD=null` takes one
away, `FIELD[0]` is an entry of a list. The next apply of its file brings back what the
file says, and leaves alone the fields that it never had.

examples:
  fleetctl set budget/team-vision maxCost=520
  fleetctl set job/embed budget.maxCost=40 parallelism=16
  fleetctl set sweep/lr budget=null 'search.parameters.lr.values[0]=0.1'

exit codes:
  0 done or unchanged, 2 wrong usage or value, 3 running work would be lost,
  4 no such object, 5 conflict
""",
    "scale": """\
KIND/NAME --parallelism N [--rollout Replace|FinishRunning] [--yes]

Let more or fewer tasks of an object run at the same time; 0 pauses it. What runs beyond
that is stopped, the youngest first, or with --rollout=FinishRunning ends by itself.

examples:
  fleetctl scale job/embed --parallelism 16
  fleetctl scale sweep/lr --parallelism 0
  fleetctl scale job/embed --parallelism 1 --rollout FinishRunning

exit codes:
  0 done or unchanged, 2 wrong usage or value, 3 running work would be lost,
  4 no such object, 5 conflict
""",
}


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGES[verb])
    made.set_defaults(verb=verb)
    made.add_argument("object", metavar="KIND/NAME", help="what to change")
    if verb == "set":
        made.add_argument("fields", nargs="+", metavar="FIELD=VALUE", help="such as maxCost=520")
    else:
        made.add_argument("number", nargs="?", metavar="N", help="as --parallelism N")
        made.add_argument("--parallelism", type=count, metavar="N", help="runs at the same time")
    add_losses(made)
    add_override(made)
    return made


def add_losses(parser: Parser) -> None:
    """What a change may do to running work."""
    parser.add_argument(
        "--rollout", type=rollout, metavar="Replace|FinishRunning",
        help="what this does to running tasks, instead of spec.rollout",
    )  # fmt: skip
    parser.add_argument(
        "-y", "--yes", action="store_true", help="do not ask before running work is lost"
    )


def run(args: Namespace, screen: Screen) -> int:
    wanted = target(args.object, args.namespace)
    if args.verb == "scale" and not wanted.kind.runs:
        raise UsageError(f"{wanted.key} runs nothing, so there is nothing to scale")
    if args.verb == "scale" and (args.number is not None or args.parallelism is None):
        number = args.number if (args.number or "").isdigit() else "N"
        raise UsageError(
            "say how many may run at the same time with `--parallelism`",
            hint=f"fleetctl scale {args.object} --parallelism {number}",
        )
    fields = args.fields if args.verb == "set" else [f"parallelism={args.parallelism}"]
    request = {"verb": "set", "key": wanted.key, "fields": fields, "yes": args.yes}
    if args.override:
        request["override"] = True
    if args.rollout:
        request["rollout"] = args.rollout
    store(request, screen)
    return 0


def store(request: Mapping[str, object], screen: Screen) -> None:
    """Ask for a change, ask a person where work would be lost, and tell. Raises Refusal."""
    for result in results_of(agreed(partial(spawn.request, home()), request, screen)):
        message = str(result.get("message") or "")
        text = f"{safe(str(result.get('key')))} {safe(str(result.get('outcome')))}"
        screen.data(f"{text}  {safe(message)}" if message else text)
