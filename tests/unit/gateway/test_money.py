"""What calls cost: at least what the servers counted, not wildly more, and never above a cap."""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fleetctl.common.tokens import gateway_token
from fleetctl.gateway.asking import call
from fleetctl.gateway.batching.batcher import Batcher
from fleetctl.gateway.data import task_api
from fleetctl.gateway.rules.usage import TOKENS_PER_S_MAX
from tests.emulators.llm.server import Fault, Model
from tests.unit.gateway.hosted import Hosted, hosting, no_room_for_the_ledger
from tests.unit.gateway.test_gateway_asking import until
from tests.unit.gateway.test_process import LIFE_S, in_loop

REACHED_S = 5.0  # a request has reached its server by then, also on a busy machine
BODY_BYTES = 80  # about what a question of a word is, with its frame


async def tokens(gateway: Hosted) -> int:
    row = (await gateway.used())["r1"]
    assert row["reserved_usd"] == 0 and gateway.state.ledger.tree(_key(gateway)).tokens == (
        row["tokens_in"] + row["tokens_out"]
    )
    return int(row["tokens_in"] + row["tokens_out"])


def _token(gateway: Hosted) -> str:
    return gateway_token(gateway.key, "r1")


def _key(gateway: Hosted) -> Any:
    return next(iter(gateway.state.ledger._rows))


@in_loop
async def test_a_stream_costs_what_its_server_counted_and_looks_as_it_was_asked(
    tmp_path: Path,
) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        reply = await gateway.ask("r1", "one two", stream=True)
        assert b"usage" not in reply.raw and reply.raw.endswith(b"data: [DONE]\n\n")
        assert reply.raw.count(b"data:") == 5  # three words, why it ends, and the end
        assert await tokens(gateway) == model.tokens
        asked = {"include_usage": True}
        reply = await gateway.ask("r1", "one two", stream=True, stream_options=asked)
        assert b'"usage"' in reply.raw
        assert await tokens(gateway) == model.tokens
        assert (await gateway.used())["r1"]["estimated"] == 0


@pytest.mark.parametrize("quiet", [{"usage": False}, {"stream_options": False}])
def test_a_server_that_counts_nothing_is_estimated_on_the_high_side(
    tmp_path: Path, quiet: dict[str, bool]
) -> None:
    async def test() -> None:
        model = Model(**quiet)  # type: ignore[arg-type]
        async with hosting(tmp_path, model) as gateway:
            assert (await gateway.ask("r1", "one two", stream=True)).status == 200
            assert (await gateway.used())["r1"]["estimated"] == 1
            assert model.tokens <= await tokens(gateway) <= model.tokens + 2 * BODY_BYTES

    asyncio.run(test())


@pytest.mark.parametrize("faults", [["lost"], ["lost", "lost"], ["wrong-json"], [503, 429]])
def test_every_try_that_a_server_may_have_counted_is_accounted(
    tmp_path: Path, faults: Sequence[str | int]
) -> None:
    async def test() -> None:
        model = Model()
        model.faults.extend(Fault(it) for it in faults)
        async with hosting(tmp_path, model) as gateway:
            assert (await gateway.ask("r1", "one two", max_tokens=50)).status == 200
            row = (await gateway.used())["r1"]
            assert (row["calls"], row["tries"]) == (1, len(faults) + 1)
            most = model.tokens + len(faults) * (2 * BODY_BYTES + 50)
            assert model.tokens <= await tokens(gateway) <= most

    asyncio.run(test())


@in_loop
async def test_an_answer_that_comes_too_late_costs_its_worst_case(tmp_path: Path) -> None:
    model = Model()
    model.faults.append(Fault("late"))
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], timeoutSeconds=REACHED_S, retry={"attempts": 1})
        reply = await gateway.ask("r1", "one two", max_tokens=50)
        assert (reply.status, reply.code) == (504, "NoAnswer")
        assert model.tokens <= await tokens(gateway) <= 50 + 2 * BODY_BYTES


