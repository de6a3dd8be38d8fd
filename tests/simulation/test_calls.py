"""Calls of model endpoints under crashes of the controller and of the gateway: what is accounted is
what was asked, and no budget is exceeded by a cent. Planted bugs show that the checks see.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fleetctl.controllers.model import Resource
from fleetctl.engine.kinds.endpoints import grants as charging
from fleetctl.engine.kinds.endpoints.endpoints import Endpoints
from fleetctl.engine.kinds.endpoints.grants import EndpointGrants
from fleetctl.engine.shared.engine_state import EngineState
from fleetctl.gateway.gateway_client import SharedCap
from fleetctl.stores.base import EndpointUsage
from fleetctl.stores.sqlite.events import SqliteCalls
from tests.unit.engine.fake_gateway import FakeGateway
from tests.unit.engine.fake_world import Fleet, tasks

MAX_USD = 1.0
STEPS = 60
SEEDS = range(25)
ENDPOINT = {"servers": [{"url": "http://a/v1", "slots": 4}]}


class Life:
    """Two jobs under one Budget ask one endpoint, while things end, begin and die."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.gateway = FakeGateway()

    async def live(self) -> None:
        async with Fleet(gateway=self.gateway) as self.fleet:
            await self.fleet.apply("Endpoint", "small", ENDPOINT)
            await self.fleet.apply("Budget", "all", {"maxCost": MAX_USD, "period": "total"})
            await self.turn()
            for name in ("one", "two"):
                spec = tasks(6, parallelism=2)
                template = {**spec["template"], "endpoints": ["small"]}
                await self.fleet.apply("BatchJob", name, {**spec, "template": template})
            acts: tuple[tuple[Callable[[], Any], int], ...] = (
                (self.ask, 8), (self.settle, 4), (self.turn, 4), (self.finish, 2),
                (self.crash, 1), (self.kill, 1), (self.absence, 1),
            )  # fmt: skip
            weights = [weight for _, weight in acts]
            for _ in range(STEPS):
                (act, _), *_ = self.random.choices(acts, weights)
                await act()
                self.check_spent()
            for _ in range(3):
                await self.turn()
            self.check_accounts()

    # -- what happens ------------------------------------------------------------------------------

    async def ask(self) -> None:
        for run in self.some(list(self.gateway.grants)):
            usd = self.random.choice((0.0, 0.01, 0.05))
            many = {"calls": self.random.choice((1, 16)), "tries": self.random.choice((1, 18))}
            self.gateway.ask(run, usd=usd, reserved_usd=self.random.choice((0.0, 0.1)), **many)

    async def settle(self) -> None:
        held = [run for (run, _), row in self.gateway.rows.items() if row["reserved_usd"]]
        for run in self.some(held):
            row = self.gateway.rows[run, "small"]
            self.gateway.settle(run, self.random.random() * row["reserved_usd"])

    async def turn(self) -> None:
        await self.fleet.engine.parts.get(Endpoints).turn()
        await self.fleet.engine.parts.get(Endpoints).hear(wait_s=0.0)
        await self.fleet.settle()

    async def finish(self) -> None:
        local = self.fleet.local
        for run in self.some([box.working for box in local.boxes.values() if box.working]):
            order = local.orders[run]
            local.finish(order.index, of=order.resource)
            await self.fleet.settle()

    async def crash(self) -> None:
        await self.fleet.crash()
        self.gateway.begun_anew = True  # to a controller that has never seen it
        await self.fleet.settle()

    async def kill(self) -> None:
        self.gateway.kill()

    async def absence(self) -> None:
        """The gateway answers tasks, and not the controller, for longer than that waits for it."""
        self.gateway.away = True
        for _ in range(4):
            await self.ask()
            await self.finish()
        await self.fleet.later(61)
        self.gateway.away = False

    def some(self, names: list[str]) -> list[str]:
        return [self.random.choice(names)] if names else []

    # -- what must be true -------------------------------------------------------------------------

    def check_spent(self) -> None:
        rows = self.gateway.rows.values()
        assert sum(it["usd"] + it["reserved_usd"] for it in rows) <= MAX_USD + 1e-9

    def check_accounts(self) -> None:
        rows, status = self.gateway.rows.values(), self.fleet.status("small")
        for key in ("calls", "tries"):
            assert status.get(key) == sum(it[key] for it in rows), key
        spent_usd = sum(it["usd"] for it in rows)
        assert self.fleet.status("all")["used"] == pytest.approx(spent_usd, abs=1e-5)


def live(seed: int) -> None:
    asyncio.run(Life(seed).live())


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_asked_is_accounted_once_and_no_budget_is_exceeded(seed: int) -> None:
    live(seed)


def charge_all_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SqliteCalls, "record", lambda store, asked: [it.total.usd for it in asked])


def count_a_batch_once(patch: pytest.MonkeyPatch) -> None:
    asked = charging._read_usage

    def wrong(*args: Any) -> EndpointUsage:
        found = asked(*args)
        return replace(found, total=replace(found.total, calls=min(found.total.calls, 1)))

    patch.setattr(charging, "_read_usage", wrong)


def count_no_retry(patch: pytest.MonkeyPatch) -> None:
    asked = charging._read_usage

    def wrong(*args: Any) -> EndpointUsage:
        found = asked(*args)
        return replace(found, total=replace(found.total, tries=found.total.calls))

    patch.setattr(charging, "_read_usage", wrong)


def cap_each_alone(patch: pytest.MonkeyPatch) -> None:
    capped = EndpointGrants._capped

    def wrong(grants: EndpointGrants) -> list[SharedCap]:
        return [replace(cap, uids=(uid,)) for cap in capped(grants) for uid in cap.uids]

    patch.setattr(EndpointGrants, "_capped", wrong)


def forget_who_is_over(patch: pytest.MonkeyPatch) -> None:
    def wrong(state: EngineState, uid: str) -> Resource | None:
        track = state.tracks.get(uid)
        return None if track is None else track.resource

    patch.setattr(EngineState, "resource_of", wrong)


@pytest.mark.parametrize(
    "plant",
    [charge_all_again, count_a_batch_once, count_no_retry, cap_each_alone, forget_who_is_over],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in SEEDS:
            live(seed)
