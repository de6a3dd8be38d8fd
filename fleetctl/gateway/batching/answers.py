"""Reads the files of a finished batch: each answer is on disk before it is charged and delivered,
so that a kill in between reads it once more and charges it once.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from fleetctl.gateway.batching.batch_api import BatchApi, BatchDenied, BatchUnanswered
from fleetctl.gateway.gateway_state import GatewayState
from fleetctl.gateway.keeping.answer_log import USD
from fleetctl.gateway.keeping.batches import Batch, BatchRecords, BatchRow
from fleetctl.gateway.numbered_calls import CallAnswer
from fleetctl.gateway.rules.batch_lines import BatchLine, read_line
from fleetctl.gateway.rules.usage import NOTHING, TokenCount, count_used

AT_ONCE = 500  # rows per transaction
DENIALS_MAX = 8
READS_MAX = 3
AGAIN_S = 2.0
AGAIN_MAX_S = 60.0
# statuses of a row that is sent again under its number: it must not get this answer again
AGAIN = (429, 503)
_KIND = {"Content-Type": "application/json"}
Tell = Callable[[BatchRow, CallAnswer | None], None]


async def collect_answers(
    state: GatewayState,
    records: BatchRecords,
    remote: Callable[[], BatchApi],
    batch: Batch,
    files: Sequence[str],
    tell: Tell,
) -> bool:
    """Reads the files, and returns True if all were read; waits for an unreachable server until the
    batch is late. Rows without an answer in the files are left in the batch.

    remote: returns the API with the current key.
    """
    number = read = denied = 0
    while True:
        number += 1
        try:
            for file in files:
                await _read_file(
                    state,
                    records,
                    remote(),
                    batch,
                    file,
                    tell,
                )
        except (BatchUnanswered, BatchDenied, sqlite3.Error) as error:
            batch.trouble = f"its answers cannot be read: {error}"
            denied += isinstance(error, BatchDenied)
            if denied == DENIALS_MAX or batch.late(time.time()):
                return False
        else:
            read += 1
            # A file may be shown before it is whole.
            if not batch.rows or batch.status != "completed" or read == READS_MAX:
                return True
        await asyncio.sleep(min(AGAIN_MAX_S, AGAIN_S * 2.0 ** min(number - 1, 16)))


async def _read_file(
    state: GatewayState,
    records: BatchRecords,
    remote: BatchApi,
    batch: Batch,
    file: str,
    tell: Tell,
) -> None:
    found: dict[str, tuple[BatchRow, BatchLine]] = {}
    async for raw in remote.content(file):
        line = read_line(raw)
        row = batch.rows.get(line.custom_id) if line is not None else None
        if line is None or row is None:
            continue
        found[line.custom_id] = row, line
        if len(found) >= AT_ONCE:
            await _take_rows(
                state,
                records,
                batch,
                list(found.values()),
                tell,
            )
            found.clear()
    if found:
        await _take_rows(
            state,
            records,
            batch,
            list(found.values()),
            tell,
        )


async def _take_rows(
    state: GatewayState,
    records: BatchRecords,
    batch: Batch,
    found: Sequence[tuple[BatchRow, BatchLine]],
    tell: Tell,
) -> None:
    unasked = [row for row, line in found if line.status is None]
    charged: list[tuple[BatchRow, TokenCount, CallAnswer]] = []
    for row, line in found:
        if line.status is not None:
            tokens = _count_tokens(row, line)
            usd = row.usd(tokens)
            head = _KIND if usd is None else {**_KIND, USD: f"{usd:.9f}"}
            charged.append((row, tokens, CallAnswer(line.status, head, line.body)))
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


def _count_tokens(row: BatchRow, line: BatchLine) -> TokenCount:
    """Counts the tokens of a row; a row that the server refused has the server's count, 0 by
    default.
    """
    body = {} if row.most is None else {"max_tokens": row.most}
    tokens = count_used(body, line.body, row.hold.worst)
    if tokens.estimated and line.status is not None and line.status >= 400:
        return NOTHING
    return tokens
