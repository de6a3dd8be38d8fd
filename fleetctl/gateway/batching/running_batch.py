"""One batch, from its record to the last answer. Its record is durable before the server gets it,
and each answer is on disk before it is charged and delivered.

Its record is durable before the server gets it, and carries a tag by which the batch is found
again when the server's reply is lost.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fleetctl.common.event_loop import wait_within
from fleetctl.gateway.answer_log import USD
from fleetctl.gateway.batching.batch_api import (
    OVER,
    TOO_MUCH,
    URL,
    BatchApi,
    BatchDenied,
    BatchLine,
    BatchUnanswered,
    counts_of,
    errors_of,
    read_line,
)
from fleetctl.gateway.call_ledger import WAIT_MAX_S, Batch, BatchRecords, BatchRow
from fleetctl.gateway.gateway_state import GatewayState
from fleetctl.gateway.numbered_calls import CallAnswer
from fleetctl.gateway.rules.failures import (
    BATCH_REFUSED,
    NO_ANSWER,
    NOT_RECORDED,
    SERVER_UNREACHABLE,
    GatewayRefusal,
)
from fleetctl.gateway.rules.servers import Access
from fleetctl.gateway.rules.usage import NOTHING, TokenCount, count_used

Told = CallAnswer | None  # None: the row was not sent, and may go into another batch
Tell = Callable[[BatchRow, Told], None]
Fail = Callable[[BatchRow, GatewayRefusal], None]
POLL_S = 30.0
POLL_FIRST_S = 1.0
POLL_FACTOR = 1.5
UPLOADS_MAX = 6  # then its rows get a refusal (server unreachable), and come again
DENIALS_MAX = 3  # then the batch is refused: one odd reply is checked again
BACKOFF_S = 0.5
BACKOFF_MAX_S = 30.0
SETTLE_S = 5.0  # between two looks after a batch that may have been made
ABSENT_LOOKS = 2  # one odd listing is checked again
BARE_LOOKS = 3  # at one that is completed and names no file
# looks and seconds: a server that was just recreated may not know its batches
GONE_LOOKS = 3
GONE_S = 600.0
KEY_WAIT_S = 60.0  # after our start, for the controller to send an endpoint's key
CANCEL_AFTER_S = 5.0  # after this long without a caller that wants a row of the batch
_FIELDS = ("output_file_id", "error_file_id")

AT_ONCE = 500  # rows per transaction
FILE_DENIALS_MAX = 8
READS_MAX = 3
AGAIN_S = 2.0
AGAIN_MAX_S = 60.0
# statuses of a row that is sent again under its number: it must not get this answer again
AGAIN = (429, 503)
_KIND = {"Content-Type": "application/json"}
TellAnswer = Callable[[BatchRow, CallAnswer | None], None]


class RunningBatch:
    """A batch under way. tell, fail: callbacks that deliver the outcome of a row."""

    def __init__(
        self,
        state: GatewayState,
        records: BatchRecords,
        batch: Batch,
        *,
        tell: Tell,
        fail: Fail,
    ) -> None:
        self.batch = batch
        self._state = state
        self._records = records
        self._tell = tell
        self._fail = fail
        self._dropped: set[tuple[str, str]] = set()
        self._unwanted_since_s: float | None = None
        self._cancelled = self._cancel_tried = False
        self._ordered = False  # whether the rows are in the order of the file
        self._access = Access()  # as its endpoint had it last

    def drop(self, place: tuple[str, str]) -> None:
        self._dropped.add(place)

    def want_row(self, place: tuple[str, str]) -> None:
        self._dropped.discard(place)

    async def run(self, lines: list[bytes] | None) -> int:
        """Runs the batch to its end. lines: lines of the file; None: the batch is of an earlier
        process, which may or may not have sent it. Returns how many rows the server takes at most,
        if that was found out.
        """
        if lines is not None and not await self._recorded():
            return 0
        self._ordered = lines is not None
        if not self._ordered:
            await wait_within(self._state.granted, KEY_WAIT_S)
        if not self.batch.id and not await self._submit_batch(lines):
            return 0
        lines = None
        document = await self._await_end()
        smaller = 0
        if document is not None:
            smaller = await self._take_end(document)
        elif self._late:
            await self._cancelled_late()
            self._fail_rows(f"it did not end within {WAIT_MAX_S / 3600:g} h")
        else:
            self._fail_rows("the server does not know it any more")
        self._records.end(self.batch)
        await self._store_batch()
        return smaller

    # -- sending -----------------------------------------------------------------------------------

    async def _recorded(self) -> bool:
        self._records.begin(self.batch)
        try:
            await self._state.ledger.durable()
        except sqlite3.Error as error:
            message = f"the gateway cannot write down what a batch may cost: {error}"
            self._release_rows(GatewayRefusal(503, NOT_RECORDED, message))
            return False
        return True

    async def _submit_batch(self, lines: list[bytes] | None) -> bool:
        """Returns True if the server has the batch now; else its rows got a refusal."""
        try:
            if lines is None:
                found = await self._adopted()
                if found is None:
                    # Its file is gone with the process that wrote it, and was never begun.
                    self._release_rows(None)
                    return False
            else:
                file = await self._uploaded(lines)
                lines.clear()
                found = await self._create_batch(file)
        except BatchUnanswered as error:
            message = f"{self.batch.server} takes no batch: {error}"
            self._release_rows(GatewayRefusal(503, SERVER_UNREACHABLE, f"{self._name}: {message}"))
            return False
        except BatchDenied as denied:
            message = f"{self.batch.server} refused the batch: {denied}"
            self._release_rows(GatewayRefusal(400, BATCH_REFUSED, f"{self._name}: {message}"))
            return False
        self.batch.id = str(found["id"])
        self.batch.status = str(found.get("status") or "")
        self._records.accepted(self.batch)
        await self._store_batch()
        return True

    async def _uploaded(self, lines: list[bytes]) -> str:
        """Uploads the file; a file whose reply was lost is sent again: a file alone begins no
        work.
        """
        for number in range(1, UPLOADS_MAX + 1):
            try:
                return await self._remote.upload(f"fleetctl-{self.batch.tag}.jsonl", lines)
            except (BatchUnanswered, BatchDenied) as error:
                self.batch.trouble = f"the server does not take its file: {error}"
                if number == (DENIALS_MAX if isinstance(error, BatchDenied) else UPLOADS_MAX):
                    raise
                await asyncio.sleep(_backoff_s(number))
        raise AssertionError("unreachable")

    async def _create_batch(self, file: str) -> Mapping[str, Any]:
        """Creates the batch; repeats the request only when the server has no batch with its tag, at
        two looks.
        """
        number = denials = 0
        while True:
            number += 1
            try:
                found = await self._remote.create(file, URL, self.batch.tag)
                if found.get("id"):
                    return found
            except BatchUnanswered as error:
                self.batch.trouble = f"the server does not confirm that it has it: {error}"
                if not error.sent:
                    if number >= UPLOADS_MAX:
                        raise
                    await asyncio.sleep(_backoff_s(number))
                    continue
            except BatchDenied as denied:
                self.batch.trouble, denials = f"the server refuses it: {denied}", denials + 1
                if denials == DENIALS_MAX:
                    raise
                await asyncio.sleep(_backoff_s(number))
                continue
            adopted = await self._adopted()
            if adopted is not None:
                return adopted
            if number >= UPLOADS_MAX:
                raise BatchUnanswered("its replies are lost", sent=False)

    async def _adopted(self) -> Mapping[str, Any] | None:
        """Returns the batch with our tag, looked for until the server has answered twice that it
        has none. If a server that lets a call in twice made several, one is kept.
        """
        absent = 0
        number = 0
        while absent < ABSENT_LOOKS:
            number += 1
            try:
                found = await self._remote.find(self.batch.tag, self.batch.created_at_s)
            except (BatchUnanswered, BatchDenied) as error:
                self.batch.trouble = f"the server does not list its batches: {error}"
                if self._late:
                    return None
                await asyncio.sleep(_backoff_s(number))
                continue
            if found:
                await self._cancel_others(found[1:])
                return found[0]
            absent += 1
            if absent < ABSENT_LOOKS:
                await asyncio.sleep(SETTLE_S)
        return None

    async def _cancel_others(self, others: Sequence[Mapping[str, Any]]) -> None:
        """Cancels the duplicates: their rows are most likely unanswered, and no caller reads their
        answers.
        """
        for other in others:
            with suppress(BatchUnanswered, BatchDenied):
                await self._remote.cancel(str(other["id"]))

    # -- waiting -----------------------------------------------------------------------------------

    async def _await_end(self) -> Mapping[str, Any] | None:
        """Returns the server's document of the finished batch; None if the server has forgotten it,
        or never ends it.
        """
        pause_s = min(POLL_FIRST_S, self._poll_s)
        bare = 0
        gone = 0
        gone_since_s = 0.0
        while not self._late:
            await self._cancel_unwanted()
            try:
                document = await self._remote.look(self.batch.id)
                gone = 0
                self._see(document)
                bare += self.batch.status == "completed" and not _list_files(document)
                if self.batch.status in OVER and (bare in (0, BARE_LOOKS) or _list_files(document)):
                    return document
            except BatchUnanswered as error:
                self.batch.trouble = f"the server does not answer: {error}"
            except BatchDenied as denied:
                self.batch.trouble = f"the server does not show it: {denied}"
                if denied.status == 404:
                    gone_since_s = gone_since_s if gone else time.monotonic()
                    gone += 1
                if gone >= GONE_LOOKS and time.monotonic() - gone_since_s >= GONE_S:
                    return None
            await self._pause(pause_s)
            pause_s = min(pause_s * POLL_FACTOR, self._poll_s)
        return None

    def _see(self, document: Mapping[str, Any]) -> None:
        batch = self.batch
        batch.status = str(document.get("status") or "")
        batch.trouble = ""
        batch.done, batch.failed = counts_of(document)

    async def _pause(self, pause_s: float) -> None:
        """Waits; shorter if no caller wants the batch, so that it ends soon."""
        until_s = time.monotonic() + pause_s
        while (left_s := until_s - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, 1.0))
            if self._is_unwanted() and not self._cancel_tried:
                return

    async def _cancel_unwanted(self) -> None:
        """Cancels an unwanted batch, again at each look until the server accepts. It may refuse, if
        the batch has ended.
        """
        if not self._is_unwanted() or self._cancelled:
            return
        self._cancel_tried = True
        with suppress(BatchUnanswered, BatchDenied):
            await self._remote.cancel(self.batch.id)
            self._cancelled = True

    def _is_unwanted(self) -> bool:
        """Returns True if no caller has wanted a row of the batch for a while: one odd message of
        the controller must not end the work of hours.
        """
        granted = self._state.granted
        wanted = not granted.is_set() or any(map(self._wants, self.batch.rows.values()))
        now_s = time.monotonic()
        if wanted:
            self._unwanted_since_s = None
        elif self._unwanted_since_s is None:
            self._unwanted_since_s = now_s
        since_s = self._unwanted_since_s
        return since_s is not None and now_s - since_s >= CANCEL_AFTER_S

    def _wants(self, row: BatchRow) -> bool:
        run = row.key.run
        return run in self._state.granted_runs and (run, row.number) not in self._dropped

    async def _cancelled_late(self) -> None:
        with suppress(BatchUnanswered, BatchDenied):
            await self._remote.cancel(self.batch.id)

    # -- the end -----------------------------------------------------------------------------------

    async def _take_end(self, document: Mapping[str, Any]) -> int:
        """Returns how many rows a batch may have at most next time, if this one had too many; else
        0.
        """
        files = _list_files(document)
        whole = await collect_answers(
            self._state,
            self._records,
            lambda: self._remote,
            self.batch,
            files,
            self._deliver,
        )
        rows = list(self.batch.rows.values())
        if not rows:
            return 0
        errors = errors_of(document)
        if self.batch.status == "failed" and not files:
            return self._refused(rows, errors)
        if self.batch.status == "completed" or not whole:
            self._fail_rows("its files do not name them")
            return 0
        self._records.release(self.batch, rows)
        for row in rows:
            self._deliver(row, None)
        return 0

    def _refused(self, rows: list[BatchRow], errors: list[tuple[str, str, int | None]]) -> int:
        """Handles a batch whose file the server read and refused to begin."""
        code, text, _ = next(iter(errors), ("", "without a reason", None))
        numbers = {line - 1 for _, _, line in errors if line and 0 < line <= len(rows)}
        # The rows of an earlier process's file cannot be matched: all are sent in another one.
        faulty = {rows[it].custom_id if self._ordered else "" for it in numbers}
        too_much = code in TOO_MUCH
        self._records.release(self.batch, rows)
        for row in rows:
            if faulty and row.custom_id not in faulty and not too_much:
                self._deliver(row, None)
                continue
            message = f"{self._name}: the server refused its batch {self.batch.id}: {text}"
            status, word = (503, SERVER_UNREACHABLE) if too_much else (400, BATCH_REFUSED)
            self._fail(row, GatewayRefusal(status, word, message))
        self._state.money.fire()
        if too_much:
            return max(1, self.batch.total // 2)
        return 0

    def _deliver(self, row: BatchRow, answer: Told) -> None:
        self._tell(row, answer)
        self._state.money.fire()

    def _release_rows(self, refusal: GatewayRefusal | None) -> None:
        """Releases rows that were not sent. refusal None: they go into another batch."""
        rows = list(self.batch.rows.values())
        self._records.release(self.batch, rows)
        self._records.end(self.batch)
        for row in rows:
            if refusal is None:
                self._deliver(row, None)
            else:
                self._fail(row, refusal)
        self._state.money.fire()

    async def _store_batch(self) -> None:
        """Stores the batch; if the disk is full it is stored later, and found out again after a
        kill.
        """
        with suppress(sqlite3.Error):
            await self._state.ledger.durable()

    def give_up(self, why: str) -> None:
        """Gives up the batch: no caller wants it any more."""
        self._fail_rows(why)
        self._records.end(self.batch)

    def _fail_rows(self, why: str) -> None:
        """Fails the open rows. They may have been answered, and are charged as if."""
        message = f"{self._name}: batch {self.batch.id} gave no answer: {why}"
        rows = list(self.batch.rows.values())
        self._records.settle(self.batch, [(row, row.hold.worst) for row in rows])
        for row in rows:
            self._fail(row, GatewayRefusal(502, NO_ANSWER, message))
        self._state.money.fire()

    @property
    def _remote(self) -> BatchApi:
        endpoint = self._state.endpoints.get((self.batch.namespace, self.batch.endpoint))
        self._access = endpoint.access if endpoint is not None else self._access
        return BatchApi(self._state.client, self.batch.server, self._access)

    @property
    def _poll_s(self) -> float:
        endpoint = self._state.endpoints.get((self.batch.namespace, self.batch.endpoint))
        batch = (endpoint.spec.get("batch") or {}) if endpoint is not None else {}
        return float(batch.get("pollSeconds", POLL_S))

    @property
    def _late(self) -> bool:
        return self.batch.late(time.time())

    @property
    def _name(self) -> str:
        return f"endpoint {self.batch.endpoint}"


def _list_files(document: Mapping[str, Any]) -> list[str]:
    return [str(document[name]) for name in _FIELDS if document.get(name)]


def _backoff_s(number: int) -> float:
    return min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** (number - 1))


async def collect_answers(
    state: GatewayState,
    records: BatchRecords,
    remote: Callable[[], BatchApi],
    batch: Batch,
    files: Sequence[str],
    tell: TellAnswer,
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
            if denied == FILE_DENIALS_MAX or batch.late(time.time()):
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
    tell: TellAnswer,
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
    tell: TellAnswer,
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
