"""Events in SQLite, repeats counted and the newest kept, with the charges of runs and the notices
on their way.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields, replace
from hashlib import blake2b
from operator import attrgetter

from fleetctl.controllers.kinds.notices import Notice, NoticeState
from fleetctl.stores import queries
from fleetctl.stores.base import (
    EVENT_MESSAGE_CHARS_MAX,
    EVENT_REPEAT_S,
    EVENTS_PER_OBJECT_MAX,
    NOTICES_KEPT_MAX,
    CallStore,
    CallSums,
    EndpointUsage,
    EventRow,
    EventStore,
    LedgerEntry,
    LedgerStore,
    NoticeStore,
)
from fleetctl.stores.sqlite.store_session import Row, StoreSession

Counts = tuple[float, ...]  # in the order of the fields of CallSums
_NAMES = tuple(it.name for it in fields(CallSums))
_counts: Callable[[CallSums], Counts] = attrgetter(*_NAMES)
_NO_CALLS = _counts(CallSums())
_USD = _NAMES.index("usd")


class SqliteEvents:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    def record(self, events: Sequence[EventRow]) -> None:
        self._session.writing()
        if not events:
            return  # as in most ticks: they have no transaction of events
        rows = [_cap_message(event) for event in events]

        def write(database: sqlite3.Connection) -> None:
            for row in rows:
                _record_event(database, row)

        self._session.event_writes.append(write)

    def replace(self, last: EventRow) -> None:
        self._session.writing()
        row = _cap_message(last)

        def write(database: sqlite3.Connection) -> None:
            drop_events(database, row.uid)
            _record_event(database, row)

        self._session.event_writes.append(write)


def _cap_message(event: EventRow) -> EventRow:
    if len(event.message) <= EVENT_MESSAGE_CHARS_MAX:
        return event
    return replace(event, message=event.message[: EVENT_MESSAGE_CHARS_MAX - 1] + "…")


def _record_event(events: sqlite3.Connection, row: EventRow) -> None:
    sql = queries.read_queries("events.sql")
    digest = _digest_event(row)
    last = events.execute(sql["last_seq"], (row.uid,)).fetchone()[0]
    seq = 1 if last is None else last + 1

    same = events.execute(sql["last_same"], (row.uid, digest)).fetchone()
    if same is not None and _is_repeat(row, *same[1:]):
        at_s = max(row.at_s, same[1])
        repeated = (seq, at_s, row.count, row.kind, row.uid, same[0])
        events.execute(sql["repeat"], repeated)
    else:
        inserted = (
            row.uid,
            seq,
            row.at_s,
            row.count,
            digest,
            row.kind,
            row.reason,
            row.message,
            row.hint or None,
        )
        events.execute(sql["insert"], inserted)

    events.execute(sql["trim"], (row.uid, seq - EVENTS_PER_OBJECT_MAX))


def _is_repeat(
    row: EventRow,
    at_s: float,
    reason: str,
    message: str,
    hint: str | None,
) -> bool:
    same = (row.reason, row.message, row.hint) == (reason, message, hint or "")
    return same and abs(row.at_s - at_s) <= EVENT_REPEAT_S


def _digest_event(row: EventRow) -> int:
    parts = (row.reason, row.message, row.hint) if row.hint else (row.reason, row.message)
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


def rename_events(
    events: sqlite3.Connection,
    uid: str,
    past: str,
) -> None:
    events.execute(queries.read_queries("events.sql")["rename"], (past, uid))


def drop_events(events: sqlite3.Connection, uid: str) -> None:
    events.execute(queries.read_queries("events.sql")["drop"], (uid,))


def drop_orphans(events: sqlite3.Connection, known: set[str]) -> None:
    """Drops events of objects that state.db does not know, neither as present nor as gone: a crash
    can fall between the commits of the two files.
    """
    for (uid,) in events.execute(queries.read_queries("events.sql")["uids"]).fetchall():
        if uid not in known:
            drop_events(events, uid)


_: type[EventStore] = SqliteEvents


class SqliteLedger:
    """The charges of runs, one row for each day, namespace and set of labels."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session

    def add(self, entries: Sequence[LedgerEntry]) -> None:
        rows = [
            (it.day, it.namespace, _format_labels(it.labels), it.usd, it.unpriced_s)
            for it in entries
        ]
        self._session.writing().executemany(self._session.sql["add_to_ledger"], rows)

    def entries(self) -> Sequence[LedgerEntry]:
        return [
            LedgerEntry(day, json.loads(labels), *rest)
            for day, labels, *rest in self._session.read("read_ledger")
        ]


