"""A job whose tasks are the results of another one: they are taken when that is over, checked
before anything begins, and a changed result runs its own task again.
"""

from __future__ import annotations

import json
from typing import Any

from fleetctl.apply.change import Change
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import order_of
from fleetctl.apply.write.store_changes import store_changes
from fleetctl.manifest import Manifest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from tests.unit.engine.fake_world import Fleet

Y = "batchjob/y"


def job(name: str, **fields: Any) -> Manifest:
    given = {"template": {"python": f"work of {name}"}, "parallelism": 8, **fields}
    spec = KINDS["BatchJob"].spec.model_validate(given)
    return Manifest("BatchJob", name, Metadata.model_validate({"name": name}), spec, "a.yaml", 1)


def x(*values: int, program: str = "of x") -> Manifest:
    items = [{"n": value} for value in values]
    return job("x", tasks={"items": items}, template={"python": program})


def y(*, where: str = "", types: dict[str, str] | None = None, **fields: Any) -> Manifest:
    given: dict[str, Any] = {"job": "x", "types": types or {}}
    return job("y", tasks={"fromResults": given | ({"where": where} if where else {})}, **fields)


async def apply(fleet: Fleet, *manifests: Manifest) -> list[Change]:
    found = propose_changes(fleet.store, manifests, order_of({}), fleet.clock.now_s())
    store_changes(fleet.store, found, fleet.clock.now_s())
    await fleet.settle()
    return found


async def ends(fleet: Fleet, *results: Any, of: str = "batchjob/x") -> None:
    """Its tasks end, in the order of their indexes; None: one fails."""
    for index, result in enumerate(results):
        text = None if result is None else json.dumps(result)
        fleet.local.finish(index, of=of, ok=result is not None, result=text)
    await fleet.settle()


def given(fleet: Fleet, of: str = Y) -> list[tuple[int, dict[str, Any]]]:
    """(index, parameters) of each attempt that has begun."""
    return [(it.index, dict(it.params)) for it in fleet.local.orders.values() if it.resource == of]


async def test_each_result_is_a_task_with_its_index_once_the_other_job_is_over() -> None:
    async with Fleet() as fleet:
        [created, _] = await apply(fleet, y(), x(1, 2))
        assert created.message == "its tasks are known when batchjob/x has ended"
        assert created.impact is not None
        assert created.impact.to_run is None
        status = fleet.status("y")
        assert (status["reason"], status["total"]) == ("AwaitsDependency", None)
        fleet.local.finish(0, of="batchjob/x", result='{"doc": "a", "score": 1.5}')
        await fleet.settle()
        assert given(fleet) == []
        fleet.local.finish(1, of="batchjob/x", result='{"doc": "b", "score": 2}')
        await fleet.settle()
        assert given(fleet) == [(0, {"doc": "a", "score": 1.5}), (1, {"doc": "b", "score": 2})]
        await fleet.crash()
        await fleet.settle()
        await ends(fleet, {}, {}, of=Y)
        status = fleet.status("y")
        assert (status["phase"], status["total"], status["taskIndexes"]) == ("Succeeded", 2, "0-1")
        [same] = await apply(fleet, y())
        assert same.outcome == "unchanged"


async def test_a_condition_chooses_and_the_tasks_keep_their_indexes() -> None:
    async with Fleet() as fleet:
        await apply(fleet, x(1, 2, 3, 4), y(where="result ->> 'score' > 1 and idx <> 3"))
        await ends(fleet, {"score": 2}, {"score": 1}, {"score": 3}, {"score": 9})
        assert given(fleet) == [(0, {"score": 2}), (2, {"score": 3})]
        for index in (0, 2):
            fleet.local.finish(index, of=Y)
        await fleet.settle()
        status = fleet.status("y")
        assert (status["phase"], status["completedIndexes"]) == ("Succeeded", "0,2")


async def test_a_changed_result_runs_its_own_task_again_and_a_new_one_runs() -> None:
    async with Fleet() as fleet:
        chosen = y(where="result ->> 'score' > 0")
        await apply(fleet, x(1, 2, 3), chosen)
        await ends(fleet, {"score": 1}, {"score": 0}, {"score": 3})
        for index in (0, 2):
            fleet.local.finish(index, of=Y)
        await fleet.settle()
        before = len(given(fleet))
        [_, told] = await apply(fleet, x(1, 2, 3, program="other"), chosen)
        assert "tasks.fromResults known when batchjob/x has ended" in told.message
        assert told.message.endswith("2 kept")
        status = fleet.status("y")
        assert (status["reason"], status["succeeded"]) == ("AwaitsDependency", 2)
        await ends(fleet, {"score": 1}, {"score": 5}, {"score": 4})
        again = sorted(given(fleet)[before:], key=lambda it: it[0])
        assert again == [(1, {"score": 5}), (2, {"score": 4})]


