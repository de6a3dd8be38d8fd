"""A transaction for all writes in a turn of the event loop: a commit costs more than
its content.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class WriteBatch:
    """A batch of writes. commit: called once at the end of each turn that began. Its sqlite3.Error
    is raised to the waiters.
    """

    def __init__(self, commit: Callable[[], None]) -> None:
        self._commit = commit
        self._committed: asyncio.Future[None] | None = None  # set by the turn that writes now

    def begin(self) -> bool:
        """Returns True if this is the first change that the turn writes."""
        if self._committed is not None:
            return False
        loop = asyncio.get_running_loop()
        self._committed = loop.create_future()
        loop.call_soon(self._end)
        return True

    async def durable(self) -> None:
        """Waits until all writes are on disk, where a kill of the process leaves them."""
        if self._committed is not None:
            await asyncio.shield(self._committed)

    def _end(self) -> None:
        committed = self._committed
        self._committed = None
        assert committed is not None
        try:
            self._commit()
        except sqlite3.Error as error:
            committed.set_exception(error)  # its waiters must not send
            committed.exception()  # the future may have no waiter
        else:
            committed.set_result(None)


@contextmanager
def open_transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Opens a transaction, which is written whole or not at all, also if the disk is full."""
    db.execute("begin")
    try:
        yield
        db.execute("commit")
    except sqlite3.Error:
        if db.in_transaction:
            db.execute("rollback")
        raise