class SqliteCalls:
    """The requests of runs to model endpoints, and the sums of each endpoint."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session

    def record(self, usages: Sequence[EndpointUsage]) -> list[float]:
        rises = [self._record(usage) for usage in usages]
        sums: dict[str, Counts] = {}
        for usage, rise in zip(usages, rises, strict=True):
            if usage.endpoint_uid and any(rise):
                known = sums.get(usage.endpoint_uid, _NO_CALLS)
                sums[usage.endpoint_uid] = tuple(a + b for a, b in zip(known, rise, strict=True))
        rows = [(uid, *rise) for uid, rise in sums.items()]
        self._session.writing().executemany(self._session.sql["add_endpoint_calls"], rows)
        return [rise[_USD] for rise in rises]

    def _record(self, usages: EndpointUsage) -> Counts:
        """Replaces the counts of a run at an endpoint; returns by how much each has risen. Zeros
        for a run that this store does not have.
        """
        writing = self._session.writing()
        sql = self._session.sql
        row = writing.execute(sql["calls_of_run"], (usages.run, usages.endpoint)).fetchone()
        if row is None:
            return _NO_CALLS
        run_id, known, *before = row
        total = _counts(usages.total)
        writing.execute(sql["record_calls"], (run_id, usages.endpoint, *total, *usages.times_ms))
        earlier = before if known is not None else _NO_CALLS
        return tuple(now - was for now, was in zip(total, earlier, strict=True))

    def sum_of(self, endpoint_uid: str) -> CallSums:
        row = list(self._session.read("read_endpoint_calls", (endpoint_uid,)))
        if row:
            return CallSums(*row[0])
        return CallSums()

    def forget(self, endpoint_uid: str) -> None:
        self._session.writing().execute(self._session.sql["forget_endpoint_calls"], (endpoint_uid,))


def _format_labels(labels: dict[str, str]) -> str:
    return json.dumps(labels, sort_keys=True, separators=(",", ":"))


__: tuple[type[LedgerStore], type[CallStore]] = (SqliteLedger, SqliteCalls)


class SqliteNotices:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    def add(self, notices: Sequence[Notice]) -> None:
        rows = [_to_row(it) for it in notices]
        self._session.writing().executemany(self._session.sql["add_notice"], rows)

    def waiting(self, *, after: int, count_max: int) -> Sequence[Notice]:
        return [
            _to_notice(row) for row in self._session.read("waiting_notices", (after, count_max))
        ]

    def advance(self, notices: Sequence[Notice]) -> None:
        state = self._session.writing()
        sql = self._session.sql
        rows = [
            (
                it.state.value,
                it.tries,
                it.due_at_s,
                it.message,
                it.problem,
                it.ended_at_s,
                it.number,
            )
            for it in notices
        ]
        state.executemany(sql["advance_notice"], rows)
        if any(it.ended_at_s is not None for it in notices):
            state.execute(sql["forget_notices"], (NOTICES_KEPT_MAX,))


def _to_row(notice: Notice) -> Row:
    *row, _number = astuple(replace(notice, state=notice.state.value))  # type: ignore[arg-type]
    return tuple(row)


def _to_notice(row: Row) -> Notice:
    found = Notice(*row)
    return replace(found, state=NoticeState(found.state))


___: type[NoticeStore] = SqliteNotices
