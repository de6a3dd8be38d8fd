"""Collects facts about a store for a bug report: counts and versions, and none of its content.

No name, document or result is among them. Opens the files read-only; the error of a file that
cannot be read is one of its facts.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from fleetctl.common.state_paths import EVENTS_DB, STATE_DB
from fleetctl.stores.read.connecting import readonly_uri

FILES = (STATE_DB, EVENTS_DB)


def collect_facts(state_dir: Path) -> dict[str, object]:
    """Returns, by file of the store, its size in bytes, its versions and the rows of each table."""
    return {file: _describe_file(state_dir / file) for file in FILES}


def _describe_file(path: Path) -> dict[str, object]:
    if not path.exists():
        return {"exists": False}
    facts: dict[str, object] = {"exists": True, "bytes": path.stat().st_size}
    try:
        with closing(sqlite3.connect(readonly_uri(path), uri=True, timeout=1.0)) as store:
            for pragma in ("application_id", "user_version", "page_count", "journal_mode"):
                facts[pragma] = store.execute(f"PRAGMA {pragma}").fetchone()[0]
            facts["quick_check"] = store.execute("PRAGMA quick_check(5)").fetchone()[0]
            facts["rows"] = _count_rows(store)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        facts["error"] = str(error)
    return facts


def _count_rows(store: sqlite3.Connection) -> dict[str, int]:
    names = store.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    return {
        name: store.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608 - names from the schema
        for (name,) in names.fetchall()
    }
