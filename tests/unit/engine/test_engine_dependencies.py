"""Work that depends on other work: it waits and says on whom, begins when the other one's present
spec has come out as it must, and ends where that can no longer be.
"""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.apply.change import Change
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import order_of
from fleetctl.apply.write import commit as writes
from fleetctl.apply.write.requeue import RetryChoice, requeue_units
from fleetctl.apply.write.store_changes import store_changes
from fleetctl.manifest import Manifest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from tests.unit.engine.fake_world import Fleet

Y = "batchjob/y"


def manifest(kind: str, name: str, **fields: Any) -> Manifest:
    spec = KINDS[kind].spec.model_validate(fields)
    return Manifest(kind, name, Metadata.model_validate({"name": name}), spec, "a.yaml", 1)


def job(name: str, *depends: Any, **fields: Any) -> Manifest:
    on = [it if isinstance(it, dict) else {"job": it} for it in depends]
    given = {"template": {"python": f"work of {name}"}, "parallelism": 4}
    return manifest("BatchJob", name, **(given | ({"dependsOn": on} if on else {}) | fields))


async def apply(fleet: Fleet, *manifests: Manifest, **said: Any) -> list[Change]:
    found = propose_changes(fleet.store, manifests, order_of(said), fleet.clock.now_s())
    store_changes(fleet.store, found, fleet.clock.now_s())
    for change in found:
        fleet.engine.state.poke(change.after.uid)
    await fleet.settle()
    return found


async def finish(fleet: Fleet, of: str, index: int = 0, *, ok: bool = True) -> None:
    fleet.local.finish(index, of=of, ok=ok)
    await fleet.settle()


def begun(fleet: Fleet, of: str = Y) -> int:
    """How many attempts of an object have begun, ever."""
    return sum(it.resource == of for it in fleet.local.orders.values())


def stands(fleet: Fleet, name: str = "y") -> tuple[Any, Any]:
    status = fleet.status(name)
    return status["phase"], status["reason"]


async def test_it_waits_says_on_whom_and_begins_at_once_when_that_has_succeeded() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job("y", "x"), job("x"))
        assert stands(fleet) == ("Pending", "AwaitsDependency")
        status = fleet.status("y")
        assert status["message"] == "waits for batchjob/x to succeed, which is Running"
        assert status["waitingOn"] == [status["message"]]
        assert status["activeSince"] is None
        waits = {"on": "batchjob/x", "condition": "Succeeded", "state": "Waiting"}
        assert (status["dependencies"], begun(fleet)) == ([waits], 0)
        await finish(fleet, "batchjob/x")
        assert begun(fleet) == 1
        await finish(fleet, Y)
        assert stands(fleet) == ("Succeeded", "Completed")
        assert fleet.status("y")["dependencies"] == [waits | {"state": "Met"}]


@pytest.mark.parametrize(
    ("condition", "ok", "phase"),
    [
        ("Complete", True, "Running"),
        ("Complete", False, "Failed"),
        ("Failed", False, "Running"),
        ("Failed", True, "Skipped"),
        ("Finished", True, "Running"),
        ("Finished", False, "Running"),
    ],
)
async def test_each_condition_means_what_it_says(condition: str, ok: bool, phase: str) -> None:
    async with Fleet() as fleet:
        await apply(fleet, job("x"), job("y", {"job": "x", "condition": condition}))
        await finish(fleet, "batchjob/x", ok=ok)
        assert stands(fleet)[0] == phase
        assert begun(fleet) == (phase == "Running")


async def test_a_failed_dependency_fails_it_and_skips_what_says_so_and_all_behind_that() -> None:
    async with Fleet() as fleet:
        await apply(
            fleet,
            job("x"),
            job("y", "x"),
            job("z", "x", onDependencyFailed="Skip"),
            job("behind", "z"),
            job("after-all", {"job": "behind", "condition": "Finished"}),
        )
        await finish(fleet, "batchjob/x", ok=False)
        assert stands(fleet) == ("Failed", "DependencyFailed")
        text = "it waited for batchjob/x to succeed, which failed: 1 of 1 tasks failed"
        assert fleet.status("y")["message"] == text
        assert stands(fleet, "z") == ("Skipped", "DependencyFailed")
        assert stands(fleet, "behind") == ("Skipped", "DependencySkipped")
        assert begun(fleet, "batchjob/after-all") == 1
        conditions = {it["type"]: it["status"] for it in fleet.status("z")["conditions"]}
        assert conditions == {"Skipped": "True"}
        await fleet.crash()
        await fleet.settle()
        assert (stands(fleet, "z")[0], begun(fleet, "batchjob/z")) == ("Skipped", 0)


async def test_a_success_of_an_older_spec_releases_nobody() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job("x"))
        await finish(fleet, "batchjob/x")
        await apply(fleet, job("x", template={"python": "other"}), job("y", "x"))
        assert (stands(fleet)[1], begun(fleet)) == ("AwaitsDependency", 0)
        await fleet.crash()
        await fleet.settle()
        assert begun(fleet) == 0
        await finish(fleet, "batchjob/x")
        assert begun(fleet) == 1


