"""What runs were charged, by day and labels, in SQLite. Part of the SQLite store; see base.py."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fleetctl.stores.base import Entry, LedgerStore
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


def _text(labels: dict[str, str]) -> str:
    return json.dumps(labels, sort_keys=True, separators=(",", ":"))


_: type[LedgerStore] = SqliteLedger
