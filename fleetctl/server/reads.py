"""Answers what is stored: lists, objects, their tasks, results and events. Called by the routes."""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.server.callers import CLUSTER_WIDE, VIEWER
from fleetctl.server.route_table import PAGE_DEFAULT, PAGE_MAX, ApiCall
from fleetctl.specs.kinds.registry import API_VERSION, KINDS, Kind
from fleetctl.stores.read.listing import SORTS, LabelCondition, ObjectQuery
from fleetctl.views.columns import choose_columns
from fleetctl.views.documents import event_document, task_document
from fleetctl.views.kinds import Target, target_of
from fleetctl.views.objects import View, build_document, explain_status, suggest_fix
from fleetctl.views.selectors import parse_selector
from fleetctl.views.store_reading import StoreReading, must_find
from fleetctl.views.tasks import with_queued
from fleetctl.views.unit_results import result_rows

EVENTS_MAX = 1000


async def list_kinds(call: ApiCall) -> Mapping[str, object]:
    """Lists the kinds with the columns of their tables."""
    del call
    items = [
        {
            "kind": it.name,
            "plural": it.plural,
            "short": list(it.short),
            "namespaced": it.namespaced,
            "runs": it.runs,
            "unit": it.unit,
            "summary": it.summary,
            "columns": [column.title for column in choose_columns(it, wide=False)],
        }
        for it in KINDS.values()
    ]
    return {"apiVersion": API_VERSION, "kind": "KindList", "items": items}


async def list_all(call: ApiCall) -> Mapping[str, object]:
    """Lists objects of all kinds."""
    return await _list_objects(call, None)


async def list_objects(call: ApiCall) -> Mapping[str, object]:
    """Lists the objects of a kind."""
    return await _list_objects(call, call.kind)


async def _list_objects(call: ApiCall, kind: Kind | None) -> Mapping[str, object]:
    cursor = call.parts.feed.cursor  # before the read: a change in between is reported twice
    wanted = parse_query(call, kind)
    parts = ("metadata", "spec", "status") if wanted.specs else ("metadata", "status")
    now_s = SystemClock().now_s()
    columns = choose_columns(kind, wide=call.flag("wide"))

    def read(reading: StoreReading) -> tuple[list[dict[str, object]], dict[str, int], object]:
        found = reading.page(wanted)
        last = found[-1][1:] if len(found) == wanted.limit else None
        items = []
        for seen, *_ in found:
            item = build_document(seen, now_s, parts=parts)
            item["cells"] = [column.cell(seen, now_s) for column in columns]
            item["why"] = explain_status(seen)
            items.append(item)
        return items, reading.phase_counts(wanted), last

    items, counts, last = await call.parts.readers.read(read)
    return {
        "apiVersion": API_VERSION,
        "kind": "List",
        "metadata": {
            "continue": "" if last is None else _encode_cursor(last),
            "revision": cursor,
            "counts": counts,
            "total": sum(counts.values()),
            "columns": [column.title for column in columns],
        },
        "items": items,
    }


def parse_query(call: ApiCall, kind: Kind | None) -> ObjectQuery:
    """Reads the parameters of a list. Raises UsageError."""
    namespaces = call.caller.namespaces(call.text("namespace"))
    sort = call.text("sort") or "created"
    if sort.removeprefix("-") not in SORTS:
        raise UsageError(
            f"`sort` is `{sort[:40]}`; it must be one of {', '.join(SORTS)}",
            hint="with `-` in front the greatest comes first",
        )
    texts, labels = parse_filter(call.text("filter"))
    after = call.text("continue")
    limit = call.number("limit", PAGE_DEFAULT, most=PAGE_MAX)
    return ObjectQuery(
        kinds=() if kind is None else (kind.name,),
        namespaces=() if kind is not None and not kind.namespaced else namespaces,
        everywhere=CLUSTER_WIDE,
        phases=tuple(filter(None, call.text("phase").split(","))),
        text=texts,
        labels=labels,
        sort=sort.removeprefix("-"),
        descending=sort.startswith("-"),
        after=_decode_cursor(after) if after else None,
        limit=max(1, limit),
        specs=call.flag("specs"),
    )


