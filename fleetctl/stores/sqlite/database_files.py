"""Opens, checks and founds the database files. Called by `sqlite.open_store`; knows no verb.

The order matters: everything that can refuse looks first, read-only; only then is a byte written.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fleetctl.common import state_paths as places
from fleetctl.common.errors import StoreError
from fleetctl.stores import queries
from fleetctl.stores.queries import APPLICATION_ID, SCHEMA_VERSION
from fleetctl.stores.sqlite_errors import (
    READ_FAILURES,
    damaged_error,
    explain_error,
    missing_error,
    must_be_ours,
    primary_code,
)
from fleetctl.stores.state_dir import CHANGES_LOST, StoreMarker, note_lost

# A check must not slow the start. Measured: indexes against tables 7 ms a MiB, pages alone 2 ms;
# beyond the second bound only the tables that everything hangs on are looked at.
CHECK_INDEXES_BYTES_MAX = 16 << 20
CHECK_WHOLE_BYTES_MAX = 64 << 20
BUSY_TIMEOUT_S = 5.0
_CACHE_KIB = 16 * 1024
_TAILS = ("-journal", "-wal", "-shm")  # suffixes of SQLite's own files beside a database
_LOG_BYTES_MAX = 64 << 20  # the write-ahead log is cut back to this after a long reader let it grow

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """The one row of table `store`."""

    store_id: str
    epoch: int
    changes: int


def inspect_file(path: Path) -> StoreIdentity | None:
    """Inspects a state.db without changing it. None: there is none, or its founding never finished.

    Raises StoreError when it is newer than this program, not ours, or damaged.
    """
    if not path.exists() or path.stat().st_size == 0:
        return None
    try:
        state = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)
        try:
            if not _is_ours(state, path):
                return None
            if finding := _find_damage(state, path, tables=("store", "resources")):
                raise damaged_error(path, finding)
            found = state.execute(queries.read_queries("state.sql")["identity"]).fetchone()
        finally:
            state.close()
    except READ_FAILURES as error:
        raise explain_error(error, path) from error
    if found is None:
        raise damaged_error(path, "it does not say which store it is")
    return StoreIdentity(*found)


def _is_ours(database: sqlite3.Connection, path: Path) -> bool:
    """Returns False for a file without a schema. Raises StoreError for another program's or a newer
    one.
    """
    application = database.execute("PRAGMA application_id").fetchone()[0]
    version = database.execute("PRAGMA user_version").fetchone()[0]
    tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables == 0 and application == 0:
        return False
    must_be_ours(path, application, version)
    return True


def _find_damage(
    database: sqlite3.Connection,
    path: Path,
    *,
    tables: tuple[str, ...],
) -> str | None:
    """Returns SQLite's findings: in all pages, or only in `tables` when the file is large."""
    size = path.stat().st_size
    checks = [f"quick_check('{table}')" for table in tables]
    if size < CHECK_WHOLE_BYTES_MAX:
        checks = ["integrity_check" if size < CHECK_INDEXES_BYTES_MAX else "quick_check"]
    try:
        for check in checks:
            finding: str = database.execute(f"PRAGMA {check}").fetchone()[0]
            if finding != "ok":
                return finding.replace("\n", " ")
    except READ_FAILURES as error:
        if primary_code(error) != sqlite3.SQLITE_CORRUPT:
            raise
        return str(error)
    return None


def check_marker(
    home: Path,
    identity: StoreIdentity | None,
    marker: StoreMarker | None,
) -> None:
    """Refuses a store that disappeared, or that is not the earlier one: that decision is the
    user's.
    """
    if marker is None:
        return
    path = home / places.STATE_DB
    note = home / places.STORE_MARKER
    if identity is None:
        raise missing_error(home, marker.store_id)
    if identity.store_id != marker.store_id:
        raise StoreError(
            f"`{path}` is store `{identity.store_id}`, "
            f"and `{note}` says that store `{marker.store_id}` was here",
            hint=f"put the right store back, or remove `{note}` to take this one",
        )


def check_changes(
    home: Path,
    identity: StoreIdentity,
    marker: StoreMarker | None,
    had: int,
) -> None:
    """Checks the count of changes: SQLite silently reads only the sound part of a log that is cut
    or damaged. Runs begun in the lost rest are found again as after a restore: providers are asked
    first. had: how many changes the store has had.
    """
    lost = max(0, had - identity.changes)
    older = marker is not None and marker.epoch > identity.epoch
    if not (lost or older) or (home / places.RESTORED).exists():
        return
    path = home / places.STATE_DB
    log.error(CHANGES_LOST, extra={"path": str(path), "lost": lost or "some"})
    note_lost(home, lost)


