"""Answers with rows of the store, as the Reader yields them: for the command line, which has every
reading verb with a server as it has them without. Called by the routes.

A query is a method of the Reader; the table below says which there are, and in which namespace each
reads. A row is a JSON list whose fields are only ever added at its end. SQL of `query`, `cost` and
`top` is answered from views that have the rows of the caller's namespace alone.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from tempfile import SpooledTemporaryFile
from typing import Any, NamedTuple

from starlette.responses import JSONResponse, Response, StreamingResponse

from fleetctl.common.errors import NotFound, UsageError
from fleetctl.server.callers import CLUSTER_WIDE, VIEWER, Caller
from fleetctl.server.changes import read_body
from fleetctl.server.route_table import ApiCall
from fleetctl.stores.access import EVERYWHERE
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.read.rows import ResourceRow
from fleetctl.views.kinds import kind_named
from fleetctl.views.run_logs import log_exists, past_s, read_bytes, read_times
from fleetctl.views.spending import open_asking
from fleetctl.views.store_reading import StoreReading

SQL_BYTES_MAX = 64 * 1024
SQL_ROWS_MAX = 100_000
SQL_WAIT_S = 60  # of one query at most; a command asks for less
SPOOL_BYTES = 1 << 20  # more goes to a file that has no name
PIECE_BYTES = 256 * 1024
LOG_BYTES_MAX = 4 * 1024 * 1024
REVISION = "data_version"

Row = Any
Arguments = Mapping[str, Any]


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
            call.caller.user,
            "logs",
            keys=run_name,
            namespace=call.namespace,
            token=call.caller.token,
            address=call.caller.address,
        )
    return Response(data, media_type="application/octet-stream", headers=headers)