@in_loop
async def test_a_call_that_reached_nobody_costs_nothing(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        prices = {"chat": {"outputPerMillion": 1e6}}
        rows = [{"url": "http://127.0.0.1:1", "slots": 1}]
        await gateway.declare([], servers=rows, prices=prices, retry={"attempts": 1})
        reply = await gateway.ask("r1")
        assert (reply.status, reply.code) == (503, "ServerUnreachable")
        row = (await gateway.used())["r1"]
        assert (row["calls"], row["tries"], row["usd"], row["unpriced"]) == (1, 1, 0, 0)
        assert await tokens(gateway) == 0


@in_loop
async def test_what_it_may_cost_is_on_disk_before_a_server_is_asked(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        with no_room_for_the_ledger(tmp_path):
            reply = await gateway.ask("r1")
        assert (reply.status, model.asked) == (503, [])
        assert reply.code == "NotRecorded"
        assert (await gateway.ask("r1")).status == 200
        assert len(model.asked) == 1


@in_loop
async def test_a_call_that_is_cancelled_costs_what_can_have_been_written(tmp_path: Path) -> None:
    model = Model(slots=1, held=asyncio.Event())
    async with hosting(tmp_path, model) as gateway, asyncio.timeout(LIFE_S):
        headers = {"Authorization": f"Bearer {gateway_token(gateway.key, 'r1')}"}
        body = {"model": "chat", "stream": True, "messages": [{"content": "one two"}]}
        body["max_tokens"] = 1_000_000
        url = gateway.url + "/v1/chat/completions"
        began_s = time.monotonic()
        reply = await gateway.tasks.post(url, json=body, headers=headers)
        await reply.content.readany()
        waiting = asyncio.create_task(gateway.ask("r1", "never sent"))
        await until(lambda: gateway.endpoint.waiting)
        waiting.cancel()
        await until(lambda: not gateway.endpoint.waiting)
        reply.close()
        await until(lambda: model.cancelled)
        await until(lambda: not gateway.endpoint.in_flight)
        most = 2 * BODY_BYTES + (time.monotonic() - began_s) * TOKENS_PER_S_MAX
        assert model.tokens <= await tokens(gateway) <= most
        assert (await gateway.used())["r1"]["tries"] == 1


@in_loop
async def test_a_cap_holds_over_all_runs_of_an_object_and_waits_for_a_new_one(
    tmp_path: Path,
) -> None:
    model = Model()
    prices = {"chat": {"outputPerMillion": 1e6}}
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], prices=prices)
        await gateway.grant("r1", "r2", cap_usd=5.0)
        assert (await gateway.ask("r1", max_tokens=4)).headers["X-Fleetctl-Usd"] == "2.000000000"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(call, "CAP_WAIT_S", 0.0)
            refused = await gateway.ask("r2", max_tokens=4)
        assert (refused.status, refused.code) == (429, "BudgetExceeded")
        assert refused.headers["x-should-retry"] == "false"
        waiting = asyncio.create_task(gateway.ask("r2", max_tokens=4))
        await until(lambda: gateway.state.money._next)
        assert await gateway.grant("r1", "r2", cap_usd=6.0) == {"uid": 2.0}
        assert (await waiting).status == 200
        assert (await gateway.used())["r2"]["refused"] == 1
        assert gateway.state.ledger.usd_of("uid") == 4.0


