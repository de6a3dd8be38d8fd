"""Holds the two connections of a store and the one way to write through them. Used by the verbs'
files beside this one.

State is durable when a transaction ends. Events are buffered and follow it in a transaction of
their own, so that a sentence for users can never undo or delay an outcome.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.common.clock import Clock
from fleetctl.common.errors import StoreError
from fleetctl.stores import queries
from fleetctl.stores.sqlite.database_files import StoreIdentity
from fleetctl.stores.sqlite_errors import READ_FAILURES, explain_error, is_fatal, is_full
from fleetctl.stores.state_dir import Ballast, ChangesMark

log = logging.getLogger(__name__)

Row = tuple[Any, ...]
INCREMENTAL = 2  # of PRAGMA auto_vacuum
# Pages of 4 KiB: some milliseconds of a step, and 8 MiB that the next writes use again.
SHRINK_PAGES = 500
FREE_PAGES_KEPT = 2048
Hook = Callable[[], None]
EventWrite = Callable[[sqlite3.Connection], None]


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """Open connections, the path that messages name, and the reserved disk space (unset in
    memory).
    """

    state: sqlite3.Connection
    events: sqlite3.Connection
    path: Path | str
    ballast: Ballast | None = None
    mark: ChangesMark | None = None


@dataclass(frozen=True, slots=True)
class BarrierHooks:
    """Run around every barrier: an exception from the first undoes the transaction, one from the
    second leaves it durable. The simulator crashes here.
    """

    before_commit: Hook | None = None
    after_commit: Hook | None = None


class StoreSession:
    """Owns the connections. Not safe for two threads at once."""

    def __init__(
        self,
        files: StoreFiles,
        identity: StoreIdentity,
        clock: Clock,
        hooks: BarrierHooks,
    ) -> None:
        self.state = files.state
        self.sql = queries.read_queries("state.sql")
        self.identity = identity
        self.changes = identity.changes
        self.rids: dict[str, int] = {}
        self.words: dict[str, int] = {}
        self.event_writes: list[EventWrite] = []
        self._events = files.events
        self._clock = clock
        self._path = files.path
        self._ballast = files.ballast
        self._mark = files.mark
        self._hooks = hooks
        self._inside = False
        self._changes_kept = identity.changes
        self._events_lost = 0
        self._ended_because: StoreError | None = None
        self._note_changes()

    def writing(self) -> sqlite3.Connection:
        """Returns the connection, for a verb that writes."""
        assert self._inside, "a write outside of a transaction"
        return self.state

    def read(self, query: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Returns all rows of the query of this name."""
        try:
            return self.state.execute(self.sql[query], parameters).fetchall()
        except READ_FAILURES as error:
            raise explain_error(error, self._path) from error

    def now_s(self) -> float:
        return self._clock.now_s()

    def next_change(self) -> int:
        self.changes += 1
        return self.changes

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._begin()
        try:
            yield
            self._commit()
        except sqlite3.Error as error:
            self._rollback()
            raise self._translate(error) from error
        except BaseException:
            self._rollback()
            raise
        self._flush_events()
        if self._ballast is not None:
            self._ballast.refill(now_s=self._clock.now_s())
        if self._hooks.after_commit is not None:
            self._hooks.after_commit()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Groups writes inside a transaction: if the block raises, its writes are undone, and the
        transaction goes on without them.
        """
        database = self.writing()
        changes = self.changes
        events = len(self.event_writes)
        database.execute("SAVEPOINT whole")
        try:
            yield
        except BaseException:
            if self._inside and database.in_transaction:
                database.execute("ROLLBACK TO whole")
                database.execute("RELEASE whole")
                self.rids.clear()
                self.words.clear()
                del self.event_writes[events:]
                self.changes = changes
            raise
        database.execute("RELEASE whole")

    def _begin(self) -> None:
        if self._inside:
            raise StoreError(
                "a transaction was begun inside another one", hint="this is a bug of fleetctl"
            )
        if self._ended_because is not None:
            raise self._ended_because
        try:
            self.state.execute("BEGIN IMMEDIATE")
            epoch = self.state.execute(self.sql["fence"]).fetchone()[0]
        except sqlite3.Error as error:
            self._undo()
            raise self._translate(error) from error
        if epoch != self.identity.epoch:
            self._undo()
            self.end(superseded_error(self._path))
            raise superseded_error(self._path)
        self._inside = True

    def _commit(self) -> None:
        if self._hooks.before_commit is not None:
            self._hooks.before_commit()
        if not self._inside:
            raise superseded_error(self._path)
        if self.changes != self._changes_kept:
            self.state.execute(self.sql["keep_changes"], (self.changes,))
        self.state.execute("COMMIT")
        self._inside = False
        if self.changes != self._changes_kept:
            self._changes_kept = self.changes
            self._note_changes()

    def _note_changes(self) -> None:
        if self._mark is not None:
            self._mark.write(self.identity.store_id, self._changes_kept)

    def _rollback(self) -> None:
        if not self._inside:
            return
        self._inside = False
        self._undo()
        # Cached rows may have been written in the transaction, and are gone now.
        self.rids.clear()
        self.words.clear()
        self.event_writes.clear()
        self.changes = self._changes_kept

    def _undo(self) -> None:
        # After some errors SQLite has rolled back by itself.
        if self.state.in_transaction:
            self.state.execute("ROLLBACK")

    def _translate(self, error: sqlite3.Error) -> StoreError:
        translated = explain_error(error, self._path)
        if is_full(error) and self._ballast is not None:
            self._ballast.drop(now_s=self._clock.now_s())
        if is_fatal(error):
            translated.final = True
            self._ended_because = translated
        return translated

    def _flush_events(self) -> None:
        if not self.event_writes:
            return
        writes = self.event_writes
        self.event_writes = []
        try:
            self._events.execute("BEGIN IMMEDIATE")
            for write in writes:
                write(self._events)
            self._events.execute("COMMIT")
        except sqlite3.Error as error:
            if self._events.in_transaction:
                self._events.execute("ROLLBACK")
            # The outcome is durable already; a lost sentence must not look like a lost outcome.
            if not self._events_lost:
                log.warning("events are being lost", extra={"error": str(error)})
            self._events_lost += len(writes)
            return
        if self._events_lost:
            log.warning("events are kept again", extra={"lost": self._events_lost})
            self._events_lost = 0

    def shrink(self) -> bool:
        """Shrinks both files. A file that was founded without the means to shrink stays as it
        is.
        """
        state = self.writing()
        _shrink_file(state)
        events_free = _count_free(self._events)
        if events_free > FREE_PAGES_KEPT:
            self.event_writes.append(_shrink_file)
        return max(_count_free(state), events_free - SHRINK_PAGES) > FREE_PAGES_KEPT

    def end(self, reason: StoreError) -> None:
        """Refuses all further writes with `reason`; an open transaction is not ours to undo now."""
        self._inside = False
        self._ended_because = reason

    def close(self) -> None:
        self.end(StoreError(f"the store `{self._path}` is closed", hint="open it again"))
        self._events.close()
        self.state.close()
        if self._mark is not None:
            self._mark.close()


def _shrink_file(database: sqlite3.Connection) -> None:
    free = _count_free(database) - FREE_PAGES_KEPT
    if free > 0:
        step = min(free, SHRINK_PAGES)
        database.execute(f"PRAGMA incremental_vacuum({step})").fetchall()


def _count_free(database: sqlite3.Connection) -> int:
    """Returns the number of free pages, if the file can be made shorter; else 0."""
    (mode,) = database.execute("PRAGMA auto_vacuum").fetchone()
    (free,) = database.execute("PRAGMA freelist_count").fetchone()
    if mode == INCREMENTAL:
        return int(free)
    return 0


def superseded_error(path: Path | str) -> StoreError:
    error = StoreError(
        f"another process has taken over the store `{path}`; this one may not write any more",
        hint="run `fleetctl status` to see which one",
    )
    error.final = True
    return error
