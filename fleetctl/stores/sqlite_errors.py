"""Translates SQLite's errors into our words. Called by all code that touches a database file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fleetctl.common.errors import StoreError
from fleetctl.stores.damage import damaged_error

# SQLite grows its shared memory by writing; on a full disk that fails with this code, not with
# FULL.
_SHARED_MEMORY_SIZE = 0x130A
# Python fails to decode even the messages of SQLite when damage has reached the names in them.
READ_FAILURES = (sqlite3.Error, UnicodeDecodeError)
_FATAL = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class DiskFull(StoreError):
    """The disk is full: the transaction was rolled back. Later ones work once there is space."""


def disk_full(path: object) -> DiskFull:
    return DiskFull(
        f"the disk that holds `{path}` is full; nothing was written",
        hint="free some space; work goes on by itself once there is room",
    )


def primary_code(error: sqlite3.Error | UnicodeDecodeError) -> int:
    """Returns SQLite's primary result code; 0 for an error that the Python module raises by
    itself.
    """
    if isinstance(error, UnicodeDecodeError):
        return sqlite3.SQLITE_CORRUPT
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_full(error: sqlite3.Error | UnicodeDecodeError) -> bool:
    extended = getattr(error, "sqlite_errorcode", 0)
    return primary_code(error) == sqlite3.SQLITE_FULL or extended == _SHARED_MEMORY_SIZE


def is_fatal(error: sqlite3.Error) -> bool:
    """Returns true if further writes are unsafe: the content of the disk is unknown until the store
    is reopened.
    """
    return primary_code(error) in _FATAL and not is_full(error)


def explain_error(error: sqlite3.Error | UnicodeDecodeError, path: Path | str) -> StoreError:
    """Returns the StoreError to raise `from error`."""
    if is_full(error):
        return disk_full(path)
    match primary_code(error):
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return damaged_error(path, str(error))
        case sqlite3.SQLITE_BUSY:
            return StoreError(
                f"another program has locked `{path}`",
                hint="close whatever else has the file open, such as a database browser",
            )
        case sqlite3.SQLITE_IOERR:
            return StoreError(
                f"the disk failed under `{path}`; no more writes until the store is reopened",
                hint="look for disk errors in the system log, then restart with `fleetctl up`",
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return StoreError(
                f"`{path}` cannot be opened for writing",
                hint="check the owner and the permissions of the file and of its directory",
            )
    return StoreError(f"the store `{path}` could not carry out a request", hint="fleetctl doctor")
