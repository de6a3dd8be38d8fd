"""A bayes search that begins from the trials of another sweep: it waits for them, takes them once,
and depends on nothing that the other one does from then on.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fleetctl.apply.change import Change
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import order_of
from fleetctl.apply.write.store_changes import store_changes
from fleetctl.manifest import Manifest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.tracking.annotations import PRIOR
from tests.unit.engine.fake_world import Fleet
from tests.unit.engine.test_engine_early_terminate import report
from tests.unit.engine.test_engine_early_terminate import sweep as early_ending

X: dict[str, Any] = {"min": 0.0, "max": 1.0}


def sweep(name: str, prior: str = "", **search: Any) -> Manifest:
    """Twelve trials of one parameter."""
    known = {"metric": {"name": "loss"}, "parameters": {"x": X}, "run_cap": 12}
    bayes = {"method": "bayes", "priorTrials": {"fromSweep": prior}}
    search = {"method": "random", **known, **(bayes if prior else {}), **search}
    spec = {"template": {"python": "pass"}, "search": search, "parallelism": 2}
    metadata = Metadata.model_validate({"name": name})
    return Manifest("Sweep", name, metadata, SweepSpec.model_validate(spec), "a.yaml", 1)


def suspended(it: Manifest) -> Manifest:
    return replace(it, spec=it.spec.model_copy(update={"suspend": True}))


async def apply(fleet: Fleet, *manifests: Manifest) -> list[Change]:
    found = propose_changes(fleet.store, manifests, order_of({}), fleet.clock.now_s())
    store_changes(fleet.store, found, fleet.clock.now_s())
    await fleet.settle()
    return found


async def search(fleet: Fleet, name: str, best: float = 0.7, metric: str = "loss") -> None:
    """All of its trials end; the nearer to `best`, the lower."""
    while live := [run for run in fleet.runs(name) if run.ended_at_s is None]:
        value = (json.loads(live[0].params)["x"] - best) ** 2
        fleet.local.finish(live[0].index, of=f"sweep/{name}", result=json.dumps({metric: value}))
        await fleet.settle()


def points(fleet: Fleet, name: str) -> list[float]:
    return [json.loads(run.params)["x"] for run in fleet.runs(name)]


def taken(fleet: Fleet) -> list[str]:
    """What is told of the trials that warm a search."""
    sql = "SELECT message FROM events WHERE reason = 'TrialsTaken'"
    return [message for (message,) in fleet.database.events.execute(sql)]


async def test_it_waits_for_the_other_sweep_and_begins_where_that_was_best() -> None:
    async with Fleet() as fleet:
        [created, _] = await apply(fleet, sweep("next", "first"), sweep("first"))
        assert "its search begins from the trials of sweep/first" in created.message
        status = fleet.status("next")
        assert (status["phase"], status["reason"]) == ("Pending", "AwaitsPrior")
        assert "0 of 12 trials are done" in status["message"]
        assert "`fleetctl describe sweep/first` shows how far" in status["hint"]
        assert status["activeSince"] is None
        await search(fleet, "first")
        assert taken(fleet) == ["12 of 12 trials of sweep/first warm the search"]
        near = points(fleet, "next")
        assert len(near) == 2
        assert all(abs(x - 0.7) < 0.15 for x in near), near
        await search(fleet, "next")
        status = fleet.status("next")
        assert (status["phase"], status["succeeded"]) == ("Succeeded", 12)
        assert status["priorTrials"] == {"fromSweep": "first", "used": 12, "ended": 12}
        assert abs(status["best"]["params"]["x"] - 0.7) < 0.01


async def test_what_was_taken_outlasts_a_crash_and_the_other_sweep() -> None:
    async with Fleet() as fleet:
        await apply(fleet, sweep("first"), sweep("next", "first"))
        await search(fleet, "first")
        known = points(fleet, "next")
        await fleet.delete("Sweep", "first")
        await fleet.crash()
        await fleet.settle()
        [same] = await apply(fleet, sweep("next", "first"))
        assert (same.outcome, points(fleet, "next")) == ("unchanged", known)
        # Another search of the same one: its trials are gone, and what was taken of them is not.
        await apply(fleet, sweep("next", "first", run_cap=3))
        assert fleet.status("next")["priorTrials"]["used"] == 12
        await search(fleet, "next")
        assert fleet.status("next")["succeeded"] == 3


async def test_the_point_is_the_same_whenever_it_is_worked_out() -> None:
    found = []
    for crash in (False, True):
        async with Fleet() as fleet:
            await apply(fleet, sweep("first"), sweep("next", "first"))
            await search(fleet, "first")
            if crash:
                await fleet.crash()
                await fleet.settle()
            await search(fleet, "next")
            found.append(points(fleet, "next"))
    assert found[0] == found[1]


async def test_of_a_search_that_changes_the_trials_are_taken_anew() -> None:
    async with Fleet() as fleet:
        await apply(fleet, sweep("first"), sweep("next", "first"))
        await search(fleet, "first")
        await apply(fleet, sweep("next", "first", parameters={"x": {"min": 0.5, "max": 1.0}}))
        status = fleet.status("next")
        assert status["priorTrials"]["ended"] == 12
        assert 0 < status["priorTrials"]["used"] < 12
        assert "have parameters outside of this search" in taken(fleet)[-1]


async def test_a_higher_value_is_better_where_the_goal_says_so() -> None:
    up = {"metric": {"name": "acc", "goal": "maximize"}}
    async with Fleet() as fleet:
        await apply(fleet, sweep("first", **up), sweep("next", "first", **up))
        await search(fleet, "first", metric="acc")  # best as far from 0.7 as can be
        assert all(x < 0.15 for x in points(fleet, "next"))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"metric": {"name": "acc"}}, "sweep/first follows `acc`, and this search `loss`"),
        ({"metric": None}, "sweep/first has no `metric`, and this search follows `loss`"),
    ],
)
async def test_a_sweep_of_another_metric_ends_it(other: dict[str, Any], said: str) -> None:
    async with Fleet() as fleet:
        await apply(fleet, sweep("first", **other), sweep("next", "first"))
        status = fleet.status("next")
        assert (status["phase"], status["reason"], status["message"]) == ("Failed", "NoPrior", said)
        again = await apply(fleet, sweep("first"), sweep("next", "first"))
        assert again[1].outcome == "configured"
        assert fleet.status("next")["reason"] == "AwaitsPrior"


async def test_without_the_other_sweep_it_waits_with_a_hint() -> None:
    async with Fleet() as fleet:
        await apply(fleet, sweep("next", "first"))
        status = fleet.status("next")
        assert (status["reason"], status["hint"]) == (
            "AwaitsPrior",
            "apply a `kind: Sweep` with the name `first`",
        )
        await apply(fleet, sweep("first"))
        await search(fleet, "first")
        assert len(points(fleet, "next")) == 2


async def test_sweeps_that_wait_for_each_other_say_so() -> None:
    async with Fleet() as fleet:
        await apply(fleet, sweep("a", "b"), sweep("b", "a"))
        said = fleet.status("a")["message"]
        assert said == "sweep/a and sweep/b wait for each other's trials, so none of them begins"
        assert fleet.status("b")["reason"] == "AwaitsPrior"
        await apply(fleet, sweep("b"))
        await search(fleet, "b")
        assert len(points(fleet, "a")) == 2


async def test_of_a_sweep_that_is_suspended_it_is_told_how_that_goes_on() -> None:
    async with Fleet() as fleet:
        await apply(fleet, sweep("next", "first"), suspended(sweep("first")))
        status = fleet.status("next")
        assert "it is suspended" in status["message"]
        assert status["hint"] == "fleetctl resume sweep/first"


async def test_one_that_ended_without_any_trials_stands_in_no_circle() -> None:
    async with Fleet() as fleet:
        await apply(fleet, sweep("first", metric={"name": "acc"}), sweep("next", "first"))
        assert fleet.status("next")["reason"] == "NoPrior"
        await apply(fleet, sweep("first", "next"))
        assert fleet.status("first")["priorTrials"] == {"fromSweep": "next", "used": 0, "ended": 0}
        assert len(points(fleet, "first")) == 2


async def test_a_trial_that_was_ended_early_counts_with_its_best_value() -> None:
    values = [0.25, 0.5, 0.75]
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "first", early_ending(3, parameters={"x": {"values": values}}))
        await report(fleet, 0, 0.5, 0.5)
        await report(fleet, 1, 0.5, 0.5)
        await report(fleet, 2, 7.0, 9.0)
        for index in (0, 1):
            fleet.local.finish(index)
        await fleet.settle()
        assert (fleet.status("first")["succeeded"], fleet.status("first")["stopped"]) == (2, 1)
        await apply(fleet, sweep("next", "first"))
        stored = json.loads(fleet.row("next").annotations[PRIOR])
        assert stored["trials"] == [[{"x": 0.25}, 0.5], [{"x": 0.5}, 0.5], [{"x": 0.75}, 7.0]]


async def test_trials_without_a_value_warm_nothing() -> None:
    async with Fleet() as fleet:
        await apply(fleet, sweep("first", run_cap=2), sweep("next", "first", run_cap=5))
        for index in (0, 1):
            fleet.local.finish(index, of="sweep/first", result="{}")
        await fleet.settle()
        assert fleet.status("next")["priorTrials"] == {"fromSweep": "first", "used": 0, "ended": 2}
        await search(fleet, "next")
        assert fleet.status("next")["succeeded"] == 5
