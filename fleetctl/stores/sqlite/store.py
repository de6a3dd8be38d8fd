"""The embedded store: two SQLite files in a locked directory, or the same in memory for tests.

Built by wiring, held by one controller process. One connection writes state.db and checkpoints
it; readers come in through `read/reader.py`. Never calls a provider and decides nothing.
"""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

from fleetctl.common import home as places
from fleetctl.common.clock import Clock
from fleetctl.stores import queries, state_dir
from fleetctl.stores.base import Store
from fleetctl.stores.errors import DiskFull, explain
from fleetctl.stores.sqlite import open as opening
from fleetctl.stores.sqlite.cache import SqliteCache
from fleetctl.stores.sqlite.creates import SqliteCreates
from fleetctl.stores.sqlite.events import SqliteEvents, drop_orphans
from fleetctl.stores.sqlite.gone import SqliteGone
from fleetctl.stores.sqlite.ledger import SqliteCalls, SqliteLedger
from fleetctl.stores.sqlite.notices import SqliteNotices
from fleetctl.stores.sqlite.resources import SqliteResources
from fleetctl.stores.sqlite.runs import SqliteRuns
from fleetctl.stores.sqlite.session import Files, Hook, Hooks, Session, superseded
from fleetctl.stores.sqlite.sleep import SqliteSleep


class SqliteStore:
    """See base.Store. `close` lets go of the lock; dropping the object without it is a crash, and
    harmless.
    """

    def __init__(self, session: Session, lock: state_dir.Lock | None = None) -> None:
        self._session = session
        self._lock = lock
        self.resources = SqliteResources(session)
        self.sleep = SqliteSleep(session)
        self.runs = SqliteRuns(session)
        self.ledger = SqliteLedger(session)
        self.calls = SqliteCalls(session)
        self.creates = SqliteCreates(session)
        self.cache = SqliteCache(session)
        self.events = SqliteEvents(session)
        self.gone = SqliteGone(session)
        self.notices = SqliteNotices(session)

    @property
    def store_id(self) -> str:
        return self._session.identity.store_id

    @property
    def epoch(self) -> int:
        """Which opening of the store this is; rises by at least one each time."""
        return self._session.identity.epoch

    def transaction(self) -> AbstractContextManager[None]:
        return self._session.transaction()

    def whole(self) -> AbstractContextManager[None]:
        return self._session.whole()

    def shrink(self) -> bool:
        return self._session.shrink()

    def close(self) -> None:
        self._session.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def open_store(
    home: Path,
    clock: Clock,
    *,
    before_commit: Hook | None = None,
    after_commit: Hook | None = None,
) -> SqliteStore:
    """Open or found the store below `home` and become its one writer. Raises StoreError, having
    written nothing.

    The hooks run around every commit; see sqlite_session.Session.
    """
    state_dir.prepare(home)
    lock = state_dir.lock(home)
    ballast, hooks = state_dir.Ballast(home), Hooks(before_commit, after_commit)
    try:
        try:
            session = _open_session(home, clock, ballast, hooks)
        except DiskFull:
            # A controller that cannot start cannot stop anything either.
            ballast.drop(now_s=clock.now_s())
            session = _open_session(home, clock, ballast, hooks)
    except BaseException:
        lock.release()
        raise
    return SqliteStore(session, lock)


def _open_session(home: Path, clock: Clock, ballast: state_dir.Ballast, hooks: Hooks) -> Session:
    path = home / places.STATE_DB
    found, marker = opening.inspect(path), state_dir.read_marker(home)
    opening.check_marker(home, found, marker)
    opening.check_events(home / places.EVENTS_DB)
    at_least = marker.epoch if marker else 0
    state, identity = _open_state(path, clock, founded=found is not None, at_least=at_least)
    try:
        state_dir.write_marker(home, state_dir.Marker(identity.store_id, identity.epoch))
        events = _open_events(home / places.EVENTS_DB, state)
    except BaseException:
        state.close()
        raise
    ballast.refill(now_s=clock.now_s())
    return Session(Files(state, events, path, ballast), identity, clock, hooks)


def _open_state(
    path: Path, clock: Clock, *, founded: bool, at_least: int
) -> tuple[sqlite3.Connection, opening.Identity]:
    state = opening.connect(path, synchronous="FULL")
    try:
        if not founded:
            opening.found_state(state, now_s=clock.now_s())
        opening.upgrade_state(state)
        return state, opening.take_epoch(state, at_least=at_least)
    except sqlite3.Error as error:
        state.close()
        raise explain(error, path) from error


def _open_events(path: Path, state: sqlite3.Connection) -> sqlite3.Connection:
    events = opening.connect(path, synchronous="NORMAL")
    try:
        if events.execute("PRAGMA user_version").fetchone()[0] == 0:
            opening.found_events(events)
        opening.upgrade_events(events)
        known = (queries.named("state.sql")[query] for query in ("list_uids", "gone_uids"))
        drop_orphans(events, {uid for query in known for (uid,) in state.execute(query)})
    except sqlite3.Error as error:
        events.close()
        raise explain(error, path) from error
    return events


class MemoryDatabase:
    """What survives a simulated crash: the committed rows of a store that lives in memory."""

    def __init__(self) -> None:
        self.state = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.events = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.founded = False
        self.writer: Session | None = None


def open_memory_store(
    clock: Clock,
    database: MemoryDatabase | None = None,
    *,
    before_commit: Hook | None = None,
    after_commit: Hook | None = None,
) -> SqliteStore:
    """A store without files. Opening a `database` again is a crash and a restart of its writer:
    what was not committed is lost, and the store that was opened before may not write any more.
    """
    database = database or MemoryDatabase()
    if database.writer is not None:
        database.writer.end(superseded("memory"))
    for connection in (database.state, database.events):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    if not database.founded:
        opening.found_state(database.state, now_s=clock.now_s())
        opening.found_events(database.events)
        database.founded = True
    identity = opening.take_epoch(database.state, at_least=0)
    files = Files(database.state, database.events, "memory")
    database.writer = Session(files, identity, clock, Hooks(before_commit, after_commit))
    return SqliteStore(database.writer)


_: type[Store] = SqliteStore
