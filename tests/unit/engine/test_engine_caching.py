"""Work that has succeeded before is not done again: for another object, and after any crash; and
where that could be wrong, it is done again.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fleetctl.apply.request import ApplyOptions
from fleetctl.apply.write import commit
from fleetctl.controllers import reconcile
from fleetctl.controllers.model import Metric
from fleetctl.manifest import Manifest
from fleetctl.providers.sources.revision import of_project
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.tracking.source_state import SourceState
from tests.unit.engine.fake_world import Fleet

ITEMS = [{"x": 1}, {"x": 2}, {"x": 3}]


SHARED = {"cache": {"policy": "ReuseSucceeded"}}


def job(*items: dict[str, int], **fields: Any) -> dict[str, Any]:
    template = {"python": "SUBMIT(x=x)"}
    return {"template": template, "tasks": {"items": list(items)}, **SHARED, **fields}


async def finish_all(fleet: Fleet, **changes: Any) -> None:
    """Until nothing works any more; each result tells the parameter that it came from."""
    while working := fleet.local.working():
        for index in working:
            x = fleet.local.orders[fleet.local.run(index)].params.get("x")
            fleet.local.finish(index, **{"result": json.dumps({"x": x}), **changes})
        await fleet.settle()


def results(fleet: Fleet, name: str) -> dict[int, str | None]:
    rows = fleet.store.runs.of(fleet.row(name).uid)
    return {run.index: result for run, result in rows if run.state.value == "Succeeded"}


async def test_equal_tasks_of_another_object_take_the_results_over() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "one", job(*ITEMS))
        await finish_all(fleet)
        began = len(fleet.local.orders)
        await fleet.apply("BatchJob", "two", job(*reversed(ITEMS)))
        status = fleet.status("two")
        assert (status["phase"], status["succeeded"], status["cached"]) == ("Succeeded", 3, 3)
        assert results(fleet, "two") == {0: '{"x": 3}', 1: '{"x": 2}', 2: '{"x": 1}'}
        assert len(fleet.local.orders) == began
        runs = fleet.runs("two")
        assert {run.reason for run in runs} == {"Cached"}
        assert runs[0].message == f"the result of batchjob/one 2, run {fleet.runs('one')[2].name}"
        assert [run.cost_usd for run in runs] == [0.0] * 3


async def test_only_what_is_new_runs() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "one", job(*ITEMS[:2]))
        await finish_all(fleet)
        await fleet.apply("BatchJob", "two", job(*ITEMS))
        assert fleet.local.working() == [2]
        assert fleet.status("two")["cached"] == 2
        await finish_all(fleet)
        status = fleet.status("two")
        assert (status["phase"], status["succeeded"], status["cached"]) == ("Succeeded", 3, 2)


async def test_a_deleted_object_that_is_applied_again_runs_again() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", job(*ITEMS))
        await finish_all(fleet)
        await fleet.delete("BatchJob", "job")
        await fleet.later(60)
        assert fleet.names() == []
        await fleet.crash()
        await fleet.apply("BatchJob", "job", job(*ITEMS))
        assert fleet.local.working() == [0, 1, 2]


async def end_of_one_and_start_of_its_equal(fleet: Fleet) -> None:
    """Both come to the engine's next tick."""
    await fleet.apply("BatchJob", "one", job(ITEMS[0]))
    fleet.local.finish(0, result='{"x": 1}')
    for _ in range(10):
        await asyncio.sleep(0)
    spec = KINDS["BatchJob"].spec.model_validate(job(ITEMS[0]))
    commit.apply_manifests(fleet.store, [manifest_of(spec, "two")], fleet.clock.now_s())


async def test_a_success_may_be_taken_over_in_the_commit_that_records_it() -> None:
    async with Fleet() as fleet:
        await end_of_one_and_start_of_its_equal(fleet)
        assert [run.state.value for run in fleet.runs("one")] == ["Running"]
        fleet.engine.ticks.make()
        assert [run.state.value for run in fleet.runs("one")] == ["Succeeded"]
        assert [run.reason for run in fleet.runs("two")] == ["Cached"]
        await fleet.crash()
        assert results(fleet, "one") == results(fleet, "two") == {0: '{"x": 1}'}


async def test_a_success_that_is_not_written_is_not_taken_over_either() -> None:
    async with Fleet() as fleet:
        await end_of_one_and_start_of_its_equal(fleet)
        fleet.fail_commits = 1
        fleet.engine.ticks.make()
        assert [run.state.value for run in fleet.runs("one")] == ["Running"]
        assert fleet.runs("two") == []
        await fleet.crash()
        await fleet.settle()
        await finish_all(fleet)
        assert [run.reason for run in fleet.runs("two")] == ["Completed"]
        assert results(fleet, "one") == results(fleet, "two") == {0: '{"x": 1}'}


