"""What pods cost by a label of their nodes: worked out, planned, and held to by budgets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fleetctl.apply.cost.offers import market_of
from fleetctl.apply.plan.build_plan import build_report
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions
from fleetctl.providers.prices import price_table
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.placement import Prices
from fleetctl.specs.blocks.resources import Resources
from fleetctl.stores.read.read_only import open_readonly
from fleetctl.wiring.account_registry import AccountRegistry
from tests.unit.engine.fake_world import Fleet, tasks
from tests.unit.engine.test_engine_desired import manifest

CAPACITY = "karpenter.sh/capacity-type"
BY_CAPACITY = {
    "nodeLabel": CAPACITY,
    "nodes": {"spot": {"cpu": 0.01}, "on-demand": {"cpu": 0.04}},
}
PRODUCT = "nvidia.com/gpu.product"
BY_PRODUCT = {
    "nodeLabel": PRODUCT,
    "nodes": {"NVIDIA-A100": {"perHour": 3.0}, "NVIDIA-T4": {"gpu": {"T4": 0.5}, "cpu": 0.1}},
    "cpu": 0.02,
}
NAMED = {"gpus": {"names": {"A100": "NVIDIA-A100", "T4": "NVIDIA-T4"}}}
SPOT = {"nodeSelector": {CAPACITY: "spot"}}


@pytest.mark.parametrize(
    ("prices", "settings", "resources", "usd_per_hour"),
    [
        # What is fixed for it.
        (BY_CAPACITY, SPOT, {"cpu": 2}, 0.02),
        # Else it may be the dearest.
        (BY_CAPACITY, {}, {"cpu": 2}, 0.08),
        (BY_CAPACITY, {"nodeSelector": {"pool": "a"}}, {"cpu": 2}, 0.08),
        (BY_CAPACITY | {"cpu": 0.1}, {}, {"cpu": 2}, 0.2),
        # Of other nodes nothing is said, or what stands beside.
        (BY_CAPACITY, {"nodeSelector": {CAPACITY: "reserved"}}, {"cpu": 2}, None),
        (BY_CAPACITY | {"cpu": 0.1}, {"nodeSelector": {CAPACITY: "reserved"}}, {"cpu": 2}, 0.2),
        # A GPU's own label is fixed by the GPU, whatever the selector says.
        (BY_PRODUCT, NAMED, {"gpu": "a100:8", "cpu": 4}, 3.0),
        (BY_PRODUCT, NAMED, {"gpu": "T4:2", "cpu": 4}, 1.4),
        (BY_PRODUCT, NAMED | {"nodeSelector": {PRODUCT: "NVIDIA-T4"}}, {"gpu": "A100"}, 3.0),
        (BY_PRODUCT, {}, {"gpu": "NVIDIA-A100"}, 3.0),
        # Which one `any` gets, and what a price by core comes to without cores, is unknown.
        (BY_PRODUCT, NAMED, {"gpu": "any:1", "cpu": 4}, None),
        (BY_CAPACITY, SPOT, {}, None),
    ],
)
def test_a_pod_costs_what_its_node_does_as_far_as_that_is_fixed(
    prices: dict[str, Any],
    settings: dict[str, Any],
    resources: dict[str, Any],
    usd_per_hour: float | None,
) -> None:
    usd = price_table.usd_per_s(
        Prices.model_validate(prices),
        Resources.model_validate(resources),
        ClusterSettings.model_validate(settings),
    )
    assert usd == (None if usd_per_hour is None else pytest.approx(usd_per_hour / 3600))


def work(count: int, **fields: Any) -> dict[str, Any]:
    template = {"python": "SUBMIT(ok=True)", "resources": {"cpu": 25}, "timeoutSeconds": 3600}
    placed = {"placement": {"provider": "kubernetes"}, "template": template}
    return tasks(count, parallelism=10, **placed, **fields)


def test_a_plan_prices_work_by_the_provider_object_beside_it(tmp_path: Path) -> None:
    def rate(spec: dict[str, Any]) -> float | None:
        provider = manifest("Provider", "kubernetes", spec)
        desired = manifest("BatchJob", "job", work(4))
        with open_readonly(tmp_path / "home") as stored:
            changes = propose_changes(stored, [provider, desired], ApplyOptions(), 0.0)
            backends = AccountRegistry(
                tmp_path / "home", store_id="", notify=lambda run: None
            ).backends
            found = build_report(stored, changes, market_of(stored, changes, backends), 0.0)
        [of_work] = [it.work for it in found.objects if it.work is not None]
        return of_work.places[0].judged.usd_per_s

    assert rate({"prices": BY_CAPACITY}) == pytest.approx(1.0 / 3600)
    assert rate({"prices": BY_CAPACITY, "kubernetes": SPOT}) == pytest.approx(0.25 / 3600)
    other = {"nodeSelector": {"pool": "a"}}
    assert rate({"prices": {"cpu": 0.04}, "kubernetes": other}) == pytest.approx(1.0 / 3600)
    assert rate({"kubernetes": other}) is None


def test_a_budget_pays_for_the_dearest_node_until_the_object_fixes_a_cheaper_one() -> None:
    async def tale() -> None:
        async with Fleet(("kubernetes",)) as world:
            there = world.providers["kubernetes"]
            await world.apply("Provider", "kubernetes", {"prices": BY_CAPACITY})
            await world.apply("BatchJob", "job", work(9, budget={"maxCost": 3.5}))
            # Each may last an hour and some seconds, at $1.00 an hour.
            assert len(there.working()) == 3
            assert world.status("job")["cost"]["reserved"] == pytest.approx(3.0, rel=0.02)
            spot = {"prices": BY_CAPACITY, "kubernetes": SPOT}
            await world.apply("Provider", "kubernetes", spot)
            # $0.50 is left, which pays for one more at $0.25.
            assert len(there.working()) == 4
            rates = sorted(run.usd_per_s or 0.0 for run in world.runs("job"))
            assert rates == pytest.approx([0.25 / 3600, *[1.0 / 3600] * 3])
            world.clock.time_s += 1800
            for index in range(4):
                there.finish(index)
            await world.settle()
            spent = world.status("job")["cost"]["actual"]
            assert spent == pytest.approx(3 * 0.5 + 0.125, rel=0.02)

    asyncio.run(tale())