def parse_filter(text: str) -> tuple[str, tuple[LabelCondition, ...]]:
    """Reads `resnet`, a part of a name, or `team=rlm,stage!=test`, labels as `-l` has them. Raises
    UsageError."""
    if not text or not any(sign in text for sign in "=!(,"):
        return text, ()
    try:
        terms = parse_selector(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(str(error)) from None
    return "", tuple(LabelCondition(*term) for term in terms)


async def get_object(call: ApiCall) -> Mapping[str, object]:
    """Shows an object in full."""

    def read(reading: StoreReading) -> dict[str, object]:
        seen = find_object(call, reading)
        shown = build_document(seen, SystemClock().now_s())
        return {**shown, "why": explain_status(seen), "fix": suggest_fix(seen)}

    return await call.parts.readers.read(read)


def target_in(call: ApiCall) -> Target:
    """Returns the object in the path. Raises HttpError where the caller may not see it."""
    namespace = call.namespace
    call.caller.require_kind(call.kind, VIEWER, namespace)
    return target_of(call.kind, call.name, namespace)


def find_object(call: ApiCall, reading: StoreReading) -> View:
    return must_find(target_in(call), reading)


def find_working(call: ApiCall, reading: StoreReading) -> View:
    """Returns an object that runs work. Raises NotFound."""
    seen = find_object(call, reading)
    if not seen.kind.runs:
        raise NotFound(f"a {seen.kind.name} runs no work")
    return seen


async def list_tasks(call: ApiCall) -> Mapping[str, object]:
    """Lists the tasks of an object, or all attempts of one task."""
    limit = max(1, call.number("limit", PAGE_DEFAULT, most=PAGE_MAX))
    begin = call.number("continue", 0, most=10**9)
    phases = set(filter(None, call.text("phase").split(",")))
    index = call.text("index")
    now_s = SystemClock().now_s()

    def read(reading: StoreReading) -> Mapping[str, object]:
        seen = find_working(call, reading)
        if index:
            one = call.number("index", 0, most=10**9)
            found = list(reading.attempts(seen, index=one))
            return _build_page([task_document(it, seen, now_s) for it in found], "")
        tasks = reading.tasks(seen, begin=begin)
        if call.flag("queued"):
            every = reading.with_files(with_queued(reading.tasks(seen), seen), seen)
            tasks = (it for it in every if it.run.index >= begin)
        chosen = (it for it in tasks if not phases or it.shown in phases or it.state in phases)
        page = list(islice(chosen, limit + 1))
        more = str(page[limit].run.index) if len(page) > limit else ""
        items = [task_document(it, seen, now_s) for it in page[:limit]]
        return _build_page(items, more, counts=_task_counts(seen))

    return await call.parts.readers.read(read)


def _task_counts(seen: View) -> dict[str, int]:
    """Returns the number of tasks by their state, as the status has them."""
    names = ("succeeded", "failed", "stopped", "active", "cached", "outdated", "total")
    found = {name: seen.status.get(name) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, int)}


async def list_results(call: ApiCall) -> Mapping[str, object]:
    """Lists the results of an object's tasks."""
    limit = max(1, call.number("limit", PAGE_DEFAULT, most=PAGE_MAX))
    begin = call.number("continue", 0, most=10**9)
    phases = set(filter(None, call.text("phase").split(",")))

    def read(reading: StoreReading) -> Mapping[str, object]:
        seen = find_working(call, reading)
        rows: Iterator[dict[str, Any]] = result_rows(seen, reading, begin=begin)
        page = list(islice((it for it in rows if not phases or it["state"] in phases), limit + 1))
        more = str(page[limit]["index"]) if len(page) > limit else ""
        return _build_page(page[:limit], more)

    return await call.parts.readers.read(read)


async def list_events(call: ApiCall) -> Mapping[str, object]:
    """Lists the events of an object, the oldest first."""
    limit = max(1, call.number("limit", EVENTS_MAX, most=EVENTS_MAX))

    def read(reading: StoreReading) -> Mapping[str, object]:
        found = reading.events(find_object(call, reading))
        return _build_page([event_document(it) for it in found[-limit:]], "")

    return await call.parts.readers.read(read)


async def list_all_events(call: ApiCall) -> Mapping[str, object]:
    """Lists the events of a namespace, the oldest first."""
    limit = max(1, call.number("limit", EVENTS_MAX, most=EVENTS_MAX))
    within = call.caller.namespaces(call.text("namespace"))

    def read(reading: StoreReading) -> Mapping[str, object]:
        found = reading.events(namespace=within[0] if within else None)
        return _build_page([event_document(it) for it in found[-limit:]], "")

    return await call.parts.readers.read(read)


def _build_page(
    items: list[Any],
    more: str,
    *,
    counts: Mapping[str, int] | None = None,
) -> dict[str, object]:
    metadata: dict[str, object] = {"continue": more}
    if counts is not None:
        metadata["counts"] = counts
    return {"apiVersion": API_VERSION, "kind": "List", "metadata": metadata, "items": items}


def _encode_cursor(last: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(last).encode()).decode().rstrip("=")


def _decode_cursor(text: str) -> tuple[object, int]:
    try:
        found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        value, rid = found
        if isinstance(value, str | int | float) and isinstance(rid, int):
            return value, rid
    except (ValueError, TypeError):
        pass  # reported below
    raise UsageError(
        "`continue` is not what a page before gave", hint="begin with the first page again"
    )
