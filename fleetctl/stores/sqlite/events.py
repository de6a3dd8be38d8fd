"""Events in SQLite: repeats counted, the newest kept. Part of the SQLite store; see
base.EventStore.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from fleetctl.stores import queries
from fleetctl.stores.base import (
    EVENT_MESSAGE_CHARS_MAX,
    EVENT_REPEAT_S,
    EVENTS_PER_OBJECT_MAX,
    EventRow,
    EventStore,
)
from fleetctl.stores.sqlite.store_session import StoreSession


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
