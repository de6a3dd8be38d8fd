"""The ledger of each run's usage of each endpoint, on disk before and after every call that costs,
with the batches that servers work on; all writes in a turn of the loop share a transaction.

The highest cost of a call is held from its beginning, in memory, where limits and caps are
counted. It is on disk before the call is sent: one that a kill cut off is charged with its worst
case when the ledger is opened again, and one that waited is not charged. The changes in one turn
of the loop are one transaction: a commit costs more than its content.

A batch and its rows are on disk before a server gets them, until the cost of each row is charged.
They hold no prompt and no answer.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fleetctl.gateway.rules.usage import TokenCount

BATCHES = """
create table if not exists batches (tag text primary key, namespace text, endpoint text, uid text,
  model text, server text, id text, created_at_s real, total integer) without rowid;
create table if not exists batch_rows (run text, number text, tag text, namespace text,
  endpoint text, tree text, uid text, calls integer, worst_in integer, worst_out integer,
  worst_usd real, most integer, in_usd real, out_usd real,
  primary key (run, number)) without rowid;
create index if not exists batch_rows_tag on batch_rows (tag);
"""

COUNTS = (
    *("calls", "tries", "fallbacks", "hits", "tokens_in", "tokens_out", "usd", "unpriced"),
    *("estimated", "refused", "reserved_usd", "reserved_in", "reserved_out"),
)
FORGET_S = 30 * 86400.0
ROWS_MAX = 4096  # rows kept in memory that are on disk unchanged
_NAMES = ", ".join(COUNTS)
_SCHEMA = f"""
create table if not exists used (run text, namespace text, endpoint text, tree text, uid text,
  seq integer, at_s real, {", ".join(f"{name} real not null" for name in COUNTS)},
  primary key (run, namespace, endpoint)) without rowid;
