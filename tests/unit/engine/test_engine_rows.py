"""A row that is inserted, removed or moved leaves the others their attempts, results and logs."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from fleetctl.apply.change import Change
from fleetctl.apply.deletion import PruneLimit
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions
from fleetctl.apply.write import commit
from fleetctl.apply.write.requeue import RetryChoice, requeue_units
from fleetctl.manifest import Manifest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.tracking.result_cache import contents_of
from tests.unit.engine.fake_world import Fleet

VOLUME = {"name": "v", "mountPath": "/v"}
NEVER = {"cache": {"policy": "Never"}}


def job(*values: object, python: str = "SUBMIT(a=a)", **fields: Any) -> dict[str, Any]:
    mounts = {"volumes": [VOLUME]} if fields.pop("volume", False) else {}
    if outputs := fields.pop("outputs", None):
        mounts["outputs"] = outputs
    items = [{"a": value} for value in values]
    return {"template": {"python": python, **mounts}, "tasks": {"items": items}, **fields}


class Shop:
    """A fleet whose tasks each submit what none has submitted before."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self._numbers = fleet, itertools.count(len(fleet.local.orders))

    async def apply(self, spec: dict[str, Any], name: str = "job", took_s: float = 1.0) -> int:
        """How many tasks ran until nothing was left to do."""
        began = len(self.fleet.local.orders)
        await self.fleet.apply("BatchJob", name, spec)
        await self.finish(took_s)
        return len(self.fleet.local.orders) - began

    async def finish(self, took_s: float = 1.0) -> None:
        while working := self.fleet.local.working():
            self.fleet.clock.time_s += took_s
            for index in working:
                self.fleet.local.finish(index, result=json.dumps({"n": next(self._numbers)}))
            await self.fleet.settle()

    async def rerun(self, name: str = "job") -> None:
        self.fleet.clock.time_s += 1
        requeue_units(
            self.fleet.store, "BatchJob", name, RetryChoice("rerun"), self.fleet.clock.now_s()
        )
        await self.fleet.settle()
        await self.finish()

    def results(self, name: str = "job") -> dict[str, list[object]]:
        """By the parameters of the tasks that are wanted, what counts of each."""
        status, found = self.fleet.status(name), {}
        assert (status["phase"], status["outdated"]) == ("Succeeded", 0)
        rows = self.fleet.store.runs.of(self.fleet.row(name).uid)
        newest = {run.index: (run.params, result) for run, result in rows}
        unwanted = _indexes(str(status.get("unwantedIndexes", "")))
        for index in sorted(newest.keys() - unwanted):
            params, result = newest[index]
            found.setdefault(params, []).append(json.loads(result or "{}")["n"])
        return {params: sorted(some) for params, some in found.items()}


def _indexes(text: str) -> set[int]:
    pairs = [part.split("-") for part in text.split(",") if part]
    return {index for pair in pairs for index in range(int(pair[0]), int(pair[-1]) + 1)}


@pytest.mark.parametrize("fields", [{}, {"volume": True}, NEVER], ids=["plain", "volume", "never"])
@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        ((1, 2, 3, 4), (2, 3, 4), 0),
        ((1, 2, 3, 4), (4, 1, 3, 2), 0),
        ((1, 2, 3), (0, 1, 2, 3), 1),
        ((1, 2, 3), (1, 9, 3), 1),
        ((0, 5, 5, 7, 8, 9), (5, 5, 7, 8, 9), 0),
        ((5, 7), (5, 5, 7), 1),
        ((5, 7, 5), (7, 5), 0),
    ],
)
async def test_what_stays_in_the_file_does_not_run_again(
    fields: dict[str, Any], before: tuple[int, ...], after: tuple[int, ...], new: int
) -> None:
    async with Fleet() as fleet:
        shop = Shop(fleet)
        assert await shop.apply(job(*before, **fields)) == len(before)
        kept = shop.results()
        assert await shop.apply(job(*after, **fields)) == new
        now = shop.results()
        assert {params: len(some) for params, some in now.items()} == {
            f'{{"a":{value}}}': after.count(value) for value in after
        }
        for params in kept.keys() & now.keys():
            assert set(now[params]) <= set(kept[params]) or set(now[params]) >= set(kept[params])
        await fleet.crash()
        await fleet.settle()
        assert shop.results() == now


async def test_a_rerun_counts_once() -> None:
    async with Fleet() as fleet:
        shop = Shop(fleet)
        await shop.apply(job(1, 2, 3))
        await shop.rerun()
        anew = shop.results()
        assert await shop.apply(job(2, 3)) == 0
        assert shop.results().items() < anew.items()
        assert await shop.apply(job(2, 3, python="other")) == 2
        assert await shop.apply(job(2, 3)) == 0
        assert shop.results().items() < anew.items()


