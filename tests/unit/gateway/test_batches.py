"""Rows that go to a server's batch API: asked once whatever is lost, charged once, at its price."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Generic

import pytest

from fleetctl.common.tokens import gateway_token
from fleetctl.gateway.asking import call
from fleetctl.gateway.batching import batch_api, running_batch
from fleetctl.providers.contract.base import EndpointAccess
from fleetctl.providers.endpoint.gateway_connection import GatewayConnection, GatewayReply
from tests.emulators.llm.batches import Batches
from tests.emulators.llm.server import Model
from tests.unit.gateway.hosted import hosting
from tests.unit.gateway.test_gateway_asking import until
from tests.unit.gateway.test_process import G, Gateway, in_loop, living

QUICK = {"lingerSeconds": 0.5, "pollSeconds": 0.02}  # rows asked at once come within that
PRICED = {"batch": QUICK, "prices": {"chat": {"inputPerMillion": 1e6, "outputPerMillion": 1e6}}}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(running_batch, "SETTLE_S", 0.01)
    monkeypatch.setattr(running_batch, "CANCEL_AFTER_S", 0.0)
    monkeypatch.setattr(running_batch, "BACKOFF_S", 0.01)
    monkeypatch.setattr(running_batch, "AGAIN_S", 0.01)
    monkeypatch.setattr(batch_api, "AGAIN_S", 0.01)
    monkeypatch.setattr(call, "CAP_WAIT_S", 0.0)
    yield


class Rows(Generic[G]):
    """What a controller asks, by the line that it has to the gateway."""

    def __init__(self, gateway: G) -> None:
        self.gateway, self.line = gateway, GatewayConnection()

    async def ask(self, n: int, *, number: int = 1, run: str = "", text: str = "") -> GatewayReply:
        run = run or f"r{n}"
        token = gateway_token(self.gateway.key, run)
        access = EndpointAccess(("small",), {"chat": "tiny"}, self.gateway.url, token)
        body = {"model": "chat", "max_tokens": 9}
        body |= {"messages": [{"role": "user", "content": text or f"row {n}"}]}
        return await self.line.post(access, "small", number, body, batched=True)

    async def drop(self, n: int) -> None:
        token = gateway_token(self.gateway.key, f"r{n}")
        await self.line.drop(EndpointAccess((), {}, self.gateway.url, token), 1)

    def all(self, count: int) -> list[asyncio.Task[GatewayReply]]:
        return [asyncio.create_task(self.ask(n)) for n in range(count)]


async def ready(gateway: Gateway, model: Model, count: int, **spec: Any) -> None:
    await gateway.declare([model], **{**PRICED, **spec})
    await gateway.grant(*(f"r{n}" for n in range(count)))


@asynccontextmanager
async def asking(
    life: AbstractAsyncContextManager[G], model: Model, count: int, **spec: Any
) -> AsyncIterator[Rows[G]]:
    async with life as gateway:
        await ready(gateway, model, count, **spec)
        rows = Rows(gateway)
        try:
            yield rows
        finally:
            await rows.line.close()


async def told(tasks: list[asyncio.Task[GatewayReply]]) -> list[Any]:
    """The text of each answer, or its status."""
    replies = await asyncio.wait_for(asyncio.gather(*tasks), 300)
    return [
        json.loads(it.body)["choices"][0]["message"]["content"] if it.status == 200 else it.status
        for it in replies
    ]


def echoes(count: int) -> list[str]:
    return [f"echo: row {n}" for n in range(count)]


async def spent(gateway: Gateway) -> tuple[float, float]:
    """USD charged, and USD that is held."""
    rows = (await gateway.used()).values()
    return sum(it["usd"] for it in rows), sum(it["reserved_usd"] for it in rows)


@in_loop
async def test_rows_come_back_by_name_and_cost_half(tmp_path: Path) -> None:
    truth = Batches()
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 8) as rows:
        gateway = rows.gateway
        tasks = rows.all(8)
        assert await told(tasks) == echoes(8)
        (made,) = truth.made
        assert made.document["endpoint"] == "/v1/chat/completions" and len(made.rows) == 8
        assert {row["body"]["model"] for row in made.rows} == {"tiny"}
        assert await spent(gateway) == (truth.tokens / 2, 0)
        assert (await tasks[0]).usd == pytest.approx(5 / 2)  # two words in, three out
        # Told again, without a further row.
        assert await told(rows.all(8)) == echoes(8)
        assert Counter(truth.asked) == {f"row {n}": 1 for n in range(8)}
        # No prompt is in a file of the gateway's, and answers are there until their runs are over.
        for path in tmp_path.iterdir():
            assert path.is_socket() or b"row 3" not in path.read_bytes().replace(b"echo: row", b"")


@in_loop
async def test_rows_of_several_models_and_objects_are_several_batches(tmp_path: Path) -> None:
    truth = Batches()
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 6, batch={**QUICK, "maxRows": 4}) as rows:
        assert await told(rows.all(6)) == echoes(6)
        assert sorted(len(it.rows) for it in truth.made) == [2, 4]


@in_loop
async def test_a_lost_reply_is_found_again_by_its_tag(tmp_path: Path) -> None:
    truth = Batches(lost=1, unlisted=1, page=1)
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 3, batch={**QUICK, "maxRows": 1}) as rows:
        gateway = rows.gateway
        assert await told(rows.all(3)) == echoes(3)
        assert Counter(truth.asked) == {f"row {n}": 1 for n in range(3)}
        assert truth.listings > 2  # one showed nothing, and the others are paged
        assert await spent(gateway) == (truth.tokens / 2, 0)


@in_loop
async def test_one_odd_answer_of_the_server_ends_nothing(tmp_path: Path) -> None:
    truth = Batches(missing=2, short=1)
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 6) as rows:
        assert await told(rows.all(6)) == echoes(6)
        assert (truth.missing, truth.short, len(truth.made)) == (0, 0, 1)
        assert await spent(rows.gateway) == (truth.tokens / 2, 0)


@pytest.mark.parametrize("made", [True, False])
def test_a_batch_that_an_earlier_gateway_may_have_sent(tmp_path: Path, made: bool) -> None:
    """It ended amid the creation, before or after the server had made the batch."""

    async def test() -> None:
        truth = Batches(hangs="after" if made else "before")
        model = Model(batches=truth)
        async with asking(hosting(tmp_path, model), model, 5) as rows:
            gateway = rows.gateway
            first = rows.all(5)
            await until(lambda: truth.hanging > 0)
            held = (await spent(gateway))[1]
            await gateway.stop()
            await asyncio.gather(*first, return_exceptions=True)
            truth.hangs = ""
            await gateway.start()
            await ready(gateway, model, 5)
            assert await spent(gateway) == (0, held) and held > 0
            assert await told(rows.all(5)) == echoes(5)
            assert Counter(truth.asked) == {f"row {n}": 1 for n in range(5)}
            assert await spent(gateway) == (truth.tokens / 2, 0)

    asyncio.run(test())


@in_loop
async def test_what_expired_is_asked_again_and_what_was_answered_is_not(tmp_path: Path) -> None:
    truth = Batches(ends=deque(["expired"]), done=5)
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 8) as rows:
        gateway = rows.gateway
        assert await told(rows.all(8)) == echoes(8)
        assert [len(it.rows) for it in truth.made] == [8, 3]
        assert Counter(name for it in truth.made for name in it.answered) == {
            f"r{n}.1": 1 for n in range(8)
        }
        assert await spent(gateway) == (truth.tokens / 2, 0)
        assert {row["calls"] for row in (await gateway.used()).values()} == {1}


@in_loop
async def test_a_row_that_the_server_refuses_fails_alone_and_costs_nothing(tmp_path: Path) -> None:
    def refuse(body: dict[str, Any]) -> int:
        return {"row 1": 400, "row 2": 500}.get(body["messages"][-1]["content"], 0)

    truth = Batches(refuse=refuse)
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 4) as rows:
        gateway = rows.gateway
        assert await told(rows.all(4)) == ["echo: row 0", 400, 500, "echo: row 3"]
        assert await spent(gateway) == (truth.tokens / 2, 0)
        assert await told(rows.all(3)) == ["echo: row 0", 400, 500]
        assert len(truth.made) == 1


@in_loop
async def test_a_batch_that_the_server_does_not_take_asks_nothing(tmp_path: Path) -> None:
    truth = Batches(ends=deque(["failed"]))
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 4) as rows:
        gateway = rows.gateway
        replies = await asyncio.gather(*rows.all(4))
        assert {it.status for it in replies} == {400}
        assert "the file is not valid" in json.loads(replies[0].body)["error"]["message"]
        assert await spent(gateway) == (0, 0)
        assert gateway.state.ledger.usd_of("uid") == 0
        # Where it is too much at once, the next is half of it.
        truth.ends.append("failed")
        truth.fails = ("token_limit_exceeded", "too many tokens wait")
        assert await told(rows.all(4)) == [503] * 4
        assert await told(rows.all(4)) == echoes(4)
        assert [len(it.rows) for it in truth.made] == [4, 4, 2, 2]


@in_loop
async def test_a_server_without_batches_is_asked_nothing(tmp_path: Path) -> None:
    model = Model()
    async with asking(hosting(tmp_path, model), model, 2) as rows:
        gateway = rows.gateway
        replies = await asyncio.gather(*rows.all(2))
        assert {json.loads(it.body)["error"]["code"] for it in replies} == {"NoBatches"}
        assert model.asked == [] and await spent(gateway) == (0, 0)


@in_loop
async def test_a_batch_that_nobody_wants_is_cancelled_and_its_answers_are_paid(
    tmp_path: Path,
) -> None:
    truth = Batches(held=True, done=2)
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 4) as rows:
        gateway = rows.gateway
        tasks = rows.all(4)
        await until(lambda: bool(truth.made) and truth.made[0].status == "in_progress")
        for n in range(3):
            await rows.drop(n)
        await asyncio.sleep(0.2)
        assert truth.cancels == []  # one row is wanted
        await gateway.grant("other")
        await until(lambda: not gateway.state.batches)
        assert truth.cancels == ["batch_0"] and truth.made[0].status == "cancelled"
        assert await told(tasks) == [502] * 4  # nobody hears it
        usd, held = await spent(gateway)
        assert (usd, held) == (truth.tokens / 2, 0) and truth.tokens > 0
        assert gateway.state.ledger.usd_of("uid") == usd


@in_loop
async def test_what_all_rows_may_cost_is_within_the_cap(tmp_path: Path) -> None:
    truth = Batches()
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 6) as rows:
        gateway = rows.gateway
        line = 9 + len(json.dumps({"model": "chat", "max_tokens": 9, "messages": [{}]}))
        await gateway.grant(*(f"r{n}" for n in range(6)), cap_usd=2.5 * (line + 40) / 2)
        found = await told(rows.all(6))
        assert found.count(429) == 4 and len(truth.asked) == 2
        assert (await spent(gateway))[0] == truth.tokens / 2


@in_loop
async def test_limits_of_a_task_hold_in_batches(tmp_path: Path) -> None:
    truth = Batches()
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 1, limits={"callsPerTask": 2}) as rows:
        replies = await asyncio.gather(*(rows.ask(n, number=n, run="r0") for n in range(4)))
        assert sorted(it.status for it in replies) == [200, 200, 429, 429]
        assert len(truth.asked) == 2


@in_loop
async def test_a_kill_amid_a_batch_asks_no_row_twice(tmp_path: Path) -> None:
    truth = Batches(held=True, done=2)
    model = Model(batches=truth)
    async with asking(living(tmp_path, model), model, 20) as rows:
        gateway = rows.gateway
        first = rows.all(20)
        await until(lambda: bool(truth.made) and truth.made[0].status == "in_progress")
        held = (await spent(gateway))[1]
        assert held > 0
        await gateway.stop()  # kill -9
        await asyncio.gather(*first, return_exceptions=True)
        await gateway.start()
        # Half of the rows are told of again, as by a controller that lives.
        await ready(gateway, model, 20)
        assert await spent(gateway) == (0, held)
        again = [asyncio.create_task(rows.ask(n)) for n in range(10)]
        await asyncio.sleep(0)
        truth.held = False
        assert await told(again) == echoes(10)
        while (await spent(gateway))[1]:
            await asyncio.sleep(0.01)
        # The others come when all is over: a controller that was away meanwhile.
        assert await told(rows.all(20)) == echoes(20)
        assert Counter(truth.asked) == {f"row {n}": 1 for n in range(20)}
        assert (await spent(gateway))[0] == truth.tokens / 2
