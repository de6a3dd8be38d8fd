"""Successes by content in SQLite. Part of the SQLite store; see base.CacheStore.

Entries are numbered and their bytes are added up as they come, so that the oldest are found
without counting.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace

from fleetctl.stores.base import (
    CACHE_BYTES_MAX,
    CACHE_ROWS_MAX,
    CachedSuccess,
    CacheStore,
    ReuseScope,
)
from fleetctl.stores.sqlite.store_session import StoreSession

_ENTRY_BYTES = 200  # of a row and its index, beside the texts that vary


class SqliteCache:
    def __init__(
        self,
        session: StoreSession,
        *,
        rows_max: int = CACHE_ROWS_MAX,
        bytes_max: int = CACHE_BYTES_MAX,
    ) -> None:
        self._session = session
        self._sql = session.sql
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    def remember(self, successes: Sequence[CachedSuccess]) -> None:
        if not successes:
            return
        state = self._session.writing()
        newest = state.execute(self._sql["newest_remembered"]).fetchone()
        total = newest[1] if newest is not None else 0
        for it in successes:
            total += _ENTRY_BYTES + len(it.result or "") + len(it.metrics)
            row = (
                it.template_key, it.unit_key, it.result, it.metrics, it.run, it.object, it.index,
                it.duration_s, it.usd, it.ended_at_s, total, it.owner,
            )  # fmt: skip
            entry = state.execute(self._sql["remember"], row).lastrowid
        assert entry is not None
        self._forget(entry - self._rows_max, total - self._bytes_max)

    def recall(self, template_key: str, among: ReuseScope) -> Collection[str]:
        rows = self._session.read("recall", (template_key, *_reuse_parameters(among)))
        return frozenset(row[0] for row in rows)

    def get(
        self,
        template_key: str,
        unit_key: str,
        among: ReuseScope,
    ) -> CachedSuccess | None:
        first = among.owners[0]
        rows = self._session.read(
            "remembered", (template_key, *_reuse_parameters(among), unit_key, first)
        )
        if rows:
            return CachedSuccess(*rows[0])
        return None

    def hand_on(self, owner: str, heir: str) -> None:
        state = self._session.writing()
        rows = state.execute(self._sql["remembered_of"], (owner,)).fetchall()
        self.remember([replace(CachedSuccess(*row), owner=heir) for row in rows])

    def forget(self, owner: str) -> None:
        self._session.writing().execute(self._sql["forget_successes_of"], (owner,))

    def put_aside(self, runs: Sequence[str]) -> None:
        state = self._session.writing()
        state.executemany(self._sql["forget_success"], [(run,) for run in runs])

    def _forget(self, entry: int, bytes_so_far: int) -> None:
        """Drops all up to this entry, and all whose bytes lie below."""
        state = self._session.writing()
        while oldest := state.execute(self._sql["oldest_remembered"]).fetchone():
            if oldest[0] > entry and oldest[1] > bytes_so_far:
                return
            state.execute(self._sql["drop_remembered"], oldest[:1])


def _reuse_parameters(among: ReuseScope) -> tuple[object, ...]:
    """Returns the parameters 2 to 4 of a question."""
    return (among.after_s, among.shared, json.dumps(among.owners))


_: type[CacheStore] = SqliteCache
