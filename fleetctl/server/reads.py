"""Answers what is stored: lists, objects, their tasks, results and events, as documents for users
and as rows for the command line.

A query is a method of the Reader; the table below says which there are, and in which namespace
each reads. A row is a JSON list whose fields are only ever added at its end. SQL of `query`,
`cost` and `top` is answered from views that have the rows of the caller's namespace alone.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from tempfile import SpooledTemporaryFile
from typing import Any, NamedTuple, cast

from starlette.responses import JSONResponse, Response, StreamingResponse

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.server.callers import CLUSTER_WIDE, VIEWER, Caller
from fleetctl.server.changes import read_body
from fleetctl.server.object_details import build_fields, build_tables
from fleetctl.server.response_types import (
    EventList,
    KindItem,
    KindList,
    ListedObject,
    ListHead,
    ObjectList,
    ObjectReply,
    ResultList,
    TaskList,
)
from fleetctl.server.route_table import PAGE_DEFAULT, PAGE_MAX, ApiCall
from fleetctl.specs.kinds.registry import API_VERSION, KINDS, Kind
from fleetctl.stores.access import EVERYWHERE
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.read.rows import SORTS, LabelCondition, ObjectQuery, ResourceRow
from fleetctl.views.columns import choose_columns
from fleetctl.views.documents import event_document, result_rows, task_document
from fleetctl.views.kinds import Target, kind_named, target_of
from fleetctl.views.objects import View, build_document, explain_status, suggest_fix
from fleetctl.views.run_files import log_exists, past_s, read_bytes, read_times
from fleetctl.views.selectors import parse_selector
from fleetctl.views.spending import open_asking
from fleetctl.views.store_reading import EventView, StoreReading, must_find
from fleetctl.views.tasks import Task, with_queued

EVENTS_MAX = 1000

SQL_BYTES_MAX = 64 * 1024
SQL_ROWS_MAX = 100_000
SQL_WAIT_S = 60  # of one query at most; a command asks for less
SPOOL_BYTES = 1 << 20  # more goes to a file that has no name
PIECE_BYTES = 256 * 1024
LOG_BYTES_MAX = 4 * 1024 * 1024
REVISION = "data_version"

HEAD: ListHead = {"apiVersion": API_VERSION, "kind": "List"}

Row = Any
Arguments = Mapping[str, Any]


async def list_kinds(call: ApiCall) -> KindList:
    """Lists the kinds with the columns of their tables."""
    del call
    items: list[KindItem] = [
        {
            "kind": it.name,
            "plural": it.plural,
            "short": list(it.short),
            "namespaced": it.namespaced,
            "runs": it.runs,
            "unit": it.unit,
            "verbs": list(it.verbs),
            "summary": it.summary,
            "columns": [column.title for column in choose_columns(it, wide=False)],
        }
        for it in KINDS.values()
    ]
    return {"apiVersion": API_VERSION, "kind": "KindList", "items": items}


async def list_all(call: ApiCall) -> ObjectList:
    """Lists objects of all kinds."""
    return await _list_objects(call, None)


async def list_objects(call: ApiCall) -> ObjectList:
    """Lists the objects of a kind."""
    return await _list_objects(call, call.kind)


async def _list_objects(call: ApiCall, kind: Kind | None) -> ObjectList:
    cursor = call.parts.feed.cursor  # before the read: a change in between is reported twice
    wanted = parse_query(call, kind)
    parts = ("metadata", "spec", "status") if wanted.specs else ("metadata", "status")
    now_s = SystemClock().now_s()
    columns = choose_columns(kind, wide=call.flag("wide"))

    def read(reading: StoreReading) -> tuple[list[ListedObject], dict[str, int], object]:
        found = reading.page(wanted)
        last = found[-1][1:] if len(found) == wanted.limit else None
        items: list[ListedObject] = []
        for seen, *_ in found:
            item = cast("ListedObject", build_document(seen, now_s, parts=parts))
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


async def get_object(call: ApiCall) -> ObjectReply:
    """Shows an object in full."""

    def read(reading: StoreReading) -> ObjectReply:
        seen = find_object(call, reading)
        now_s = SystemClock().now_s()
        shown = cast("ObjectReply", build_document(seen, now_s))
        shown["why"], shown["fix"] = explain_status(seen), suggest_fix(seen)
        shown["details"] = build_fields(seen, reading, now_s)
        shown["tables"] = build_tables(call.caller, seen, reading, now_s)
        return shown

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


async def list_tasks(call: ApiCall) -> TaskList:
    """Lists the tasks of an object, or all attempts of one task."""
    limit = max(1, call.number("limit", PAGE_DEFAULT, most=PAGE_MAX))
    begin = call.number("continue", 0, most=10**9)
    phases = set(filter(None, call.text("phase").split(",")))
    index = call.text("index")
    now_s = SystemClock().now_s()

    def read(reading: StoreReading) -> TaskList:
        seen = find_working(call, reading)
        if index:
            one = call.number("index", 0, most=10**9)
            attempts = reading.attempts(seen, index=one)
            tasks_of_one = [task_document(it, seen, now_s) for it in attempts]
            return {**HEAD, "metadata": {"continue": ""}, "items": tasks_of_one}

        tasks = _read_tasks(reading, seen, begin, queued=call.flag("queued"))
        if phases:
            tasks = (it for it in tasks if it.shown in phases or it.state in phases)
        page = list(islice(tasks, limit + 1))
        more = str(page[limit].run.index) if len(page) > limit else ""
        items = [task_document(it, seen, now_s) for it in page[:limit]]
        counts = _task_counts(seen)
        return {**HEAD, "metadata": {"continue": more, "counts": counts}, "items": items}

    return await call.parts.readers.read(read)


def _read_tasks(
    reading: StoreReading,
    seen: View,
    begin: int,
    *,
    queued: bool,
) -> Iterator[Task]:
    """Returns the tasks from an index on. queued: with those that have no attempt yet."""
    if not queued:
        return reading.tasks(seen, begin=begin)
    every = reading.with_files(with_queued(reading.tasks(seen), seen), seen)
    return (it for it in every if it.run.index >= begin)


def _task_counts(seen: View) -> dict[str, int]:
    """Returns the number of tasks by their state, as the status has them."""
    names = ("succeeded", "failed", "stopped", "active", "cached", "outdated", "total")
    found = {name: seen.status.get(name) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, int)}


async def list_results(call: ApiCall) -> ResultList:
    """Lists the results of an object's tasks."""
    limit = max(1, call.number("limit", PAGE_DEFAULT, most=PAGE_MAX))
    begin = call.number("continue", 0, most=10**9)
    phases = set(filter(None, call.text("phase").split(",")))

    def read(reading: StoreReading) -> ResultList:
        seen = find_working(call, reading)
        rows = result_rows(seen, reading, begin=begin)
        page = list(islice((it for it in rows if not phases or it["state"] in phases), limit + 1))
        more = str(page[limit]["index"]) if len(page) > limit else ""
        return {**HEAD, "metadata": {"continue": more}, "items": page[:limit]}

    return await call.parts.readers.read(read)


