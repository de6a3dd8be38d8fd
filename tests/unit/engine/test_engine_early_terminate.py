"""Trials that a search ends early: decided when a report arrives, durable before the stop, and
final across crashes.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from fleetctl.controllers.model import Metric, RunState
from fleetctl.tracking.load import work_of
from tests.unit.engine.fake_world import Fleet

REASON = "EarlyTerminated"
JOB = {"template": {"python": "pass"}, "tasks": {"items": [{}]}}


def sweep(trials: int = 3, /, *, goal: str = "minimize", **search: Any) -> dict[str, Any]:
    found = {
        "method": "grid",
        "metric": {"name": "loss", "goal": goal, **search.pop("metric", {})},
        "parameters": {"x": {"values": list(range(trials))}},
        "early_terminate": {"type": "hyperband", "min_iter": 2, "eta": 3},
    }
    return {"template": {"python": "pass"}, "search": found | search, "parallelism": trials}


async def report(fleet: Fleet, index: int, *values: float, step: int = 0) -> None:
    name = fleet.local.run(index)
    told = fleet.local.metrics[name]
    told += [Metric(len(told) + at, step, "loss", value, 1.0) for at, value in enumerate(values)]
    fleet.engine.notify(name)
    await fleet.settle()


async def test_a_trial_that_does_badly_stops_when_the_others_report() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", sweep(3))
        await report(fleet, 2, 9.0, 9.0)
        assert fleet.local.working() == [0, 1, 2]  # the first one at a band is its own threshold
        await report(fleet, 0, 1.0)
        assert fleet.local.working() == [0, 1, 2]
        await report(fleet, 0, 1.0)
        assert fleet.local.working() == [0, 1]
        await report(fleet, 1, 5.0, 2.0)
        (gone,) = [run for run in fleet.runs("sw") if run.index == 2]
        assert (gone.state, gone.reason) == (RunState.STOPPED, REASON)
        assert gone.message == "value 9 at iteration 2 is above 1"
        for index in (0, 1):
            fleet.local.finish(index)
        await fleet.settle()
        status = fleet.status("sw")
        assert (status["phase"], status["succeeded"], status["stopped"]) == ("Succeeded", 2, 1)
        assert status["best"]["index"] == 0
        assert status["rungs"][0] == {"iteration": 2, "trials": 3, "threshold": 2.0}
        assert len(fleet.runs("sw")) == 3


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
async def test_a_restart_judges_by_whole_histories(goal: str) -> None:
    sign = 1 if goal == "minimize" else -1
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", sweep(4, goal=goal))
        for index, value in enumerate((1.0, 2.0, 3.0)):
            await report(fleet, index, sign * value, sign * value)
        stopped = [run.index for run in fleet.runs("sw") if run.reason == REASON]
        fleet.local.finish(0)
        await fleet.settle()
        await fleet.crash()
        await fleet.settle()
        assert [run.index for run in fleet.runs("sw") if run.reason == REASON] == stopped
        await report(fleet, 3, sign * 9.0, sign * 9.0)
        (last,) = [run for run in fleet.runs("sw") if run.index == 3]
        assert (last.state, last.reason) == (RunState.STOPPED, REASON)


@pytest.mark.parametrize("kind", ["Sweep", "BatchJob"])
async def test_a_restart_has_few_reports_in_memory_at_once(kind: str) -> None:
    async with Fleet() as fleet:
        await fleet.apply(kind, "long", sweep(2) if kind == "Sweep" else JOB)
        values = [1.0 + at for at in range(40_000)]
        await report(fleet, 0, *values)
        row = fleet.row("long")
        tracemalloc.start()
        try:
            work = work_of(row, fleet.store.runs)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert work.track.latest[fleet.local.run(0)] == {"loss": values[-1]}
        assert peak_bytes < 4 << 20  # all of them take ten


async def test_the_decision_is_stored_before_the_stop_and_carried_out_after_a_crash() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", sweep(2))
        fleet.local.deaf = True
        await report(fleet, 0, 1.0, 1.0)
        await report(fleet, 1, 9.0, 9.0, 9.0)
        (doomed,) = [run for run in fleet.runs("sw") if run.state is RunState.STOPPING]
        assert (doomed.index, doomed.reason, bool(doomed.message)) == (1, REASON, True)
        fleet.local.deaf = False
        await fleet.crash()
        await fleet.later(600.0)
        assert fleet.local.working() == [0]
        assert fleet.status("sw")["stopped"] == 1


async def test_the_stop_is_asked_at_the_decision_and_confirmed_after_its_grace() -> None:
    """Of a program that hears no signal, by the rows and the clock of the simulated world."""
    grace_s, within_s = 5.0, 10.0
    async with Fleet() as fleet:
        slow = sweep(2)
        slow["template"] |= {"terminationGracePeriodSeconds": grace_s}
        await fleet.apply("Sweep", "sw", slow)
        await report(fleet, 0, 1.0, 1.0)
        fleet.local.deaf = True
        doomed = fleet.local.run(1)
        decided_s = fleet.clock.now_s()
        await report(fleet, 1, 9.0, 9.0)
        assert (fleet.local.stops, fleet.local.graces) == ([doomed], {doomed: grace_s})
        await fleet.later(grace_s)
        fleet.local.finish(1, ok=False, reason="Signal:KILL")
        await fleet.settle()
        (gone,) = [run for run in fleet.runs("sw") if run.index == 1]
        assert (gone.state, gone.reason) == (RunState.STOPPED, REASON)
        assert gone.ended_at_s is not None and gone.ended_at_s - decided_s <= within_s


async def test_a_stopped_trial_is_no_failure_and_no_success_even_when_it_exits_well() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", {**sweep(2, early_terminate=HARSH), "maxFailedIndexes": 0})
        fleet.local.deaf = True
        await report(fleet, 0, 1.0, 1.0)
        await report(fleet, 1, 9.0, 9.0)
        fleet.local.finish(1, result='{"loss": 0.0}')  # it heard the signal and said goodbye
        fleet.local.deaf = False
        await fleet.settle()
        fleet.local.finish(0)
        await fleet.settle()
        status = fleet.status("sw")
        assert (status["phase"], status["failed"], status["stopped"]) == ("Succeeded", 0, 1)
        assert status["best"]["metric"]["value"] == 1.0
        # Its half result stands for nothing when equal work is wanted again.
        shared = {"cache": {"policy": "ReuseSucceeded"}}
        await fleet.apply("Sweep", "twin", {**sweep(2, early_terminate=HARSH), **shared})
        assert fleet.status("twin")["cached"] == 1
        assert fleet.local.working() == [1]


async def test_another_attempt_begins_anew_and_is_not_judged_by_the_one_before() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", {**sweep(2, early_terminate=HARSH), "maxInfraRetries": 3})
        await report(fleet, 1, 9.0, 9.0)
        name = fleet.local.run(1)
        fleet.local.finish(1, ok=False, infrastructure=True, reason="Preempted")
        await fleet.later(60.0)
        assert fleet.local.run(1) != name
        await report(fleet, 0, 1.0, 1.0)
        await report(fleet, 1, 9.0)
        assert fleet.local.working() == [0, 1]
        await report(fleet, 1, 9.0)
        assert fleet.local.working() == [0]


@pytest.mark.parametrize("crashes", [False, True])
async def test_an_attempt_that_resumes_is_judged_by_all_that_was_reported(crashes: bool) -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", {**sweep(2, early_terminate=HARSH), "maxInfraRetries": 3})
        await report(fleet, 0, 1.0, 1.0)
        await report(fleet, 1, 0.5, step=7)
        fleet.local.finish(1, ok=False, infrastructure=True, reason="Preempted")
        await fleet.later(60.0)
        if crashes:
            await fleet.crash()
            await fleet.settle()
        assert fleet.local.working() == [0, 1]
        await report(fleet, 1, 9.0, step=8)  # its second value, from a checkpoint of the first
        assert fleet.local.working() == [0]


async def test_a_target_ends_the_search_when_any_trial_reports_it() -> None:
    target = {"target": 0.5}
    async with Fleet() as fleet:
        spec = sweep(4, metric=target, early_terminate=None)
        await fleet.apply("Sweep", "sw", {**spec, "parallelism": 2})
        await report(fleet, 0, 3.0, 0.4, 2.0)
        status = fleet.status("sw")
        assert (status["reason"], fleet.local.working()) == ("Finishing", [0, 1])
        await fleet.crash()
        for index in (0, 1):
            fleet.local.finish(index)
        await fleet.settle()
        assert (fleet.status("sw")["reason"], len(fleet.runs("sw"))) == ("TargetReached", 2)


HARSH = {"type": "hyperband", "min_iter": 2, "eta": 100}


async def test_what_an_older_program_still_reports_does_not_reach_the_target() -> None:
    async with Fleet() as fleet:
        desired = sweep(2, metric={"target": 0.5}, early_terminate=None)
        await fleet.apply("Sweep", "sw", desired)
        fleet.local.deaf = True
        await fleet.apply("Sweep", "sw", {**desired, "template": {"python": "another = True"}})
        await report(fleet, 0, 0.1)
        assert fleet.status("sw")["phase"] == "Running"
        fleet.local.deaf = False
        await fleet.later(60.0)
        assert fleet.local.working() == [0, 1]  # the program that is desired
        await report(fleet, 1, 0.1)
        fleet.local.finish(0)
        fleet.local.finish(1)
        await fleet.settle()
        assert fleet.status("sw")["reason"] == "TargetReached"
