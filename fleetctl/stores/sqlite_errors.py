"""Translates SQLite's errors into our words, also those about a store that is damaged or gone, with
the backup that would help.

Has hardly any imports: the CLI's read paths come through here.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path

from fleetctl.common import state_paths as places
from fleetctl.common.errors import StoreError
from fleetctl.stores.queries import APPLICATION_ID, SCHEMA_VERSION

# SQLite grows its shared memory by writing; on a full disk that fails with this code, not with
# FULL.
_SHARED_MEMORY_SIZE = 0x130A
# Python fails to decode even the messages of SQLite when damage has reached the names in them.
READ_FAILURES = (sqlite3.Error, UnicodeDecodeError)
_FATAL = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

BACKUP_AGAIN = "`fleetctl restore FILE` puts back what `fleetctl backup FILE` wrote"


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


def must_be_ours(
    path: Path | str,
    application: int,
    version: int,
) -> None:
    """Raises StoreError for the database of another program, or of a newer fleetctl."""
    if application != APPLICATION_ID:
        raise StoreError(
            f"`{path}` is a database of another program",
            hint="set FLEETCTL_HOME to the state directory of fleetctl, or to one of its own",
        )
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"`{path}` has schema version `{version}`; "
            f"this fleetctl knows versions up to `{SCHEMA_VERSION}`",
            hint="use the newer fleetctl that wrote it; nothing was changed",
        )


def damaged_error(path: Path | str, finding: str) -> StoreError:
    return StoreError(
        f"`{path}` is damaged: {finding}",
        hint=f"{describe_way_back(Path(path).parent.parent)}; nothing was written to the file",
    )


def missing_error(home: Path, store_id: str) -> StoreError:
    note = home / places.STORE_MARKER
    return StoreError(
        f"`{home / places.STATE_DB}` is gone or empty, and `{note}` says that store `{store_id}` "
        "was here",
        hint=f"{describe_way_back(home)}; or remove `{note}` to begin a new store, "
        "while what the old one started may still run",
    )


def is_missed(home: Path) -> str:
    """Returns the id of the store that was here, by the note beside it; empty where there was
    none.
    """
    try:
        words = (home / places.STORE_MARKER).read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return ""
    if words:
        return words[0]
    return ""


def describe_way_back(home: Path) -> str:
    """Returns a sentence with the command that puts back the newest backup, where one is known."""
    try:
        known = json.loads((home / places.LAST_BACKUP).read_text(encoding="utf-8"))
        file = str(known["file"])
        at_s = float(known["at_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return BACKUP_AGAIN
    if "://" not in file and not os.path.exists(file):
        return BACKUP_AGAIN
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))
    return f"`fleetctl restore {file}` puts back the backup of {when}"
