"""The two connections of a store and the one way to write through them. Used by the verbs' files
beside this one.

State is durable when a transaction ends. Events are buffered and follow it in a transaction of
their own, so that a sentence for people can never undo or delay an outcome.
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
from fleetctl.stores.errors import READ_FAILURES, explain, is_fatal, is_full
from fleetctl.stores.sqlite.open import Identity
from fleetctl.stores.state_dir import Ballast

log = logging.getLogger(__name__)

Row = tuple[Any, ...]
INCREMENTAL = 2  # of PRAGMA auto_vacuum
# Of 4 KiB: some milliseconds of a step, and 8 MiB that the next writes use again.
SHRINK_PAGES, FREE_PAGES_KEPT = 500, 2048
Hook = Callable[[], None]
EventWrite = Callable[[sqlite3.Connection], None]


@dataclass(frozen=True, slots=True)
class Files:
    """Open connections, the path that messages name, and the space kept aside (none in memory)."""

    state: sqlite3.Connection
    events: sqlite3.Connection
    path: Path | str
    ballast: Ballast | None = None


@dataclass(frozen=True, slots=True)
class Hooks:
    """Run around every barrier: an exception from the first undoes the transaction, one from the
    second leaves it durable. The simulator crashes here.
    """

    before_commit: Hook | None = None
    after_commit: Hook | None = None


class Session:
    """Owns the connections. Not safe for two threads at once."""

    def __init__(self, files: Files, identity: Identity, clock: Clock, hooks: Hooks) -> None:
        self.state = files.state
        self.sql = queries.named("state.sql")
        self.identity = identity
        self.changes = identity.changes
        self.rids: dict[str, int] = {}
        self.words: dict[str, int] = {}
        self.event_writes: list[EventWrite] = []
        self._events = files.events
        self._clock = clock
        self._path = files.path
        self._ballast = files.ballast
        self._hooks = hooks
        self._inside = False
        self._changes_kept = identity.changes
        self._events_lost = 0
        self._ended_because: StoreError | None = None

    def writing(self) -> sqlite3.Connection:
        """The connection, for a verb that writes."""
        assert self._inside, "a write outside of a transaction"
        return self.state

    def read(self, query: str, parameters: Sequence[object] = ()) -> list[Row]:
        """All rows of the query of this name."""
        try:
            return self.state.execute(self.sql[query], parameters).fetchall()
        except READ_FAILURES as error:
            raise explain(error, self._path) from error

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
        """Inside a transaction: where the block raises, nothing that it wrote stays, and the
        transaction goes on without it.
        """
        database, changes, events = self.writing(), self.changes, len(self.event_writes)
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
            self.end(superseded(self._path))
            raise superseded(self._path)
        self._inside = True

    def _commit(self) -> None:
        if self._hooks.before_commit is not None:
            self._hooks.before_commit()
        if not self._inside:
            raise superseded(self._path)
        if self.changes != self._changes_kept:
            self.state.execute(self.sql["keep_changes"], (self.changes,))
        self.state.execute("COMMIT")
        self._changes_kept = self.changes
        self._inside = False

    def _rollback(self) -> None:
        if not self._inside:
            return
        self._inside = False
        self._undo()
        # What was looked up in the transaction may have been written in it, and is gone now.
        self.rids.clear()
        self.words.clear()
        self.event_writes.clear()
        self.changes = self._changes_kept

    def _undo(self) -> None:
        # After some errors SQLite has rolled back by itself.
        if self.state.in_transaction:
            self.state.execute("ROLLBACK")

    def _translate(self, error: sqlite3.Error) -> StoreError:
        translated = explain(error, self._path)
        if is_full(error) and self._ballast is not None:
            self._ballast.drop(now_s=self._clock.now_s())
        if is_fatal(error):
            translated.final = True
            self._ended_because = translated
        return translated

    def _flush_events(self) -> None:
        if not self.event_writes:
            return
        writes, self.event_writes = self.event_writes, []
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
        """Of both files. A file that was founded without the means to shrink stays as it is."""
        state = self.writing()
        _shrink(state)
        events_free = _free(self._events)
        if events_free > FREE_PAGES_KEPT:
            self.event_writes.append(_shrink)
        return max(_free(state), events_free - SHRINK_PAGES) > FREE_PAGES_KEPT

    def end(self, reason: StoreError) -> None:
        """Refuse all further writes with `reason`; an open transaction is not ours to undo now."""
        self._inside = False
        self._ended_because = reason

    def close(self) -> None:
        self.end(StoreError(f"the store `{self._path}` is closed", hint="open it again"))
        self._events.close()
        self.state.close()


def _shrink(database: sqlite3.Connection) -> None:
    free = _free(database) - FREE_PAGES_KEPT
    if free > 0:
        step = min(free, SHRINK_PAGES)
        database.execute(f"PRAGMA incremental_vacuum({step})").fetchall()


def _free(database: sqlite3.Connection) -> int:
    """Pages that hold nothing, where the file can be made shorter; else 0."""
    (mode,) = database.execute("PRAGMA auto_vacuum").fetchone()
    (free,) = database.execute("PRAGMA freelist_count").fetchone()
    return int(free) if mode == INCREMENTAL else 0


def superseded(path: Path | str) -> StoreError:
    error = StoreError(
        f"another process has taken over the store `{path}`; this one may not write any more",
        hint="run `fleetctl status` to see which one",
    )
    error.final = True
    return error