async def test_a_success_without_a_result_counts() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "one", job(*ITEMS))
        await finish_all(fleet, result=None)
        await fleet.apply("BatchJob", "two", job(*ITEMS))
        assert fleet.status("two")["phase"] == "Succeeded"
        assert results(fleet, "two") == {0: None, 1: None, 2: None}


@pytest.mark.parametrize("whose", ["first", "second"])
async def test_the_policy_never_gives_nothing_and_takes_nothing(whose: str) -> None:
    never = {"cache": {"policy": "Never"}}
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "one", job(*ITEMS, **(never if whose == "first" else {})))
        await finish_all(fleet)
        await fleet.apply("BatchJob", "two", job(*ITEMS, **(never if whose == "second" else {})))
        assert fleet.local.working() == [0, 1, 2]
        assert fleet.status("two")["cached"] == 0


async def test_a_failed_task_teaches_nothing() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "one", job(*ITEMS))
        await finish_all(fleet, ok=False)
        assert fleet.status("one")["phase"] == "Failed"
        await fleet.apply("BatchJob", "two", job(*ITEMS))
        assert fleet.local.working() == [0, 1, 2]


async def test_parameters_that_come_back_have_their_old_result() -> None:
    async with Fleet() as fleet:
        for x in (1, 2):
            await fleet.apply("BatchJob", "job", job({"x": x}))
            await finish_all(fleet)
        await fleet.apply("BatchJob", "job", job({"x": 1}))
        assert fleet.status("job")["phase"] == "Succeeded"
        newest = fleet.runs("job")[-1]
        assert (newest.attempt, newest.reason) == (3, "Cached")
        assert list(fleet.store.runs.of(newest.uid))[-1][1] == '{"x": 1}'
        await fleet.crash()
        assert fleet.status("job")["cached"] == 1


async def test_a_cached_trial_has_the_score_of_the_one_that_ran() -> None:
    search = {"method": "grid", "program": "train.py", "parameters": {"x": {"values": [1, 2]}}}
    sweep = {"search": search | {"metric": {"name": "loss", "goal": "minimize"}}, **SHARED}
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "one", sweep)
        for index in fleet.local.working():
            run = fleet.local.run(index)
            values = (Metric(0, 1, "loss", 5.0, 1.0), Metric(1, 2, "loss", 0.5 - index, 2.0))
            fleet.local.metrics[run] = list(values)
            fleet.local.finish(index, result=None, metrics=values)
        await fleet.settle()
        await fleet.apply("Sweep", "two", sweep)
        one, two = fleet.status("one"), fleet.status("two")
        assert (two["phase"], two["cached"]) == ("Succeeded", 2)
        assert two["best"] == one["best"]
        assert two["best"]["metric"]["value"] == -0.5
        await fleet.crash()
        await fleet.apply("Sweep", "two", sweep | {"parallelism": 1})
        assert fleet.status("two")["best"] == one["best"]


async def test_a_volume_that_is_made_anew_while_it_is_read_makes_the_result_unknown() -> None:
    mount = {"name": "data", "mountPath": "/data", "readOnly": True}
    spec = job(*ITEMS, template={"python": "SUBMIT(x=x)", "volumes": [mount]})
    spec |= {"cache": {"policy": "ReuseSucceeded"}}
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "one", spec)
        await finish_all(fleet)
        await fleet.apply("BatchJob", "two", spec)
        assert fleet.status("two")["cached"] == 3
        await fleet.apply("Volume", "data", {"provider": "local", "deletionPolicy": "Delete"})
        await fleet.apply("BatchJob", "three", spec)
        assert fleet.local.working() == [0, 1, 2]
        # Its generation rises once more while they run: what they read, nobody can say.
        await fleet.apply("Volume", "data", {"provider": "local", "deletionPolicy": "Retain"})
        await finish_all(fleet)
        await fleet.apply("BatchJob", "four", spec)
        assert fleet.local.working() == [0, 1, 2]


async def test_a_changed_function_is_other_work() -> None:
    calling = job(*ITEMS, template={"python": "SUBMIT(x=x)", "function": "encode"})
    async with Fleet() as fleet:
        await fleet.apply("Function", "encode", {"provider": "local"})
        await fleet.apply("BatchJob", "one", calling)
        await finish_all(fleet)
        await fleet.apply("BatchJob", "two", calling)
        assert fleet.status("two")["cached"] == 3
        await fleet.apply("Function", "encode", {"provider": "local", "env": {"MODEL": "b"}})
        await fleet.apply("BatchJob", "three", calling)
        assert fleet.local.working() == [0, 1, 2]


