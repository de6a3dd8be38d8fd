"""`fleetctl logs`: what tasks printed, while they run and after."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from fleetctl.cli.flags import Parser, count, indexes
from fleetctl.cli.kinds import Target, target
from fleetctl.cli.logstream import LogStream
from fleetctl.cli.reading import Reading, must_find, open_reading
from fleetctl.cli.render import Screen
from fleetctl.cli.supervise import Supervisor, detached
from fleetctl.cli.tasks import Task
from fleetctl.cli.text import duration, safe
from fleetctl.cli.view import DELETING, View
from fleetctl.errors import NotFound, UsageError
from fleetctl.home import home

LIVE = ("Starting", "Running", "Stopping")
ENDED_BADLY = ("Failed", "Lost", "Refused")
# A look at all tasks of a large object takes time; following may spend this part of a core on it.
LOOK_SHARE = 0.2
LOOK_EVERY_S = 0.1


def parser(verb: str) -> Parser:
    made = Parser(
        verb=verb,
        usage="KIND/NAME [-f] [--index 3,7-9] [--failed] [--tail N] [--attempt N]",
        summary=(
            "Show what tasks printed, the newest attempt of each, in the order of their indexes.\n"
            "Every line begins with [index/attempt]; --no-prefix leaves that out."
        ),
        examples=(
            "fleetctl logs job/chunks -f",
            "fleetctl logs job/chunks --failed --tail 50",
            "fleetctl logs sweep/lr --index 3,7-9 --attempt 1",
        ),
        codes="0 ok, 2 wrong usage, 4 no such object or task, 130 interrupted (work goes on)",
    )
    made.add_argument("object", metavar="KIND/NAME", help="whose logs")
    made.add_argument("-f", "--follow", action="store_true", help="go on until the object ends")
    made.add_argument("--index", type=indexes, metavar="LIST", help="only these tasks: 3,7-9")
    made.add_argument("--failed", action="store_true", help="only tasks whose last attempt failed")
    made.add_argument("--tail", type=count, metavar="N", help="only the last N lines of each task")
    made.add_argument("--attempt", type=count, metavar="N", help="this attempt, not the newest")
    made.add_argument("--no-prefix", action="store_true", help="lines as the tasks wrote them")
    return made


def run(args: Namespace, screen: Screen) -> int:
    wanted = target(args.object)
    place = home()
    with open_reading(place) as reading:
        seen = must_find(wanted, reading)
        if not seen.kind.runs:
            raise UsageError(f"a {seen.kind.name} has no logs")
        if not args.follow:
            return _show(place, seen, args, reading, screen)
        try:
            return _follow(place, seen, args, reading, screen)
        except KeyboardInterrupt:
            return detached([wanted.key], _command(wanted), screen)


def _command(wanted: Target) -> str:
    return f"fleetctl logs {wanted.key} -f"


def _selected(seen: View, args: Namespace, reading: Reading) -> Iterator[Task]:
    """The attempts whose logs are asked for, by index."""
    only = None
    if args.index is not None and len(args.index.ranges) == 1:
        first, last = args.index.ranges[0]
        only = first if first == last else None
    if args.attempt is None:
        found = reading.tasks(seen, index=only)
    else:
        found = (t for t in reading.attempts(seen, index=only) if t.run.attempt == args.attempt)
    for task in found:
        if args.index is not None and task.run.index not in args.index:
            continue
        if not args.failed or task.run.state in ENDED_BADLY:
            yield task


def _show(place: Path, seen: View, args: Namespace, reading: Reading, screen: Screen) -> int:
    shown = 0
    for task in _selected(seen, args, reading):
        shown += 1
        stream = _stream(place, seen, task, args, screen)
        stream.drain()
        stream.finish()
        if stream.empty and task.run.message:
            screen.talk(f"{stream.name} no output; {_ending(task)}")
    if not shown:
        _say_none(seen, args, screen)
    return 0


def _say_none(seen: View, args: Namespace, screen: Screen) -> None:
    unit = seen.kind.unit
    if args.failed:
        screen.talk(f"no {unit} of {safe(seen.key)} has failed")
    elif args.index is not None or args.attempt is not None:
        what = "attempt" if args.attempt is not None else unit
        raise NotFound(
            f"{safe(seen.key)} has no such {what} yet",
            hint=f"`fleetctl get attempts {safe(seen.key)}` lists what has run",
        )
    else:
        screen.talk(f"{safe(seen.key)} has started no {unit} yet")


def _follow(place: Path, seen: View, args: Namespace, reading: Reading, screen: Screen) -> int:
    """Print as it comes until the object is over and all that was selected is printed."""
    open_streams: dict[str, LogStream] = {}
    finished: set[str] = set()
    uid, look_at = seen.resource.uid, 0.0
    with Supervisor(place, screen) as supervisor:
        while True:
            now = reading.by_uid(uid)
            over = now is None or now.over or now.phase == DELETING
            if now is not None and (over or time.monotonic() >= look_at):
                began = time.monotonic()
                for task in list(_selected(now, args, reading)):
                    _follow_task(place, now, task, args, screen, open_streams, finished)
                spent = time.monotonic() - began
                look_at = began + max(LOOK_EVERY_S, spent / LOOK_SHARE)
            for stream in open_streams.values():
                stream.drain()
            screen.flush()
            if over and (now is None or not open_streams):
                return 0
            supervisor.check()
            time.sleep(LOOK_EVERY_S)


def _follow_task(
    place: Path,
    seen: View,
    task: Task,
    args: Namespace,
    screen: Screen,
    open_streams: dict[str, LogStream],
    finished: set[str],
) -> None:
    """Open the stream of a new run; close that of a run that has ended."""
    name = task.run.name
    if name in finished:
        return
    if name not in open_streams:
        open_streams[name] = _stream(place, seen, task, args, screen)
    if task.run.state not in LIVE:
        stream = open_streams.pop(name)
        stream.drain()
        stream.finish()
        finished.add(name)
        screen.talk(f"{stream.name} -- {_ending(task)}")


def _stream(place: Path, seen: View, task: Task, args: Namespace, screen: Screen) -> LogStream:
    return LogStream(
        place, seen.resource.uid, task.run, screen, tail=args.tail, prefixed=not args.no_prefix
    )


def _ending(task: Task) -> str:
    run = task.run
    spent = ""
    if run.started_at_s is not None and run.ended_at_s is not None:
        spent = f" after {duration(run.ended_at_s - run.started_at_s)}"
    reason = f": {run.reason}" if run.reason not in ("", "Completed") else ""
    return f"{run.state.lower()}{spent}{safe(reason)}"
