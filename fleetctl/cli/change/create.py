"""`fleetctl create KIND --from schedule/NAME`: runs the work of a schedule now, by hand."""

from __future__ import annotations

from argparse import Namespace

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line
from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.socket_client import results_of
from fleetctl.views.kinds import kind_of, parse_target

PAGE = """\
KIND [NAME] --from schedule/NAME

Make what a schedule makes, now. The schedule stays as it is: its next run comes when it
would have come. Everything else is made by `fleetctl apply -f FILE`.

examples:
  fleetctl create job --from schedule/nightly
  fleetctl create job nightly-after-the-fix --from schedule/nightly
  fleetctl create sweep before-the-talk --from schedule/weekly

exit codes:
  0 made, 2 wrong usage, 3 refused, 4 no such schedule, 5 the name is taken
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("kind", metavar="KIND", help="kind that the schedule makes, such as job")
    made.add_argument("name", nargs="?", default="", metavar="NAME", help="default: a new one")
    made.add_argument(
        "--from", dest="schedule", metavar="schedule/NAME", help="whose template it is made from"
    )
    return made


def run(args: Namespace, screen: Screen) -> int:
    if not args.schedule:
        raise UsageError(
            "`fleetctl create` makes what a schedule makes",
            hint="`fleetctl create job --from schedule/NAME`; a file: `fleetctl apply -f FILE`",
        )
    schedule = parse_target(args.schedule, args.namespace)
    request = {
        "verb": "create",
        "from": schedule.key,
        "kind": kind_of(args.kind).name,
        "name": args.name,
    }
    for result in results_of(spawn.require_reply(find_state_dir(), request)):
        screen.data(f"{escape_line(str(result.get('key')))} created")
    return 0
