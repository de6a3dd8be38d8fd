"""`fleetctl logs`: prints the output of tasks, while they run and after, and with `--build` that of
image builds.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fleetctl.cli.command.flags import (
    Parser,
    add_labels,
    parse_count,
    parse_indexes,
    parse_moment,
    parse_pattern,
)
from fleetctl.cli.follow.logs_stream import (
    LogSelection,
    NodeStreams,
    describe_ending,
    pick_of,
    print_line,
)
from fleetctl.cli.follow.wait_supervisor import WaitSupervisor, report_detached
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.choose import working_objects
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import count_noun, escape_line, format_timestamp
from fleetctl.providers.rundir.build_logs import is_building, logs_of
from fleetctl.views.kinds import format_commands
from fleetctl.views.objects import View
from fleetctl.views.store_reading import StoreReading, open_reading
from fleetctl.views.tasks import CACHED, Task, service_names

PAGE = """\
KIND/NAME [KIND/NAME ...] | [KIND] -l LABELS
    [-f] [--index 3,7-9 | --stage NAME] [--node N] [--failed] [--tail N]
    [--since TIME] [--grep PATTERN] [--timestamps] [--attempt N] [--service NAME]
    [--build]

Show what tasks printed, the newest attempt of each, in the order of their indexes.
Every line begins with [index/attempt], of a stage with its name, of several nodes
with the node, [train/2 n1], and of several objects with their names; --no-prefix
leaves that out. Lines are dated to about a second, remote ones by their
coming here. With -f bars and dots show as they grow: a terminal shows their newest
state, a program gets the bytes (without a prefix while one task runs).

examples:
  fleetctl logs job/chunks -f
  fleetctl logs job/chunks --failed --tail 50
  fleetctl logs sweep/lr --index 3,7-9 --attempt 1
  fleetctl logs job/chunks --since 10m --timestamps
  fleetctl logs job/chunks --grep 'loss|nan' --since yesterday
  fleetctl logs jobs -l team=rlm --failed --tail 5
  fleetctl logs job/chunks --index 3 --service ollama
  fleetctl logs job/chunks --build -f

exit codes:
  0 ok, 2 wrong usage, 4 no such object, task or node, 130 interrupted (work goes on)
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("objects", nargs="*", metavar="KIND/NAME", help="whose logs")
    add_labels(made, "of all objects, or of a kind, with such labels")
    made.add_argument("-f", "--follow", action="store_true", help="go on until the objects end")
    made.add_argument("--index", type=parse_indexes, metavar="LIST", help="only these tasks: 3,7-9")
    made.add_argument(
        "--stage", "--group", metavar="NAME", help="only the stage or group of this name"
    )
    made.add_argument("--node", type=parse_count, metavar="N", help="only this node, from 0")
    made.add_argument("--service", metavar="NAME", help="output of this service beside the task")
    made.add_argument("--failed", action="store_true", help="only tasks whose last attempt failed")
    made.add_argument(
        "--tail", type=parse_count, metavar="N", help="only the last N lines of each task"
    )
    made.add_argument(
        "--attempt", type=parse_count, metavar="N", help="this attempt, not the newest"
    )
    made.add_argument(
        "-p", "--previous", action="store_true", help="the attempt before the newest of each task"
    )
    made.add_argument(
        "--since",
        type=parse_moment,
        metavar="TIME",
        help="only lines of the last 45s, 5m, 2h, 7d, or since 2026-11-01, yesterday (UTC)",
    )
    made.add_argument(
        "--grep",
        type=parse_pattern,
        metavar="PATTERN",
        help="only lines that this expression is in",
    )
    made.add_argument("--timestamps", action="store_true", help="when each line came, in UTC")
    made.add_argument("--no-prefix", action="store_true", help="lines as the tasks wrote them")
    made.add_argument("--build", action="store_true", help="output of the builds of its images")
    return made


