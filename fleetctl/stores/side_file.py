"""Opens a small SQLite file beside the store, which programs other than the controller write: the
tokens of a server, and the waits of agents.

The file and its tables are created at the first write; a file of a newer version is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from fleetctl.common.errors import StoreError
from fleetctl.common.state_paths import refuse_foreign
from fleetctl.stores.queries import APPLICATION_ID

WAIT_S = 5.0  # for another program that writes


class SideFile:
    """A file of a state directory. Its methods raise StoreError where it cannot be used.

    statements: returns those that create its tables; version: of the tables, its `user_version`.
    """

    def __init__(
        self,
        home: Path,
        name: str,
        statements: Callable[[], Sequence[str]],
        *,
        version: int,
    ) -> None:
        self._home = home
        self._path = home / name
        self._statements = statements
        self._version = version

    def read(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Returns the rows of a query; none while there is no file."""
        if not self._path.exists():
            return []
        with self._failing(), closing(self._connect()) as database:
            self._check_version(database)
            return database.execute(query, values).fetchall()

    @contextmanager
    def open_writing(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection; what is written is durable at the end of each statement."""
        with self._failing():
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            refuse_foreign(self._home)
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            with closing(self._connect()) as database:
                self._create_tables(database)
                database.execute("PRAGMA synchronous = FULL")
                yield database

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None)

    def _create_tables(self, database: sqlite3.Connection) -> None:
        """Creates the tables if missing. Raises StoreError for a newer version's file."""
        if self._check_version(database) == self._version:
            return
        self._path.chmod(0o600)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("BEGIN IMMEDIATE")
        if database.execute("PRAGMA user_version").fetchone() == (0,):
            for statement in self._statements():
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {self._version}")
        database.execute("COMMIT")

    def _check_version(self, database: sqlite3.Connection) -> int:
        """Returns the version of the file; 0 before its tables. Raises StoreError for a newer
        one."""
        version: int = database.execute("PRAGMA user_version").fetchone()[0]
        if version > self._version:
            raise StoreError(
                f"`{self._path}` was written by a newer fleetctl", hint="upgrade this one"
            )
        return version

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"`{self._path}` cannot be used: {error}",
                hint="set FLEETCTL_HOME to a directory on a local disk that you can write",
            ) from error
