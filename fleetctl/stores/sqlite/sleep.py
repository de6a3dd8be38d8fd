"""Marks the objects that a controller need not look at, in SQLite. Part of the SQLite store; see
base.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.stores.base import SleepStore
from fleetctl.stores.sqlite.store_session import StoreSession


class SqliteSleep:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    def put(
        self,
        uid: str,
        *,
        until_s: float | None,
        expected_version: int,
    ) -> bool:
        writing = self._session.writing()
        sql = self._session.sql
        self._session.rids.pop(uid, None)  # a sleeping object is not looked up by its runs
        done = writing.execute(sql["sleep"], (until_s, uid, expected_version))
        return done.rowcount == 1

    def awake(self, now_s: float) -> Sequence[str]:
        return [uid for (uid,) in self._session.read("awake", (now_s,))]

    def next_at_s(self, now_s: float) -> float | None:
        ((at_s,),) = self._session.read("next_wake", (now_s,))
        if at_s is None:
            return None
        return float(at_s)


_: type[SleepStore] = SqliteSleep
