"""What runs were charged, and what they asked of model endpoints, in SQLite. Part
of the SQLite store; see base.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter

from fleetctl.stores.base import Asked, Calls, CallStore, Entry, LedgerStore
from fleetctl.stores.sqlite.session import Session

Counts = tuple[float, ...]  # in the order of the fields of Calls
_NAMES = tuple(it.name for it in fields(Calls))
_counts: Callable[[Calls], Counts] = attrgetter(*_NAMES)
_NO_CALLS = _counts(Calls())
_USD = _NAMES.index("usd")


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
        risen = [self._keep(one) for one in asked]
        sums: dict[str, Counts] = {}
        for one, more in zip(asked, risen, strict=True):
            if one.endpoint_uid and any(more):
                known = sums.get(one.endpoint_uid, _NO_CALLS)
                sums[one.endpoint_uid] = tuple(a + b for a, b in zip(known, more, strict=True))
        rows = [(uid, *more) for uid, more in sums.items()]
        self._session.writing().executemany(self._session.sql["add_asked"], rows)
        return [more[_USD] for more in risen]

    def _keep(self, asked: Asked) -> Counts:
        """By how much each count has risen."""
        writing, sql = self._session.writing(), self._session.sql
        found = writing.execute(sql["calls_of_run"], (asked.run, asked.endpoint)).fetchone()
        if found is None:
            return _NO_CALLS  # of no run of this store
        run_id, known, *before = found
        total = _counts(asked.total)
        writing.execute(sql["keep_calls"], (run_id, asked.endpoint, *total, *asked.times_ms))
        earlier = before if known is not None else _NO_CALLS
        return tuple(now - was for now, was in zip(total, earlier, strict=True))

    def sum_of(self, endpoint_uid: str) -> Calls:
        found = list(self._session.read("read_asked", (endpoint_uid,)))
        return Calls(*found[0]) if found else Calls()

    def forget(self, endpoint_uid: str) -> None:
        self._session.writing().execute(self._session.sql["forget_asked"], (endpoint_uid,))


def _text(labels: dict[str, str]) -> str:
    return json.dumps(labels, sort_keys=True, separators=(",", ":"))


_: tuple[type[LedgerStore], type[CallStore]] = (SqliteLedger, SqliteCalls)
