"""The store as whoever decides reads it, without being its writer: for `plan`, `diff`, dry runs.

Reads the same rows through the same code as the writer. Needs no controller, writes nothing; where
there is no store yet, it is empty.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleetctl.common import home as places
from fleetctl.common.clock import SystemClock
from fleetctl.stores import queries
from fleetctl.stores.base import Store, Stored
from fleetctl.stores.errors import READ_FAILURES, explain
from fleetctl.stores.read.connecting import connect_readonly
from fleetctl.stores.sqlite.cache import SqliteCache
from fleetctl.stores.sqlite.open import Identity
from fleetctl.stores.sqlite.resources import SqliteResources
from fleetctl.stores.sqlite.runs import SqliteRuns
from fleetctl.stores.sqlite.session import Files, Hooks, Session
from fleetctl.stores.sqlite.store import open_memory_store

PAST_RUNS_MAX = 5000  # the newest; more change no percentile that a person cares for


class Snapshot:
    """Resources and runs as they are now. A verb that writes fails: it is outside a transaction."""

    def __init__(self, stored: Stored, connection: sqlite3.Connection | None) -> None:
        self.store_id = stored.store_id if connection is not None else ""
        self.resources = stored.resources
        self.runs = stored.runs
        self.cache = stored.cache
        self._connection = connection

    def durations_of_template(self, template_hash: str) -> list[float]:
        """Seconds that runs with this template took which succeeded, the newest first."""
        return self._durations("durations_of_template", template_hash)

    def durations_of_object(self, uid: str) -> list[float]:
        return self._durations("durations_of_object", uid)

    def held(self) -> list[tuple[str, float | None, int]]:
        """(provider, USD a second of each, how many) of the sandboxes that are there now."""
        if self._connection is None:
            return []
        sql = queries.named("reader.sql")["held_by_provider"]
        return list(self._connection.execute(sql))

    def _durations(self, query: str, about: str) -> list[float]:
        if self._connection is None:
            return []
        sql = queries.named("reader.sql")[query]
        return [took for (took,) in self._connection.execute(sql, (about, PAST_RUNS_MAX))]


def scratch() -> tuple[Store, Snapshot]:
    """A store of this process alone, which ends with it, and how a plan reads it."""
    store = open_memory_store(SystemClock())
    return store, Snapshot(store, None)


@dataclass(frozen=True, slots=True)
class _Rows:
    store_id: str
    resources: SqliteResources
    runs: SqliteRuns
    cache: SqliteCache


@contextmanager
def open_readonly(home: Path) -> Iterator[Snapshot]:
    """Raises StoreError when the files are damaged, foreign, or of another version."""
    path = home / places.STATE_DB
    connection = connect_readonly(path)
    if connection is None:
        yield Snapshot(open_memory_store(SystemClock()), None)
        return
    try:
        # One transaction, so that everything is of one moment.
        connection.execute("BEGIN")
        found = connection.execute("SELECT store_id, epoch, changes FROM store").fetchone()
        files = Files(connection, connection, path)
        session = Session(files, Identity(*found), SystemClock(), Hooks())
        rows = _Rows(
            session.identity.store_id,
            SqliteResources(session),
            SqliteRuns(session),
            SqliteCache(session),
        )
        yield Snapshot(rows, connection)
    except READ_FAILURES as error:
        raise explain(error, path) from error
    finally:
        connection.close()
