"""The store as whoever decides reads it, without being its writer: for `plan`, `diff`, dry runs.

Reads the same rows through the same code as the writer. Needs no controller, writes nothing; where
there is no store yet, it is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetctl import home as places
from fleetctl.clock import SystemClock
from fleetctl.stores.base import Stored
from fleetctl.stores.reader import connect_readonly
from fleetctl.stores.sqlite import open_memory_store
from fleetctl.stores.sqlite_open import Identity
from fleetctl.stores.sqlite_resources import SqliteResources
from fleetctl.stores.sqlite_runs import SqliteRuns
from fleetctl.stores.sqlite_session import Files, Hooks, Session


class Snapshot:
    """Resources and runs as they are now. A verb that writes fails: it is outside a transaction."""

    def __init__(self, session: Session) -> None:
        self.store_id = session.identity.store_id
        self.resources = SqliteResources(session)
        self.runs = SqliteRuns(session)


@contextmanager
def open_readonly(home: Path) -> Iterator[Stored]:
    """Raises StoreError when the files are damaged, foreign, or of another version."""
    path = home / places.STATE_DB
    connection = connect_readonly(path)
    if connection is None:
        yield open_memory_store(SystemClock())
        return
    try:
        # One transaction, so that everything is of one moment.
        connection.execute("BEGIN")
        found = connection.execute("SELECT store_id, epoch, changes FROM store").fetchone()
        yield Snapshot(
            Session(Files(connection, connection, path), Identity(*found), SystemClock(), Hooks())
        )
    finally:
        connection.close()
