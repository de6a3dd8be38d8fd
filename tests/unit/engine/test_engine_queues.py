"""Queues: what they let start, in which order, who makes room, and what a restart knows of it."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from fleetctl.apply.write import commit
from fleetctl.controllers.model import CheckpointReport, SavedCheckpoint
from fleetctl.engine.decide.dependencies import Dependencies
from fleetctl.engine.decide.passes import Passes
from fleetctl.engine.kinds.queues import Queues
from fleetctl.manifest import Manifest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from tests.unit.engine.fake_world import Fleet


def queue(*quotas: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"quotas": list(quotas), **more}


def sandboxes(most: int, **more: Any) -> dict[str, Any]:
    return {"resource": "sandboxes", "nominal": most, **more}


def job(tasks: int = 1, *, of: str = "gpu", gpu: str = "", **more: Any) -> dict[str, Any]:
    resources = {"resources": {"gpu": gpu}} if gpu else {}
    return {
        "completions": tasks,
        "parallelism": 10,
        "queue": of,
        "template": {"command": ["work"], **resources},
        **more,
    }


def live(fleet: Fleet, name: str) -> int:
    return sum(run.state.value in ("Starting", "Running", "Stopping") for run in fleet.runs(name))


async def test_a_queue_lets_as_much_start_as_its_quota_and_the_rest_waits_in_line() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Queue", "gpu", queue(sandboxes(3)))
        await fleet.apply("BatchJob", "a", job(2))
        await fleet.apply("BatchJob", "b", job(2))
        await fleet.apply("BatchJob", "c", job(1))
        assert [live(fleet, name) for name in "abc"] == [2, 1, 0]
        waits = fleet.status("c")
        assert (waits["phase"], waits["reason"]) == ("Pending", "QueueFull")
        assert waits["message"] == (
            "queue/gpu: 3 of 3 sandboxes are in use, and the next run takes 1"
        )
        assert waits["activeSince"] is None
        stands = fleet.status("gpu")
        assert stands["quotas"] == [
            {"resource": "sandboxes", "used": 3.0, "nominal": 3.0, "borrowed": 0.0}
        ]
        assert (stands["running"], stands["waiting"]) == (3, 2)
        fleet.local.finish(0, of="batchjob/a")
        await fleet.settle()
        assert [live(fleet, name) for name in "abc"] == [1, 2, 0]
        fleet.local.finish(1, of="batchjob/a")
        fleet.local.finish(0, of="batchjob/b")
        fleet.local.finish(1, of="batchjob/b")
        await fleet.settle()
        fleet.local.finish(0, of="batchjob/c")
        await fleet.settle()
        assert [fleet.status(name)["phase"] for name in "abc"] == ["Succeeded"] * 3
        assert (fleet.status("gpu")["running"], fleet.status("gpu")["waiting"]) == (0, 0)


async def test_what_a_pass_decided_and_did_not_write_is_not_taken_of_the_queue() -> None:
    """A spec that is written in between undoes the plan, and what it took in memory."""
    async with Fleet() as fleet:
        await fleet.apply("Queue", "gpu", queue(sandboxes(1)))
        await fleet.apply("BatchJob", "first", {**job(), "queue": None})
        fleet.local.finish(0, of="batchjob/first")
        await fleet.later(1.0)
        undone: list[str] = []

        def note(self: Dependencies, work: Any, *rest: Any) -> bool:
            if undone:
                return noted(self, work, *rest)
            undone.append(work.resource.uid)
            self._state.queue.add(work.resource.uid)
            return False

        noted = Dependencies.note
        with patch.object(Dependencies, "note", note):
            await fleet.apply("BatchJob", "a", job(dependsOn=[{"job": "first"}]))
            await fleet.later(2.0)
        assert undone and live(fleet, "a") == 1
        assert fleet.status("gpu")["running"] == 1


async def test_who_waited_first_goes_first_after_a_crash_too() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Queue", "gpu", queue(sandboxes(1)))
        await fleet.apply("BatchJob", "z-first", job())
        for name in ("y-second", "x-third"):
            await fleet.later(1.0)
            await fleet.apply("BatchJob", name, job())
        await fleet.crash()
        fleet.local.finish(0, of="batchjob/z-first")
        await fleet.later(1.0)
        assert [live(fleet, name) for name in ("z-first", "y-second", "x-third")] == [0, 1, 0]


async def test_a_job_waits_for_a_queue_that_is_not_there_and_begins_when_it_is() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "a", job())
        waits = fleet.status("a")
        assert (waits["reason"], waits["hint"]) == (
            "QueueMissing", "apply a `kind: Queue` with the name `gpu`",
        )  # fmt: skip
        await fleet.apply("Queue", "gpu", queue(sandboxes(1)))
        assert live(fleet, "a") == 1
        await fleet.delete("Queue", "gpu")
        await fleet.apply("BatchJob", "b", job())
        assert (live(fleet, "a"), fleet.status("b")["reason"]) == (1, "QueueMissing")
        # What runs counts in a queue of the same name.
        await fleet.apply("Queue", "gpu", queue(sandboxes(1)))
        assert (live(fleet, "b"), fleet.status("b")["reason"]) == (0, "QueueFull")


async def test_what_a_run_takes_is_counted_by_sort_of_gpu_node_and_price() -> None:
    async with Fleet() as fleet:
        fleet.local.price, fleet.local.gpu_prices = 0.0, {"A100:4": 4 / 3600}
        quotas = ({"resource": "gpu/A100", "nominal": 8}, {"resource": "usdPerHour", "nominal": 6})
        await fleet.apply("Queue", "gpu", queue(*quotas))
        await fleet.apply("BatchJob", "a", job(3, gpu="A100:4"))
        assert live(fleet, "a") == 1
        assert "4 of 6 usdPerHour are in use" in fleet.status("a")["waitingOn"][0]
        await fleet.apply("Queue", "gpu", queue(quotas[0]))
        assert live(fleet, "a") == 2
        assert "8 of 8 gpu/A100 are in use" in fleet.status("a")["waitingOn"][0]
        await fleet.apply("BatchJob", "cpu", job(3))
        assert live(fleet, "cpu") == 3
        await fleet.apply("BatchJob", "big", job(1, gpu="A100:16"))
        waits = fleet.status("big")
        assert waits["reason"] == "QueueTooSmall"
        assert waits["message"] == "one run takes 16 gpu/A100, and queue/gpu has 8"


async def test_nodes_of_one_attempt_start_together_or_not_at_all() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Queue", "gpu", queue(sandboxes(4)))
        await fleet.apply("BatchJob", "a", job(2))
        training = {
            "queue": "gpu",
            "nodes": 3,
            "template": {"command": ["train"], "resources": {"gpu": "A100:8"}},
        }
        await fleet.apply("TrainingRun", "t", training)
        assert (live(fleet, "t"), fleet.status("t")["reason"]) == (0, "QueueFull")
        fleet.local.finish(0, of="batchjob/a")
        await fleet.settle()
        assert live(fleet, "t") == 1
        assert fleet.status("gpu")["quotas"][0]["used"] == 4.0


async def test_a_higher_priority_goes_first_and_stops_nobody_unless_the_queue_says_so() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Queue", "gpu", queue(sandboxes(1)))
        await fleet.apply("BatchJob", "low", job(3, priority="low"))
        await fleet.later(1.0)
        await fleet.apply("BatchJob", "high", job(1, priority="high"))
        assert (live(fleet, "low"), live(fleet, "high")) == (1, 0)
        fleet.local.finish(0, of="batchjob/low")
        await fleet.settle()
        # The job whose task has just ended does not start its next one before it.
        assert (live(fleet, "low"), live(fleet, "high")) == (0, 1)
        assert fleet.status("low")["reason"] == "QueueFull"


async def test_preempted_work_is_asked_to_stop_and_starts_again_without_a_failure() -> None:
    async with Fleet() as fleet:
        rules = queue(sandboxes(2), preemption={"withinQueue": "LowerPriority"})
        await fleet.apply("Queue", "gpu", rules)
        template = {"command": ["work"], "terminationGracePeriodSeconds": 33}
        await fleet.apply("BatchJob", "low", job(1, template=template))
        await fleet.later(1.0)
        await fleet.apply("BatchJob", "young", job(1, template=template))
        fleet.local.deaf = True
        await fleet.apply("BatchJob", "high", job(1, priority=5))
        victim = fleet.runs("young")[-1]
        assert (victim.state.value, victim.reason) == ("Stopping", "Preempted")
        assert victim.message == "batchjob/high with priority 5 comes first in queue/gpu"
        assert fleet.local.graces[victim.name] == 33
        assert (live(fleet, "low"), live(fleet, "high")) == (1, 0)  # it holds its place until then
        await fleet.crash()
        await fleet.settle()
        assert fleet.runs("low")[-1].state.value == "Running"
        fleet.local.deaf = False
        fleet.local.finish(0, of="batchjob/young", ok=False)  # as a program ends on SIGTERM
        await fleet.settle()
        assert live(fleet, "high") == 1
        status = fleet.status("young")
        assert (status["phase"], status["reason"]) == ("Pending", "QueueFull")
        assert (status["failed"], status["retries"], status["infraFailures"]) == (0, 0, 0)
        assert [run.state.value for run in fleet.runs("young")] == ["Stopped"]
        fleet.local.finish(0, of="batchjob/high")
        await fleet.settle()
        assert [run.attempt for run in fleet.runs("young")] == [1, 2]
        assert live(fleet, "young") == 1


async def test_nobody_makes_room_for_one_whose_budget_would_not_let_it_start() -> None:
    """It would start again in the room that it made, and be stopped again, in turns."""
    async with Fleet() as fleet:
        fleet.local.price, fleet.local.gpu_prices = 1.0, {}
        rules = queue(sandboxes(1), preemption={"withinQueue": "LowerPriority"})
        await fleet.apply("Queue", "gpu", rules)
        await fleet.apply("BatchJob", "low", job(1))
        spent = {"template": {"command": ["work"], "timeoutSeconds": 100}, "budget": {"maxCost": 1}}
        await fleet.apply("BatchJob", "high", job(1, priority=5, **spent))
        await fleet.later(5.0)
        assert (live(fleet, "low"), live(fleet, "high")) == (1, 0)
        assert [run.state.value for run in fleet.runs("low")] == ["Running"]
        assert fleet.status("gpu")["waiting"] == 0


async def test_preempted_training_has_its_signal_time_and_goes_on_from_its_checkpoint() -> None:
    async with Fleet() as fleet:
        rules = queue(sandboxes(1), preemption={"withinQueue": "LowerPriority"})
        await fleet.apply("Queue", "gpu", rules)
        training = {
            "queue": "gpu",
            "maxRestarts": 0,
            "checkpoint": {"path": "/ckpt/run", "signalBeforeStopSeconds": 77},
            "template": {
                "command": ["train"],
                "volumes": [{"name": "ckpt", "mountPath": "/ckpt"}],
            },
        }
        await fleet.apply("TrainingRun", "train", training)
        victim = fleet.runs("train")[-1].name
        fleet.local.deaf = True
        await fleet.apply("BatchJob", "high", job(1, priority="high"))
        assert fleet.local.graces[victim] == 77
        saved = (SavedCheckpoint(40, "/ckpt/run/step-40", 1_000.0, 7),)
        fleet.local.deaf = False
        fleet.local.finish(0, ok=False, checkpoints=CheckpointReport(saved=saved))
        await fleet.settle()
        assert (live(fleet, "train"), live(fleet, "high")) == (0, 1)
        fleet.local.finish(0, of="batchjob/high")
        await fleet.settle()
        first, second = fleet.runs("train")
        assert (first.state.value, first.reason, first.saved_step) == ("Stopped", "Preempted", 40)
        assert second.state.value == "Running"
        assert fleet.status("train")["restarts"] == 0
        fleet.local.finish(0, checkpoints=CheckpointReport(resumed=40))
        await fleet.settle()
        assert fleet.status("train")["phase"] == "Succeeded"


async def test_what_no_wait_helps_is_told_as_stuck() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "a", job())
        assert fleet.status("a")["stuck"]["lack"] == "missing"
        await fleet.apply("Queue", "gpu", queue(sandboxes(0)))
        assert fleet.status("a")["stuck"]["reason"] == "QueueTooSmall"
        await fleet.apply("Queue", "gpu", queue(sandboxes(1)))
        await fleet.apply("BatchJob", "b", job())
        assert "stuck" not in fleet.status("b")


async def test_namespaces_take_turns_by_their_weights() -> None:
    async with Fleet() as fleet:
        rules = queue(sandboxes(6), fairShare={"weights": {"team-b": 2}})
        await fleet.apply("Queue", "gpu", queue(sandboxes(6), suspend=True, fairShare={}))
        for team in ("team-a", "team-b"):
            await fleet.apply("BatchJob", team, job(20, priority=len(team)), namespace=team)
        assert fleet.status("team-a")["reason"] == "QueueSuspended"
        await fleet.apply("Queue", "gpu", rules)
        assert [live(fleet, team) for team in ("team-a", "team-b")] == [2, 4]


async def test_a_queue_borrows_what_its_cohort_leaves_and_gives_it_back() -> None:
    async with Fleet() as fleet:
        takes_back = {"reclaimWithinCohort": "Any"}
        await fleet.apply("Queue", "own", queue(sandboxes(2), cohort="lab", preemption=takes_back))
        await fleet.apply("Queue", "guest", queue(sandboxes(1, borrowingLimit=2), cohort="lab"))
        await fleet.apply("BatchJob", "g", job(5, of="guest"))
        assert live(fleet, "g") == 3
        assert fleet.status("guest")["quotas"][0]["borrowed"] == 2.0
        await fleet.apply("BatchJob", "o", job(2, of="own"))
        await fleet.settle()
        assert (live(fleet, "g"), live(fleet, "o")) == (1, 2)
        reasons = [run.reason for run in fleet.runs("g") if run.state.value == "Stopped"]
        assert reasons == ["Preempted"] * 2


@pytest.mark.parametrize(("strategy", "small"), [("StrictFIFO", 0), ("BestEffortFIFO", 1)])
async def test_what_fits_overtakes_what_does_not_only_where_that_is_allowed(
    strategy: str, small: int
) -> None:
    async with Fleet() as fleet:
        rules = queue({"resource": "gpus", "nominal": 8}, strategy=strategy, overtakeSeconds=60)
        await fleet.apply("Queue", "gpu", rules)
        await fleet.apply("BatchJob", "runs", job(gpu="A100:4"))
        await fleet.apply("BatchJob", "large", job(gpu="A100:8"))
        await fleet.later(1.0)
        await fleet.apply("BatchJob", "small", job(gpu="A100:2"))
        assert (live(fleet, "large"), live(fleet, "small")) == (0, small)
        await fleet.later(61.0)
        await fleet.apply("BatchJob", "late", job(gpu="A100:2"))
        assert (live(fleet, "late"), fleet.status("late")["reason"]) == (0, "QueueTurn")


async def test_a_sandbox_that_takes_tasks_in_turn_gives_way_to_a_higher_priority() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Queue", "gpu", queue(sandboxes(1)))
        await fleet.apply("BatchJob", "low", job(5, sandbox={"reuse": "all"}))
        await fleet.later(1.0)
        fleet.local.finish(0, of="batchjob/low")
        await fleet.settle()
        assert fleet.local.working() == [1]
        await fleet.apply("BatchJob", "high", job(1, priority=1))
        fleet.local.finish(1, of="batchjob/low")
        await fleet.settle()
        assert live(fleet, "high") == 1
        assert (fleet.status("low")["succeeded"], live(fleet, "low")) == (2, 0)


@pytest.mark.parametrize("before", [None, "other"])
async def test_a_sandbox_from_before_its_object_came_to_the_queue_takes_no_more_of_it(
    before: str | None,
) -> None:
    """What it holds was never asked for in this queue, and counts nowhere in it."""
    async with Fleet() as fleet:
        await fleet.apply("Queue", "gpu", queue(sandboxes(1)))
        await fleet.apply("Queue", "other", queue(sandboxes(1)))
        await fleet.apply("BatchJob", "first", job(1))
        spec = job(3, sandbox={"reuse": "all"}, parallelism=1)
        await fleet.apply("BatchJob", "moved", {**spec, "queue": before})
        assert live(fleet, "moved") == 1
        await fleet.apply("BatchJob", "moved", spec)
        assert live(fleet, "moved") == 1  # what runs goes on
        fleet.local.finish(0, of="batchjob/moved")
        await fleet.settle()
        assert (live(fleet, "moved"), fleet.status("moved")["reason"]) == (0, "QueueFull")
        fleet.local.finish(0, of="batchjob/first")
        await fleet.settle()
        assert live(fleet, "moved") == 1
        assert (fleet.status("gpu")["running"], fleet.status("other")["running"]) == (1, 0)


async def test_what_an_object_holds_counts_while_its_spec_is_another_or_its_pass_fails() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Queue", "gpu", queue(sandboxes(2)))
        await fleet.apply("BatchJob", "a", job(5))
        await fleet.apply("BatchJob", "b", job(3))
        assert [live(fleet, name) for name in "ab"] == [2, 0]
        await fleet.apply("BatchJob", "a", {**job(5), "template": {"command": ["other"]}})
        assert live(fleet, "a") + live(fleet, "b") <= 2
        await fleet.later(5.0)
        with patch.object(Passes, "_desired", side_effect=RuntimeError("a bug")):
            await fleet.apply("BatchJob", "a", {**job(5), "parallelism": 9})
        assert fleet.status("a")["reason"] == "Quarantined"
        await fleet.apply("BatchJob", "c", job(1, priority=5))
        await fleet.apply("Queue", "gpu", queue(sandboxes(2), strategy="StrictFIFO"))
        assert sum(live(fleet, name) for name in "abc") <= 2
        assert fleet.status("gpu")["running"] == 2


async def test_of_objects_that_come_together_the_higher_priority_starts_first() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Queue", "gpu", queue(sandboxes(1)))
        manifests = [
            (name, KINDS["BatchJob"].spec.model_validate(job(priority=priority)))
            for name, priority in (("low", "low"), ("first", 0), ("second", 0), ("high", "high"))
        ]
        commit.apply_manifests(
            fleet.store,
            [Manifest("BatchJob", it, Metadata(name=it), spec, "f", 1) for it, spec in manifests],
            fleet.clock.now_s(),
        )
        await fleet.settle()
        for name in ("high", "first", "second", "low"):
            assert live(fleet, name) == 1, name
            fleet.local.finish(0, of=f"batchjob/{name}")
            await fleet.later(1.0)


async def test_an_object_that_cannot_be_read_holds_up_nobody_behind_it() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Queue", "gpu", queue(sandboxes(1)))
        await fleet.apply("BatchJob", "runs", job())
        await fleet.later(1.0)
        await fleet.apply("BatchJob", "broken", job())
        await fleet.later(1.0)
        await fleet.apply("BatchJob", "behind", job())
        with patch.object(Queues, "turn", raising(Queues.turn, "broken")):
            fleet.local.finish(0, of="batchjob/runs")
            await fleet.settle()
            assert fleet.status("broken")["reason"] == "Quarantined"
            assert live(fleet, "behind") == 1


def raising(turn: Any, name: str) -> Any:
    def patched(self: Queues, work: Any, now_s: float) -> Any:
        assert work.resource.name != name, "a bug"
        return turn(self, work, now_s)

    return patched
