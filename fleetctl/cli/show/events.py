"""`fleetctl events`: prints events as sentences, oldest first."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping

from fleetctl.cli.command.flags import Parser, add_all_namespaces, add_output, one_of, parse_moment
from fleetctl.cli.output.output_rows import OutputRows, write_rows
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line, format_age, format_hinted
from fleetctl.views.documents import event_document
from fleetctl.views.kinds import parse_target
from fleetctl.views.objects import View
from fleetctl.views.store_reading import EventView, StoreReading, must_find, open_reading

TYPES = ("Normal", "Warning")
HEADER = ("AGE", "TYPE", "REASON", "OBJECT", "MESSAGE")
MARGIN_S = 5.0  # by which the writer's clock may go back between two events, as a guess
CSV = ("lastTimestamp", "type", "reason", "object", "count", "message")


PAGE = """\
[KIND/NAME] [--since TIME] [--types TYPES] [--deleted] [-w] [-o table|json|csv]

Show what happened, oldest first. Quick repeats are one line with a count.

examples:
  fleetctl events
  fleetctl events job/chunks --since 1h
  fleetctl events --types Warning -o json
  fleetctl events -w --since 10m
  fleetctl events job/chunks --deleted

exit codes:
  0 ok, 2 wrong usage, 4 no such object, 130 interrupted
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("object", nargs="?", metavar="KIND/NAME", help="of this object only")
    made.add_argument("--for", dest="of", metavar="KIND/NAME", help="the same, as kubectl has it")
    made.add_argument(
        "--since",
        type=parse_moment,
        metavar="TIME",
        help="not before this: 1h, yesterday, 2026-11-01",
    )
    made.add_argument(
        "--types", type=_parse_types, default=(), metavar="TYPES", help="Normal, Warning or both"
    )
    made.add_argument(
        "-w", "--watch", action="store_true", help="go on: a line for every event, until Ctrl-C"
    )
    made.add_argument(
        "--deleted", action="store_true", help="also of objects that are gone, while they are kept"
    )
    add_all_namespaces(made)
    add_output(made, "table", "json", "csv")
    return made


def _parse_types(text: str) -> tuple[str, ...]:
    check = one_of(*TYPES)
    return tuple(check(word.strip().capitalize()) for word in text.split(","))


def run(args: Namespace, screen: Screen) -> int:
    if args.object and args.of:
        raise UsageError(f"`{args.object}` and `--for {args.of}` are two objects; name one")
    if args.watch and args.output == "csv":
        raise UsageError("--watch and -o csv do not go together", hint="`-o json` is a line each")
    now_s = SystemClock().now_s()
    since_s = 0.0 if args.since is None else args.since(now_s)
    with open_reading(find_state_dir()) as reading:
        wanted = (
            parse_target(args.object or args.of, args.namespace) if args.object or args.of else None
        )
        past = reading.events_of_gone(wanted, since_s=since_s) if wanted and args.deleted else []
        seen = reading.find(wanted) if wanted and past else None
        if wanted and not past:
            seen = must_find(wanted, reading)
        if args.watch:
            return _watch_events(
                seen,
                reading,
                since_s,
                args,
                screen,
            )
        found = _of_types(past, args)
        if seen is not None or wanted is None:
            found += _find_events(seen, reading, since_s, args)
    written = OutputRows(
        table=lambda: (HEADER, (_build_cells(event, now_s) for event in found)),
        documents=lambda: map(event_document, found),
        plain=lambda: (CSV, (_list_cells(event) for event in found)),
    )
    if not write_rows(written, args.output, screen):
        screen.talk("no events")
    return 0


def _find_events(
    seen: View | None,
    reading: StoreReading,
    since_s: float,
    args: Namespace,
) -> list[EventView]:
    within = None if args.everywhere else args.namespace
    found = reading.events(
        seen,
        since_s=since_s,
        namespace=within,
        deleted=args.deleted,
    )
    return _of_types(found, args)


def _of_types(found: list[EventView], args: Namespace) -> list[EventView]:
    return [event for event in found if not args.types or event.line.kind in args.types]


def _watch_events(
    seen: View | None,
    reading: StoreReading,
    since_s: float,
    args: Namespace,
    screen: Screen,
) -> int:
    """Prints the existing events, then each that is new or happened again, until the object is
    gone."""
    fields: dict[tuple[str, str, str, str | None], float] = {}
    widths: list[int] = []
    while True:
        gone = seen is not None and reading.by_uid(seen.resource.uid) is None
        fresh = []
        for event in _find_events(seen, reading, since_s, args):
            row = event.line
            if fields.get(mark := (row.uid, row.reason, row.message, row.hint)) != row.at_s:
                fields[mark] = row.at_s
                fresh.append(event)
        if args.output == "json":
            for event in fresh:
                screen.data(json.dumps(event_document(event)))
        else:
            now_s = SystemClock().now_s()
            widths = screen.table(
                HEADER, [_build_cells(one, now_s) for one in fresh], widths=widths
            )
        screen.flush()
        if gone:
            return 0
        # Printed events are not read again; a transaction's events have one time, hence a margin.
        since_s = max(since_s, max(fields.values(), default=0.0) - MARGIN_S)
        reading.wait_for_change()


def _build_cells(event: EventView, now_s: float) -> list[str]:
    row = event.line
    times = f" (x{row.count})" if row.count > 1 else ""
    return [
        format_age(now_s - row.at_s),
        escape_line(row.kind),
        escape_line(row.reason),
        escape_line(event.key),
        escape_line(format_hinted(row.message, row.hint)) + times,
    ]


def _list_cells(event: EventView) -> list[object]:
    """Returns the cells of an event in a table for programs."""
    row: Mapping[str, object] = event_document(event)
    return [row[key] for key in CSV]
