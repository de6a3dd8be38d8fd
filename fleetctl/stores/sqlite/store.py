"""The embedded store: two SQLite files in a locked directory, or the same in memory for tests.

Built by wiring, held by one controller process. One connection writes state.db and checkpoints it;
readers come in through `read/reader.py`. Never calls a provider and takes no decisions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fleetctl.common import state_paths as places
from fleetctl.common.clock import Clock
from fleetctl.stores import queries, state_dir
from fleetctl.stores.base import Store
from fleetctl.stores.sqlite import database_files as opening
from fleetctl.stores.sqlite.events import (
    SqliteCalls,
    SqliteEvents,
    SqliteLedger,
    SqliteNotices,
    drop_orphans,
)
from fleetctl.stores.sqlite.resources import SqliteGone, SqliteResources, SqliteSleep
from fleetctl.stores.sqlite.runs import SqliteCache, SqliteCreates, SqliteRuns
from fleetctl.stores.sqlite.store_session import (
    BarrierHooks,
    Hook,
    StoreFiles,
    StoreSession,
    superseded_error,
)
from fleetctl.stores.sqlite_errors import READ_FAILURES, DiskFull, explain_error


class SqliteStore:
    """Implements base.Store. `close` releases the lock; dropping the object without it is a crash,
    and harmless.
    """

    def __init__(self, session: StoreSession, lock: state_dir.StoreLock | None = None) -> None:
        self._session = session
        self._lock = lock
        self.store_id = session.identity.store_id
        # The number of this opening of the store; rises by at least one each time.
        self.epoch = session.identity.epoch
        self.transaction = session.transaction
        self.whole = session.whole
        self.shrink = session.shrink
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
    """Opens or founds the store below `home` and becomes its one writer. Raises StoreError before
    any write.

    The hooks run around every commit; see store_session.StoreSession.
    """
    state_dir.prepare_directory(home)
    lock = state_dir.lock_store(home)
    ballast = state_dir.Ballast(home)
    hooks = BarrierHooks(before_commit, after_commit)
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


def _open_session(
    home: Path,
    clock: Clock,
    ballast: state_dir.Ballast,
    hooks: BarrierHooks,
) -> StoreSession:
    path = home / places.STATE_DB
    found = opening.inspect_file(path)
    marker = state_dir.read_marker(home)
    opening.check_marker(home, found, marker)
    opening.check_events(home / places.EVENTS_DB)
    mark = state_dir.ChangesMark(home)
    if found is not None:
        opening.check_changes(home, found, marker, mark.read(found.store_id))
    at_least = marker.epoch if marker else 0
    state, identity = _open_state(path, clock, founded=found is not None, at_least=at_least)
    try:
        state_dir.write_marker(home, state_dir.StoreMarker(identity.store_id, identity.epoch))
        events = _open_events(home / places.EVENTS_DB, state)
    except BaseException:
        state.close()
        raise
    ballast.refill(now_s=clock.now_s())
    return StoreSession(
        StoreFiles(
            state,
            events,
            path,
            ballast,
            mark,
        ),
        identity,
        clock,
        hooks,
    )


def _open_state(
    path: Path,
    clock: Clock,
    *,
    founded: bool,
    at_least: int,
) -> tuple[sqlite3.Connection, opening.StoreIdentity]:
    if not founded:
        _create_database(path, partial(opening.create_state, now_s=clock.now_s()))
    state = opening.connect_writer(path, synchronous="FULL")
    try:
        opening.upgrade_state(state)
        return state, opening.take_epoch(state, at_least=at_least)
    except READ_FAILURES as error:
        state.close()
        raise explain_error(error, path) from error


def _open_events(path: Path, state: sqlite3.Connection) -> sqlite3.Connection:
    if not path.exists() or path.stat().st_size == 0:
        _create_database(path, opening.create_events)
    events = opening.connect_writer(path, synchronous="NORMAL")
    try:
        if events.execute("PRAGMA user_version").fetchone()[0] == 0:
            opening.create_events(events)
        opening.upgrade_events(events)
        known = (queries.read_queries("state.sql")[query] for query in ("list_uids", "gone_uids"))
        drop_orphans(events, {uid for query in known for (uid,) in state.execute(query)})
    except READ_FAILURES as error:
        events.close()
        raise explain_error(error, path) from error
    return events


def _create_database(path: Path, found: Callable[[sqlite3.Connection], None]) -> None:
    try:
        opening.create_database(path, found)
    except sqlite3.Error as error:
        raise explain_error(error, path) from error


class MemoryDatabase:
    """The part that survives a simulated crash: the committed rows of a store that lives in
    memory.
    """

    def __init__(self) -> None:
        self.state = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.events = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.founded = False
        self.writer: StoreSession | None = None


def open_memory_store(
    clock: Clock,
    database: MemoryDatabase | None = None,
    *,
    before_commit: Hook | None = None,
    after_commit: Hook | None = None,
) -> SqliteStore:
    """Returns a store without files. Opening a `database` again is a crash and a restart of its
    writer: uncommitted writes are lost, and the earlier store may not write any more.
    """
    database = database or MemoryDatabase()
    if database.writer is not None:
        database.writer.end(superseded_error("memory"))
    for connection in (database.state, database.events):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    if not database.founded:
        opening.create_state(database.state, now_s=clock.now_s())
        opening.create_events(database.events)
        database.founded = True
    identity = opening.take_epoch(database.state, at_least=0)
    files = StoreFiles(database.state, database.events, "memory")
    database.writer = StoreSession(
        files, identity, clock, BarrierHooks(before_commit, after_commit)
    )
    return SqliteStore(database.writer)


_: type[Store] = SqliteStore