async def test_results_that_come_back_elsewhere_keep_their_tasks() -> None:
    async with Fleet() as fleet:
        chosen = y(cache={"policy": "Never"})
        await apply(fleet, x(1, 2, 3), chosen)
        await ends(fleet, {"a": 1}, {"a": 2}, {"a": 3})
        await ends(fleet, {}, {}, {}, of=Y)
        before = len(given(fleet))
        await apply(fleet, x(1, 2, 3, program="other"), chosen)
        await ends(fleet, {"a": 3}, {"a": 9}, {"a": 1})
        assert given(fleet)[before:] == [(1, {"a": 9})]
        fleet.local.finish(1, of=Y)
        await fleet.settle()
        status = fleet.status("y")
        assert (status["phase"], status["outdated"]) == ("Succeeded", 0)


async def test_what_runs_goes_on_while_the_other_job_runs_anew() -> None:
    async with Fleet() as fleet:
        await apply(fleet, x(1, 2), y())
        await ends(fleet, {"a": 1}, {"a": 2})
        await apply(fleet, x(1, 2, program="other"), y())
        live = [run.index for run in fleet.runs("y") if run.state == "Running"]
        assert (live, fleet.status("y")["total"]) == ([0, 1], None)
        fleet.local.finish(0, of=Y)
        await ends(fleet, {"a": 1}, {"a": 9})
        assert given(fleet) == [(0, {"a": 1}), (1, {"a": 2}), (1, {"a": 9})]
        fleet.local.finish(1, of=Y)
        await fleet.settle()
        assert fleet.status("y")["phase"] == "Succeeded"


async def test_results_that_cannot_be_parameters_end_it_before_anything_begins() -> None:
    async with Fleet() as fleet:
        await apply(fleet, x(1, 2), y(types={"score": "integer"}))
        await ends(fleet, {"score": 1}, {"score": "high"})
        status = fleet.status("y")
        assert (status["phase"], status["reason"]) == ("Failed", "ResultsUnfit")
        text = 'task 1 of batchjob/x has `score` "high", which is not of type `integer`'
        assert text in status["message"]
        assert given(fleet) == []
        await apply(fleet, x(1, 2, program="mended"), y(types={"score": "integer"}))
        await ends(fleet, {"score": 1}, {"score": 2})
        assert len(given(fleet)) == 2


async def test_a_job_that_failed_gives_what_there_is_where_any_end_will_do() -> None:
    async with Fleet() as fleet:
        plain, any_end = y(), y(dependsOn=[{"job": "x", "condition": "Finished"}])
        await apply(fleet, x(1, 2), plain)
        await ends(fleet, {"a": 1}, None)
        assert fleet.status("y")["reason"] == "DependencyFailed"
        await apply(fleet, any_end)
        assert given(fleet) == [(0, {"a": 1})]


async def test_a_condition_that_chooses_nothing_leaves_nothing_to_do() -> None:
    async with Fleet() as fleet:
        await apply(fleet, x(1), y(where="result ->> 'a' > 5"))
        await ends(fleet, {"a": 1})
        status = fleet.status("y")
        assert (status["phase"], status["message"]) == ("Succeeded", "0 of 0 tasks succeeded")


async def test_what_was_taken_stays_when_the_other_job_is_gone() -> None:
    async with Fleet() as fleet:
        await apply(fleet, x(1), y())
        await ends(fleet, {"a": 1})
        await fleet.delete("BatchJob", "x")
        [same] = await apply(fleet, y())
        assert same.outcome == "unchanged"
        fleet.local.finish(0, of=Y)
        await fleet.settle()
        assert fleet.status("y")["phase"] == "Succeeded"


async def test_a_change_before_the_first_task_begins_is_taken() -> None:
    async with Fleet() as fleet:
        await apply(fleet, x(1), y(suspend=True))
        await ends(fleet, {"a": 1})
        await apply(fleet, x(1, program="other"))
        await apply(fleet, y())
        assert given(fleet) == []
        await ends(fleet, {"a": 2})
        assert given(fleet) == [(0, {"a": 2})]


async def test_a_chain_of_three_takes_from_one_to_the_next() -> None:
    async with Fleet() as fleet:
        last = job("z", tasks={"fromResults": {"job": "y"}})
        await apply(fleet, last, y(), x(1, 2))
        await ends(fleet, {"a": 1}, {"a": 2})
        await ends(fleet, {"b": 10}, {"b": 20}, of=Y)
        assert given(fleet, "batchjob/z") == [(0, {"b": 10}), (1, {"b": 20})]
