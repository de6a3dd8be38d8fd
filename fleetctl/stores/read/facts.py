"""What can be said of a store without saying what is in it: for a report about a bug.

Counts and versions only: no name, no document and no result leaves here. Reads read-only, and tells
of a store that cannot be read instead of failing.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from fleetctl.common import home as places
from fleetctl.stores.read.connecting import readonly_uri

FILES = (places.STATE_DB, places.EVENTS_DB)


def facts(home: Path) -> dict[str, object]:
    """One entry a file of the store: its size, its schema, how many rows each table has."""
    return {file: _of(home / file) for file in FILES}


def _of(path: Path) -> dict[str, object]:
    if not path.exists():
        return {"exists": False}
    found: dict[str, object] = {"exists": True, "bytes": path.stat().st_size}
    try:
        with closing(sqlite3.connect(readonly_uri(path), uri=True, timeout=1.0)) as store:
            for pragma in ("application_id", "user_version", "page_count", "journal_mode"):
                found[pragma] = store.execute(f"PRAGMA {pragma}").fetchone()[0]
            found["quick_check"] = store.execute("PRAGMA quick_check(5)").fetchone()[0]
            found["rows"] = _rows(store)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        found["error"] = str(error)
    return found


def _rows(store: sqlite3.Connection) -> dict[str, int]:
    names = store.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    return {
        name: store.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608 - its own
        for (name,) in names.fetchall()
    }
