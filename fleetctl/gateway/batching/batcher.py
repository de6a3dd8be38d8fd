"""Rows that wait to be asked together, and whoever waits for their answers.

A row waits here until no other has come for a while; then those of one object, endpoint and model
are one batch (batch.py), whose answers come hours later. What a row may cost is held from its first
moment, at the batch's price.
"""

import asyncio
import time
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from fleetctl.common.tasks import cancel
from fleetctl.gateway.asking.ask import cache, cached
from fleetctl.gateway.asking.call import Call
from fleetctl.gateway.asking.charge import Charge
from fleetctl.gateway.batching.running import Running, Told
from fleetctl.gateway.batching.servers import Servers
from fleetctl.gateway.endpoints import Endpoint
from fleetctl.gateway.keeping.batches import Batch, BatchRecords, BatchRow
from fleetctl.gateway.numbered import Answer
from fleetctl.gateway.rules.batch_lines import request_line
from fleetctl.gateway.rules.refusal import ENDPOINT_UNKNOWN, Refusal
from fleetctl.gateway.rules.usage import most_tokens, price_usd, worst_case
from fleetctl.gateway.state import State

# Of one file; OpenAI takes 200 MB.
BYTES_MAX = 190 * 2**20
LINGERS_MAX = 12  # so many times `lingerSeconds`, rows that go on coming keep a batch open
ROWS_MAX, LINGER_S, PRICE_SHARE = 50_000, 5.0, 0.5


class Group(NamedTuple):
    """What one batch may hold; a file is for one model."""

    namespace: str
    endpoint: str
    model: str  # as the server calls it
    uid: str


@dataclass(slots=True)
class Gathering:
    """Rows that are not sent. full: no more go in."""

    begun_s: float
    last_s: float = 0.0
    size_bytes: int = 0
    rows: dict[str, tuple[BatchRow, bytes]] = field(default_factory=dict)  # by custom id
    full: asyncio.Event = field(default_factory=asyncio.Event)