def connect_writer(path: Path, *, synchronous: str) -> sqlite3.Connection:
    """Returns the one connection that writes and checkpoints this file. Raises StoreError."""
    try:
        # SQLite gives the log and the shared memory the mode of the file, so the file comes first.
        path.touch(mode=0o600)
        database = sqlite3.connect(
            path,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        raise explain_error(error, path) from error
    try:
        # Only works on an empty file: lets a store give back space after large deletions.
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("PRAGMA journal_mode = WAL").fetchone()
        database.execute(f"PRAGMA synchronous = {synchronous}")
        database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        database.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES_MAX}")
        # Some builds overwrite freed pages with zeros, which doubles the writes; no secret is ever
        # stored.
        database.execute("PRAGMA secure_delete = OFF")
    except READ_FAILURES as error:
        database.close()
        raise explain_error(error, path) from error
    return database


def create_database(path: Path, found: Callable[[sqlite3.Connection], None]) -> None:
    """Makes a database beside its path and moves it there: at any end of this process or the power,
    there is a whole one or none. `inspect` cannot read one whose first page was being written.
    """
    fresh = path.with_name(path.name + ".new")
    _remove_files(fresh, ("", *_TAILS))
    database = connect_writer(fresh, synchronous="FULL")
    try:
        found(database)
    finally:
        database.close()  # all of its log is in the file then
    _remove_files(path, _TAILS)
    fresh.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _remove_files(path: Path, tails: tuple[str, ...]) -> None:
    for tail in tails:
        path.with_name(path.name + tail).unlink(missing_ok=True)


def create_state(state: sqlite3.Connection, *, now_s: float) -> None:
    """Creates the schema and a fresh store id, all or nothing."""
    first = queries.read_queries("state.sql")["found_store"]
    _create_schema(state, "state_schema.sql", (first, (uuid.uuid4().hex, now_s)))


def create_events(events: sqlite3.Connection) -> None:
    _create_schema(events, "events_schema.sql", None)


def _create_schema(
    database: sqlite3.Connection,
    schema: str,
    first: tuple[str, tuple[object, ...]] | None,
) -> None:
    database.execute("BEGIN IMMEDIATE")
    for statement in queries.read_statements(schema):
        database.execute(statement)
    if first is not None:
        database.execute(*first)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    database.execute("COMMIT")


# version -> statements that upgrade it to the next. Rows keep their content; new columns are NULL,
# new tables are empty.
_UPGRADES = {
    1: (
        "ALTER TABLE runs ADD COLUMN usd_per_s REAL",
        "ALTER TABLE runs ADD COLUMN placed INTEGER",
        "ALTER TABLE runs ADD COLUMN usd REAL",
        "ALTER TABLE runs ADD COLUMN put_aside INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE resources ADD COLUMN namespace TEXT NOT NULL DEFAULT 'default'",
        "DROP INDEX resources_living",
        "CREATE UNIQUE INDEX resources_living ON resources (kind, namespace, name)"
        " WHERE deleted_at_s IS NULL",
        "CREATE TABLE ledger (day INTEGER NOT NULL, namespace TEXT NOT NULL, labels TEXT NOT NULL,"
        " usd REAL NOT NULL, unpriced_s REAL NOT NULL, PRIMARY KEY (day, namespace, labels))"
        " WITHOUT ROWID",
    ),
    2: (
        "ALTER TABLE runs ADD COLUMN content INTEGER",
        "CREATE INDEX IF NOT EXISTS cache_runs ON cache (run)",
    ),
    # A finished object with work due is looked at once, and its next time is stored.
    4: (
        "ALTER TABLE resources ADD COLUMN wake_at_s REAL DEFAULT 0",
        "UPDATE resources SET wake_at_s = NULL WHERE deleted_at_s IS NULL"
        " AND json_extract(nullif(status, ''), '$.phase') IN ('Succeeded', 'Failed')"
        " AND json_extract(nullif(status, ''), '$.observedGeneration') = generation"
        " AND NOT EXISTS (SELECT 1 FROM specs WHERE specs.rid = resources.rid"
        " AND instr(spec, '\"ttlSecondsAfterFinished\"'))",
        "CREATE INDEX resources_awake ON resources (wake_at_s) WHERE wake_at_s IS NOT NULL",
        "DROP INDEX runs_live",
        "CREATE INDEX runs_held ON runs (rid) WHERE state <= 2 OR sandbox_open",
    ),
    5: ("ALTER TABLE runs ADD COLUMN wandb TEXT",),
    6: (
        "ALTER TABLE runs ADD COLUMN resumed_step INTEGER",
        "ALTER TABLE runs ADD COLUMN saved_step INTEGER",
    ),
    8: ("ALTER TABLE runs ADD COLUMN queued INTEGER",),
    9: (
        "DROP INDEX cache_keys",
        "DROP INDEX cache_runs",
        "DROP INDEX IF EXISTS cache_owners",
        "ALTER TABLE cache RENAME TO cache_before",
        "ALTER TABLE runs ADD COLUMN worth_s REAL",
        "ALTER TABLE runs ADD COLUMN worth_usd REAL",
    ),
    # Messages from before have their hint in their text, and are shown as they are.
    10: ("ALTER TABLE runs ADD COLUMN hint TEXT",),
}
_NEW_TABLES = {
    1: ("cache", "creates"),
    3: ("gone",),
    6: ("checkpoints",),
    7: ("calls", "asked"),
    8: ("notices",),
    9: ("cache",),
}
# After the new tables exist. The owner of older results is taken from the run.
_AFTERWARDS = {
    9: (
        "INSERT INTO cache (entry, template_key, unit_key, result, metrics, run, object, idx,"
        " duration_s, usd, ended_at_s, bytes_so_far, owner)"
        " SELECT entry, template_key, unit_key, result, metrics, run, object, idx, duration_s, usd,"
        " ended_at_s, bytes_so_far, coalesce((SELECT uid FROM runs JOIN resources USING (rid)"
        " WHERE runs.name = cache_before.run), '') FROM cache_before",
        "DROP TABLE cache_before",
        # The message of a run that took a result over ends with the name of the original run.
        "UPDATE runs SET (worth_s, worth_usd) = (SELECT duration_s, usd FROM cache"
        " WHERE cache.run = substr(runs.message, -29)) WHERE reason = 'Cached'",
    ),
}


