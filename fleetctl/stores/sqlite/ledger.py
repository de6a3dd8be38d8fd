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
    """The charges of runs, one row for each day, namespace and set of labels."""

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
    """The requests of runs to model endpoints, and the sums of each endpoint."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session

    def record(self, usages: Sequence[EndpointUsage]) -> list[float]:
        rises = [self._record(usage) for usage in usages]
        sums: dict[str, Counts] = {}
        for usage, rise in zip(usages, rises, strict=True):
            if usage.endpoint_uid and any(rise):
                known = sums.get(usage.endpoint_uid, _NO_CALLS)
                sums[usage.endpoint_uid] = tuple(a + b for a, b in zip(known, rise, strict=True))
        rows = [(uid, *rise) for uid, rise in sums.items()]
        self._session.writing().executemany(self._session.sql["add_endpoint_calls"], rows)
        return [rise[_USD] for rise in rises]

    def _record(self, usages: EndpointUsage) -> Counts:
        """Replaces the counts of a run at an endpoint; returns by how much each has risen. Zeros
        for a run that this store does not have.
        """
        writing = self._session.writing()
        sql = self._session.sql
        row = writing.execute(sql["calls_of_run"], (usages.run, usages.endpoint)).fetchone()
        if row is None:
            return _NO_CALLS
        run_id, known, *before = row
        total = _counts(usages.total)
        writing.execute(sql["record_calls"], (run_id, usages.endpoint, *total, *usages.times_ms))
        earlier = before if known is not None else _NO_CALLS
        return tuple(now - was for now, was in zip(total, earlier, strict=True))

    def sum_of(self, endpoint_uid: str) -> CallSums:
        row = list(self._session.read("read_endpoint_calls", (endpoint_uid,)))
        if row:
            return CallSums(*row[0])
        return CallSums()

    def forget(self, endpoint_uid: str) -> None:
        self._session.writing().execute(self._session.sql["forget_endpoint_calls"], (endpoint_uid,))


def _format_labels(labels: dict[str, str]) -> str:
    return json.dumps(labels, sort_keys=True, separators=(",", ":"))


_: tuple[type[LedgerStore], type[CallStore]] = (SqliteLedger, SqliteCalls)