class Batcher:
    def __init__(self, state: State) -> None:
        self._state = state
        self._records = BatchRecords(state.ledger)
        self._servers = Servers(state.client)
        self._gathering: dict[Group, Gathering] = {}
        self._at: dict[tuple[str, str], Gathering] = {}  # by run and number
        self._in: dict[tuple[str, str], Running] = {}  # by run and number
        self._waiting: dict[tuple[str, str], asyncio.Future[Told]] = {}
        self._most: dict[str, int] = {}  # rows that a server takes at once, by its url
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def resume(self) -> None:
        """Go on with what an earlier process left under way."""
        for batch in self._records.load():
            self._run(batch, None)

    async def close(self) -> None:
        """The servers' batches go on."""
        self._closing = True
        await cancel(self._tasks)

    async def ask(self, call: Call, number: str) -> Answer:
        """The row's own answer, in whichever batch it is. Raises Refusal."""
        place = (call.grant.run, number)
        kept_as, found = cached(call)
        if found is not None:
            return found
        try:
            while True:
                told: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
                self._waiting[place] = told
                running = self._in.get(place)
                if running is None and (kept := self._state.answers.find(*place)) is not None:
                    return kept
                if running is None:
                    await self._join(call, number)
                else:
                    running.want(place)
                answer = await told
                if answer is not None:
                    cache(call, kept_as, answer)
                    return answer
        except asyncio.CancelledError:
            if not self._closing:
                self._leave(call, number)
            raise
        finally:
            self._waiting.pop(place, None)

    # -- gathering ---------------------------------------------------------------------------------

    async def _join(self, call: Call, number: str) -> None:
        spec = call.endpoint.spec
        share = float((spec.get("batch") or {}).get("priceShare", PRICE_SHARE))
        worst = worst_case(call.path, call.body, call.length_bytes)
        usd = price_usd(spec, call.model, worst)
        charge = Charge(call, worst, None if usd is None else usd * share)
        await charge.begin()
        hold = charge.hand_over()
        prices = None if usd is None else _prices(call, share)
        row = BatchRow(call.key, number, hold, most_tokens(call.body), prices)
        model = call.endpoint.served_name(call.model)
        body = {**call.body, "model": model} if call.model else call.body
        line = request_line(row.custom_id, body)
        group = Group(call.endpoint.namespace, call.endpoint.name, model, call.grant.uid)
        gathering = self._gathering.get(group)
        if gathering is None or gathering.size_bytes + len(line) > BYTES_MAX:
            if gathering is not None:
                gathering.full.set()
            gathering = self._gathering[group] = Gathering(time.monotonic())
            self._spawn(self._gather(group, gathering))
        gathering.rows[row.custom_id] = (row, line)
        self._at[call.grant.run, number] = gathering
        self._state.gathering[group[:2]] += 1
        gathering.size_bytes += len(line)
        gathering.last_s = time.monotonic()
        if len(gathering.rows) >= self._rows_max(call.endpoint):
            gathering.full.set()
            del self._gathering[group]

    def _rows_max(self, endpoint: Endpoint) -> int:
        asked = int((endpoint.spec.get("batch") or {}).get("maxRows", ROWS_MAX))
        return min([asked, *(self._most.get(it.url, asked) for it in endpoint.servers)])

    async def _gather(self, group: Group, gathering: Gathering) -> None:
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

    async def _send(self, group: Group, gathering: Gathering) -> None:
        try:
            endpoint = self._state.endpoints.get(group[:2])
            if endpoint is None:
                message = f"endpoint {group.endpoint} is not declared any more"
                raise Refusal(503, ENDPOINT_UNKNOWN, message)
            server = await self._servers.with_batches(endpoint)
        except Refusal as refusal:
            for row, _ in gathering.rows.values():
                self._left(row)
                self._state.ledger.drop(row.key, row.hold)
                self._fail(row, refusal)
            gathering.rows.clear()
            self._state.money.fire()
            return
        lines = [line for _, line in gathering.rows.values()]
        rows = [row for row, _ in gathering.rows.values()]  # some may have left
        gathering.rows.clear()
        for row in rows:
            self._left(row)
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

    def _leave(self, call: Call, number: str) -> None:
        """Nobody waits for that row any more."""
        place = (call.grant.run, number)
        running = self._in.get(place)
        if running is not None:
            running.drop(place)
            return
        gathering = self._at.get(place)
        if gathering is not None:
            row, line = gathering.rows.pop(f"{call.grant.run}.{number}")
            self._left(row)
            gathering.size_bytes -= len(line)
            self._state.ledger.drop(row.key, row.hold)
            self._state.money.fire()

    def _left(self, row: BatchRow) -> None:
        """It is not among those that wait for others any more."""
        del self._at[row.key.run, row.number]
        self._state.gathering[row.key.namespace, row.key.endpoint] -= 1

    # -- batches -----------------------------------------------------------------------------------

    def _run(self, batch: Batch, lines: list[bytes] | None) -> None:
        running = Running(self._state, self._records, batch, tell=self._tell, fail=self._fail)
        self._state.batches[batch.tag] = batch
        for row in batch.rows.values():
            self._in[row.key.run, row.number] = running
        self._spawn(self._carry(running, lines))

    async def _carry(self, running: Running, lines: list[bytes] | None) -> None:
        batch = running.batch
        try:
            smaller = await running.run(lines)
        finally:
            if not self._closing:
                del self._state.batches[batch.tag]
                for row in batch.rows.values():
                    self._in.pop((row.key.run, row.number), None)
        if smaller:
            self._most[batch.server] = smaller

    def _tell(self, row: BatchRow, answer: Told) -> None:
        """None: it was not asked, and whoever waits asks it in another batch."""
        place = (row.key.run, row.number)
        self._in.pop(place, None)
        waiting = self._waiting.get(place)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _fail(self, row: BatchRow, refusal: Refusal) -> None:
        place = (row.key.run, row.number)
        self._in.pop(place, None)
        waiting = self._waiting.get(place)
        if waiting is not None and not waiting.done():
            waiting.set_exception(refusal)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(partial(_discard, self._tasks))


def _discard(tasks: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
    tasks.discard(task)


def _prices(call: Call, share: float) -> tuple[float, float]:
    price = call.endpoint.spec["prices"][call.model]
    inward = float(price.get("inputPerMillion") or 0) / 1e6
    return inward * share, float(price.get("outputPerMillion") or 0) / 1e6 * share
