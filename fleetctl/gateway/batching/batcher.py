"""Rows that wait to be sent together, and the callers that wait for their answers.

A row waits here until no other has come for a while; then the rows of one object, endpoint and
model are one batch (running_batch.py), whose answers come hours later. The highest cost of a row is
held from its first moment, at the batch's price.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from fleetctl.common.event_loop import cancel_tasks
from fleetctl.gateway.asking.ask import cache_answer, find_cached
from fleetctl.gateway.asking.call import CallCharge, EndpointCall
from fleetctl.gateway.batching.batch_api import BatchServers, request_line
from fleetctl.gateway.batching.running_batch import RunningBatch, Told
from fleetctl.gateway.call_ledger import Batch, BatchRecords, BatchRow
from fleetctl.gateway.endpoints import GatewayEndpoint
from fleetctl.gateway.gateway_state import GatewayState
from fleetctl.gateway.numbered_calls import CallAnswer
from fleetctl.gateway.rules.failures import ENDPOINT_UNKNOWN, NO_ANSWER, GatewayRefusal
from fleetctl.gateway.rules.usage import price_usd, read_token_limit, worst_case

# Bytes per file; OpenAI takes 200 MB.
BYTES_MAX = 190 * 2**20
LINGERS_MAX = 12  # after this many `lingerSeconds`, a batch closes though rows keep coming
BATCHES_MAX = 20  # batches that a row joins, one after another, if each fails to begin
ROWS_MAX = 50_000
LINGER_S = 5.0
PRICE_SHARE = 0.5

log = logging.getLogger(__name__)


class BatchGroup(NamedTuple):
    """The key of a batch: rows with the same values share a file; a file is for one model."""

    namespace: str
    endpoint: str
    model: str  # as the server calls it
    uid: str


@dataclass(slots=True)
class GatheringBatch:
    """Rows that are not sent. full: no more go in."""

    begun_s: float
    last_s: float = 0.0
    size_bytes: int = 0
    rows: dict[str, tuple[BatchRow, bytes]] = field(default_factory=dict)  # by custom id
    full: asyncio.Event = field(default_factory=asyncio.Event)


class Batcher:
    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self._records = BatchRecords(state.ledger)
        self._servers = BatchServers(state.client)
        self._gathering: dict[BatchGroup, GatheringBatch] = {}
        self._at: dict[tuple[str, str], GatheringBatch] = {}  # by run and number
        self._in: dict[tuple[str, str], RunningBatch] = {}  # by run and number
        self._waiting: dict[tuple[str, str], asyncio.Future[Told]] = {}
        self._most: dict[str, int] = {}  # rows that a server takes at once, by its url
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def resume(self) -> None:
        """Resumes the batches that an earlier process left under way."""
        for batch in self._records.load():
            self._run(batch, None)

    async def close(self) -> None:
        """The servers' batches go on."""
        self._closing = True
        await cancel_tasks(self._tasks)

    async def ask(self, call: EndpointCall, number: str) -> CallAnswer:
        """The row's own answer, in whichever batch it is. Raises GatewayRefusal."""
        place = (call.grant.run, number)
        kept_as, found = find_cached(call)
        if found is not None:
            return found
        try:
            for _ in range(BATCHES_MAX):
                told: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
                self._waiting[place] = told
                running = self._in.get(place)
                if running is None and (kept := self._state.answers.find(*place)) is not None:
                    return kept
                if running is None:
                    await self._join(call, number)
                else:
                    running.want_row(place)
                answer = await told
                if answer is not None:
                    cache_answer(call, kept_as, answer)
                    return answer
            message = f"{BATCHES_MAX} batches that it was in ended, and none had begun it"
            raise GatewayRefusal(502, NO_ANSWER, f"endpoint {call.endpoint.name}: {message}")
        except asyncio.CancelledError:
            if not self._closing:
                self._leave(call, number)
            raise
        finally:
            self._waiting.pop(place, None)

    # -- gathering ---------------------------------------------------------------------------------

    async def _join(self, call: EndpointCall, number: str) -> None:
        endpoint = call.endpoint
        share = float((endpoint.spec.get("batch") or {}).get("priceShare", PRICE_SHARE))
        worst = worst_case(call.path, call.body, call.length_bytes)
        usd = price_usd(endpoint.spec, call.model, worst)
        charge = CallCharge(call, worst, None if usd is None else usd * share)
        prices = None if usd is None else _token_prices(call, share)
        model = endpoint.served_name(call.model)
        body = {**call.body, "model": model} if call.model else call.body
        line = request_line(f"{call.grant.run}.{number}", body)

        await charge.begin()
        hold = charge.hand_over()  # all steps that may fail have succeeded by now
        row = BatchRow(call.key, number, hold, read_token_limit(call.body), prices)

        group = BatchGroup(endpoint.namespace, endpoint.name, model, call.grant.uid)
        gathering = self._find_gathering(group, len(line))
        gathering.rows[row.custom_id] = (row, line)
        gathering.size_bytes += len(line)
        gathering.last_s = time.monotonic()
        self._at[call.grant.run, number] = gathering
        self._state.gathering[group[:2]] += 1
        if len(gathering.rows) >= self._rows_max(endpoint):
            gathering.full.set()
            del self._gathering[group]

    def _find_gathering(self, group: BatchGroup, size_bytes: int) -> GatheringBatch:
        """Returns the batch that the group gathers now; a new one where the line would make it too
        large.
        """
        gathering = self._gathering.get(group)
        if gathering is not None and gathering.size_bytes + size_bytes <= BYTES_MAX:
            return gathering

        if gathering is not None:
            gathering.full.set()
        gathering = self._gathering[group] = GatheringBatch(time.monotonic())
        self._spawn(self._gather(group, gathering))
        return gathering

    def _rows_max(self, endpoint: GatewayEndpoint) -> int:
        asked = int((endpoint.spec.get("batch") or {}).get("maxRows", ROWS_MAX))
        return min([asked, *(self._most.get(it.url, asked) for it in endpoint.servers)])

    async def _gather(self, group: BatchGroup, gathering: GatheringBatch) -> None:
        endpoint = self._state.endpoints.get(group[:2])
        batch = (endpoint.spec.get("batch") or {}) if endpoint is not None else {}
        linger_s = float(batch.get("lingerSeconds", LINGER_S))
        until_s = gathering.begun_s + LINGERS_MAX * linger_s
        while not gathering.full.is_set():
            left_s = min(gathering.last_s + linger_s, until_s) - time.monotonic()
            if left_s <= 0:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(gathering.full.wait(), left_s)
        if self._gathering.get(group) is gathering:
            del self._gathering[group]
        if gathering.rows:
            await self._send(group, gathering)

    async def _send(self, group: BatchGroup, gathering: GatheringBatch) -> None:
        try:
            endpoint = self._state.endpoints.get(group[:2])
            if endpoint is None:
                message = f"endpoint {group.endpoint} is not declared any more"
                raise GatewayRefusal(503, ENDPOINT_UNKNOWN, message)
            server = await self._servers.with_batches(endpoint)
        except GatewayRefusal as refusal:
            for row, _ in gathering.rows.values():
                self._drop_row(row)
                self._state.ledger.drop(row.key, row.hold)
                self._fail(row, refusal)
            gathering.rows.clear()
            self._state.money.fire()
            return
        lines = [line for _, line in gathering.rows.values()]
        rows = [row for row, _ in gathering.rows.values()]  # some may have left
        gathering.rows.clear()
        for row in rows:
            self._drop_row(row)
        if rows:
            batch = Batch(
                tag=uuid.uuid4().hex,
                namespace=group.namespace,
                endpoint=group.endpoint,
                uid=group.uid,
                model=group.model,
                server=server,
                id="",
                created_at_s=time.time(),
                total=len(rows),
                rows={row.custom_id: row for row in rows},
            )
            self._run(batch, lines)

    def _leave(self, call: EndpointCall, number: str) -> None:
        """Drops a waiter: its caller no longer waits for that row."""
        place = (call.grant.run, number)
        running = self._in.get(place)
        if running is not None:
            running.drop(place)
            return
        gathering = self._at.get(place)
        if gathering is not None:
            row, line = gathering.rows.pop(f"{call.grant.run}.{number}")
            self._drop_row(row)
            gathering.size_bytes -= len(line)
            self._state.ledger.drop(row.key, row.hold)
            self._state.money.fire()

    def _drop_row(self, row: BatchRow) -> None:
        """Removes a row from those that wait for others."""
        del self._at[row.key.run, row.number]
        self._state.gathering[row.key.namespace, row.key.endpoint] -= 1

    # -- batches -----------------------------------------------------------------------------------

    def _run(self, batch: Batch, lines: list[bytes] | None) -> None:
        running = RunningBatch(
            self._state,
            self._records,
            batch,
            tell=self._deliver_answer,
            fail=self._fail,
        )
        self._state.batches[batch.tag] = batch
        for row in batch.rows.values():
            self._in[row.key.run, row.number] = running
        self._spawn(self._carry(running, lines))

    async def _carry(self, running: RunningBatch, lines: list[bytes] | None) -> None:
        batch = running.batch
        try:
            smaller = await running.run(lines)
        except Exception as error:  # noqa: BLE001 - its rows would wait for ever
            log.error("batch given up", extra={"error": type(error).__name__})
            running.give_up(f"the gateway failed at it ({type(error).__name__})")
            smaller = 0
        finally:
            if not self._closing:
                del self._state.batches[batch.tag]
                for row in batch.rows.values():
                    self._in.pop((row.key.run, row.number), None)
        if smaller:
            self._most[batch.server] = smaller

    def _deliver_answer(self, row: BatchRow, answer: Told) -> None:
        """Delivers an answer. None: the row was not sent, and its caller sends it in another
        batch.
        """
        place = (row.key.run, row.number)
        self._in.pop(place, None)
        waiting = self._waiting.get(place)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _fail(self, row: BatchRow, refusal: GatewayRefusal) -> None:
        place = (row.key.run, row.number)
        self._in.pop(place, None)
        waiting = self._waiting.get(place)
        if waiting is not None and not waiting.done():
            waiting.set_exception(refusal)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(partial(_discard_task, self._tasks))


def _discard_task(tasks: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
    tasks.discard(task)


def _token_prices(call: EndpointCall, share: float) -> tuple[float, float]:
    price = call.endpoint.spec["prices"][call.model]
    inward = float(price.get("inputPerMillion") or 0) / 1e6
    return inward * share, float(price.get("outputPerMillion") or 0) / 1e6 * share
