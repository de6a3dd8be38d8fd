"""The records of interpreters' sandboxes: written before a sandbox is made, closed when its end is
confirmed.

Used by fleetctl/interpreter, which writes the rows of its own process, and by
wiring/interpreters.py, which ends the sandboxes of killed programs. No controller is needed: a file
of its own, which SQLite shares among all programs of a state directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import sqlite3
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetctl.common.errors import StoreError
from fleetctl.common.state_paths import INTERPRETERS_DB, refuse_foreign
from fleetctl.guest.supervision.processes import is_held
from fleetctl.stores import queries
from fleetctl.stores.queries import APPLICATION_ID

VERSION = 1  # user_version of the file
SCHEMA = "interpreters_schema.sql"
KEPT_S = 30 * 86_400.0  # rows
WAIT_S = 5.0  # for another program that writes
LOCK_S = 3600.0  # that an unused lock file is left
STARTING = "Starting"
RUNNING = "Running"
STOPPED = "Stopped"
LOST = "Lost"
REFUSED = "Refused"
PROGRAM_ENDED = "ProgramEnded"


@dataclass(frozen=True, slots=True)
class InterpreterRun:
    """A sandbox of an interpreter. parent: "" where a program requested it."""

    name: str
    parent: str
    depth: int
    provider: str
    native: Mapping[str, str] = field(default_factory=dict)
    created_at_s: float = 0.0
    state: str = STARTING


class InterpreterRuns:
    """The records of a program. Any method raises StoreError: a file that cannot be written, or is
    a newer version's.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / INTERPRETERS_DB

    def begin(self, run: InterpreterRun) -> None:
        """Records a sandbox; durable when it returns."""
        with self._failing():
            home = self._path.parents[1]
            home.mkdir(
                mode=0o700,
                parents=True,
                exist_ok=True,
            )
            refuse_foreign(home)
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            program = _program_file(self._path.parent)
        self._write(
            "INSERT INTO runs (name, parent, depth, provider, native, program, host, pid, state,"
            " reason, created_at_s) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '', ?)",
            (
                *(run.name, run.parent or None, run.depth, run.provider),
                *(json.dumps(dict(run.native)), program),
                *(platform.node(), os.getpid()),
                *(STARTING, time.time()),
            ),
            durable=True,
        )
        with self._failing():
            _stay_open(self._path)

    def started(self, name: str) -> None:
        query = "UPDATE runs SET state = ?, started_at_s = ? WHERE name = ?"
        self._write(query, (RUNNING, time.time(), name))

    def ended(
        self,
        name: str,
        state: str,
        reason: str,
        usage: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        """Records its confirmed end. usage: None where unknown. The first report counts."""
        self._write(
            "UPDATE runs SET state = ?, reason = ?, ended_at_s = ?, usage = ? WHERE name = ? AND"
            " ended_at_s IS NULL",
            (state, reason, time.time(), None if usage is None else json.dumps(usage), name),
        )

    def living(self) -> set[str]:
        """Returns names of sandboxes held by living programs of this machine."""
        return {run.name for run, lives in self._open() if lives}

    def left(self) -> list[InterpreterRun]:
        """Returns sandboxes whose programs of this machine were killed; children before their
        parents.
        """
        return [run for run, lives in self._open() if not lives]

    def _open(self) -> list[tuple[InterpreterRun, bool]]:
        """Returns this machine's sandboxes that have not ended, and if their programs live."""
        if not self._path.exists():
            return []
        with self._failing(), closing(self._connect()) as database:
            rows = database.execute(
                "SELECT name, coalesce(parent, ''), depth, provider, native, created_at_s, state,"
                " program FROM runs WHERE ended_at_s IS NULL AND host = ?"
                " ORDER BY depth DESC, name",
                (platform.node(),),
            ).fetchall()
        lives = {program: is_held(self._path.parent / program) for *_, program in rows}
        return [
            (
                InterpreterRun(
                    name,
                    parent,
                    depth,
                    provider,
                    json.loads(native),
                    at_s,
                    state,
                ),
                lives[program],
            )
            for name, parent, depth, provider, native, at_s, state, program in rows
        ]

    def _write(
        self,
        query: str,
        values: Sequence[object],
        *,
        durable: bool = False,
    ) -> None:
        """Writes so that it survives a kill of the process; durable: also a loss of power."""
        with self._failing(), closing(self._connect()) as database:
            self._create_tables(database)
            database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            database.execute(query, tuple(values))

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None)

    def _create_tables(self, database: sqlite3.Connection) -> None:
        """Creates the tables if missing. Raises StoreError for a newer version's file."""
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == VERSION:
            return
        if version > VERSION:
            raise StoreError(
                f"`{self._path}` was written by a newer fleetctl", hint="upgrade this one"
            )
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("BEGIN IMMEDIATE")
        if database.execute("PRAGMA user_version").fetchone() == (0,):
            for statement in queries.read_statements(SCHEMA):
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute("COMMIT")
        self._path.chmod(0o600)

    def forget_old(self) -> None:
        """Rows of a month ago, and locks of programs that left no other."""
        # No sandbox lives that long, in any state of its program and machine.
        self._write("DELETE FROM runs WHERE created_at_s < ?", (time.time() - KEPT_S,))
        with self._failing(), closing(self._connect()) as database:
            open_ = {
                row[0]
                for row in database.execute("SELECT program FROM runs WHERE ended_at_s IS NULL")
            }
        for lock in self._path.parent.glob("program-*"):
            # One that is new may not be locked yet.
            old = lock.stat().st_mtime < time.time() - LOCK_S
            if old and lock.name not in open_ and not is_held(lock):
                lock.unlink(missing_ok=True)

    def _failing(self) -> _StoreFailures:
        return _StoreFailures(self._path)


class _StoreFailures:
    """Errors of SQLite and of the disk as one of ours."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: object,
        error: BaseException | None,
        _: object,
    ) -> None:
        if isinstance(error, (sqlite3.Error, OSError)):
            raise StoreError(
                f"`{self._path}` cannot be used: {error}",
                hint="set FLEETCTL_HOME to a directory on a local disk that you can write",
            ) from error


def is_readable(path: Path) -> bool:
    """Returns true if records exist, in a version that this program knows."""
    if not path.exists():
        return False
    with closing(sqlite3.connect(path, timeout=WAIT_S)) as database:
        row: tuple[int] = database.execute("PRAGMA user_version").fetchone()
    return row[0] == VERSION


_programs: dict[Path, tuple[str, int]] = {}  # by directory, of this process alone
_open_files: dict[tuple[Path, int], sqlite3.Connection] = {}
_of_parents: list[object] = []  # SQLite's connections belong to a process: never closed


def _program_file(directory: Path) -> str:
    """Returns the file that shows that this process lives: it holds its lock until it dies."""
    if directory not in _programs:
        name = f"program-{uuid.uuid4().hex}"
        handle = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        _programs[directory] = (name, handle)
    return _programs[directory][0]


def _stay_open(path: Path) -> None:
    """The last one that closes the file folds its log into it, which takes five times as long as
    the write itself: that is for the end of the process.
    """
    key = (path, path.stat().st_ino)
    if key not in _open_files:
        _open_files[key] = sqlite3.connect(path, check_same_thread=False)
        _open_files[key].execute("PRAGMA user_version").fetchone()


def _forget_in_fork() -> None:
    """Drops the lock in a fork: a child is another program, and the lock is its parent's alone."""
    for _, handle in _programs.values():
        os.close(handle)
    _of_parents.extend(_open_files.values())
    _programs.clear()
    _open_files.clear()


os.register_at_fork(after_in_child=_forget_in_fork)