async def list_events(call: ApiCall) -> EventList:
    """Lists the events of an object, the oldest first."""
    limit = max(1, call.number("limit", EVENTS_MAX, most=EVENTS_MAX))

    def read(reading: StoreReading) -> EventList:
        return _list_events(reading.events(find_object(call, reading)), limit)

    return await call.parts.readers.read(read)


async def list_all_events(call: ApiCall) -> EventList:
    """Lists the events of a namespace, the oldest first."""
    limit = max(1, call.number("limit", EVENTS_MAX, most=EVENTS_MAX))
    within = call.caller.namespaces(call.text("namespace"))

    def read(reading: StoreReading) -> EventList:
        found = reading.events(namespace=within[0] if within else None)
        return _list_events(found, limit)

    return await call.parts.readers.read(read)


def _list_events(found: Sequence[EventView], limit: int) -> EventList:
    """Returns a list of the newest events."""
    items = [event_document(it) for it in found[-limit:]]
    return {**HEAD, "metadata": {"continue": ""}, "items": items}


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


class RowQuery(NamedTuple):
    """A query. check: raises HttpError where the caller may not ask that. own: of rows of several
    namespaces, those that are the caller's."""

    check: Callable[[Caller, Reader, Arguments], None]
    own: Callable[[Caller, Reader, Row], bool] = lambda *_: True


