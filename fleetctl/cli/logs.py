"""`fleetctl logs`: what tasks printed, while they run and after."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from fleetctl.cli.flags import Parser, count, indexes
from fleetctl.cli.kinds import target
from fleetctl.cli.logpick import Pick, ending, pick_of
from fleetctl.cli.reading import Reading, must_find, open_reading
from fleetctl.cli.render import Screen
from fleetctl.cli.supervise import detached
from fleetctl.cli.tasks import CACHED
from fleetctl.cli.text import plural, safe
from fleetctl.cli.view import View
from fleetctl.errors import NotFound, UsageError
from fleetctl.home import home


def parser(verb: str) -> Parser:
    made = Parser(
        verb=verb,
        usage="KIND/NAME [-f] [--index 3,7-9] [--failed] [--tail N] [--attempt N] [--build]",
        summary=(
            "Show what tasks printed, the newest attempt of each, in the order of their indexes.\n"
            "Every line begins with [index/attempt]; --no-prefix leaves that out."
        ),
        examples=(
            "fleetctl logs job/chunks -f",
            "fleetctl logs job/chunks --failed --tail 50",
            "fleetctl logs sweep/lr --index 3,7-9 --attempt 1",
            "fleetctl logs job/chunks --build -f",
        ),
        codes="0 ok, 2 wrong usage, 4 no such object or task, 130 interrupted (work goes on)",
    )
    made.add_argument("object", metavar="KIND/NAME", help="whose logs")
    made.add_argument("-f", "--follow", action="store_true", help="go on until the object ends")
    made.add_argument("--index", type=indexes, metavar="LIST", help="only these tasks: 3,7-9")
    made.add_argument("--failed", action="store_true", help="only tasks whose last attempt failed")
    made.add_argument("--tail", type=count, metavar="N", help="only the last N lines of each task")
    made.add_argument("--attempt", type=count, metavar="N", help="this attempt, not the newest")
    made.add_argument(
        "-p", "--previous", action="store_true", help="the attempt before the newest of each task"
    )
    made.add_argument("--no-prefix", action="store_true", help="lines as the tasks wrote them")
    made.add_argument(
        "--build", action="store_true", help="what was printed while its images were built"
    )
    return made


def run(args: Namespace, screen: Screen) -> int:
    if args.previous and (args.follow or args.attempt is not None):
        raise UsageError("--previous is one attempt that has ended; leave out -f and --attempt")
    wanted, pick, place = target(args.object, args.namespace), pick_of(args), home()
    with open_reading(place) as reading:
        seen = must_find(wanted, reading)
        if not seen.kind.runs:
            raise UsageError(f"a {seen.kind.name} has no logs")
        try:
            if args.build:
                from fleetctl.cli.buildlogs import show

                return show(place, seen, args, reading, screen)
            if not args.follow:
                return _show(place, seen, pick, reading, screen)
            from fleetctl.cli.logfollow import follow

            return follow(place, seen, pick, reading, screen)
        except KeyboardInterrupt:
            build = " --build" if args.build else ""
            return detached([wanted.key], f"fleetctl logs {wanted.key}{build} -f", screen)


def _show(place: Path, seen: View, pick: Pick, reading: Reading, screen: Screen) -> int:
    shown = cached = 0
    for task in pick.tasks(seen, reading):
        shown += 1
        if task.state == CACHED:
            cached += 1
            continue
        stream = pick.stream(place, seen, task, screen)
        stream.drain()
        stream.finish()
        if stream.empty:
            screen.talk(f"{stream.name} -- no output; {ending(task)}")
    if cached:
        whose = f"fleetctl get tasks {safe(seen.key)} -o wide"
        screen.talk(f"{plural(cached, seen.kind.unit)} cached, so nothing was printed here")
        screen.hint(f"whose results these are: {whose}")
    if not shown:
        _say_none(seen, pick, screen)
    return 0


def _say_none(seen: View, pick: Pick, screen: Screen) -> None:
    unit = seen.kind.unit
    if pick.failed:
        screen.talk(f"no {unit} of {safe(seen.key)} has failed")
    elif pick.previous:
        screen.talk(f"no {unit} of {safe(seen.key)} had an attempt before its newest one")
    elif pick.indexes is not None or pick.attempt is not None:
        what = "attempt" if pick.attempt is not None else unit
        raise NotFound(
            f"{safe(seen.key)} has no such {what} yet",
            hint=f"`fleetctl get attempts {safe(seen.key)}` lists what has run",
        )
    else:
        screen.talk(f"{safe(seen.key)} has started no {unit} yet")
