"""`fleetctl get notices`: lists notices that were delivered, that wait and that could not be
delivered."""

from __future__ import annotations

import json
from argparse import Namespace
from datetime import UTC, datetime

from fleetctl.cli.output.output_rows import OutputRows, write_listed
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.text import escape_line, format_age
from fleetctl.stores.read.rows import NoticeRow
from fleetctl.views.kinds import parse_target
from fleetctl.views.sections.notice_section import title_of
from fleetctl.views.store_reading import StoreReading

HEADER = ("AGE", "EVENT", "OBJECT", "SINK", "STATE", "TRIES", "PROBLEM")
WIDE = ("NEXT", "ID")


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
    documents = [_build_document(row) for row in found]
    written = OutputRows(
        table=lambda: (
            (*HEADER, *(WIDE if wide else ())),
            ([escape_line(it) for it in _build_cells(row, now_s, wide=wide)] for row in found),
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


def _build_cells(
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


def _build_document(row: NoticeRow) -> dict[str, object]:
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
