"""`fleetctl events`: what happened, as sentences, oldest first."""

from __future__ import annotations

import json
from argparse import Namespace

from fleetctl.cli.flags import Parser, add_output, duration_s, one_of
from fleetctl.cli.kinds import target
from fleetctl.cli.reading import Event, must_find, open_reading
from fleetctl.cli.render import Screen
from fleetctl.cli.text import age, safe, timestamp
from fleetctl.clock import SystemClock
from fleetctl.errors import UsageError
from fleetctl.home import home

TYPES = ("Normal", "Warning")
HEADER = ("AGE", "TYPE", "REASON", "OBJECT", "MESSAGE")
CSV = ("lastTimestamp", "type", "reason", "object", "count", "message")


def parser(verb: str) -> Parser:
    made = Parser(
        verb=verb,
        usage="[KIND/NAME] [--since TIME] [--types TYPES] [-o table|json|csv]",
        summary="Show what happened, oldest first. Quick repeats are one line with a count.",
        examples=(
            "fleetctl events",
            "fleetctl events job/chunks --since 1h",
            "fleetctl events --types Warning -o json",
        ),
        codes="0 ok, 2 wrong usage, 4 no such object",
    )
    made.add_argument("object", nargs="?", metavar="KIND/NAME", help="of this object only")
    made.add_argument("--for", dest="of", metavar="KIND/NAME", help="the same, as kubectl has it")
    made.add_argument(
        "--since", type=duration_s, metavar="TIME", help="not older than this, such as 1h"
    )
    made.add_argument(
        "--types", type=_types, default=(), metavar="TYPES", help="Normal, Warning or both"
    )
    add_output(made, "table", "json", "csv")
    return made


def _types(text: str) -> tuple[str, ...]:
    check = one_of(*TYPES)
    return tuple(check(word.strip().capitalize()) for word in text.split(","))


def run(args: Namespace, screen: Screen) -> int:
    if args.object and args.of:
        raise UsageError(f"`{args.object}` and `--for {args.of}` are two objects; name one")
    now_s = SystemClock().now_s()
    since_s = 0.0 if args.since is None else now_s - args.since
    with open_reading(home()) as reading:
        name = args.object or args.of
        seen = must_find(target(name), reading) if name else None
        found = reading.events(seen, since_s=since_s)
    if args.types:
        found = [event for event in found if event.line.kind in args.types]
    if args.output == "json":
        screen.data(json.dumps([_document(event) for event in found], indent=2))
    elif args.output == "csv":
        from fleetctl.cli.csvtext import write_csv

        write_csv(CSV, ([_document(event)[key] for key in CSV] for event in found), screen)
    elif not screen.table(HEADER, (_cells(event, now_s) for event in found)):
        screen.talk("no events")
    return 0


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
    row = event.line
    return {
        "type": row.kind,
        "reason": row.reason,
        "object": event.key,
        "uid": row.uid,
        "message": row.message,
        "count": row.count,
        "lastTimestamp": timestamp(row.at_s),
    }
