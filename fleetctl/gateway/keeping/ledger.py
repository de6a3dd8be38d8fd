"""What each run used of each endpoint, on disk before and after every call.

A call that a kill cut off is charged with its worst case when the ledger is opened again. What one
turn of the loop writes is one transaction: a commit costs more than what is in it.
"""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from fleetctl.gateway.rules.usage import Tokens

COUNTS = (
    *("calls", "tries", "fallbacks", "hits", "tokens_in", "tokens_out", "usd"),
    *("unpriced", "reserved_usd", "reserved_in", "reserved_out", "refused"),
)
_SCHEMA = f"""
create table if not exists used (run text, endpoint text, namespace text, seq integer,
  {", ".join(f"{name} real not null default 0" for name in COUNTS)},
  primary key (run, namespace, endpoint)) without rowid;
create index if not exists used_seq on used (seq);
"""
_FOLD = """update used set usd = usd + reserved_usd, tokens_in = tokens_in + reserved_in,
 tokens_out = tokens_out + reserved_out, reserved_usd = 0, reserved_in = 0, reserved_out = 0,
 seq = ? where reserved_in > 0 or reserved_out > 0 or reserved_usd > 0"""
Key = tuple[str, str, str]  # run, namespace, endpoint


class Ledger:
    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        path.chmod(0o600)
        self._db.execute("pragma journal_mode=wal")
        # A kill of the process loses nothing so; only one of the machine may lose the last calls.
        self._db.execute("pragma synchronous=normal")
        self._db.executescript(_SCHEMA)
        self.seq = int(self._db.execute("select coalesce(max(seq), 0) from used").fetchone()[0])
        self.seq += 1
        self._db.execute(_FOLD, (self.seq,))
        self._committed: asyncio.Future[None] | None = None  # by the turn that writes now

    def close(self) -> None:
        if self._db.in_transaction:
            self._db.commit()
        self._db.close()

    async def durable(self) -> None:
        """Until all that was written is on disk, where a kill of the process leaves it."""
        if self._committed is not None:
            await asyncio.shield(self._committed)

    def _begin(self) -> None:
        if not self._db.in_transaction:
            loop = asyncio.get_running_loop()
            self._db.execute("begin")
            self._committed = loop.create_future()
            loop.call_soon(self._commit, self._committed)

    def _commit(self, committed: "asyncio.Future[None]") -> None:
        if self._db.in_transaction:
            self._db.commit()
        committed.set_result(None)
        if self._committed is committed:
            self._committed = None

    def row(self, key: Key) -> dict[str, Any]:
        found = self._db.execute(
            "select * from used where run=? and namespace=? and endpoint=?", key
        ).fetchone()
        return dict(found) if found else dict.fromkeys(COUNTS, 0)

    def usd_of(self, run: str) -> float:
        """Spent and set aside by the run, over all its endpoints."""
        query = "select coalesce(sum(usd + reserved_usd), 0) from used where run=?"
        return float(self._db.execute(query, (run,)).fetchone()[0])

    def add(self, key: Key, **amounts: float) -> None:
        assert set(amounts) <= set(COUNTS)
        self._begin()
        self.seq += 1
        names = list(amounts)
        marks = ", ".join("?" * len(names))
        sets = ", ".join(f"{name} = {name} + excluded.{name}" for name in names)
        self._db.execute(
            f"insert into used (run, namespace, endpoint, seq, {', '.join(names)})"  # noqa: S608
            f" values (?, ?, ?, ?, {marks})"
            f" on conflict do update set seq = excluded.seq, {sets}",
            (*key, self.seq, *amounts.values()),
        )

    def reserve(self, key: Key, calls: int, worst: Tokens, usd: float | None) -> None:
        self.add(
            key,
            calls=calls,
            reserved_usd=usd or 0.0,
            reserved_in=worst.inward,
            reserved_out=worst.outward,
        )

    def settle(
        self, key: Key, worst: Tokens, reserved_usd: float | None, used: Tokens, usd: float | None
    ) -> None:
        self.add(
            key,
            reserved_usd=-(reserved_usd or 0.0),
            reserved_in=-worst.inward,
            reserved_out=-worst.outward,
            tokens_in=used.inward,
            tokens_out=used.outward,
            usd=usd or 0.0,
            unpriced=int(usd is None),
        )

    def changed(self, after: int) -> list[dict[str, Any]]:
        rows = self._db.execute("select * from used where seq > ? order by seq", (after,))
        return [dict(row) for row in rows]
