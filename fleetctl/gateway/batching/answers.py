"""The files of a batch that is over: each answer is on disk before it is charged and told, so that
a kill in between reads it once more and charges it once.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress

from fleetctl.gateway.batching.remote import Denied, Remote, Unanswered
from fleetctl.gateway.keeping.batches import Batch, BatchRecords, BatchRow
from fleetctl.gateway.keeping.kept import USD
from fleetctl.gateway.numbered import Answer
from fleetctl.gateway.rules.batch_lines import Line, read_line
from fleetctl.gateway.rules.usage import NOTHING, Tokens, used
from fleetctl.gateway.state import State

AT_ONCE = 500  # rows of one transaction
TRIES_MAX = 8
AGAIN_S = 2.0
AGAIN = (429, 503)  # of a row that is asked again under its number: it is not to hear this again
_KIND = {"Content-Type": "application/json"}
Tell = Callable[[BatchRow, Answer | None], None]


async def collect(
    state: State,
    records: BatchRecords,
    remote: Remote,
    batch: Batch,
    files: Sequence[str],
    tell: Tell,
) -> bool:
    """Whether all files were read. Rows that none tells of are left in the batch."""
    for number in range(1, TRIES_MAX + 1):
        try:
            for file in files:
                await _read(state, records, remote, batch, file, tell)
        except (Unanswered, Denied, sqlite3.Error) as error:
            batch.trouble = f"its answers cannot be read: {error}"
            if number == TRIES_MAX:
                return False
        else:
            # A file may be shown before it is whole.
            if not batch.rows or batch.status != "completed" or number > 2:
                return True
        await asyncio.sleep(min(60.0, AGAIN_S * 2.0 ** (number - 1)))
    return False


async def _read(
    state: State,
    records: BatchRecords,
    remote: Remote,
    batch: Batch,
    file: str,
    tell: Tell,
) -> None:
    found: dict[str, tuple[BatchRow, Line]] = {}
    async for raw in remote.content(file):
        line = read_line(raw)
        row = batch.rows.get(line.custom_id) if line is not None else None
        if line is None or row is None:
            continue
        found[line.custom_id] = row, line
        if len(found) >= AT_ONCE:
            await _take(state, records, batch, list(found.values()), tell)
            found.clear()
    if found:
        await _take(state, records, batch, list(found.values()), tell)


async def _take(
    state: State,
    records: BatchRecords,
    batch: Batch,
    found: Sequence[tuple[BatchRow, Line]],
    tell: Tell,
) -> None:
    unasked = [row for row, line in found if line.status is None]
    charged: list[tuple[BatchRow, Tokens, Answer]] = []
    for row, line in found:
        if line.status is not None:
            tokens = _tokens(row, line)
            usd = row.usd(tokens)
            head = _KIND if usd is None else {**_KIND, USD: f"{usd:.9f}"}
            charged.append((row, tokens, Answer(line.status, head, line.body)))
    kept = [(row.key.run, row.number, it) for row, _, it in charged if it.status not in AGAIN]
    if kept:
        await state.answers.put_all(kept)
    records.settle(batch, [(row, tokens) for row, tokens, _ in charged])
    records.release(batch, unasked)
    with suppress(sqlite3.Error):  # it is written later; after a kill the file is read again
        await state.ledger.durable()
    for row, _, answer in charged:
        tell(row, answer)
    for row in unasked:
        tell(row, None)


def _tokens(row: BatchRow, line: Line) -> Tokens:
    """Of a row that the server refused, what it counted, which is nothing unless it says so."""
    body = {} if row.most is None else {"max_tokens": row.most}
    tokens = used(body, line.body, row.hold.worst)
    return (
        NOTHING if tokens.estimated and line.status is not None and line.status >= 400 else tokens
    )
