"""One transaction for all that a turn of the event loop writes: a commit costs more than what is in
it."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Turn:
    """commit: called once at the end of each turn that began. Its sqlite3.Error is raised to who
    waits.
    """

    def __init__(self, commit: Callable[[], None]) -> None:
        self._commit = commit
        self._committed: asyncio.Future[None] | None = None  # by the turn that writes now

    def begin(self) -> bool:
        """Whether this is the first that the turn writes."""
        if self._committed is not None:
            return False
        loop = asyncio.get_running_loop()
        self._committed = loop.create_future()
        loop.call_soon(self._end)
        return True

    async def durable(self) -> None:
        """Until all that was written is on disk, where a kill of the process leaves it."""
        if self._committed is not None:
            await asyncio.shield(self._committed)

    def _end(self) -> None:
        committed, self._committed = self._committed, None
        assert committed is not None
        try:
            self._commit()
        except sqlite3.Error as error:
            committed.set_exception(error)  # who waits for it must not send
            committed.exception()  # nobody may wait for it
        else:
            committed.set_result(None)


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Whole or not at all, also where the disk is full."""
    db.execute("begin")
    try:
        yield
        db.execute("commit")
    except sqlite3.Error:
        if db.in_transaction:
            db.execute("rollback")
        raise