def _check_object(caller: Caller, _: Reader, given: Arguments) -> None:
    namespace = str(given.get("namespace") or "default")
    caller.require_kind(kind_named(str(given.get("kind"))), VIEWER, namespace)


def _check_uid(caller: Caller, reader: Reader, given: Arguments) -> None:
    uid = given.get("uid")
    if uid is None or caller.namespace == EVERYWHERE:
        return
    row = reader.resource_of(str(uid))
    if row is not None:
        caller.require_kind(kind_named(row.kind), VIEWER, row.namespace)
        return
    for known, kind, _, namespace, _ in reader.all_keys():
        if known == uid:
            caller.require_kind(kind_named(kind), VIEWER, namespace)


def _check_run(caller: Caller, reader: Reader, given: Arguments) -> None:
    run = given.get("run", given.get("name"))
    _check_uid(caller, reader, {"uid": reader.owner_of(str(run))})


def _check_nothing(caller: Caller, reader: Reader, given: Arguments) -> None:
    del caller, reader, given


def _check_everywhere(caller: Caller, reader: Reader, given: Arguments) -> None:
    del reader, given
    caller.require(VIEWER, EVERYWHERE)


def _own_resource(caller: Caller, _: Reader, row: ResourceRow) -> bool:
    return _is_own(caller, row.kind, row.namespace)


def _own_key(caller: Caller, _: Reader, row: Row) -> bool:
    return _is_own(caller, row[1], row[3])


def _is_own(caller: Caller, kind: str, namespace: str) -> bool:
    return kind in CLUSTER_WIDE or caller.may(VIEWER, namespace)


def _own_uid(caller: Caller, reader: Reader, row: Row) -> bool:
    """Returns whether the object of an event is the caller's."""
    if caller.namespace == EVERYWHERE:
        return True
    found = reader.resource_of(row.uid)
    return found is not None and _is_own(caller, found.kind, found.namespace)


QUERIES = {
    "resources": RowQuery(_check_nothing, _own_resource),
    "resource": RowQuery(_check_object),
    "resource_of": RowQuery(_check_uid),
    "names": RowQuery(_check_object),
    "object_keys": RowQuery(_check_nothing, _own_key),
    "all_keys": RowQuery(_check_nothing, _own_key),
    "gone": RowQuery(_check_object),
    "namespaces": RowQuery(_check_nothing, lambda caller, _, row: caller.may(VIEWER, row[0])),
    "runs": RowQuery(_check_uid),
    "tasks": RowQuery(_check_uid),
    "run": RowQuery(_check_run),
    "owner_of": RowQuery(_check_run),
    "metrics": RowQuery(_check_run),
    "samples": RowQuery(_check_run),
    "checkpoints": RowQuery(_check_uid),
    "resumed_steps": RowQuery(_check_uid),
    "metric_ends": RowQuery(_check_run),
    "metric_names": RowQuery(_check_run),
    "points": RowQuery(_check_run),
    "live_runs": RowQuery(_check_everywhere),
    "live_prices": RowQuery(_check_uid),
    "durations": RowQuery(_check_uid),
    "durations_in_queue": RowQuery(_check_nothing),
    "events": RowQuery(_check_uid, _own_uid),
    "notices": RowQuery(_check_uid, lambda caller, _, row: caller.may(VIEWER, row.namespace)),
}


async def read_rows(call: ApiCall) -> Response:
    """Sends the rows of a query."""
    name = call.request.path_params["query"]
    if name == REVISION:
        return JSONResponse(call.parts.feed.revision)
    query = QUERIES.get(name)
    if query is None:
        raise NotFound(f"there is no query `{name[:60]}`", hint="upgrade the older of both sides")
    given = _parse_arguments(name, call.text("args"))

    def read(reading: StoreReading) -> SpooledTemporaryFile[bytes]:
        reader = reading.rows
        query.check(call.caller, reader, given)
        found = getattr(reader, name)(**given)
        spool: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115
        for row in _iterate_rows(found):
            if query.own(call.caller, reader, row):
                spool.write(json.dumps(row, separators=(",", ":"), default=list).encode() + b"\n")
        spool.seek(0)
        return spool

    spool = await call.parts.readers.read(read)
    return StreamingResponse(_read_pieces(spool), media_type="application/x-ndjson")


