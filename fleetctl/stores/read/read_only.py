"""Opens the store for decisions without being its writer: for `plan`, `diff`, dry runs.

Reads the same rows through the same code as the writer. Needs no controller, never writes; where
there is no store yet, it is empty.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path

from fleetctl.common import state_paths as places
from fleetctl.common.clock import SystemClock
from fleetctl.stores import queries
from fleetctl.stores.base import ReadableStore, Store
from fleetctl.stores.read.connecting import connect_readonly
from fleetctl.stores.sqlite.database_files import StoreIdentity
from fleetctl.stores.sqlite.resources import SqliteResources
from fleetctl.stores.sqlite.runs import SqliteCache, SqliteRuns
from fleetctl.stores.sqlite.store import open_memory_store
from fleetctl.stores.sqlite.store_session import BarrierHooks, StoreFiles, StoreSession
from fleetctl.stores.sqlite_errors import READ_FAILURES, explain_error

PAST_RUNS_MAX = 5000  # the newest; more change no percentile noticeably


class StoreSnapshot:
    """Resources and runs as they are now. A verb that writes fails: it is outside a transaction."""

    def __init__(self, stored: ReadableStore, connection: sqlite3.Connection | None) -> None:
        self.store_id = stored.store_id if connection is not None else ""
        self.resources = stored.resources
        self.runs = stored.runs
        self.cache = stored.cache
        self._connection = connection
        self._timed = True

    def without_durations(self) -> StoreSnapshot:
        """Returns the same without the durations of past runs: only limits bound a cost then."""
        found = copy(self)
        found._timed = False
        return found

    def durations_of_template(self, template_hash: str) -> list[float]:
        """Seconds that runs with this template took which succeeded, the newest first."""
        return self._durations("durations_of_template", template_hash)

    def durations_of_object(self, uid: str) -> list[float]:
        return self._durations("durations_of_object", uid)

    def held_by_provider(self) -> list[tuple[str, float | None, int]]:
        """Returns (provider, USD a second of each, how many) of the existing sandboxes."""
        if self._connection is None:
            return []
        sql = queries.read_queries("reader.sql")["held_by_provider"]
        return list(self._connection.execute(sql))

    def _durations(self, query: str, about: str) -> list[float]:
        if self._connection is None or not self._timed:
            return []
        sql = queries.read_queries("reader.sql")[query]
        return [took for (took,) in self._connection.execute(sql, (about, PAST_RUNS_MAX))]


def open_scratch() -> tuple[Store, StoreSnapshot]:
    """Returns a store of this process alone, which ends with it, and a plan's view of it."""
    store = open_memory_store(SystemClock())
    return store, StoreSnapshot(store, None)


@dataclass(frozen=True, slots=True)
class _SnapshotRows:
    store_id: str
    resources: SqliteResources
    runs: SqliteRuns
    cache: SqliteCache


@contextmanager
def open_readonly(home: Path) -> Iterator[StoreSnapshot]:
    """Opens the store for reading, as of one moment; an empty one where no store exists. Raises
    StoreError when the files are damaged, foreign, or of another version.
    """
    path = home / places.STATE_DB
    connection = connect_readonly(path)
    if connection is None:
        yield StoreSnapshot(open_memory_store(SystemClock()), None)
        return
    try:
        # One transaction, so that all reads see one moment.
        connection.execute("BEGIN")
        found = connection.execute("SELECT store_id, epoch, changes FROM store").fetchone()
        files = StoreFiles(connection, connection, path)
        session = StoreSession(files, StoreIdentity(*found), SystemClock(), BarrierHooks())
        rows = _SnapshotRows(
            session.identity.store_id,
            SqliteResources(session),
            SqliteRuns(session),
            SqliteCache(session),
        )
        yield StoreSnapshot(rows, connection)
    except READ_FAILURES as error:
        raise explain_error(error, path) from error
    finally:
        connection.close()
