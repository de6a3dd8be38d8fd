"""Stores times of requests for new sandboxes, in SQLite. Part of the SQLite store; see
stores/base.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.stores.base import CreateStore
from fleetctl.stores.sqlite.store_session import StoreSession


class SqliteCreates:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    def add(
        self,
        provider: str,
        at_s: float,
        *,
        forget_until_s: float,
    ) -> None:
        writing = self._session.writing()
        sql = self._session.sql
        writing.execute(sql["forget_creates"], (provider, forget_until_s))
        writing.execute(sql["add_create"], (provider, at_s))

    def times(self, provider: str) -> Sequence[float]:
        return [at_s for (at_s,) in self._session.read("creates", (provider,))]


_: type[CreateStore] = SqliteCreates
