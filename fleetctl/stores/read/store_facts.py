"""Reports facts about a store without its content: for a bug report.

Counts and versions only: never a name, a document or a result. Reads read-only, and reports an
unreadable store instead of failing.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from fleetctl.common import state_paths as places
from fleetctl.stores.read.connecting import readonly_uri

FILES = (places.STATE_DB, places.EVENTS_DB)


def collect_facts(home: Path) -> dict[str, object]:
    """Returns one entry a file of the store: its size, its schema, how many rows each table has."""
    return {file: _describe_file(home / file) for file in FILES}


def _describe_file(path: Path) -> dict[str, object]:
    if not path.exists():
        return {"exists": False}
    found: dict[str, object] = {"exists": True, "bytes": path.stat().st_size}
    try:
        with closing(sqlite3.connect(readonly_uri(path), uri=True, timeout=1.0)) as store:
            for pragma in ("application_id", "user_version", "page_count", "journal_mode"):
                found[pragma] = store.execute(f"PRAGMA {pragma}").fetchone()[0]
            found["quick_check"] = store.execute("PRAGMA quick_check(5)").fetchone()[0]
            found["rows"] = _count_rows(store)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        found["error"] = str(error)
    return found


def _count_rows(store: sqlite3.Connection) -> dict[str, int]:
    names = store.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    return {
        name: store.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608 - its own
        for (name,) in names.fetchall()
    }
