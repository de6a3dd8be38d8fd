"""`fleetctl events`: what happened, as sentences, oldest first."""

from __future__ import annotations

import json
from argparse import Namespace

from fleetctl.cli.flags import Parser, add_output
from fleetctl.cli.kinds import target
from fleetctl.cli.reading import Event, must_find, open_reading
from fleetctl.cli.render import Screen
from fleetctl.cli.text import age, safe, timestamp
from fleetctl.clock import SystemClock
from fleetctl.home import home

HEADER = ("AGE", "TYPE", "REASON", "OBJECT", "MESSAGE")


def parser(verb: str) -> Parser:
    made = Parser(
        verb=verb,
        usage="[KIND/NAME] [-o table|json]",
        summary="Show what happened, oldest first. Quick repeats are one line with a count.",
        examples=("fleetctl events", "fleetctl events job/chunks", "fleetctl events -o json"),
        codes="0 ok, 2 wrong usage, 4 no such object",
    )
    made.add_argument("object", nargs="?", metavar="KIND/NAME", help="of this object only")
    add_output(made, "table", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    with open_reading(home()) as reading:
        seen = must_find(target(args.object), reading) if args.object else None
        found = reading.events(seen)
    if args.output == "json":
        screen.data(json.dumps([_document(event) for event in found], indent=2))
        return 0
    now_s = SystemClock().now_s()
    if not screen.table(HEADER, [_cells(event, now_s) for event in found]):
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