async def test_what_a_rerun_put_aside_comes_back_in_no_way() -> None:
    async with Fleet() as fleet:
        shop = Shop(fleet)
        await shop.apply(job(1, 2))
        await shop.apply(job(2))
        await shop.rerun()
        assert await shop.apply(job(1, 2)) == 1


async def test_an_object_keeps_its_own_results_beside_an_older_equal_one() -> None:
    async with Fleet() as fleet:
        shop = Shop(fleet)
        await shop.apply(job(2, 3), "first")
        assert await shop.apply(job(1, 1, 2, 3), "second") == 4
        own = shop.results("second")
        assert await shop.apply(job(1, 2, 3), "second") == 0
        assert {**shop.results("second"), '{"a":1}': own['{"a":1}']} == own


@pytest.mark.parametrize("fields", [{}, {"outputs": ["o"]}], ids=["plain", "outputs"])
async def test_an_undo_has_the_results_from_before(fields: dict[str, Any]) -> None:
    async with Fleet() as fleet:
        shop = Shop(fleet)
        await shop.apply(job(1, 2, 2, **fields))
        first = shop.results()
        assert await shop.apply(job(1, 2, 2, python="other", **fields)) == 3
        assert await shop.apply(job(1, 2, 2, **fields)) == 0
        assert shop.results() == first


@pytest.mark.parametrize(("fields", "others"), [({}, ["gone"]), ({"outputs": ["o"]}, [])])
async def test_files_of_an_object_that_goes_are_not_taken_for_those_of_the_next(
    fields: dict[str, Any], others: list[str]
) -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", job(1, **fields))
        uid = fleet.row("job").uid
        work = fleet.engine.state.tracks[uid].work
        assert work is not None
        found = contents_of(fleet.store, work, replaced=["gone"])
        assert found is not None and list(found.among.owners) == [uid, *others]


async def test_of_equal_rows_the_one_that_succeeded_stays() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", job(5, 5))
        fleet.local.finish(0, ok=False)
        fleet.local.finish(1)
        await fleet.settle()
        assert fleet.status("job")["phase"] == "Failed"
        await fleet.apply("BatchJob", "job", job(5))
        assert fleet.status("job")["phase"] == "Succeeded"
        assert fleet.status("job")["taskIndexes"] == "1"


async def test_a_live_row_that_moves_goes_on() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", job(1, 2, 3, parallelism=2))
        assert fleet.local.working() == [0, 1]
        await fleet.apply("BatchJob", "job", job(3, 2, 1, parallelism=2))
        assert fleet.local.working() == [0, 1]
        assert [run.state.value for run in fleet.runs("job")] == ["Running", "Running"]


async def test_finished_work_that_moved_is_counted_when_it_would_run_again() -> None:
    async with Fleet() as fleet:
        shop = Shop(fleet)
        await shop.apply(job(1, 2, 3, 4), took_s=7.0)
        await shop.apply(job(2, 3, 4))
        again = proposed(fleet, job(2, 3, 4, python="edited"))
        assert (again.units, again.work_s) == (3, 21.0)


async def test_a_cached_result_is_worth_what_it_had_taken() -> None:
    async with Fleet() as fleet:
        shop = Shop(fleet)
        for python in ("one", "two", "one"):
            await shop.apply(job(1, 2, python=python), took_s=7.0)
        assert fleet.status("job")["cached"] == 2
        again = proposed(fleet, job(1, 2, python="three"))
        assert (again.units, again.work_s) == (2, 14.0)


@pytest.mark.parametrize("fields", [{"volume": True}, NEVER], ids=["volume", "never"])
async def test_a_row_that_comes_back_and_has_to_run_counts_as_work_done_again(
    fields: dict[str, Any],
) -> None:
    async with Fleet() as fleet:
        shop = Shop(fleet)
        await shop.apply(job(1, 2, **fields), took_s=7.0)
        await shop.apply(job(1, 9, **fields), took_s=7.0)
        again = proposed(fleet, job(1, 2, 9, **fields))
        assert (again.units, again.work_s) == (1, 7.0)
        assert proposed(fleet, job(1, 9, 5, **fields)).units == 0
        await shop.rerun()
        assert proposed(fleet, job(9, 1, **fields)).units == 0


def proposed(fleet: Fleet, spec: dict[str, Any]) -> Any:
    checked = KINDS["BatchJob"].spec.model_validate(spec)
    about = Metadata.model_validate({"name": "job"})
    manifest = Manifest("BatchJob", "job", about, checked, "job.yaml", 1)
    (change,) = propose_changes(fleet.store, [manifest], ApplyOptions(), fleet.clock.now_s())
    assert change.impact is not None
    return change.impact.again