def upgrade_state(state: sqlite3.Connection) -> None:
    """Upgrades an older state.db to this version, all or nothing."""
    made = {version: _list_creations(tables) for version, tables in _NEW_TABLES.items()}
    steps = (_UPGRADES, made, _AFTERWARDS)
    upgrades = {
        version: tuple(chain.from_iterable(step.get(version, ()) for step in steps))
        for version in range(SCHEMA_VERSION)
    }
    _upgrade_schema(state, upgrades)


def _list_creations(tables: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the statements of the schema that make these tables and their indexes."""
    if not tables:
        return ()
    wanted = re.compile(rf"(TABLE|INDEX \w+ ON) ({'|'.join(tables)})\b")
    return tuple(one for one in queries.read_statements("state_schema.sql") if wanted.search(one))


def upgrade_events(events: sqlite3.Connection) -> None:
    _upgrade_schema(events, {10: ("ALTER TABLE events ADD COLUMN hint TEXT",)})


def find_missing_parts(database: sqlite3.Connection, *, events: bool) -> str:
    """Returns the missing parts of a database, compared with its version; empty where it is whole.
    Its schema alone is brought up to date, in memory, and compared with a new one.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        schema = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite!_%'"
        try:
            for (statement,) in database.execute(f"{schema} ESCAPE '!' ORDER BY type = 'index'"):
                copy.execute(statement)
            version = int(database.execute("PRAGMA user_version").fetchone()[0])
            if version > SCHEMA_VERSION:
                return f"it is of schema version `{version}`, which is newer than this fleetctl"
            copy.execute(f"PRAGMA user_version = {version}")
            (upgrade_events if events else upgrade_state)(copy)
        except sqlite3.Error as error:
            return f"its schema is none of fleetctl's: {error}"
        wanted = sqlite3.connect(":memory:", isolation_level=None)
        with closing(wanted):
            _create_schema(wanted, "events_schema.sql" if events else "state_schema.sql", None)
            missing = sorted(_list_columns(wanted) - _list_columns(copy))
    if missing:
        return f"it has no {missing[0]}"
    return ""


def _list_columns(database: sqlite3.Connection) -> set[str]:
    rows = database.execute(
        "SELECT tables.name, columns.name FROM sqlite_master AS tables,"
        " pragma_table_info(tables.name) AS columns WHERE tables.type = 'table'"
    )
    return {f"column `{column}` of table `{table}`" for table, column in rows}


def _upgrade_schema(database: sqlite3.Connection, upgrades: Mapping[int, tuple[str, ...]]) -> None:
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if version == SCHEMA_VERSION:
        return
    database.execute("BEGIN IMMEDIATE")
    for older in range(version, SCHEMA_VERSION):
        for statement in upgrades.get(older, ()):
            database.execute(statement)
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    database.execute("COMMIT")
    log.info("store upgraded", extra={"from": version, "to": SCHEMA_VERSION})


def take_epoch(state: sqlite3.Connection, *, at_least: int) -> StoreIdentity:
    """Becomes the newest writer: every earlier one is refused from here on."""
    state.execute("BEGIN IMMEDIATE")
    store_id, epoch, changes = state.execute(
        queries.read_queries("state.sql")["identity"]
    ).fetchone()
    fresh = max(epoch, at_least) + 1
    state.execute(queries.read_queries("state.sql")["take_epoch"], (fresh,))
    state.execute("COMMIT")
    return StoreIdentity(store_id, fresh, changes)


def check_events(path: Path) -> None:
    """Raises StoreError for a newer or foreign events.db; a damaged one is set aside, for it is
    only history.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    try:
        events = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)
        try:
            finding = _find_damage(events, path, tables=()) if _is_ours(events, path) else None
        finally:
            events.close()
    except READ_FAILURES as error:
        if primary_code(error) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise explain_error(error, path) from error
        finding = str(error)
    if finding is None:
        return
    path.replace(path.with_name(path.name + ".damaged"))
    _remove_files(path, _TAILS)
    log.warning("the history of events was damaged and begins again", extra={"path": str(path)})
