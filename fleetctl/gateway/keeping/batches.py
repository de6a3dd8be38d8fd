"""Batches that a server works on, and their rows that are not settled yet: durable before a server
gets them, and until the cost of each row is charged. They hold no prompt and no answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fleetctl.gateway.keeping.call_ledger import CallLedger, CostHold, UsageKey
from fleetctl.gateway.rules.usage import TokenCount

WAIT_MAX_S = 3 * 86400.0  # for a server that promised a day; then its rows fail
_COLUMNS = (
    "run, number, namespace, endpoint, tree, uid, calls, worst_in, worst_out, worst_usd, most,"
    " in_usd, out_usd"
)
_BATCH = "tag, namespace, endpoint, uid, model, server, id, created_at_s, total"


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
        self._ledger.along(statement, [(*_to_values(it), batch.tag) for it in batch.rows.values()])

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
        self._ledger.along("delete from batches where tag=?", [(batch.tag,)])

    def _keep(self, batch: Batch) -> None:
        values = tuple(getattr(batch, name) for name in _BATCH.split(", "))
        marks = ", ".join("?" * len(values))
        self._ledger.along(f"insert or replace into batches values ({marks})", [values])  # noqa: S608

    def _forget(self, batch: Batch, rows: Sequence[BatchRow]) -> None:
        for row in rows:
            del batch.rows[row.custom_id]
        statement = "delete from batch_rows where run=? and number=? and tag=?"
        self._ledger.along(statement, [(it.key.run, it.number, batch.tag) for it in rows])


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
