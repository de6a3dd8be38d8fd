"""`fleetctl gc`: what is kept of what is over, and what of it goes by the limits."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetctl.cli.command.flags import Parser, add_output
from fleetctl.cli.output.render import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.home import home
from fleetctl.common.text import age, byte_size, plural, safe, timestamp

PAGE = """\
[--dry-run] [-o table|wide|json]

Let go now of what is past the limits of `kind: Settings`, which a controller does
by itself once an hour: logs, work directories, environments, copies of sources, and
records of deleted objects. --dry-run tells what would go, and why, and changes
nothing; it needs no controller. What is in use, or is needed by what is not over,
stays whatever the limits say.

examples:
  fleetctl gc --dry-run
  fleetctl gc --dry-run -o wide
  fleetctl gc --dry-run -o json | jq '.[] | {sort, bytes, bytesGoing}'
  fleetctl gc

exit codes:
  0 ok, 1 failed, 2 wrong usage, 4 there is no store yet
"""

HEADER = ("SORT", "ITEMS", "SIZE", "IN USE", "LIMITS", "GOES", "FREES")
GOING = ("SORT", "NAME", "SIZE", "LAST USED", "WHY")
Report = Mapping[str, Any]


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("--dry-run", action="store_true", help="only tell what would go")
    add_output(made, "table", "wide", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    place = home()
    found = _foreseen(place) if args.dry_run else _done(place)
    if args.output == "json":
        screen.data(json.dumps([_document(it) for it in found], indent=2))
        return 0
    screen.table(HEADER, [_row(it) for it in found])
    if args.output == "wide" and any(it["goes"] for it in found):
        screen.data("")
        screen.table(GOING, list(_going(found, SystemClock().now_s())))
    frees = byte_size(sum(it["bytesGoing"] for it in found))
    went = sum(len(it["goes"]) for it in found)
    if not went:
        screen.talk("nothing is past its limit")
    elif args.dry_run:
        screen.talk(f"{plural(went, 'thing')} would go, which frees {frees}; nothing was changed")
        if args.output != "wide":
            screen.hint("`fleetctl gc --dry-run -o wide` names them")
    else:
        screen.talk(f"{plural(went, 'thing')} let go of, which frees {frees}")
    return 0


def _foreseen(place: Path) -> Sequence[Report]:
    from fleetctl.daemon.retention import foreseen

    return foreseen(place, SystemClock().now_s())


def _done(place: Path) -> Sequence[Report]:
    from fleetctl.daemon.reach import spawn

    answer = spawn.demand(place, {"verb": "gc"})
    found = answer.get("sorts")
    return found if isinstance(found, list) else []


def _row(it: Report) -> tuple[str, ...]:
    held, goes = it["held"], len(it["goes"])
    return (
        it["sort"], str(it["items"]), byte_size(it["bytes"]), str(held) if held else "-",
        limits_text(it["limits"]), str(goes) if goes else "-",
        byte_size(it["bytesGoing"]) if goes else "-",
    )  # fmt: skip


def limits_text(limits: Mapping[str, Any]) -> str:
    """`30d, 1.0 GiB, last 10`; `none`."""
    parts = []
    if limits["maxAge"] is not None:
        parts.append(age(limits["maxAge"]))
    if limits["maxSize"] is not None:
        parts.append(byte_size(limits["maxSize"]))
    if parts and limits["keepLast"]:
        parts.append(f"last {limits['keepLast']}")
    return ", ".join(parts) or "none"


def _going(found: Sequence[Report], now_s: float) -> Iterator[tuple[str, ...]]:
    for it in found:
        for one in it["goes"]:
            used = f"{age(max(0.0, now_s - one['lastUsed']))} ago"
            yield it["sort"], safe(one["name"]), byte_size(one["bytes"]), used, one["why"]


def _document(it: Report) -> Report:
    goes = [{**one, "lastUsed": timestamp(one["lastUsed"])} for one in it["goes"]]
    return {**it, "goes": goes}
