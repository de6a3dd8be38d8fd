"""Attempts of several nodes as the engine sees them: one run, one price, one end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import GpuUsage, Node, RunState
from fleetctl.specs.blocks.nodes import nodes_of
from tests.unit.engine.fake_world import CONTRACT, Fleet

SEVERAL = replace(CONTRACT, nodes_max=8)


def training(**fields: Any) -> dict[str, Any]:
    return {"template": {"script": "train", "timeoutSeconds": 90}, "nodes": 3, **fields}


async def test_case_2_a_lost_node_is_a_loss_and_costs_no_restart() -> None:
    async with Fleet(contract=SEVERAL) as fleet:
        await fleet.apply("TrainingRun", "t", training(maxRestarts=0))
        states = tuple(Node(it) for it in ("Failed", "Lost", "Failed"))
        fleet.local.finish(0, ok=False, infrastructure=True, reason="NodeLost", nodes=states)
        await fleet.settle()
        first, second = fleet.runs("t")
        assert (first.state, first.reason) == (RunState.LOST, "NodeLost")
        assert (second.attempt, nodes_of(fleet.local.orders[second.name].template).max) == (2, 3)
        assert [it["state"] for it in fleet.status("t")["nodes"]] == ["Failed", "Lost", "Failed"]
        fleet.local.finish(0)
        await fleet.settle()
        assert fleet.status("t")["phase"] == "Succeeded"
        assert (fleet.status("t")["infraFailures"], fleet.status("t")["restarts"]) == (1, 1)


async def test_case_4_nodes_that_cannot_be_had_cost_no_attempt_and_are_told() -> None:
    async with Fleet(contract=SEVERAL) as fleet:
        short = Unavailable("2 of 3 nodes: no A100", reason="NoCapacity", retry_after_s=5.0)
        fleet.local.script["start"] = [short]
        await fleet.apply("TrainingRun", "t", training())
        status = fleet.status("t")
        assert (status["phase"], status["reason"]) == ("Pending", "NoCapacity")
        assert status["message"] == "2 of 3 nodes: no A100"
        assert (fleet.local.orders, fleet.status("t")["cost"]["actual"]) == ({}, 0.0)
        await fleet.later(6.0)
        [run] = fleet.runs("t")
        assert (run.attempt, run.state) == (1, RunState.RUNNING)


async def test_case_14_another_number_of_nodes_replaces_what_runs() -> None:
    async with Fleet(contract=SEVERAL) as fleet:
        await fleet.apply("TrainingRun", "t", training(nodes=2))
        await fleet.apply("TrainingRun", "t", training(nodes=2, maxRestarts=5))
        assert fleet.local.stops == []  # a limit is no reason to begin anew
        await fleet.apply("TrainingRun", "t", training(nodes=4, maxRestarts=5))
        assert len(set(fleet.local.stops)) == 1
        [order] = [it for it in fleet.local.orders.values() if it.attempt == 2]
        assert order.nodes.max == 4


async def test_case_17_a_gang_is_reserved_and_paid_for_with_all_its_nodes() -> None:
    async with Fleet(contract=SEVERAL) as fleet:
        fleet.local.price = 0.01
        await fleet.apply("TrainingRun", "t", training(budget={"maxCost": 2.9}))
        assert fleet.runs("t") == []  # 3 nodes x $0.01 x (90 s + 10 s of grace) is $3
        await fleet.apply("TrainingRun", "t", training(budget={"maxCost": 3.1}))
        [run] = fleet.runs("t")
        assert (run.usd_per_s, run.usd) == (pytest.approx(0.03), pytest.approx(3.0))
        fleet.clock.time_s += 50.0
        fleet.local.finish(0)
        await fleet.settle()
        assert fleet.status("t")["cost"]["actual"] == pytest.approx(3 * 0.01 * 50)


async def test_an_elastic_gang_costs_what_it_got_also_after_a_restart() -> None:
    async with Fleet(contract=SEVERAL) as fleet:
        fleet.local.price = 0.01
        await fleet.apply("TrainingRun", "t", training(nodes={"min": 1, "max": 4}))
        name = fleet.local.run(0)
        fleet.local.nodes[name] = (Node("Running"), Node("Running"))
        fleet.local.begun_bytes = 10
        fleet.engine.watcher.look(name)
        await fleet.settle()
        [run] = fleet.runs("t")
        assert run.usd_per_s == pytest.approx(0.02)
        await fleet.crash()
        await fleet.settle()
        [run] = fleet.runs("t")
        assert run.usd_per_s == pytest.approx(0.02)


async def test_how_its_nodes_stand_is_in_the_status_while_it_runs() -> None:
    async with Fleet(contract=SEVERAL) as fleet:
        await fleet.apply("TrainingRun", "t", training())
        assert "nodes" not in fleet.status("t")
        fleet.local.nodes[fleet.local.run(0)] = (Node("Running"), Node("Failed"), Node("Running"))
        fleet.local.begun_bytes = 10  # the journal grew
        fleet.engine.watcher.look(fleet.local.run(0))
        await fleet.settle()
        states = [it["state"] for it in fleet.status("t")["nodes"]]
        assert states == ["Running", "Failed", "Running"]


async def test_elastic_nodes_that_lie_in_a_queue_become_fewer_until_the_fewest() -> None:
    async with Fleet(contract=SEVERAL) as fleet:
        queued = Unavailable("waiting for H100:8", reason="Queued", retry_after_s=20.0)
        fleet.local.script["start"] = [queued] * 100
        spec = {**training(nodes={"min": 2, "max": 8}), "maxInfraRetries": 1}
        await fleet.apply("TrainingRun", "t", spec)
        for _ in range(90):
            await fleet.later(20.0)
        asked = [nodes_of(fleet.local.requests[run.name].template) for run in fleet.runs("t")]
        assert [nodes.max for nodes in asked] == [8, 4, 2]  # and then it waits
        reasons = [run.reason for run in fleet.runs("t")]
        assert reasons[:2] == ["FewerNodes"] * 2
        assert fleet.status("t")["reason"] == "Queued"
        await fleet.crash()
        fleet.local.script["start"] = []
        await fleet.later(60.0)
        fleet.local.finish(0, ok=False, infrastructure=True, reason="ProviderLost")
        await fleet.settle()
        newest = fleet.runs("t")[-1]
        assert (newest.attempt, nodes_of(fleet.local.orders[newest.name].template).max) == (4, 8)


async def test_a_node_that_falls_behind_is_an_event_that_names_it() -> None:
    async with Fleet(contract=SEVERAL) as fleet:
        await fleet.apply("TrainingRun", "t", training())
        fleet.local.stragglers, fleet.local.begun_bytes = ("node 2: 3.1 s behind",), 10
        fleet.engine.watcher.look(fleet.local.run(0))
        await fleet.settle()
        rows = fleet.database.events.execute("SELECT message FROM events WHERE reason='Straggler'")
        assert rows.fetchall() == [("stage main attempt 1: node 2: 3.1 s behind",)]


async def test_how_busy_the_gpus_are_is_told_while_it_runs_and_no_longer() -> None:
    async with Fleet() as fleet:
        await fleet.apply("TrainingRun", "t", {"template": {"script": "train"}})
        name = fleet.local.run(0)
        fleet.local.usage, fleet.local.begun_bytes = GpuUsage(2, 80.4, 60_000, 163_840, 2.5), 10
        fleet.engine.watcher.look(name)
        await fleet.settle()
        memory = {"memoryMib": 60_000, "memoryTotalMib": 163_840}
        told = {"gpus": 2, "gpuPercent": 80, **memory, "stepsPerSecond": 2.5}
        assert fleet.status("t")["usage"] == told
        fleet.local.finish(0)
        await fleet.settle()
        assert "usage" not in fleet.status("t")


async def test_a_provider_with_one_machine_an_attempt_says_so() -> None:
    async with Fleet() as fleet:
        await fleet.apply("TrainingRun", "t", training())
        await fleet.later(600.0)
        status = fleet.status("t")
        assert (status["phase"], status["reason"]) == ("Failed", "Refused")
        assert (
            status["message"] == "provider `local` gives an attempt one machine, and `nodes` is 3"
        )
