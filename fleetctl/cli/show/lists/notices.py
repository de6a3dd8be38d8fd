"""`fleetctl get notices`: notices that were delivered, that wait and that could not be."""

from __future__ import annotations

import json
from argparse import Namespace
from datetime import UTC, datetime

from fleetctl.cli.output.render import Screen
from fleetctl.cli.output.rows import Rows, write_rows
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.text import age, safe
from fleetctl.stores.read.rows import NoticeRow
from fleetctl.views.kinds import target
from fleetctl.views.lines.notices import title_of
from fleetctl.views.reading import Reading

HEADER = ("AGE", "EVENT", "OBJECT", "SINK", "STATE", "TRIES", "PROBLEM")
WIDE = ("NEXT", "ID")


def get_notices(args: Namespace, reading: Reading, screen: Screen) -> int:
    if args.watch or args.selector or args.fields or args.sort_by or "=" in args.output:
        raise UsageError(
            "notices are listed as they are; they have no labels",
            hint="fleetctl get notices [KIND/NAME ...] [-o table|wide|name|json|csv]",
        )
    wanted = {target(word, namespace=args.namespace).key for word in args.words[1:]}
    found = [
        row
        for row in reading.notices()
        if (args.everywhere or row.namespace == args.namespace)
        and (not wanted or row.object in wanted)
    ]
    now_s, wide = SystemClock().now_s(), args.output == "wide"
    documents = [_document(row) for row in found]
    written = Rows(
        table=lambda: (
            (*HEADER, *(WIDE if wide else ())),
            ([safe(it) for it in _cells(row, now_s, wide=wide)] for row in found),
        ),
        documents=lambda: documents,
        plain=lambda: (
            list(documents[0]) if documents else [],
            ([_plain(it) for it in one.values()] for one in documents),
        ),
        names=lambda: (safe(row.id) for row in found),
    )
    if not write_rows(written, "json" if args.output == "yaml" else args.output, screen):
        screen.talk("no notices: `notify` of an object, or a Notifier, asks for them")
    return 0


def _cells(row: NoticeRow, now_s: float, *, wide: bool) -> list[str]:
    cells = [
        age(now_s - row.at_s),
        row.event,
        row.object,
        title_of(row),
        row.state,
        str(row.tries),
        row.problem or "-",
    ]
    if wide:
        waits = row.state == "Waiting"
        cells += [f"in {age(max(row.due_at_s - now_s, 0.0))}" if waits else "-", row.id]
    return cells


def _document(row: NoticeRow) -> dict[str, object]:
    return {
        "id": row.id,
        "event": row.event,
        "object": row.object,
        "namespace": row.namespace,
        "sink": title_of(row),
        "state": row.state,
        "tries": row.tries,
        "problem": row.problem,
        "at": _time(row.at_s),
        "nextTry": _time(row.due_at_s) if row.state == "Waiting" else None,
        "endedAt": _time(row.ended_at_s),
        "message": row.message,
        "body": json.loads(row.body),
    }


def _plain(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict) else value


def _time(at_s: float | None) -> str | None:
    if at_s is None:
        return None
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
