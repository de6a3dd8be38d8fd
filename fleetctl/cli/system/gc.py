"""`fleetctl gc`: lists the stored data of finished work, and the data that the limits remove."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetctl.cli.command.flags import Parser, add_output
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import byte_size, count_noun, escape_line, format_age, format_timestamp

PAGE = """\
[--dry-run] [-o table|wide|json]

Delete now what is past the limits of `kind: Settings`, which a controller does by
itself once an hour: logs, work directories, environments, copies of sources, and
records of deleted objects. --dry-run lists what would be deleted, and why, and
changes nothing; it needs no controller. What is in use, or is needed by unfinished
work, stays whatever the limits are.

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
    made.add_argument("--dry-run", action="store_true", help="only list what would be deleted")
    add_output(made, "table", "wide", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    place = find_state_dir()
    found = _predict_removals(place) if args.dry_run else _run_gc(place)
    if args.output == "json":
        screen.data(json.dumps([_build_document(it) for it in found], indent=2))
        return 0
    screen.table(HEADER, [_build_row(it) for it in found])
    if args.output == "wide" and any(it["goes"] for it in found):
        screen.data("")
        screen.table(GOING, list(_list_removals(found, SystemClock().now_s())))
    frees = byte_size(sum(it["bytesGoing"] for it in found))
    went = sum(len(it["goes"]) for it in found)
    if not went:
        screen.talk("nothing is past its limit")
    elif args.dry_run:
        screen.talk(
            f"{count_noun(went, 'thing')} would be deleted, which frees {frees}; nothing was"
            " changed"
        )
        if args.output != "wide":
            screen.hint("`fleetctl gc --dry-run -o wide` names them")
    else:
        screen.talk(f"{count_noun(went, 'thing')} deleted, which frees {frees}")
    return 0


def _predict_removals(place: Path) -> Sequence[Report]:
    from fleetctl.daemon.background_work import predict_retention

    return predict_retention(place, SystemClock().now_s())


def _run_gc(place: Path) -> Sequence[Report]:
    from fleetctl.daemon.client import spawn

    answer = spawn.require_reply(place, {"verb": "gc"})
    found = answer.get("sorts")
    if isinstance(found, list):
        return found
    return []


def _build_row(it: Report) -> tuple[str, ...]:
    held = it["held"]
    goes = len(it["goes"])
    return (
        it["sort"], str(it["items"]), byte_size(it["bytes"]), str(held) if held else "-",
        limits_text(it["limits"]), str(goes) if goes else "-",
        byte_size(it["bytesGoing"]) if goes else "-",
    )  # fmt: skip


def limits_text(limits: Mapping[str, Any]) -> str:
    """Returns `30d, 1.0 GiB, last 10`; `none`."""
    parts = []
    if limits["maxAge"] is not None:
        parts.append(format_age(limits["maxAge"]))
    if limits["maxSize"] is not None:
        parts.append(byte_size(limits["maxSize"]))
    if "groupSize" in limits:
        parts.append(f"{byte_size(limits['groupSize'])} together")
    if parts and limits["keepLast"]:
        parts.append(f"last {limits['keepLast']}")
    return ", ".join(parts) or "none"


def _list_removals(found: Sequence[Report], now_s: float) -> Iterator[tuple[str, ...]]:
    for it in found:
        for one in it["goes"]:
            used = f"{format_age(max(0.0, now_s - one['lastUsed']))} ago"
            yield it["sort"], escape_line(one["name"]), byte_size(one["bytes"]), used, one["why"]


def _build_document(it: Report) -> Report:
    goes = [{**one, "lastUsed": format_timestamp(one["lastUsed"])} for one in it["goes"]]
    return {**it, "goes": goes}
