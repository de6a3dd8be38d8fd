"""One batch, from its record to the last answer. Its record is durable before the server hears of
it, and carries a tag by which the batch is found again when the server's reply is lost.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fleetctl.gateway.batching.answers import collect
from fleetctl.gateway.batching.remote import Denied, Remote, Unanswered
from fleetctl.gateway.keeping.batches import Batch, BatchRecords, BatchRow
from fleetctl.gateway.numbered import Answer
from fleetctl.gateway.rules.batch_lines import OVER, TOO_MUCH, URL, counts_of, errors_of
from fleetctl.gateway.rules.refusal import (
    BATCH_REFUSED,
    NO_ANSWER,
    NOT_RECORDED,
    SERVER_UNREACHABLE,
    Refusal,
)
from fleetctl.gateway.state import State

Told = Answer | None  # None: the row was not asked, and may be asked in another batch
Tell = Callable[[BatchRow, Told], None]
Fail = Callable[[BatchRow, Refusal], None]
POLL_S, POLL_FIRST_S, POLL_FACTOR = 30.0, 1.0, 1.5
UPLOADS_MAX = 6  # then its rows hear that the server is away, and come again
BACKOFF_S, BACKOFF_MAX_S = 0.5, 30.0
SETTLE_S = 5.0  # between two looks after a batch that may have been made
ABSENT_LOOKS = 2  # one odd listing is asked again
GONE_LOOKS = 3
CANCEL_AFTER_S = 5.0  # that nobody wants a row of it
WAIT_MAX_S = 3 * 86400.0  # for a server that promised a day; then nobody waits any longer
_FIELDS = ("output_file_id", "error_file_id")


class Running:
    """tell, fail: what became of a row."""

    def __init__(
        self, state: State, records: BatchRecords, batch: Batch, *, tell: Tell, fail: Fail
    ) -> None:
        self.batch = batch
        self._state, self._records = state, records
        self._tell, self._fail = tell, fail
        self._dropped: set[tuple[str, str]] = set()
        self._unwanted_since_s: float | None = None
        self._cancelled = False
        self._key = ""  # of the server's, as its endpoint had it last

    def drop(self, place: tuple[str, str]) -> None:
        self._dropped.add(place)

    def want(self, place: tuple[str, str]) -> None:
        self._dropped.discard(place)

    async def run(self, lines: list[bytes] | None) -> int:
        """To its end. lines: of the file; None: the batch is of an earlier process, which may or
        may not have sent it. How many rows the server takes at most, where that was found out.
        """
        if lines is not None and not await self._recorded():
            return 0
        if not self.batch.id and not await self._submitted(lines):
            return 0
        lines = None
        document = await self._over()
        smaller = 0
        if document is not None:
            smaller = await self._ended(document)
        else:
            self._lost("the server knows nothing of it any more")
        self._records.end(self.batch)
        await self._written()
        return smaller

    # -- sending -----------------------------------------------------------------------------------

    async def _recorded(self) -> bool:
        self._records.begin(self.batch)
        try:
            await self._state.ledger.durable()
        except sqlite3.Error as error:
            message = f"the gateway cannot write down what a batch may cost: {error}"
            self._unsent(Refusal(503, NOT_RECORDED, message))
            return False
        return True

    async def _submitted(self, lines: list[bytes] | None) -> bool:
        """Whether the server has it now. Its rows are told where it has not."""
        try:
            if lines is None:
                found = await self._adopted()
                if found is None:
                    # Its file is gone with the process that wrote it, and was never begun.
                    self._unsent(None)
                    return False
            else:
                file = await self._uploaded(lines)
                lines.clear()
                found = await self._created(file)
        except Unanswered as error:
            message = f"{self.batch.server} takes no batch: {error}"
            self._unsent(Refusal(503, SERVER_UNREACHABLE, f"{self._name}: {message}"))
            return False
        except Denied as denied:
            message = f"{self.batch.server} refused the batch: {denied}"
            self._unsent(Refusal(400, BATCH_REFUSED, f"{self._name}: {message}"))
            return False
        self.batch.id = str(found["id"])
        self.batch.status = str(found.get("status") or "")
        self._records.accepted(self.batch)
        await self._written()
        return True

    async def _uploaded(self, lines: list[bytes]) -> str:
        """A file whose reply was lost is sent again: a file alone begins nothing."""
        for number in range(1, UPLOADS_MAX + 1):
            try:
                return await self._remote.upload(f"fleetctl-{self.batch.tag}.jsonl", lines)
            except Unanswered as error:
                self.batch.trouble = f"the server does not take its file: {error}"
                if number == UPLOADS_MAX:
                    raise
                await asyncio.sleep(_backoff_s(number))
        raise AssertionError("unreachable")

    async def _created(self, file: str) -> Mapping[str, Any]:
        """Asked for again only when the server has none with its tag, at two looks."""
        number = 0
        while True:
            number += 1
            try:
                found = await self._remote.create(file, URL, self.batch.tag)
                if found.get("id"):
                    return found
            except Unanswered as error:
                self.batch.trouble = f"the server does not say that it has it: {error}"
                if not error.sent:
                    if number >= UPLOADS_MAX:
                        raise
                    await asyncio.sleep(_backoff_s(number))
                    continue
            adopted = await self._adopted()
            if adopted is not None:
                return adopted
            if number >= UPLOADS_MAX:
                raise Unanswered("its replies are lost", sent=False)

    async def _adopted(self) -> Mapping[str, Any] | None:
        """The batch with our tag, looked for until the server has answered twice that it has none.
        Of several, which a server makes that lets a call in twice, one is kept.
        """
        absent, number = 0, 0
        while absent < ABSENT_LOOKS:
            number += 1
            try:
                found = await self._remote.find(self.batch.tag, self.batch.created_at_s)
            except (Unanswered, Denied) as error:
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
        """Nothing of them was answered yet, most likely; nobody reads what was."""
        for other in others:
            with suppress(Unanswered, Denied):
                await self._remote.cancel(str(other["id"]))

    # -- waiting -----------------------------------------------------------------------------------

    async def _over(self) -> Mapping[str, Any] | None:
        """What the server says of it once it is over; None: it has forgotten it, or never ends."""
        pause_s, gone = min(POLL_FIRST_S, self._poll_s), 0
        while not self._late:
            try:
                await self._cancel_unwanted()
                document = await self._remote.look(self.batch.id)
                gone = 0
                self._see(document)
                if self.batch.status in OVER:
                    return document
            except Unanswered as error:
                self.batch.trouble = f"the server does not answer: {error}"
            except Denied as denied:
                self.batch.trouble = f"the server does not show it: {denied}"
                gone += denied.status == 404
                if gone >= GONE_LOOKS:
                    return None
            await self._pause(pause_s)
            pause_s = min(pause_s * POLL_FACTOR, self._poll_s)
        return None

    def _see(self, document: Mapping[str, Any]) -> None:
        batch = self.batch
        batch.status, batch.trouble = str(document.get("status") or ""), ""
        batch.done, batch.failed = counts_of(document)

    async def _pause(self, pause_s: float) -> None:
        """Shorter where nobody wants it, so that it is ended soon."""
        until_s = time.monotonic() + pause_s
        while (left_s := until_s - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, 1.0))
            if self._is_unwanted() and not self._cancelled:
                return

    async def _cancel_unwanted(self) -> None:
        if not self._is_unwanted() or self._cancelled:
            return
        await self._remote.cancel(self.batch.id)
        self._cancelled = True

    def _is_unwanted(self) -> bool:
        """Nobody has wanted a row of it for a while: one odd word of the controller ends nothing
        that took hours.
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

    # -- the end -----------------------------------------------------------------------------------

    async def _ended(self, document: Mapping[str, Any]) -> int:
        """How many rows it may have at most next time, where it had too many; else 0."""
        files = [str(document[name]) for name in _FIELDS if document.get(name)]
        whole = await collect(
            self._state, self._records, self._remote, self.batch, files, self._told
        )
        rows = list(self.batch.rows.values())
        if not rows:
            return 0
        errors = errors_of(document)
        if self.batch.status == "failed" and not files:
            return self._refused(rows, errors)
        if self.batch.status == "completed" or not whole:
            self._lost("its files do not tell of them")
            return 0
        self._records.release(self.batch, rows)
        for row in rows:
            self._told(row, None)
        return 0

    def _refused(self, rows: list[BatchRow], errors: list[tuple[str, str, int | None]]) -> int:
        """The server read its file and began nothing."""
        code, text, _ = next(iter(errors), ("", "without a reason", None))
        faulty = {rows[line - 1].custom_id for _, _, line in errors if line and line <= len(rows)}
        too_much = code in TOO_MUCH
        self._records.release(self.batch, rows)
        for row in rows:
            if faulty and row.custom_id not in faulty and not too_much:
                self._told(row, None)
                continue
            message = f"{self._name}: the server refused its batch {self.batch.id}: {text}"
            status, word = (503, SERVER_UNREACHABLE) if too_much else (400, BATCH_REFUSED)
            self._fail(row, Refusal(status, word, message))
        self._state.money.fire()
        return max(1, self.batch.total // 2) if too_much else 0

    def _told(self, row: BatchRow, answer: Told) -> None:
        self._tell(row, answer)
        self._state.money.fire()

    def _unsent(self, refusal: Refusal | None) -> None:
        """Nothing was asked. refusal None: its rows go into another batch."""
        rows = list(self.batch.rows.values())
        self._records.release(self.batch, rows)
        self._records.end(self.batch)
        for row in rows:
            if refusal is None:
                self._told(row, None)
            else:
                self._fail(row, refusal)
        self._state.money.fire()

    async def _written(self) -> None:
        """Where the disk is full it is written later, and after a kill found out again."""
        with suppress(sqlite3.Error):
            await self._state.ledger.durable()

    def _lost(self, why: str) -> None:
        """They may have been answered, and are charged as if."""
        message = f"{self._name}: batch {self.batch.id} gave no answer: {why}"
        rows = list(self.batch.rows.values())
        self._records.settle(self.batch, [(row, row.hold.worst) for row in rows])
        for row in rows:
            self._fail(row, Refusal(502, NO_ANSWER, message))
        self._state.money.fire()

    @property
    def _remote(self) -> Remote:
        endpoint = self._state.endpoints.get((self.batch.namespace, self.batch.endpoint))
        self._key = endpoint.key if endpoint is not None else self._key
        return Remote(self._state.client, self.batch.server, self._key)

    @property
    def _poll_s(self) -> float:
        endpoint = self._state.endpoints.get((self.batch.namespace, self.batch.endpoint))
        batch = (endpoint.spec.get("batch") or {}) if endpoint is not None else {}
        return float(batch.get("pollSeconds", POLL_S))

    @property
    def _late(self) -> bool:
        return time.time() > self.batch.created_at_s + WAIT_MAX_S

    @property
    def _name(self) -> str:
        return f"endpoint {self.batch.endpoint}"


def _backoff_s(number: int) -> float:
    return min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** (number - 1))