@in_loop
async def test_no_other_name_of_a_model_evades_its_price(tmp_path: Path) -> None:
    model = Model(models=("tiny", "large"))
    prices = {"chat": {"outputPerMillion": 1e6}}
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], prices=prices)
        await gateway.grant("r1", cap_usd=5.0)
        for name in ("tiny", "large", "chat:latest"):  # the server's own names
            reply = await gateway.ask("r1", model=name)
            assert (reply.status, reply.code) == (404, "ModelNotFound")
            assert b"it has `chat`" in reply.raw
            raw = json.dumps({"model": name, "messages": []}).encode()
            answer = await task_api._answer_frame(  # a row of a batch
                gateway.state,
                Batcher(gateway.state),
                _token(gateway),
                "/batch/v1/chat/completions",
                raw,
                name,
            )
            assert answer.status == 404
        assert model.asked == []
        reply = await gateway.ask("r1", model="", max_tokens=4)  # the usual one, at its price
        assert reply.headers["X-Fleetctl-Usd"] == "2.000000000"
        assert [it["model"] for it in model.asked] == ["tiny"]


@in_loop
async def test_a_model_without_a_price_is_refused_where_a_budget_pays(tmp_path: Path) -> None:
    model = Model(models=("tiny", "free"))
    async with hosting(tmp_path, model) as gateway:
        for models in ({}, {"tiny": "tiny", "free": "free"}):
            await gateway.declare([model], models=models, prices={"free": {}})
            await gateway.grant("r1", cap_usd=5.0)
            reply = await gateway.ask("r1", model="tiny")
            assert (reply.status, reply.code) == (403, "PriceUnknown")
            assert b"give `tiny` in `prices` of endpoint small" in reply.raw
            assert (await gateway.ask("r1", model="free")).status == 200
            await gateway.grant("r1")
            assert (await gateway.ask("r1", model="tiny")).status == 200
        assert [it["model"] for it in model.asked] == ["free", "tiny"] * 2
        assert (await gateway.used())["r1"]["unpriced"] == 2


@in_loop
async def test_one_more_try_is_within_the_cap_too(tmp_path: Path) -> None:
    model = Model()
    model.faults.append(Fault("late"))
    async with hosting(tmp_path, model) as gateway:
        spec = {"timeoutSeconds": REACHED_S, "prices": {"chat": {"outputPerMillion": 1e6}}}
        await gateway.declare([model], **spec)
        await gateway.grant("r1", cap_usd=7.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(call, "CAP_WAIT_S", 0.0)
            assert (await gateway.ask("r1", max_tokens=4)).code == "BudgetExceeded"
        assert len(model.asked) == 1
        assert gateway.state.ledger.usd_of("uid") == 4.0


@in_loop
async def test_whatever_happens_nothing_is_left_held_and_nothing_is_missed(tmp_path: Path) -> None:
    dice = random.Random(7)
    model = Model(slots=8)
    what: list[str | int] = ["lost", "cut", "wrong-json", "hang", 503, 429, 500, 400]
    model.faults.extend(Fault(dice.choice([*what, ""])) for _ in range(150))
    await _storm(tmp_path, model, dice)


async def _storm(tmp_path: Path, model: Model, dice: random.Random) -> None:
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], timeoutSeconds=0.3, prices={"chat": {"outputPerMillion": 1}})

        async def one(n: int) -> None:
            number = {"X-Fleetctl-Number": str(n)} if dice.random() < 0.5 else {}
            asking = gateway.ask("r1", f"p {n}", number, stream=dice.random() < 0.5, max_tokens=40)
            with suppress(aiohttp.ClientError, TimeoutError):
                await asyncio.wait_for(asking, dice.choice([0.02, 9.0]))

        await asyncio.gather(*map(one, range(120)))
        await until(lambda: not gateway.state.tasks and not gateway.endpoint.in_flight)
        row, ledger = (await gateway.used())["r1"], gateway.state.ledger
        assert row["tokens_in"] + row["tokens_out"] >= model.tokens
        assert (row["reserved_usd"], ledger.tree(_key(gateway)).holds) == (0, 0)
        assert ledger.usd_of("uid") == pytest.approx(row["usd"])
        assert row["tries"] * (40 + 2 * BODY_BYTES) >= row["tokens_in"] + row["tokens_out"]
        assert not gateway.endpoint.waiting and gateway.endpoint.servers[0].in_flight == 0
