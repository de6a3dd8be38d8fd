"""Functions in the engine: what runs get of them, who waits for them, and when they go."""

from __future__ import annotations

import asyncio
from typing import Any

from fleetctl.common.errors import Refused
from fleetctl.engine.sleeping import nudge_starts
from fleetctl.providers.contract.base import FunctionAsset
from tests.unit.engine.fake_world import Fleet, tasks

WARM = {"env": {"A": "1", "B": "1"}, "resources": {"gpu": ["H100", "L4:2"]}, "maxContainers": 3}


def caller(name: str = "embedder", **fields: Any) -> dict[str, Any]:
    template = {"python": "pass", "function": name, "env": {"B": "2"}}
    return {**tasks(1), "template": template, **fields}


async def test_a_run_gets_what_its_function_says_and_what_its_template_adds() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Function", "embedder", WARM)
        await fleet.apply("BatchJob", "job", caller())
        (order,) = fleet.local.orders.values()
        assert order.template.env == {"A": "1", "B": "2"}
        gpu = order.template.resources.gpu
        assert gpu is not None and [str(one) for one in gpu.choices] == ["H100:1", "L4:2"]
        assert order.function is not None
        assert (order.function.name, order.function.max_containers) == ("embedder", 3)


async def test_a_template_alone_asks_for_a_function_of_its_own() -> None:
    async with Fleet() as fleet:
        job = {**tasks(1), "template": {"python": "pass", "runtime": "function"}}
        await fleet.apply("BatchJob", "job", job)
        (order,) = fleet.local.orders.values()
        assert order.function is not None
        assert (order.function.name, order.function.min_containers) == ("", 0)


async def test_what_runs_in_a_sandbox_has_no_function() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        assert [it.function for it in fleet.local.orders.values()] == [None]


async def test_a_start_waits_for_a_function_that_is_not_there_and_says_what_to_do() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", caller())
        status = fleet.status("job")
        assert (status["phase"], status["reason"]) == ("Pending", "FunctionMissing")
        assert "apply a manifest of kind Function with the name `embedder`" in status["hint"]
        await fleet.apply("Function", "embedder", {})
        nudge_starts(fleet.engine.state, "FunctionMissing")
        await fleet.settle()
        assert fleet.status("job")["phase"] == "Running"


async def test_a_function_is_made_ready_with_its_own_settings() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Function", "embedder", WARM)
        assert fleet.status("embedder")["phase"] == "Ready"
        asset = fleet.local.functions["embedder"]
        assert (asset.order.max_containers, asset.order.scaledown_s) == (3, 60.0)
        assert asset.template.work is None


async def test_a_function_that_cannot_be_made_says_why_and_is_tried_again() -> None:
    async with Fleet() as fleet:
        fleet.local.script["ensure_function"] = [Refused("no such GPU")]
        await fleet.apply("Function", "embedder", WARM)
        status = fleet.status("embedder")
        assert (status["phase"], status["message"]) == ("Pending", "no such GPU")
        await fleet.later(5)
        assert fleet.status("embedder")["phase"] == "Ready"


async def test_a_function_changed_while_it_is_made_is_made_once_more() -> None:
    async with Fleet() as fleet:
        under_way, go_on = asyncio.Event(), asyncio.Event()
        ensure = fleet.local.ensure_function

        async def held(asset: FunctionAsset) -> None:
            under_way.set()
            await go_on.wait()
            await ensure(asset)

        fleet.local.ensure_function = held  # type: ignore[method-assign]
        await fleet.apply("Function", "embedder", {"maxContainers": 3})
        assert under_way.is_set()
        await fleet.apply("Function", "embedder", {"maxContainers": 5})
        go_on.set()
        await fleet.settle()
        assert fleet.local.functions["embedder"].order.max_containers == 5
        assert fleet.status("embedder")["phase"] == "Ready"


async def test_a_deleted_function_serves_its_users_to_their_end() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Function", "embedder", WARM)
        await fleet.apply("BatchJob", "job", caller(parallelism=1, completions=2))
        await fleet.delete("Function", "embedder")
        assert fleet.status("embedder")["message"] == "still used by batchjob/job"
        fleet.local.finish(0)
        await fleet.settle()
        assert len(fleet.local.orders) == 2
        assert set(fleet.local.functions) == {"embedder"}
        fleet.local.finish(1)
        await fleet.settle()
        assert fleet.local.functions == {}
        assert fleet.names() == ["job"]


async def test_a_changed_function_replaces_what_runs_in_the_old_one() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Function", "embedder", WARM)
        await fleet.apply("BatchJob", "job", caller(parallelism=1, completions=2))
        await fleet.apply("Function", "embedder", {**WARM, "env": {"A": "9"}})
        first, second = fleet.local.orders.values()
        assert set(fleet.local.stops) == {first.run} and (first.index, second.index) == (0, 0)
        assert first.template_hash != second.template_hash
        assert second.template.env == {"A": "9", "B": "2"}
        assert fleet.local.functions["embedder"].template.env == {"A": "9"}


async def test_a_volume_that_a_function_mounts_is_made_and_has_it_for_a_user() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Volume", "data", {"deletionPolicy": "Delete"})
        spec = {"volumes": [{"name": "data", "mountPath": "/data"}]}
        await fleet.apply("Function", "embedder", spec)
        await fleet.delete("Volume", "data")
        assert fleet.status("data")["message"] == "still used by function/embedder"
        await fleet.delete("Function", "embedder")
        assert fleet.local.volumes == set()
