"""`fleetctl events`: what happened, as sentences, oldest first."""

from __future__ import annotations

import json
from argparse import Namespace

from fleetctl.cli.command.flags import Parser, add_all_namespaces, add_output
from fleetctl.cli.command.values import moment, one_of
from fleetctl.cli.output.render import Screen
from fleetctl.cli.output.rows import Rows, write_rows
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.home import home
from fleetctl.common.text import age, safe, timestamp
from fleetctl.views.kinds import target
from fleetctl.views.objects import View
from fleetctl.views.reading import Event, Reading, must_find, open_reading

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
        type=moment,
        metavar="TIME",
        help="not before this: 1h, yesterday, 2026-11-01",
    )
    made.add_argument(
        "--types", type=_types, default=(), metavar="TYPES", help="Normal, Warning or both"
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


def _types(text: str) -> tuple[str, ...]:
    check = one_of(*TYPES)
    return tuple(check(word.strip().capitalize()) for word in text.split(","))


def run(args: Namespace, screen: Screen) -> int:
    if args.object and args.of:
        raise UsageError(f"`{args.object}` and `--for {args.of}` are two objects; name one")
    if args.watch and args.output == "csv":
        raise UsageError("--watch and -o csv do not go together", hint="`-o json` is a line each")
    now_s = SystemClock().now_s()
    since_s = 0.0 if args.since is None else args.since(now_s)
    with open_reading(home()) as reading:
        wanted = target(args.object or args.of, args.namespace) if args.object or args.of else None
        past = reading.events_of_gone(wanted, since_s=since_s) if wanted and args.deleted else []
        seen = reading.find(wanted) if wanted and past else None
        if wanted and not past:
            seen = must_find(wanted, reading)
        if args.watch:
            return _watch(seen, reading, since_s, args, screen)
        found = _of_types(past, args)
        if seen is not None or wanted is None:
            found += _found(seen, reading, since_s, args)
    written = Rows(
        table=lambda: (HEADER, (_cells(event, now_s) for event in found)),
        documents=lambda: map(_document, found),
        plain=lambda: (CSV, ([_document(event)[key] for key in CSV] for event in found)),
    )
    if not write_rows(written, args.output, screen):
        screen.talk("no events")
    return 0


def _found(seen: View | None, reading: Reading, since_s: float, args: Namespace) -> list[Event]:
    within = None if args.everywhere else args.namespace
    found = reading.events(seen, since_s=since_s, namespace=within, deleted=args.deleted)
    return _of_types(found, args)


def _of_types(found: list[Event], args: Namespace) -> list[Event]:
    return [event for event in found if not args.types or event.line.kind in args.types]


def _watch(
    seen: View | None, reading: Reading, since_s: float, args: Namespace, screen: Screen
) -> int:
    """Those that there are, then each that is new or happened again, until the object is gone."""
    fields: dict[tuple[str, str, str], float] = {}
    widths: list[int] = []
    while True:
        gone = seen is not None and reading.by_uid(seen.resource.uid) is None
        fresh = []
        for event in _found(seen, reading, since_s, args):
            row = event.line
            if fields.get(mark := (row.uid, row.reason, row.message)) != row.at_s:
                fields[mark] = row.at_s
                fresh.append(event)
        if args.output == "json":
            for event in fresh:
                screen.data(json.dumps(_document(event)))
        else:
            now_s = SystemClock().now_s()
            widths = screen.table(HEADER, [_cells(one, now_s) for one in fresh], widths=widths)
        screen.flush()
        if gone:
            return 0
        # What was told is not read again; events of one transaction have one time, hence a margin.
        since_s = max(since_s, max(fields.values(), default=0.0) - MARGIN_S)
        reading.wait_for_change()


def _cells(event: Event, now_s: float) -> list[str]:
    row = event.line
    times = f" (x{row.count})" if row.count > 1 else ""
    return [
        age(now_s - row.at_s),
        safe(row.kind),
        safe(row.reason),
        safe(event.key),
        safe(row.message) + times,
    ]


def _document(event: Event) -> dict[str, object]:
    row, gone_at_s = event.line, event.gone_at_s
    return {
        "type": row.kind,
        "reason": row.reason,
        "object": event.key,
        "uid": row.uid,
        "message": row.message,
        "count": row.count,
        "lastTimestamp": timestamp(row.at_s),
        "deletedAt": None if gone_at_s is None else timestamp(gone_at_s),
    }