def run(args: Namespace, screen: Screen) -> int:
    if args.previous and (args.follow or args.attempt is not None):
        raise UsageError("--previous is one attempt that has ended; leave out -f and --attempt")
    state_dir = find_state_dir()
    with open_reading(state_dir) as reading:
        views = working_objects(args, reading, verb="logs")
        for seen in views:
            if not seen.kind.runs:
                raise UsageError(f"a {seen.kind.name} has no logs")
            if args.service:
                _must_have(seen, args.service)
        pick = pick_of(args, SystemClock().now_s(), several=len(views) > 1)
        keys = [seen.key for seen in views]
        try:
            if args.build:
                return _show_build_logs(
                    state_dir,
                    views,
                    args,
                    reading,
                    screen,
                )
            if not args.follow:
                for seen in views:
                    _show_logs(
                        state_dir,
                        seen,
                        pick,
                        reading,
                        screen,
                    )
                return 0
            from fleetctl.cli.follow.logs_follow import follow_logs

            return follow_logs(
                state_dir,
                views,
                pick,
                reading,
                screen,
            )
        except KeyboardInterrupt:
            build = " --build" if args.build else ""
            return report_detached(keys, format_commands("logs", keys) + f"{build} -f", screen)


def _must_have(seen: View, service: str) -> None:
    """Raises NotFound where its spec names no such service."""
    names = service_names(seen)
    if service in names:
        return
    hint = f"its services are {', '.join(f'`{escape_line(it)}`' for it in names)}"
    none = "its template has no `services`"
    raise NotFound(
        f"{escape_line(seen.key)} has no service `{escape_line(service)}`",
        hint=hint if names else none,
    )


def _show_build_logs(
    state_dir: Path,
    views: Sequence[View],
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
) -> int:

    if len(views) != 1:
        raise UsageError("`--build` shows the images of one object")
    return show_build_logs(
        state_dir,
        views[0],
        args,
        reading,
        screen,
    )


def _show_logs(
    state_dir: Path,
    seen: View,
    pick: LogSelection,
    reading: StoreReading,
    screen: Screen,
) -> None:
    shown = cached = 0
    absent: list[tuple[str, Task]] = []  # tasks whose requested node has not begun
    for task in pick.tasks(seen, reading):
        shown += 1
        uid = ""
        if task.state == CACHED:
            found = reading.source_of(task.run)
            if found is None:
                cached += 1
                continue
            uid, whose, run = found
            screen.talk(
                f"[{task.run.index}/{task.run.attempt}] cached: the log of {escape_line(whose)}"
            )
            task = task._replace(run=run)
        stream = pick.stream(
            state_dir,
            seen,
            task,
            screen,
            uid=uid,
        )
        stream.drain()
        stream.finish()
        if pick.node and not stream.begun:
            absent.append((stream.name, task))
        elif stream.empty:
            screen.talk(f"{stream.name} -- {explain_no_output(stream)}; {describe_ending(task)}")
    if absent and len(absent) == shown and not pick.several:
        from fleetctl.cli.targets.task import require_node  # which loads more than logs need

        require_node(seen, absent[-1][1], pick.node or 0)
    for name, task in absent:
        screen.talk(f"{name} -- has started no node {pick.node}; {describe_ending(task)}")
    if cached:
        whose = f"fleetctl get tasks {escape_line(seen.key)} -o wide"
        units = count_noun(cached, seen.kind.unit)
        screen.talk(f"{units} cached, and whose results these are is gone with its log")
        screen.hint(f"whose results these are: {whose}")
    if not shown:
        _say_none(seen, pick, screen)


def explain_no_output(stream: NodeStreams) -> str:
    """Returns the reason why there is not a line of output."""
    past_s = stream.past_s
    if past_s is None:
        return "no output"
    return f"its log is past retention, and was deleted on {format_timestamp(past_s)[:10]}"