create index if not exists used_seq on used (seq);
create index if not exists used_tree on used (tree);
create table if not exists forgotten (uid text primary key, usd real) without rowid;
{BATCHES}
"""
# Rows of a batch go on at their server, even if the gateway ends.
_FOLD = """with held as (select run, namespace, endpoint, sum(worst_in) as inward,
 sum(worst_out) as outward, sum(coalesce(worst_usd, 0)) as usd
 from batch_rows group by run, namespace, endpoint),
 lost as (select used.run, used.namespace, used.endpoint, coalesce(held.usd, 0) as usd,
 coalesce(held.inward, 0) as inward, coalesce(held.outward, 0) as outward
 from used left join held using (run, namespace, endpoint)
 where used.reserved_in > coalesce(held.inward, 0))
 update used set usd = used.usd + reserved_usd - lost.usd,
 tokens_in = tokens_in + reserved_in - lost.inward,
 tokens_out = tokens_out + reserved_out - lost.outward, estimated = estimated + 1,
 reserved_usd = lost.usd, reserved_in = lost.inward, reserved_out = lost.outward, seq = ?
 from lost where used.run = lost.run and used.namespace = lost.namespace
 and used.endpoint = lost.endpoint"""
_WRITE = (
    f"insert or replace into used (run, namespace, endpoint, tree, uid, seq, at_s, {_NAMES})"  # noqa: S608
    f" values (?, ?, ?, ?, ?, ?, ?, {', '.join('?' * len(COUNTS))})"
)
_READ = f"select {_NAMES} from used where run=? and namespace=? and endpoint=?"  # noqa: S608

WAIT_MAX_S = 3 * 86400.0  # for a server that promised a day; then its rows fail
_COLUMNS = (
    "run, number, namespace, endpoint, tree, uid, calls, worst_in, worst_out, worst_usd, most,"
    " in_usd, out_usd"
)
_BATCH = "tag, namespace, endpoint, uid, model, server, id, created_at_s, total"


class UsageKey(NamedTuple):
    """The key of a ledger row. uid: uid of the object that pays; tree: the run whose limits
    count.
    """

    run: str
    namespace: str
    endpoint: str
    tree: str
    uid: str


@dataclass(slots=True)
class UsageSums:
    """The sums of a tree of runs at one endpoint, including the amounts held for `holds` calls."""

    calls: int = 0
    tokens: int = 0
    holds: int = 0


@dataclass(frozen=True, slots=True)
class CostHold:
    """The worst case of a try. usd: None without a price. calls: 0 for one more try of the same
    call.
    """

    worst: TokenCount
    usd: float | None
    calls: int


Row = dict[str, float]  # by COUNTS


class CallLedger:
    """The ledger of calls. changed: fires when there is something new to read. Rows that are not on
    disk yet are in memory: only rows that are on disk unchanged may be dropped from there.
    """

    def __init__(self, path: Path) -> None:
        self.changed = ChangeSignal()
        self._db = sqlite3.connect(path, isolation_level=None)
        path.chmod(0o600)
        self._db.execute("pragma journal_mode=wal")
        # So a kill of the process loses no row; only one of the machine may lose the last calls.
        self._db.execute("pragma synchronous=normal")
        self._db.executescript(_SCHEMA)
        self.seq = 1 + int(self._db.execute("select coalesce(max(seq), 0) from used").fetchone()[0])
        self._db.execute(_FOLD, (self.seq,))
        self._rows: OrderedDict[UsageKey, Row] = OrderedDict()
        self._trees: OrderedDict[tuple[str, str, str], UsageSums] = OrderedDict()
        query = "select uid, sum(usd) from (select uid, usd from used union all"
        query += " select uid, usd from forgotten) group by uid"
        self._objects: dict[str, float] = dict(self._db.execute(query))
        self._dirty: set[UsageKey] = set()
        self._along: list[tuple[str, Sequence[tuple[object, ...]]]] = []
        self._turn = WriteBatch(self._commit)

    def close(self) -> None:
        self._write()
        self._db.close()

    # -- reading -----------------------------------------------------------------------------------

    def row(self, key: UsageKey) -> Row:
        """Returns a row, which the caller must not change."""
        found = self._rows.get(key)
        if found is None:
            counts = self._db.execute(_READ, key[:3]).fetchone() or [0] * len(COUNTS)
            found = self._rows[key] = dict(zip(COUNTS, counts, strict=True))
        return found

    def tree(self, key: UsageKey) -> UsageSums:
        """Returns the sums of a tree, which the caller must not change."""
        name = (key.tree, key.namespace, key.endpoint)
        found = self._trees.get(name)
        if found is None:
            query = "select coalesce(sum(calls), 0), coalesce(sum(tokens_in + tokens_out"
            query += " + reserved_in + reserved_out), 0) from used"
            query += " where tree=? and namespace=? and endpoint=?"
            calls, tokens = self._db.execute(query, name).fetchone()
            found = self._trees[name] = UsageSums(int(calls), int(tokens))
        return found

    def usd_of(self, uid: str) -> float:
        """Returns the cost of all calls of an object, ever, with its holds."""
        return self._objects.get(uid, 0.0)

    def since(self, seq: int) -> list[dict[str, Any]]:
        """Rows that changed after it, as they are on disk."""
        self._db.row_factory = sqlite3.Row
        rows = self._db.execute("select * from used where seq > ? order by seq", (seq,)).fetchall()
        self._db.row_factory = None
        return [dict(row) for row in rows]

    # -- writing -----------------------------------------------------------------------------------

    def add(self, key: UsageKey, **amounts: float) -> None:
        """Adds amounts, which are on disk at the end of this turn of the loop."""
        row = self.row(key)
        for name, amount in amounts.items():
            row[name] += amount
        self._dirty.add(key)
        self._turn.begin()

    def hold(self, key: UsageKey, hold: CostHold) -> None:
        """Records a hold, which counts against limits and caps from here on."""
        self._count(key, hold, 1)

    def send(self, key: UsageKey, hold: CostHold) -> None:
        """Records a hold, which is on disk when `durable` returns; then the call may be sent."""
        self.add(
            key,
            calls=hold.calls,
            tries=1,
            unpriced=int(hold.usd is None and hold.calls > 0),
            reserved_usd=hold.usd or 0.0,
            reserved_in=hold.worst.inward,
            reserved_out=hold.worst.outward,
        )

    def drop(self, key: UsageKey, hold: CostHold) -> None:
        """Drops the hold of a call that was never sent."""
        self._count(key, hold, -1)

    def settle(
        self,
        key: UsageKey,
        hold: CostHold,
        used: TokenCount,
        usd: float | None,
    ) -> None:
        """Settles a call that was sent: replaces its hold by its actual usage."""
        tree = self._count(key, hold, -1)
        before_usd = self._objects[key.uid]
        tree.calls += hold.calls
        tree.tokens += used.inward + used.outward
        self._objects[key.uid] = before_usd + (usd or 0.0)
        self.add(
            key,
            reserved_usd=-(hold.usd or 0.0),
            reserved_in=-hold.worst.inward,
            reserved_out=-hold.worst.outward,
            tokens_in=used.inward,
            tokens_out=used.outward,
            estimated=int(used.estimated),
            usd=usd or 0.0,
        )
        row = self._rows[key]
        if not row["reserved_in"]:
            row["reserved_usd"] = 0.0  # the rest is of rounding

    def _count(
        self,
        key: UsageKey,
        hold: CostHold,
        sign: int,
    ) -> UsageSums:
        tree = self.tree(key)
        tree.holds += sign
        tree.calls += sign * hold.calls
        tree.tokens += sign * (hold.worst.inward + hold.worst.outward)
        self._objects[key.uid] = self._objects.get(key.uid, 0.0) + sign * (hold.usd or 0.0)
        return tree

    def release(self, key: UsageKey, hold: CostHold) -> None:
        """Releases the hold of a call that never reached a server, though the disk has it as sent:
        the usage is as before.
        """
        self._count(key, hold, -1)
        self.add(
            key,
            calls=-hold.calls,
            tries=-1,
            unpriced=-int(hold.usd is None and hold.calls > 0),
            reserved_usd=-(hold.usd or 0.0),
            reserved_in=-hold.worst.inward,
            reserved_out=-hold.worst.outward,
        )

    def resume(self, key: UsageKey, hold: CostHold) -> None:
        """Resumes a hold: an earlier process sent the call, and its outcome is not known yet."""
        self.tree(key).holds += 1
        self._objects[key.uid] = self._objects.get(key.uid, 0.0) + (hold.usd or 0.0)

    def add_statement(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Writes a statement in the same transaction as the other writes of this turn
        of the loop.
        """
        self._along.append((statement, rows))
        self._turn.begin()

    def read(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        return self._db.execute(query, values).fetchall()

    async def durable(self) -> None:
        """Waits until all writes are on disk, where a kill of the process leaves them. Raises
        sqlite3.Error.
        """
        await self._turn.durable()

    def _commit(self) -> None:
        self._write()
        self.changed.fire()

    def _write(self) -> None:
        if not self._dirty and not self._along:
            return
        self.seq, now_s = self.seq + 1, time.time()
        rows = [
            (*key, self.seq, now_s, *(self._rows[key][name] for name in COUNTS))
            for key in self._dirty
        ]
        with open_transaction(self._db):
            self._db.executemany(_WRITE, rows)
            for statement, values in self._along:
                self._db.executemany(statement, values)
        self._dirty.clear()
        self._along.clear()
        while len(self._rows) > ROWS_MAX:
            self._rows.popitem(last=False)
        for _ in range(len(self._trees) - ROWS_MAX):
            name, tree = self._trees.popitem(last=False)
            if tree.holds:
                self._trees[name] = tree

    def forget(self, now_s: float, but: Container[str]) -> None:
        """Deletes rows of runs whose last message came 30 days ago; `but`: runs and trees that may
        call. Their cost stays in the sums of their objects.
        """
        query = "select distinct run, tree from used where at_s < ?"
        old: Sequence[tuple[str, str]] = self._db.execute(query, (now_s - FORGET_S,)).fetchall()
        gone = [(run,) for run, tree in old if run not in but and tree not in but]
        self._write()
        with open_transaction(self._db):
            self._db.executemany(
                "insert into forgotten select uid, sum(usd) from used where run=? group by uid"
                " on conflict do update set usd = usd + excluded.usd",
                gone,
            )
            self._db.executemany("delete from used where run=?", gone)
        self._rows.clear()


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A row of a batch.

    most: tokens that the request allows its answer; None without such a limit. prices: USD a token
    in and out, as a batch costs; None if unknown.
    """

    key: UsageKey
    number: str
    hold: CostHold
    most: int | None
    prices: tuple[float, float] | None

    @property
    def custom_id(self) -> str:
        return f"{self.key.run}.{self.number}"

    def usd(self, tokens: TokenCount) -> float | None:
        if self.prices is None:
            return None
        return tokens.inward * self.prices[0] + tokens.outward * self.prices[1]


@dataclass(slots=True)
class Batch:
    """A batch at a server.

    tag: ours, in the batch's metadata. id: the server's; empty while its reply is not known. rows:
    by custom id, those that are not settled. total, done and failed: as the server counts.
    """

    tag: str
    namespace: str
    endpoint: str
    uid: str  # of the object whose rows it holds
    model: str
    server: str  # its url
    id: str
    created_at_s: float
    total: int
    rows: dict[str, BatchRow] = field(default_factory=dict, repr=False)
    status: str = ""  # the server's word
    done: int = 0
    failed: int = 0
    trouble: str = ""  # why its state is unknown now

    def __hash__(self) -> int:
        return hash(self.tag)

    def late(self, now_s: float) -> bool:
        return now_s > self.created_at_s + WAIT_MAX_S


class BatchRecords:
    def __init__(self, ledger: CallLedger) -> None:
        self._ledger = ledger

    def load(self) -> list[Batch]:
        """Loads, once at the start, the batches that an earlier process left under way."""
        found: list[Batch] = []
        for values in self._ledger.read(f"select {_BATCH} from batches"):  # noqa: S608
            batch = Batch(*values)
            query = f"select {_COLUMNS} from batch_rows where tag=?"  # noqa: S608
            for row in map(_to_row, self._ledger.read(query, (batch.tag,))):
                batch.rows[row.custom_id] = row
                self._ledger.resume(row.key, row.hold)
            found.append(batch)
        return found

    def begin(self, batch: Batch) -> None:
        """Records the batch and the highest cost of its rows; both are on disk after the ledger's
        turn.
        """
        for row in batch.rows.values():
            self._ledger.send(row.key, row.hold)
        self._keep(batch)
        marks = ", ".join("?" * 14)
        statement = f"insert into batch_rows ({_COLUMNS}, tag) values ({marks})"  # noqa: S608
        self._ledger.add_statement(
            statement, [(*_to_values(it), batch.tag) for it in batch.rows.values()]
        )

    def accepted(self, batch: Batch) -> None:
        """Its id is known."""
        self._keep(batch)

    def settle(self, batch: Batch, charged: Iterable[tuple[BatchRow, TokenCount]]) -> None:
        rows = list(charged)
        for row, tokens in rows:
            self._ledger.settle(row.key, row.hold, tokens, row.usd(tokens))
        self._forget(batch, [row for row, _ in rows])

    def release(self, batch: Batch, rows: Sequence[BatchRow]) -> None:
        """Releases the holds of rows that were not sent."""
        for row in rows:
            self._ledger.release(row.key, row.hold)
        self._forget(batch, rows)

    def end(self, batch: Batch) -> None:
        self._ledger.add_statement("delete from batches where tag=?", [(batch.tag,)])

    def _keep(self, batch: Batch) -> None:
        values = tuple(getattr(batch, name) for name in _BATCH.split(", "))
        marks = ", ".join("?" * len(values))
        self._ledger.add_statement(f"insert or replace into batches values ({marks})", [values])  # noqa: S608

    def _forget(self, batch: Batch, rows: Sequence[BatchRow]) -> None:
        for row in rows:
            del batch.rows[row.custom_id]
        statement = "delete from batch_rows where run=? and number=? and tag=?"
        self._ledger.add_statement(statement, [(it.key.run, it.number, batch.tag) for it in rows])


def _to_values(row: BatchRow) -> tuple[object, ...]:
    key = row.key
    hold = row.hold
    worst = (hold.worst.inward, hold.worst.outward, hold.usd)
    prices = row.prices or (None, None)
    owner = (key.namespace, key.endpoint, key.tree, key.uid)
    return (key.run, row.number, *owner, hold.calls, *worst, row.most, *prices)


def _to_row(values: tuple[object, ...]) -> BatchRow:
    run, number, namespace, endpoint, tree, uid, calls, inward, outward, usd, most, *price = values
    key = UsageKey(
        str(run),
        str(namespace),
        str(endpoint),
        str(tree),
        str(uid),
    )
    worst = TokenCount(int(str(inward)), int(str(outward)), estimated=True)
    hold = CostHold(worst, None if usd is None else float(str(usd)), int(str(calls)))
    prices = None if price[0] is None else (float(str(price[0])), float(str(price[1])))
    return BatchRow(
        key,
        str(number),
        hold,
        None if most is None else int(str(most)),
        prices,
    )


class ChangeSignal:
    def __init__(self) -> None:
        self._next: asyncio.Event | None = None  # made by the first waiter

    def fire(self) -> None:
        if self._next is not None:
            self._next.set()
            self._next = None

    async def wait(self, within_s: float) -> None:
        """Waits until the signal fires, at most `within_s` seconds."""
        if self._next is None:
            self._next = asyncio.Event()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._next.wait(), within_s)


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