async def test_a_change_of_the_dependency_before_it_began_is_waited_for() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job("x"), job("y", "x", suspend=True))
        await finish(fleet, "batchjob/x")
        await apply(fleet, job("x", template={"python": "other"}))
        await apply(fleet, job("y", "x"))
        assert (stands(fleet)[1], begun(fleet)) == ("AwaitsDependency", 0)


async def test_what_has_begun_goes_on_whatever_becomes_of_its_dependency() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job("x"), job("y", "x", completions=3, parallelism=1))
        await finish(fleet, "batchjob/x")
        await apply(fleet, job("x", template={"python": "other"}))
        await finish(fleet, Y)
        assert begun(fleet) == 2
        await finish(fleet, "batchjob/x", ok=False)
        await fleet.delete("BatchJob", "x")
        await fleet.crash()
        await apply(fleet, job("y", "x", completions=3, parallelism=2))
        await finish(fleet, Y, 1)
        await finish(fleet, Y, 2)
        assert (stands(fleet)[0], begun(fleet)) == ("Succeeded", 3)
        sql = "SELECT message FROM events WHERE reason = 'Released'"
        assert list(fleet.database.events.execute(sql)) == [("batchjob/x is Succeeded",)]


async def test_changed_work_is_judged_anew() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job("x"), job("y", "x"))
        await finish(fleet, "batchjob/x")
        await finish(fleet, Y)
        other = {"python": "other"}
        await apply(fleet, job("x", template=other), job("y", "x", template=other))
        assert (stands(fleet)[1], begun(fleet)) == ("AwaitsDependency", 1)
        await finish(fleet, "batchjob/x")
        assert begun(fleet) == 2


async def test_what_is_done_does_not_run_again_for_a_change_of_its_dependency() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job("x"), job("y", "x"))
        await finish(fleet, "batchjob/x")
        await finish(fleet, Y)
        [_, same] = await apply(fleet, job("x", template={"python": "other"}), job("y", "x"))
        await finish(fleet, "batchjob/x")
        assert (same.outcome, begun(fleet), stands(fleet)[0]) == ("unchanged", 1, "Succeeded")


async def test_a_missing_dependency_is_waited_for_until_it_comes() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job("y", "x"))
        assert stands(fleet) == ("Pending", "DependencyMissing")
        text = "waits for batchjob/x to succeed, which is not there"
        assert fleet.status("y")["message"] == text
        await apply(fleet, job("x"))
        assert stands(fleet)[1] == "AwaitsDependency"
        await fleet.delete("BatchJob", "x")
        assert stands(fleet)[1] == "DependencyMissing"
        await apply(fleet, job("x"))
        await finish(fleet, "batchjob/x")
        assert begun(fleet) == 1


async def test_it_waits_for_all_of_them() -> None:
    async with Fleet() as fleet:
        train = manifest("TrainingRun", "t", template={"command": ["train"]})
        await apply(fleet, job("x"), train, job("y", "x", {"trainingrun": "t"}))
        await finish(fleet, "batchjob/x")
        text = "waits for trainingrun/t to succeed, which is Running"
        assert (fleet.status("y")["message"], begun(fleet)) == (text, 0)
        await finish(fleet, "trainingrun/t")
        assert begun(fleet) == 1


async def test_what_failed_for_its_dependency_waits_again_when_both_are_applied() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job("x"), job("y", "x"))
        await finish(fleet, "batchjob/x", ok=False)
        [same] = await apply(fleet, job("y", "x"))
        assert (same.outcome, stands(fleet)[0]) == ("unchanged", "Failed")
        await apply(fleet, job("x", template={"python": "mended"}), job("y", "x"))
        assert stands(fleet) == ("Pending", "AwaitsDependency")
        await finish(fleet, "batchjob/x")
        await finish(fleet, Y)
        assert stands(fleet)[0] == "Succeeded"


async def test_a_retry_of_the_dependency_and_then_of_it_goes_on() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job("x"), job("y", "x", onDependencyFailed="Skip"))
        await finish(fleet, "batchjob/x", ok=False)
        for kind, name in (("BatchJob", "x"), ("BatchJob", "y")):
            requeue_units(fleet.store, kind, name, RetryChoice("failed"), fleet.clock.now_s())
            await fleet.settle()
        assert stands(fleet)[1] == "AwaitsDependency"
        await finish(fleet, "batchjob/x")
        assert begun(fleet) == 1


async def test_a_suspended_dependency_holds_it_up() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job("x"), job("y", "x"))
        writes.suspend_object(fleet.store, "BatchJob", "x", fleet.clock.now_s())
        await fleet.settle()
        assert fleet.status("y")["message"].endswith("which is Suspended")


async def test_work_for_the_case_of_failure_fails_where_it_is_to_and_for_what_went_wrong() -> None:
    async with Fleet() as fleet:
        failed = {"job": "x", "condition": "Failed"}
        await apply(
            fleet,
            job("x"),
            job("w"),
            job("y", failed, onDependencyFailed="Fail"),
            job("z", failed, {"job": "w", "condition": "Succeeded"}),
        )
        await finish(fleet, "batchjob/w", ok=False)
        await finish(fleet, "batchjob/x")
        assert stands(fleet) == ("Failed", "DependencyFailed")
        assert fleet.status("z")["phase"] == "Failed"
