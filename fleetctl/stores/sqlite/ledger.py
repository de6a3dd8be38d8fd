"""Stores the charges of runs, and their requests to model endpoints, in SQLite. Part of the SQLite
store; see base.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter

from fleetctl.stores.base import CallStore, CallSums, EndpointUsage, LedgerEntry, LedgerStore
from fleetctl.stores.sqlite.store_session import StoreSession

Counts = tuple[float, ...]  # in the order of the fields of CallSums
_NAMES = tuple(it.name for it in fields(CallSums))
_counts: Callable[[CallSums], Counts] = attrgetter(*_NAMES)
_NO_CALLS = _counts(CallSums())
_USD = _NAMES.index("usd")


class SqliteLedger:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    def add(self, entries: Sequence[LedgerEntry]) -> None:
        rows = [
            (it.day, it.namespace, _format_labels(it.labels), it.usd, it.unpriced_s)
            for it in entries
        ]
        self._session.writing().executemany(self._session.sql["add_to_ledger"], rows)

    def entries(self) -> Sequence[LedgerEntry]:
        return [
            LedgerEntry(day, json.loads(labels), *rest)
            for day, labels, *rest in self._session.read("read_ledger")
        ]


class SqliteCalls:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    def keep(self, asked: Sequence[EndpointUsage]) -> list[float]:
        risen = [self._keep(one) for one in asked]
        sums: dict[str, Counts] = {}
        for one, more in zip(asked, risen, strict=True):
            if one.endpoint_uid and any(more):
                known = sums.get(one.endpoint_uid, _NO_CALLS)
                sums[one.endpoint_uid] = tuple(a + b for a, b in zip(known, more, strict=True))
        rows = [(uid, *more) for uid, more in sums.items()]
        self._session.writing().executemany(self._session.sql["add_asked"], rows)
        return [more[_USD] for more in risen]

    def _keep(self, asked: EndpointUsage) -> Counts:
        """Returns by how much each count has risen."""
        writing = self._session.writing()
        sql = self._session.sql
        found = writing.execute(sql["calls_of_run"], (asked.run, asked.endpoint)).fetchone()
        if found is None:
            return _NO_CALLS  # of no run of this store
        run_id, known, *before = found
        total = _counts(asked.total)
        writing.execute(sql["keep_calls"], (run_id, asked.endpoint, *total, *asked.times_ms))
        earlier = before if known is not None else _NO_CALLS
        return tuple(now - was for now, was in zip(total, earlier, strict=True))

    def sum_of(self, endpoint_uid: str) -> CallSums:
        found = list(self._session.read("read_asked", (endpoint_uid,)))
        if found:
            return CallSums(*found[0])
        return CallSums()

    def forget(self, endpoint_uid: str) -> None:
        self._session.writing().execute(self._session.sql["forget_asked"], (endpoint_uid,))


def _format_labels(labels: dict[str, str]) -> str:
    return json.dumps(labels, sort_keys=True, separators=(",", ":"))


_: tuple[type[LedgerStore], type[CallStore]] = (SqliteLedger, SqliteCalls)