async def test_more_than_a_pass_takes_are_taken_over_pass_by_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconcile, "REUSES_PER_PASS_MAX", 10)
    items = [{"x": x} for x in range(25)]
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "one", job(*items, parallelism=0))
        uid = fleet.row("one").uid
        await fleet.apply("BatchJob", "one", job(*items, parallelism=25))
        await finish_all(fleet)
        while fleet.status("one")["phase"] != "Succeeded":
            await fleet.later(1)
            await finish_all(fleet)
        assert uid == fleet.row("one").uid
        await fleet.apply("BatchJob", "two", job(*items, parallelism=1))
        status = fleet.status("two")
        assert (status["phase"], status["cached"]) == ("Succeeded", 25)
        assert status["completedIndexes"] == "0-24"


async def test_an_apply_tells_how_many_tasks_need_not_run() -> None:
    spec = KINDS["BatchJob"].spec.model_validate(job(*ITEMS, {"x": 4}))
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "one", job(*ITEMS))
        await finish_all(fleet)
        about = Metadata.model_validate({"name": "two"})
        manifest = Manifest("BatchJob", "two", about, spec, "test.yaml", 1)
        [outcome] = commit.apply_manifests(fleet.store, [manifest], fleet.clock.now_s())
        assert outcome.message == "4 tasks: 3 cached, 1 to run"


def held(directory: Path) -> str:
    return of_project(directory, ()).revision


async def test_a_directory_counts_as_what_was_in_it_when_it_was_taken(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("one")
    template = {"python": "SUBMIT(x=x)", "source": {"path": str(tmp_path)}}
    spec = KINDS["BatchJob"].spec.model_validate(job(*ITEMS, template=template))

    async def apply(fleet: Fleet, name: str) -> None:
        about = Metadata.model_validate({"name": name})
        manifests = [Manifest("BatchJob", name, about, spec, "test.yaml", 1)]
        order = ApplyOptions(looked={manifests[0].key: SourceState(held(tmp_path), str(tmp_path))})
        commit.apply_manifests(fleet.store, manifests, fleet.clock.now_s(), order)
        await fleet.settle()

    async with Fleet() as fleet:
        await apply(fleet, "one")
        # Edited between the apply and the start: what ran is the second, whatever was applied.
        (tmp_path / "work.py").write_text("two")
        fleet.local.taken = held(tmp_path)
        await finish_all(fleet)
        await apply(fleet, "two")
        assert fleet.status("two")["cached"] == 3
        (tmp_path / "work.py").write_text("one")
        await apply(fleet, "three")
        assert fleet.local.working() == [0, 1, 2]


async def test_a_directory_that_nobody_knows_is_not_compared(tmp_path: Path) -> None:
    template = {"python": "SUBMIT(x=x)", "source": {"path": str(tmp_path)}}
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "one", job(*ITEMS, template=template))
        await finish_all(fleet)
        assert "not known" in fleet.status("one")["notCached"]
        await fleet.apply("BatchJob", "two", job(*ITEMS, template=template))
        assert fleet.local.working() == [0, 1, 2]


def manifest_of(spec: Any, name: str = "x") -> Manifest:
    return Manifest("BatchJob", name, Metadata.model_validate({"name": name}), spec, "test.yaml", 1)


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def cloned(ref: str | None, *items: dict[str, int]) -> dict[str, Any]:
    source = {"git": {"url": "https://example.org/a", **({"ref": ref} if ref else {})}}
    return job(*(items or ITEMS), template={"python": "SUBMIT(x=x)", "source": source})


async def test_a_branch_counts_as_the_commit_that_its_runs_have_got() -> None:
    async with Fleet() as fleet:
        fleet.local.taken = COMMIT
        await fleet.apply("BatchJob", "one", cloned("main"))
        await finish_all(fleet)
        # Who names the very commit asks for the same work.
        await fleet.apply("BatchJob", "two", cloned(COMMIT))
        assert fleet.status("two")["cached"] == 3
        # Of another branch nobody knows yet where it is.
        fleet.local.taken = ""
        await fleet.apply("BatchJob", "three", cloned("next"))
        assert fleet.local.working() == [0, 1, 2]
        assert "can move" in fleet.status("three")["notCached"]


async def test_a_branch_that_is_somewhere_else_by_now_is_other_work() -> None:
    async with Fleet() as fleet:
        fleet.local.taken = COMMIT
        await fleet.apply("BatchJob", "one", cloned(None))
        await finish_all(fleet)
        fleet.local.taken = COMMIT[::-1]
        await fleet.apply("BatchJob", "two", cloned(None))
        assert fleet.local.working() == [0, 1, 2]


async def test_once_its_commit_is_known_an_object_on_a_branch_takes_results_over_too() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "one", cloned(COMMIT, *ITEMS[1:]))
        await finish_all(fleet)
        await fleet.apply("BatchJob", "two", cloned("main", ITEMS[0]))
        fleet.local.taken = COMMIT  # which its first start has found out
        await finish_all(fleet)
        await fleet.apply("BatchJob", "two", cloned("main"))
        status = fleet.status("two")
        assert (status["phase"], status["succeeded"], status["cached"]) == ("Succeeded", 3, 2)