def _parse_arguments(name: str, text: str) -> dict[str, Any]:
    """Returns the arguments that the query has in this version. Raises UsageError."""
    try:
        given = json.loads(text or "{}")
        known = inspect.signature(getattr(Reader, name)).parameters
        if not isinstance(given, dict):
            raise TypeError
        found = {key: value for key, value in given.items() if key in known}
        inspect.signature(getattr(Reader, name)).bind(None, **found)
    except (ValueError, TypeError, RecursionError):
        raise UsageError(f"these are no arguments of `{name}`") from None
    return found


def _iterate_rows(found: object) -> Iterator[Row]:
    """Yields the rows of any query: of one that has a single row or none, of a set, of a
    mapping."""
    if found is None:
        return
    if isinstance(found, Mapping):
        yield from found.items()
    elif isinstance(found, str) or hasattr(found, "_fields"):
        yield found
    elif isinstance(found, Iterable):
        yield from found


async def run_query(call: ApiCall) -> Response:
    """Answers SQL over the views: first a line with the columns, then a line for each row."""
    body = await read_body(call)
    sql, values = body.get("sql"), body.get("parameters", [])
    wait_s = body.get("timeoutSeconds", SQL_WAIT_S)
    if not isinstance(sql, str) or not isinstance(values, list) or len(sql) > SQL_BYTES_MAX:
        raise UsageError(
            "the body needs `sql`, one SELECT, and may have `parameters`, a list",
            hint='{"sql": "select state, count(*) from tasks group by 1"}',
        )
    if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not wait_s > 0:
        raise UsageError("`timeoutSeconds` must be a number above 0")
    own = None if call.caller.namespace == EVERYWHERE else call.caller.namespace

    def read() -> SpooledTemporaryFile[bytes]:
        spool: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115
        timeout_s = min(wait_s, SQL_WAIT_S)
        with open_asking(call.parts.home, timeout_s=timeout_s, namespace=own) as views:
            found = views.ask(sql, values)
            for row in chain([found.columns], islice(found.rows, SQL_ROWS_MAX)):
                spool.write(json.dumps(row, separators=(",", ":"), default=_encode_blob).encode())
                spool.write(b"\n")
        spool.seek(0)
        return spool

    spool = await call.parts.readers.query(read)
    return StreamingResponse(_read_pieces(spool), media_type="application/x-ndjson")


def _encode_blob(value: object) -> object:
    assert isinstance(value, bytes), "SQLite has no further types"
    return {"base64": base64.b64encode(value).decode()}


async def _read_pieces(spool: SpooledTemporaryFile[bytes]) -> AsyncIterator[bytes]:
    with spool:
        while data := spool.read(PIECE_BYTES):
            yield data


async def read_run_log(call: ApiCall) -> Response:
    """Sends a piece of a run's output, or with `times` when its bytes came."""
    run_name = call.request.path_params["run"]
    node = call.number("node", 0, most=10_000)
    offset = call.number("offset", 0, most=1 << 53)
    service = call.text("service")
    home = call.parts.home

    def read(reading: StoreReading) -> tuple[dict[str, str], bytes]:
        reader = reading.rows
        _check_run(call.caller, reader, {"run": run_name})
        run, uid = reader.run(run_name), reader.owner_of(run_name)
        if run is None or uid is None:
            raise NotFound(f"there is no run `{run_name[:80]}`")
        if call.flag("times"):
            return {}, json.dumps(read_times(home, uid, run, node=node, service=service)).encode()
        data = b""
        at = offset
        for piece, following in read_bytes(home, uid, run, offset, node=node, service=service):
            data += piece
            at = following
            if len(data) >= LOG_BYTES_MAX:
                break
        past = past_s(home, uid, run)
        exists = log_exists(home, uid, run, node=node)
        return {
            "x-next-offset": str(at),
            "x-exists": str(exists).lower(),
            "x-past": "" if past is None else repr(past),
        }, data

    headers, data = await call.parts.readers.read(read)
    if not offset and not call.flag("times"):
        await asyncio.to_thread(
            call.parts.access.add_audit,
            call.caller.author,
            "logs",
            keys=run_name,
            namespace=call.namespace,
            token=call.caller.token,
            address=call.caller.address,
        )
    return Response(data, media_type="application/octet-stream", headers=headers)