async def renamed(fleet: Fleet, spec: dict[str, Any], name: str) -> int:
    """An apply of one file with `--prune`, in which the object has another name. How many ran."""
    began = len(fleet.local.orders)
    await applied_as(fleet, spec, name)
    await Shop(fleet).finish()
    return len(fleet.local.orders) - began


async def test_an_object_that_takes_the_place_of_another_has_its_results() -> None:
    async with Fleet() as fleet:
        assert await renamed(fleet, job(1, 2, 2), "one") == 3
        before = Shop(fleet).results("one")
        assert await renamed(fleet, job(2, 2, 3), "two") == 1
        after = Shop(fleet).results("two")
        assert after['{"a":2}'] == before['{"a":2}']
        await fleet.later(60)
        assert fleet.names() == ["two"]
        assert await renamed(fleet, job(2, 2, 3, python="other"), "two") == 3
        assert await renamed(fleet, job(2, 2, 3), "two") == 0
        assert Shop(fleet).results("two") == after


@pytest.mark.parametrize("fields", [{}, {"volume": True}, NEVER], ids=["own", "volume", "never"])
async def test_a_rename_takes_along_what_runs_and_what_is_done(fields: dict[str, Any]) -> None:
    async with Fleet() as fleet:
        await applied_as(fleet, job(1, 2, 3, parallelism=2, **fields), "one")
        fleet.local.finish(0)
        await fleet.settle()
        before = fleet.row("one").uid, [run.name for run in fleet.runs("one")]
        assert fleet.local.working() == [1, 2]
        changes = await applied_as(fleet, job(2, 3, 1, parallelism=2, **fields), "two")
        [change] = [it for it in changes if it.after.kind == "BatchJob"]
        assert change.message.startswith('metadata.name "one" -> "two", ')
        assert change.message.endswith("; 1 kept, 2 running on")
        assert change.impact is not None
        assert (change.impact.kept, len(change.impact.going_on), change.impact.to_run) == (1, 2, 0)
        assert "one" not in fleet.names() and fleet.local.working() == [1, 2]
        assert (fleet.row("two").uid, [run.name for run in fleet.runs("two")]) == before
        for index in (1, 2):
            fleet.local.finish(index)
        await fleet.settle()
        assert fleet.status("two")["phase"] == "Succeeded" and len(fleet.local.orders) == 3


async def test_what_waits_for_the_new_name_goes_on() -> None:
    async with Fleet() as fleet:
        await renamed(fleet, job(1), "one")
        await fleet.apply("BatchJob", "after", job(7, dependsOn=[{"job": "two"}]))
        assert fleet.local.working() == []
        await applied_as(fleet, job(1), "two")
        assert fleet.local.working() == [0]


async def test_an_object_of_other_content_goes_and_the_other_one_is_new() -> None:
    async with Fleet() as fleet:
        await applied_as(fleet, job(1, parallelism=1), "one")
        before = fleet.row("one").uid
        changes = await applied_as(fleet, job(1, python="other"), "two")
        assert [it.outcome for it in changes] == ["created", "pruned"]
        assert fleet.row("two").uid != before


async def test_of_two_new_names_one_has_the_object_and_the_other_its_results() -> None:
    async with Fleet() as fleet:
        await renamed(fleet, job(1, 2, 3), "one")
        options = ApplyOptions(applyset="set", pruning=PruneLimit())
        manifests = [named(job(3), "few"), named(job(1, 2), "most")]
        changes = propose_changes(fleet.store, manifests, options, fleet.clock.now_s())
        assert [it.outcome for it in changes] == ["configured", "created"]
        assert [it.impact.to_run for it in changes if it.impact is not None] == [0, 2]


def named(spec: dict[str, Any], name: str) -> Manifest:
    checked = KINDS["BatchJob"].spec.model_validate(spec)
    return Manifest("BatchJob", name, Metadata.model_validate({"name": name}), checked, "a", 1)


async def applied_as(fleet: Fleet, spec: dict[str, Any], name: str) -> list[Change]:
    options = ApplyOptions(applyset="set", pruning=PruneLimit())
    changes = propose_changes(fleet.store, [named(spec, name)], options, fleet.clock.now_s())
    commit.apply_manifests(fleet.store, [named(spec, name)], fleet.clock.now_s(), options)
    await fleet.settle()
    return changes


async def test_a_new_object_that_takes_no_place_runs_whatever_others_did() -> None:
    async with Fleet() as fleet:
        shop = Shop(fleet)
        assert await shop.apply(job(1), "one") == 1
        assert await shop.apply(job(1), "two") == 1
        assert await shop.apply(job(1, cache={"policy": "ReuseSucceeded"}), "three") == 0
