"""Endpoints in the engine: who may call, when a start waits, and what calls cost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.engine.kinds.endpoints.endpoints import Endpoints
from fleetctl.providers.contract.base import RunRequest
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.tracking.load import work_of
from tests.unit.engine.fake_gateway import FakeGateway
from tests.unit.engine.fake_world import Fleet, tasks

SERVER = {"servers": [{"url": "http://a/v1", "slots": 4}], "models": {"chat": "q"}}
KEY = "sk-canary"


@asynccontextmanager
async def fleet(**known: str) -> AsyncIterator[tuple[Fleet, FakeGateway]]:
    gateway = FakeGateway()
    async with Fleet(secrets=lambda names, within: ResolvedSecrets(known), gateway=gateway) as made:
        yield made, gateway


def asking(count: int = 1, **fields: Any) -> dict[str, Any]:
    """A BatchJob whose template names the endpoint `small`."""
    spec = tasks(count, **fields)
    return {**spec, "template": {**spec["template"], "endpoints": ["small"]}}


async def turn(made: Fleet) -> None:
    """What the helpers of a running engine do between two ticks."""
    await made.engine.parts.get(Endpoints).turn()
    await made.engine.parts.get(Endpoints).hear(wait_s=0.0)
    await made.settle()


def orders(made: Fleet) -> list[RunRequest]:
    return list(made.local.orders.values())


async def test_a_start_waits_until_the_endpoint_is_there_and_ready() -> None:
    async with fleet() as (made, gateway):
        gateway.sick["small"] = "http://a did not answer"
        await made.apply("BatchJob", "ask", asking())
        await turn(made)
        assert "endpoint/small is not declared" in made.status("ask")["message"]
        await made.apply("Endpoint", "small", {**SERVER, "maxFallbackShare": 0.2})
        await turn(made)
        assert made.status("small")["reason"] == "ServerUnreachable"
        await made.later(60)
        assert not made.local.boxes
        why = made.status("ask")
        assert why["reason"] == "EndpointNotReady", why
        assert "ServerUnreachable: http://a did not answer" in why["message"]
        gateway.sick.clear()
        await turn(made)
        assert made.status("small")["phase"] == "Ready"
        await made.later(60)
        (order,) = orders(made)
        assert order.endpoints is not None
        assert order.endpoints.names == ("small",)
        assert order.endpoints.models == {"chat": "q"}
        assert order.endpoints.max_fallback_share == 0.2
        assert order.endpoints.token == f"token-of-{order.run}"
        assert set(gateway.grants) == {order.run}


async def test_what_waits_for_a_server_begins_when_it_is_back() -> None:
    async with fleet() as (made, gateway):
        gateway.sick["small"] = "http://a did not answer"
        await made.apply("Endpoint", "small", SERVER)
        await made.apply("BatchJob", "ask", asking())
        await turn(made)
        for _ in range(8):
            await made.later(60)  # so that the next try is a minute away
        gateway.sick.clear()
        await turn(made)
        assert len(orders(made)) == 1


async def test_all_starts_that_wait_for_their_grant_go_on_together() -> None:
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        await turn(made)
        answer = gateway.grant

        async def later(*told: Any) -> Any:
            await asyncio.sleep(0)
            return await answer(*told)

        gateway.grant = later  # type: ignore[method-assign]
        # Far more than the turns of the loop that `apply` gives them: none waits for another.
        await made.apply("BatchJob", "ask", asking(300, parallelism=300))
        assert len(orders(made)) == len(gateway.grants) == 300


async def test_who_is_over_may_call_no_more() -> None:
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        await turn(made)
        await made.apply("BatchJob", "ask", asking())
        (order,) = orders(made)
        assert gateway.ask(order.run)
        made.local.finish(0)
        await made.settle()
        await turn(made)
        await turn(made)
        assert not gateway.grants
        assert made.status("small")["calls"] == 1


async def test_a_gateway_that_was_killed_is_told_all_again() -> None:
    async with fleet(API_KEY=KEY) as (made, gateway):
        spec = {**SERVER, "apiKey": {"secret": "k", "name": "API_KEY"}}
        await made.apply("Endpoint", "small", spec)
        await turn(made)
        await made.apply("BatchJob", "ask", asking(2))
        gateway.kill()
        await turn(made)
        assert [it.key for it in gateway.served] == [KEY]
        assert set(gateway.grants) == {order.run for order in orders(made)}
        assert KEY not in repr(gateway.served)


async def test_a_restarted_controller_lets_its_runs_call_on() -> None:
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        await turn(made)
        await made.apply("BatchJob", "ask", asking(2))
        await made.crash()
        gateway.begun_anew = True  # to a controller that has never seen it
        await made.settle()
        await turn(made)
        assert set(gateway.grants) == {order.run for order in orders(made)}
        assert set(made.local.relayed) == set(gateway.grants)


async def test_a_key_that_is_not_there_is_said() -> None:
    async with fleet() as (made, gateway):
        spec = {**SERVER, "apiKey": {"secret": "k", "name": "API_KEY"}}
        await made.apply("Endpoint", "small", spec)
        await turn(made)
        status = made.status("small")
        assert (status["phase"], status["reason"]) == ("Pending", "SecretMissing")
        assert "secret/k gives no API_KEY" in status["message"]
        assert not gateway.served


async def test_calls_are_charged_once_whatever_is_heard_twice() -> None:
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        await made.apply("Budget", "all", {"maxCost": 10.0, "period": "total"})
        await turn(made)
        await made.apply("BatchJob", "ask", asking(budget={"maxCost": 5.0}))
        (order,) = orders(made)
        assert gateway.ask(order.run, usd=1.25, calls=3)
        await turn(made)
        await made.crash()
        await made.settle()
        await turn(made)  # the new controller hears all rows from the beginning
        assert made.status("all")["used"] == 1.25
        assert made.status("ask")["budget"]["used"] == 1.25
        sums = made.status("small")
        assert (sums["calls"], sums["cost"]) == (3, {"actual": 1.25})


@pytest.mark.parametrize("kind", [it.name for it in KINDS.values() if it.runs])
@pytest.mark.parametrize("seed", range(8))
async def test_whatever_is_over_has_its_calls_counted(kind: str, seed: int) -> None:
    dice, truth_usd = random.Random(f"{kind} {seed}"), 0.0
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        await turn(made)
        await made.apply(kind, "ask", asking_kind(kind))
        moves = ["ask", "ask", "ask", "turn", "crash", "later"]
        for _ in range(60):
            if made.status("ask").get("phase") in ("Succeeded", "Failed"):
                break
            live = [it for it in orders(made) if made.local.boxes[it.sandbox].working == it.run]
            move = dice.choice([*moves, "finish"])
            if move == "ask" and live and gateway.ask(run := dice.choice(live).run, usd=0.25):
                truth_usd += 0.25
                if dice.random() < 0.5:  # one that its end cuts off
                    gateway.ask(run, reserved_usd=0.5)
            elif move == "turn":
                await turn(made)
            elif move == "crash":
                await made.crash()
                gateway.begun_anew = True
                await made.settle()
            elif move == "later":
                await made.later(1)
            elif live:
                one = dice.choice(live)
                if any(it["run"] == one.run and it["reserved_usd"] for it in gateway.rows.values()):
                    gateway.settle(one.run, 0.25)
                    truth_usd += 0.25
                made.local.finish(one.index, ok=kind != "BatchJob" or dice.random() < 0.7)
                await made.settle()
            await over_is_counted(made, truth_usd)
        for _ in range(3):
            await turn(made)
            await over_is_counted(made, truth_usd)


def asking_kind(kind: str) -> dict[str, Any]:
    if kind == "TrainingRun":
        return {"template": {"command": ["train"], "endpoints": ["small"]}}
    if kind == "Sweep":
        space = {"x": {"values": [1, 2]}}
        spec = {"method": "grid", "parameters": space, "metric": {"name": "y", "goal": "minimize"}}
        return {"search": spec, "template": {"command": ["try"], "endpoints": ["small"]}}
    return asking(2, backoffLimitPerIndex=1)


async def over_is_counted(made: Fleet, usd: float) -> None:
    """I29: whatever is over has its calls booked in every place where they are looked up."""
    status = made.status("ask")
    if status.get("phase") not in ("Succeeded", "Failed"):
        return
    endpoint = made.store.resources.get("Endpoint", "small")
    assert endpoint is not None
    booked = made.store.calls.sum_of(endpoint.uid)
    in_the_ledger = sum(it.usd for it in made.store.ledger.entries())
    for where in (status["cost"].get("calls", 0.0), booked.usd, in_the_ledger):
        assert where == pytest.approx(usd), status


@pytest.mark.parametrize("seed", range(6))
async def test_a_budget_has_left_what_a_finished_object_did_not_use(seed: int) -> None:
    dice, cap_usd = random.Random(seed), 100.0
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        await turn(made)
        await made.apply("BatchJob", "ask", asking(2, budget={"maxCost": cap_usd}))
        for _ in range(20):
            move = dice.choice(["ask", "ask", "kill", "turn"])
            if move == "ask":
                run = dice.choice(orders(made)).run
                gateway.ask(run, usd=0.25, reserved_usd=dice.choice([0.0, 1.5]))
            elif move == "kill":
                gateway.kill()
            else:
                await turn(made)
        for order in orders(made):
            made.local.finish(order.index)
        gateway.kill()  # amid the last calls
        for _ in range(3):
            await turn(made)
            await made.later(1)
        status = made.status("ask")
        assert status["phase"] == "Succeeded"
        used_usd = sum(row["usd"] for row in gateway.rows.values())
        left_usd = cap_usd - used_usd
        assert status["budget"]["used"] == pytest.approx(used_usd)
        assert status["budget"]["left"] == pytest.approx(left_usd)


async def test_a_gateway_that_never_comes_back_is_not_waited_for() -> None:
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        await turn(made)
        await made.apply("BatchJob", "ask", asking())
        (order,) = orders(made)
        assert gateway.ask(order.run, usd=1.25)
        gateway.away = True
        made.local.finish(0)
        await made.settle()
        status = made.status("ask")
        assert (status["phase"], status["reason"]) == ("Running", "Finishing")
        assert "the cost of its calls is being counted" in status["message"]
        await made.later(61)
        status = made.status("ask")
        assert status["phase"] == "Succeeded"
        assert "the cost of its last calls is counted once it does" in status["message"]
        gateway.away = False
        await turn(made)
        assert made.status("ask")["cost"]["actual"] == 1.25


@pytest.mark.parametrize("crashes", [False, True])
async def test_calls_that_are_heard_of_late_count_to_an_object_that_is_over(crashes: bool) -> None:
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        await turn(made)
        await made.apply("BatchJob", "ask", asking(budget={"maxCost": 5.0}))
        (order,) = orders(made)
        assert gateway.ask(order.run, usd=1.25)
        gateway.away = True
        made.local.finish(0)
        await made.settle()
        await made.later(61)
        assert made.status("ask")["phase"] == "Succeeded"
        gateway.away = False
        if crashes:
            await made.crash()
            gateway.begun_anew = True
        await turn(made)
        await turn(made)
        status = made.status("ask")
        assert (status["cost"]["actual"], status["cost"]["calls"]) == (1.25, 1.25)
        assert (status["budget"]["used"], status["budget"]["left"]) == (1.25, 3.75)


@pytest.mark.parametrize("crashes", [False, True])
async def test_calls_stay_within_what_a_budget_has_left(crashes: bool) -> None:
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        await made.apply("Budget", "all", {"maxCost": 1.0, "period": "total"})
        await turn(made)
        for name in ("one", "two"):
            await made.apply("BatchJob", name, asking())
        first, second = (order.run for order in orders(made))
        while gateway.ask(first, usd=0.1) or gateway.ask(second, usd=0.05):
            if crashes:
                await made.crash()
                await made.settle()
            await turn(made)
        spent_usd = sum(row["usd"] for row in gateway.rows.values())
        assert 0.85 <= spent_usd <= 1.0 + 1e-9
        assert made.status("all")["used"] == pytest.approx(spent_usd)


async def test_what_calls_may_cost_yet_is_set_aside() -> None:
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        await turn(made)
        await made.apply("BatchJob", "ask", asking(budget={"maxCost": 1.0}))
        (order,) = orders(made)
        assert gateway.ask(order.run, reserved_usd=0.75)
        await turn(made)
        assert made.status("ask")["budget"]["left"] == 0.25
        gateway.settle(order.run, 0.5)
        await turn(made)
        assert made.status("ask")["budget"]["left"] == 0.5


async def test_direct_reach_gives_the_key_and_no_grant() -> None:
    async with fleet(API_KEY=KEY) as (made, gateway):
        spec = {**SERVER, "reach": "Direct", "apiKey": {"secret": "k", "name": "API_KEY"}}
        await made.apply("Endpoint", "small", spec)
        await turn(made)
        assert made.status("small")["phase"] == "Ready"
        await made.apply("BatchJob", "ask", asking())
        (order,) = orders(made)
        assert order.endpoints is None
        assert order.secrets["OPENAI_BASE_URL"] == "http://a/v1"
        assert order.secrets["OPENAI_API_KEY"] == KEY
        assert not gateway.served
        assert not gateway.grants


async def test_a_deleted_endpoint_goes_after_its_last_user() -> None:
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        await turn(made)
        await made.apply("BatchJob", "ask", asking())
        await made.delete("Endpoint", "small")
        assert made.status("small")["reason"] == "InUse"
        (order,) = orders(made)
        await turn(made)
        assert gateway.ask(order.run)
        made.local.finish(0)
        await made.later(5)
        await turn(made)
        assert "small" not in made.names()


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_start_waits_until_the_gateway_has_the_present_spec(deleted: bool) -> None:
    """Else its first calls would go by the former rules, such as none that keeps answers."""
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        await turn(made)
        if deleted:
            await made.delete("Endpoint", "small")
        cached = {**SERVER, "cache": {"policy": "Always"}}
        await made.apply("Endpoint", "small", cached)
        await made.apply("BatchJob", "ask", asking())
        assert not orders(made)
        why = made.status("ask")
        assert why["reason"] == "EndpointNotReady", why
        assert "has not received its present spec" in why["message"]
        await turn(made)
        assert len(orders(made)) == 1
        assert [it.spec["cache"] for it in gateway.served] == [cached["cache"]]


async def test_work_runs_again_by_the_model_that_a_name_stands_for_now() -> None:
    async with fleet() as (made, _):
        await made.apply("Endpoint", "small", SERVER)
        await turn(made)
        await made.apply("BatchJob", "ask", asking(2))
        made.local.finish(0)
        await made.settle()
        # Another server of the same model changes no answer.
        await made.apply("Endpoint", "small", {**SERVER, "servers": [{"url": "http://b"}]})
        await turn(made)
        assert (made.status("ask")["succeeded"], made.status("ask").get("outdated", 0)) == (1, 0)
        await made.apply("Endpoint", "small", {**SERVER, "models": {"chat": "another"}})
        await turn(made)
        await made.later(60)
        assert made.status("ask")["succeeded"] == 0
        assert made.local.working() == [0, 1]
        assert [run.attempt for run in made.runs("ask") if run.ended_at_s is None] == [2, 2]


async def test_equal_work_is_used_again_only_where_it_asked_the_same_model() -> None:
    async with fleet() as (made, _):
        await made.apply("Endpoint", "small", SERVER)
        await turn(made)
        await made.apply("BatchJob", "one", asking(cache={"policy": "ReuseSucceeded"}))
        made.local.finish(0, of="batchjob/one")
        await made.settle()
        await made.apply("BatchJob", "two", asking(cache={"policy": "ReuseSucceeded"}))
        assert made.status("two")["cached"] == 1
        await made.apply("Endpoint", "small", {**SERVER, "models": {"chat": "another"}})
        await made.apply("BatchJob", "three", asking(cache={"policy": "ReuseSucceeded"}))
        await turn(made)
        assert made.status("three").get("cached", 0) == 0
        assert len(made.runs("three")) == 1


async def test_what_a_disk_refused_is_taken_in_once_when_it_is_heard_again() -> None:
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        await made.apply("Budget", "all", {"maxCost": 10.0, "period": "total"})
        await turn(made)
        await made.apply("BatchJob", "ask", asking(budget={"maxCost": 5.0}))
        (order,) = orders(made)
        assert gateway.ask(order.run, usd=1.25)
        made.fail_commits = 1
        await made.engine.parts.get(Endpoints).hear(wait_s=0.0)
        await turn(made)
        assert made.status("all")["used"] == 1.25
        assert made.status("ask")["budget"]["used"] == 1.25


async def test_what_plans_read_has_the_cost_of_calls() -> None:
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        await turn(made)
        await made.apply("BatchJob", "ask", asking())
        (order,) = orders(made)
        assert gateway.ask(order.run, usd=1.25)
        await turn(made)
        history = work_of(made.row("ask"), made.store.runs).history
        assert (history.charged_usd, history.spent_usd) == (1.25, 1.25)


async def test_a_busy_endpoint_does_not_keep_the_controller_busy() -> None:
    async with fleet() as (made, gateway):
        await made.apply("Endpoint", "small", SERVER)
        tending = asyncio.ensure_future(made.engine.parts.get(Endpoints).tend())
        for _ in range(20):  # each look finds it busier than the last
            await made.settle()
        tending.cancel()
        assert 1 <= gateway.looks <= 2
