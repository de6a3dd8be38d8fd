"""What runs were charged, and what they asked of model endpoints, in SQLite. Part
of the SQLite store; see base.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple

from fleetctl.stores.base import Asked, Calls, CallStore, Entry, LedgerStore
from fleetctl.stores.sqlite.session import Session


class SqliteLedger:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, entries: Sequence[Entry]) -> None:
        rows = [(it.day, it.namespace, _text(it.labels), it.usd, it.unpriced_s) for it in entries]
        self._session.writing().executemany(self._session.sql["add_to_ledger"], rows)

    def entries(self) -> Sequence[Entry]:
        return [
            Entry(day, json.loads(labels), *rest)
            for day, labels, *rest in self._session.read("read_ledger")
        ]


class SqliteCalls:
    def __init__(self, session: Session) -> None:
        self._session = session

    def keep(self, asked: Sequence[Asked]) -> list[float]:
        return [self._keep(one) for one in asked]

    def _keep(self, asked: Asked) -> float:
        writing, sql = self._session.writing(), self._session.sql
        found = writing.execute(sql["calls_of_run"], (asked.run, asked.endpoint)).fetchone()
        if found is None:
            return 0.0  # of no run of this store
        run_id, known, *before = found
        earlier = Calls(*before) if known is not None else Calls()
        total = astuple(asked.total)
        row = (run_id, asked.endpoint, *total, *asked.times_ms)
        writing.execute(sql["keep_calls"], row)
        more = tuple(now - was for now, was in zip(total, astuple(earlier), strict=True))
        if asked.endpoint_uid and any(more):
            writing.execute(sql["add_asked"], (asked.endpoint_uid, *more))
        return asked.total.usd - earlier.usd

    def usd_of(self, uid: str) -> float:
        ((usd,),) = self._session.read("calls_usd", (uid,))
        return float(usd)

    def sum_of(self, endpoint_uid: str) -> Calls:
        found = list(self._session.read("read_asked", (endpoint_uid,)))
        return Calls(*found[0]) if found else Calls()

    def forget(self, endpoint_uid: str) -> None:
        self._session.writing().execute(self._session.sql["forget_asked"], (endpoint_uid,))


def _text(labels: dict[str, str]) -> str:
    return json.dumps(labels, sort_keys=True, separators=(",", ":"))


_: tuple[type[LedgerStore], type[CallStore]] = (SqliteLedger, SqliteCalls)
