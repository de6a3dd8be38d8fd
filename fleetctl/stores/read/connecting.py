"""Opens connections to the store's files that cannot write, for all read-only users.

As reader.py, it imports no model and only the standard library: read verbs have some tens of
milliseconds.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fleetctl.common import state_paths as places
from fleetctl.common.errors import StoreError
from fleetctl.stores.queries import SCHEMA_VERSION
from fleetctl.stores.sqlite_errors import is_missed, missing_error, must_be_ours

_WAIT_S = 5.0  # only a writer that recovers from a crash makes a reader wait, and briefly


def connect_readonly(path: Path) -> sqlite3.Connection | None:
    """Returns a connection that cannot write; None while there is no store, or it is about to be
    founded.

    Raises StoreError for a store that this version cannot read.
    """
    home = path.parent.parent
    if not path.exists():
        _must_be_no_file(home)
        _must_not_be_missed(home, path)
        return None
    connection = _open_connection(path)
    if not _is_readable(connection, path):
        connection.close()
        _must_not_be_missed(home, path)
        return None
    return connection


def _must_not_be_missed(home: Path, path: Path) -> None:
    """Raises StoreError: an empty list would hide that a store which was here is lost."""
    if path == home / places.STATE_DB and (store_id := is_missed(home)):
        raise missing_error(home, store_id)


def _must_be_no_file(home: Path) -> None:
    """Raises StoreError: an empty list would hide that FLEETCTL_HOME points beside the store."""
    if home.exists() and not home.is_dir():
        raise StoreError(
            f"fleetctl cannot keep its state in `{home}`: it is a file",
            hint="set FLEETCTL_HOME to a directory on a local disk that you can write",
        )


def _open_connection(path: Path) -> sqlite3.Connection:
    uri = readonly_uri(path)
    connection = sqlite3.connect(
        uri,
        uri=True,
        timeout=_WAIT_S,
        isolation_level=None,
    )
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise
        # A read-only disk cannot hold shared memory; without a log it is not needed.
        connection = sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)
    return connection


def readonly_uri(path: Path) -> str:
    """Returns a path as SQLite reads it in a URI. `Path.as_uri` loads urllib, a tenth of what `get`
    costs.
    """
    escaped = str(path)
    for char in "%?#":
        escaped = escaped.replace(char, f"%{ord(char):02x}")
    return f"file:{escaped}?mode=ro"


def _is_readable(connection: sqlite3.Connection, path: Path) -> bool:
    """Returns False for a file without a schema. Raises StoreError for a foreign or newer one."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application == 0 and version == 0:
        return False
    must_be_ours(path, application, version)
    if version < SCHEMA_VERSION:
        raise StoreError(
            f"`{path}` was written by an older fleetctl (schema version `{version}`)",
            hint="`fleetctl up --detach` brings it up to date; nothing is lost",
        )
    return True