def _say_none(
    seen: View,
    pick: LogSelection,
    screen: Screen,
) -> None:
    unit = seen.kind.unit
    if pick.stage:
        screen.talk(f"{escape_line(seen.key)} has started no {unit} `{escape_line(pick.stage)}`")
    elif pick.failed:
        screen.talk(f"no {unit} of {escape_line(seen.key)} has failed")
    elif pick.previous:
        screen.talk(f"no {unit} of {escape_line(seen.key)} had an attempt before its newest one")
    elif pick.dating.since_s is not None:
        screen.talk(f"no {unit} of {escape_line(seen.key)} has run since then")
    elif pick.indexes is not None or pick.attempt is not None:
        total = seen.count("total")
        asked = min(low for low, _ in pick.indexes.ranges) if pick.indexes is not None else 0
        if total and asked >= total:
            hint = f"its indexes are 0 to {total - 1}" if total > 1 else "its only index is 0"
            raise NotFound(f"{escape_line(seen.key)} has no {unit} {asked}", hint=hint)
        what = "attempt" if pick.attempt is not None else unit
        raise NotFound(
            f"{escape_line(seen.key)} has no such {what} yet",
            hint=f"`fleetctl get attempts {escape_line(seen.key)}` lists what has run",
        )
    else:
        screen.talk(f"{escape_line(seen.key)} has started no {unit} yet")


def show_build_logs(
    state_dir: Path,
    seen: View,
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
) -> int:
    """Prints the logs. Raises UsageError for flags about tasks."""
    if args.failed or args.previous or args.index is not None or args.attempt is not None:
        raise UsageError(
            "`--build` is about images, which all tasks share",
            hint="leave out --index, --failed, --attempt and --previous",
        )
    builds = _BuildLogs(state_dir, seen.resource.uid, screen, tail=args.tail)
    if not args.follow:
        builds.drain(finish=True)
        if not builds.any:
            screen.talk(f"no image of {escape_line(seen.key)} has been built here")
        return 0
    with WaitSupervisor(state_dir, screen) as supervisor:
        while True:
            now = reading.by_uid(seen.resource.uid)
            # Read before the logs, so that lines from before the end are still printed.
            going_on = builds.is_building()
            begun = now is not None and next(iter(reading.attempts(now)), None) is not None
            over = now is None or now.over or (begun and builds.any)
            builds.drain(finish=over and not going_on)
            if over and not going_on:
                return 0
            supervisor.check()
            reading.pause()


class _BuildLogs:
    """An object's image logs, one after the other, and the printed length of each."""

    def __init__(
        self,
        state_dir: Path,
        uid: str,
        screen: Screen,
        *,
        tail: int | None,
    ) -> None:
        self._place = state_dir
        self._uid = uid
        self._screen = screen
        self._tail = tail
        self._offsets: dict[Path, int] = {}
        self._partial: dict[Path, bytes] = {}

    @property
    def any(self) -> bool:
        return bool(self._offsets)

    def is_building(self) -> bool:
        return any(is_building(log) for log in logs_of(self._place, self._uid))

    def drain(self, *, finish: bool) -> None:
        """Prints all whole lines that are there now; with `finish`, a last one without an end."""
        for log in logs_of(self._place, self._uid):
            first = log not in self._offsets
            data = self._read(log)
            *lines, rest = (self._partial.get(log, b"") + data).split(b"\n")
            if finish and rest:
                lines = [*lines, rest]
                rest = b""
            self._partial[log] = rest
            if first and self._tail is not None:
                lines = lines[len(lines) - min(self._tail, len(lines)) :]
            for line in lines:
                print_line(self._screen, "", line)

    def _read(self, log: Path) -> bytes:
        """Returns the new bytes of a log. One that is shorter than before belongs to another
        build."""
        at = self._offsets.get(log, 0)
        if log.stat().st_size < at:
            at = 0
        with log.open("rb") as file:
            file.seek(at)
            data = file.read()
        self._offsets[log] = at + len(data)
        return data
