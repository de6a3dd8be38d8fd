"""Lists of `get` that are not objects: notices, sandboxes of interpreters, and namespaces
in use.

A namespace exists while an object is in it; there is no verb to create one.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fleetctl.cli.output.output_rows import OutputRows, write_listed
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import count_noun, escape_line, format_age
from fleetctl.stores.read.rows import NoticeRow
from fleetctl.views.kinds import kind_named, parse_target
from fleetctl.views.sections.notice_section import title_of
from fleetctl.views.spending import open_asking
from fleetctl.views.store_reading import StoreReading

NOTICES_HEADER = ("AGE", "EVENT", "OBJECT", "SINK", "STATE", "TRIES", "PROBLEM")
NOTICES_WIDE = ("NEXT", "ID")

INTERPRETERS_HEADER = (
    "NAME",
    "PROVIDER",
    "STATE",
    "PARENT",
    "DEPTH",
    "AGE",
    "CALLS",
    "TOKENS",
    "LLM COST",
)
INTERPRETERS_WIDE = ("REASON", "PID", "DURATION")
Row = Mapping[str, Any]

NAMESPACES_HEADER = ("NAME", "OBJECTS", "KINDS")


def get_notices(
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
) -> int:
    if args.watch or args.selector or args.fields or args.sort_by or "=" in args.output:
        raise UsageError(
            "notices are listed as they are; they have no labels",
            hint="fleetctl get notices [KIND/NAME ...] [-o table|wide|name|json|csv]",
        )
    wanted = {parse_target(word, namespace=args.namespace).key for word in args.words[1:]}
    found = [
        row
        for row in reading.notices()
        if (args.everywhere or row.namespace == args.namespace)
        and (not wanted or row.object in wanted)
    ]
    now_s = SystemClock().now_s()
    wide = args.output == "wide"
    documents = [_build_notice_document(row) for row in found]
    written = OutputRows(
        table=lambda: (
            (*NOTICES_HEADER, *(NOTICES_WIDE if wide else ())),
            (
                [escape_line(it) for it in _build_notice_cells(row, now_s, wide=wide)]
                for row in found
            ),
        ),
        documents=lambda: documents,
        plain=lambda: (
            list(documents[0]) if documents else [],
            ([_encode_plain(it) for it in one.values()] for one in documents),
        ),
        names=lambda: (escape_line(row.id) for row in found),
    )
    if not write_listed(written, args, screen):
        screen.talk("no notices: `notify` of an object, or a Notifier, asks for them")
    return 0


def _build_notice_cells(
    row: NoticeRow,
    now_s: float,
    *,
    wide: bool,
) -> list[str]:
    cells = [
        format_age(now_s - row.at_s),
        row.event,
        row.object,
        title_of(row),
        row.state,
        str(row.tries),
        row.problem or "-",
    ]
    if wide:
        waits = row.state == "Waiting"
        cells += [f"in {format_age(max(row.due_at_s - now_s, 0.0))}" if waits else "-", row.id]
    return cells


def _build_notice_document(row: NoticeRow) -> dict[str, object]:
    return {
        "id": row.id,
        "event": row.event,
        "object": row.object,
        "namespace": row.namespace,
        "sink": title_of(row),
        "state": row.state,
        "tries": row.tries,
        "problem": row.problem,
        "at": _format_time(row.at_s),
        "nextTry": _format_time(row.due_at_s) if row.state == "Waiting" else None,
        "endedAt": _format_time(row.ended_at_s),
        "message": row.message,
        "body": json.loads(row.body),
    }


def _encode_plain(value: object) -> object:
    if isinstance(value, dict):
        return json.dumps(value)
    return value


def _format_time(at_s: float | None) -> str | None:
    if at_s is None:
        return None
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def get_interpreters(args: Namespace, screen: Screen) -> int:
    """Prints the list. Raises NotFound for a named one that is not recorded."""
    if args.watch or args.selector or args.fields or args.sort_by or "=" in args.output:
        raise UsageError(
            "interpreters are listed as they are; they have no labels",
            hint="fleetctl get interpreters [NAME ...] [-o table|wide|name|json|csv], or"
            ' `fleetctl query "select * from interpreters"`',
        )
    with open_asking(find_state_dir()) as asking:
        answer = asking.ask("SELECT * FROM interpreters ORDER BY created_at, run")
        rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    wanted = set(args.words[1:])
    if missing := sorted(wanted - {row["run"] for row in rows}):
        message = f"no interpreter is called `{escape_line(missing[0])}`"
        raise NotFound(message, hint="fleetctl get interpreters")
    shown = [row for row in _sort_as_trees(rows) if not wanted or row["run"] in wanted]
    wide = args.output == "wide"
    written = OutputRows(
        table=lambda: (
            (*INTERPRETERS_HEADER, *(INTERPRETERS_WIDE if wide else ())),
            (_build_cells(row, wide) for row in shown),
        ),
        documents=lambda: map(_build_document, shown),
        plain=lambda: (list(answer.columns), ([*row.values()] for row in shown)),
        names=lambda: (escape_line(row["run"]) for row in shown),
    )
    if not write_listed(written, args, screen):
        screen.talk("no interpreters: no program of this machine made any")
    return 0


def _sort_as_trees(rows: Sequence[Row]) -> Iterator[Row]:
    """Yields each before those below it."""
    known = {row["run"] for row in rows}
    below: dict[str | None, list[Row]] = {}
    for row in rows:
        below.setdefault(row["parent"] if row["parent"] in known else None, []).append(row)
    waiting = list(reversed(below.get(None, [])))
    while waiting:
        row = waiting.pop()
        yield row
        waiting += reversed(below.get(row["run"], []))


def _build_cells(row: Row, wide: bool) -> list[str]:
    usd = "-" if row["llm_usd"] is None else f"${row['llm_usd']:.4f}"
    cells = [
        f"{'  ' * int(row['depth'])}{row['run']}",
        row["provider"],
        row["state"],
        row["parent"] or "-",
        str(row["depth"]),
        format_age(SystemClock().now_s() - datetime.fromisoformat(row["created_at"]).timestamp()),
        "-" if row["calls"] is None else str(row["calls"]),
        "-" if row["tokens"] is None else str(row["tokens"]),
        f"{usd} + {row['unpriced']} unpriced" if row["unpriced"] else usd,
    ]
    if wide:
        lasted = "-" if row["duration_s"] is None else format_age(row["duration_s"])
        cells += [row["reason"] or "-", str(row["pid"]), lasted]
    return [escape_line(cell) for cell in cells]


def _build_document(row: Row) -> dict[str, object]:
    return {**row, "usage": json.loads(row["usage"]) if row["usage"] else None}


def get_namespaces(
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
) -> int:
    """Prints the list. Raises NotFound for a named one that is empty."""
    if args.watch or args.selector or args.fields or args.sort_by or "=" in args.output:
        raise UsageError(
            "namespaces are listed as they are; they have no labels and no status",
            hint="fleetctl get namespaces [NAME ...] [-o table|name|json|csv]",
        )
    found = reading.namespaces()
    wanted = args.words[1:]
    for name in wanted:
        if name not in found:
            message = f"nothing is in namespace `{escape_line(name)}`"
            raise NotFound(message, hint="fleetctl get namespaces")
    shown = {name: kinds for name, kinds in found.items() if not wanted or name in wanted}
    counted = [(name, sum(kinds.values()), kinds) for name, kinds in shown.items()]
    written = OutputRows(
        table=lambda: (
            NAMESPACES_HEADER,
            (
                [escape_line(a), str(n), escape_line(_format_counts(kinds))]
                for a, n, kinds in counted
            ),
        ),
        documents=lambda: ({"name": a, "objects": n, "kinds": kinds} for a, n, kinds in counted),
        plain=lambda: (
            [title.lower() for title in NAMESPACES_HEADER],
            ([a, n, _format_counts(kinds)] for a, n, kinds in counted),
        ),
        names=lambda: (escape_line(f"namespace/{name}") for name in shown),
    )
    if not write_listed(written, args, screen):
        screen.talk("no namespaces: there are no objects")
    return 0


def _format_counts(kinds: dict[str, int]) -> str:
    """Returns `2 batchjobs, 1 volume`."""
    return ", ".join(
        count_noun(many, kind_named(kind).plural.removesuffix("s")) for kind, many in kinds.items()
    )
