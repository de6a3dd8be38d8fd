"""`fleetctl set` and `fleetctl scale`: change a field of a stored object without its file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from functools import partial

from fleetctl.cli.apply.request import send_with_consent
from fleetctl.cli.command.flags import Parser, add_override, parse_count, parse_rollout
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line
from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.socket_client import results_of
from fleetctl.views.kinds import Target, parse_target
from fleetctl.views.objects import as_mapping
from fleetctl.views.store_reading import must_find, open_reading

PAGES = {
    "set": """\
KIND/NAME FIELD=VALUE [FIELD=VALUE ...] [--rollout ...] [--yes]

Change fields of a stored object, checked as an apply would. `FIELD=null` removes
one, `FIELD[0]` is an entry of a list. The next apply of its file restores the values in
the file, and leaves alone the fields that it never had.

examples:
  fleetctl set budget/team-vision maxCost=520
  fleetctl set job/embed budget.maxCost=40 parallelism=16
  fleetctl set sweep/lr budget=null 'search.parameters.lr.values[0]=0.1'

exit codes:
  0 done or unchanged, 2 wrong usage or value, 3 running work would be lost,
  4 no such object, 5 conflict
""",
    "scale": """\
KIND/NAME (--parallelism N | --group NAME N) [--rollout Replace|FinishRunning] [--yes]

Let more or fewer tasks of an object run at the same time; 0 pauses it. What runs beyond
that is stopped, the youngest first, or with --rollout=FinishRunning ends by itself. Or
give a group of a TrainingRun another number of nodes: it alone starts again.

examples:
  fleetctl scale job/embed --parallelism 16
  fleetctl scale sweep/lr --parallelism 0
  fleetctl scale tr/rl --group rollout 5
  fleetctl scale job/embed --parallelism 1 --rollout FinishRunning

exit codes:
  0 done or unchanged, 2 wrong usage or value, 3 running work would be lost,
  4 no such object, 5 conflict
""",
}


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGES[verb])
    made.set_defaults(verb=verb)
    made.add_argument("object", metavar="KIND/NAME", help="object to change")
    if verb == "set":
        made.add_argument("fields", nargs="+", metavar="FIELD=VALUE", help="such as maxCost=520")
    else:
        made.add_argument("number", nargs="?", metavar="N", help="as --parallelism N")
        made.add_argument(
            "--parallelism", type=parse_count, metavar="N", help="runs at the same time"
        )
        made.add_argument(
            "--group", nargs=2, metavar=("NAME", "N"), help="nodes of this group of a TrainingRun"
        )
    add_losses(made)
    add_override(made)
    return made


def add_losses(parser: Parser) -> None:
    """Adds the flags on the losses of running work that a change may cause."""
    parser.add_argument(
        "--rollout", type=parse_rollout, metavar="Replace|FinishRunning",
        help="what this does to running tasks, instead of spec.rollout",
    )  # fmt: skip
    parser.add_argument(
        "-y", "--yes", action="store_true", help="do not ask before running work is lost"
    )


def run(args: Namespace, screen: Screen) -> int:
    wanted = parse_target(args.object, args.namespace)
    if args.verb == "scale" and not wanted.kind.runs:
        raise UsageError(f"{wanted.key} runs nothing, so there is nothing to scale")
    if args.verb == "scale" and args.group:
        fields = [_resize_group(args, wanted)]
    elif args.verb == "scale" and (args.number is not None or args.parallelism is None):
        number = args.number if (args.number or "").isdigit() else "N"
        raise UsageError(
            "say how many may run at the same time with `--parallelism`",
            hint=f"fleetctl scale {args.object} --parallelism {number}",
        )
    elif args.verb == "scale":
        fields = [f"parallelism={args.parallelism}"]
    else:
        fields = args.fields
    request = {"verb": "set", "key": wanted.key, "fields": fields, "yes": args.yes}
    if args.override:
        request["override"] = True
    if args.rollout:
        request["rollout"] = args.rollout
    store_change(request, screen)
    return 0


def _resize_group(args: Namespace, wanted: Target) -> str:
    """Returns the change of the spec that gives a group this number of nodes. Raises UsageError
    without one, NotFound for an object without such a group.
    """
    name, number = args.group
    if args.parallelism is not None or args.number or not number.isdigit() or int(number) < 1:
        raise UsageError(
            "`--group` goes alone, with a name and a number of nodes, at least 1",
            hint=f"fleetctl scale {args.object} --group {name} 2",
        )
    with open_reading(find_state_dir()) as reading:
        spec = must_find(wanted, reading).spec()
    groups = spec.get("groups")
    names = [as_mapping(it).get("name") for it in (groups if isinstance(groups, list) else ())]
    if name not in names:
        known = ", ".join(f"`{it}`" for it in names)
        raise NotFound(
            f"{wanted.key} has no group `{escape_line(name)}`",
            hint=f"it has {known}" if known else "`groups` of a TrainingRun declares them",
        )
    return f"groups[{names.index(name)}].nodes={int(number)}"


def store_change(request: Mapping[str, object], screen: Screen) -> None:
    """Sends a change, asks the user where work would be lost, and prints the result. Raises
    the error of a refusal."""
    for result in results_of(
        send_with_consent(partial(spawn.request_or_start, find_state_dir()), request, screen)
    ):
        message = str(result.get("message") or "")
        text = f"{escape_line(str(result.get('key')))} {escape_line(str(result.get('outcome')))}"
        screen.data(f"{text}  {escape_line(message)}" if message else text)
