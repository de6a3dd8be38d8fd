"""What the simulation stands on: its time, its crashes, its provider models."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.providers.contract.base import RunRef, RunRequest
from fleetctl.specs.blocks.template import Template
from tests.simulation.faults import Crash, CrashAt, Life
from tests.simulation.loop import HotLoop, Timeline, VirtualLoop
from tests.simulation.models import HIDES, LOSES, RATED, STRICT, Model
from tests.simulation.observing import observe_run
from tests.simulation.world import World


def order(run: str = "run", **params: object) -> RunRequest:
    return RunRequest(
        run=run,
        sandbox=run,
        owner="us",
        uid="u",
        resource="batchjob/j",
        index=0,
        attempt=1,
        template=Template(command=("work",)),
        template_hash="t",
        params=params,
        reusable=False,
    )


def world_of(*, faults_end_s: float = 0.0) -> World:
    return World(Timeline(), random.Random(7), faults_end_s=faults_end_s)


def ref_of(run: str = "run") -> RunRef:
    return RunRef(run=run, sandbox=run, handle="", journal_offset=0, uid="u")


def test_a_week_of_sleep_takes_no_time() -> None:
    timeline = Timeline()
    loop = VirtualLoop(timeline, on_step=lambda: None)
    loop.run_until_complete(asyncio.sleep(7 * 86_400))
    loop.bury()
    assert timeline.now_s == pytest.approx(7 * 86_400)


def test_the_world_and_the_loop_share_one_time_and_keep_its_order() -> None:
    timeline, seen = Timeline(), []
    loop = VirtualLoop(timeline, on_step=lambda: None)
    timeline.at(1.0, lambda: seen.append("world at 1"))
    timeline.at(3.0, lambda: seen.append("world at 3"))
    loop.call_at(2.0, lambda: seen.append("loop at 2"))
    loop.run_until_complete(asyncio.sleep(4.0))
    loop.bury()
    assert seen == ["world at 1", "loop at 2", "world at 3"]


def test_a_loop_that_lets_no_time_pass_is_reported() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    loop = VirtualLoop(Timeline(), on_step=lambda: None)
    with pytest.raises(HotLoop):
        loop.run_until_complete(spin())
    loop.bury()


def test_a_dead_incarnation_does_nothing_more_not_even_its_cleanup() -> None:
    life, done = Life(CrashAt(sort="step", number=3)), []

    async def work() -> None:
        try:
            for _ in range(10):
                await asyncio.sleep(1.0)
                done.append("worked")
        finally:
            life.point("effect", "cleanup")
            done.append("cleaned up")

    loop = VirtualLoop(Timeline(), on_step=lambda: life.point("step"))
    with pytest.raises(Crash):
        loop.run_until_complete(work())
    loop.bury()
    assert life.dead
    assert "cleaned up" not in done


def test_what_was_asked_for_lands_although_the_asker_is_dead() -> None:
    world = world_of()
    world.ask_start(HIDES, order(), world.now_s, lambda _answer: None)
    assert not world.alive()
    world.timeline.advance(HIDES.contract.visibility_bound_s)
    assert [box.sandbox for box in world.alive()] == ["run"]
    assert not world.works


@pytest.mark.parametrize("model", [STRICT, HIDES, LOSES, RATED])
def test_a_second_start_of_the_same_run_adopts_the_first(model: Model) -> None:
    world = world_of()
    answers: list[str | Unavailable] = []
    world.ask_start(model, order(seconds=500), world.now_s, answers.append)
    world.ask_start(model, order(seconds=500), world.now_s, answers.append)
    world.timeline.advance(60.0)
    world.ask_start(model, order(seconds=500), world.now_s, answers.append)
    world.timeline.advance(90.0)
    assert len(world.alive()) == 1
    assert answers == ["h0", "h0", "h0"]


@pytest.mark.parametrize("model", [STRICT, HIDES, LOSES, RATED])
def test_no_model_breaks_its_own_visibility_bound(model: Model) -> None:
    world = world_of(faults_end_s=1e9)
    first, bound_s = order(seconds=1e6), model.contract.visibility_bound_s
    world.ask_start(model, first, world.now_s, lambda _answer: None)
    world.timeline.advance(bound_s)
    if model.contract.two_phase:
        world.ask_start(model, replace(first, handle="h0"), world.now_s, lambda _answer: None)
        world.timeline.advance(2 * bound_s)
    seen = {type(observe_run(model, world, ref_of())).__name__ for _ in range(200)}
    assert seen <= {"Alive", "Ended"} or world.works["run"].end is None


def test_a_latch_lets_a_run_begin_once_and_a_dead_sandbox_begins_nothing() -> None:
    world = world_of()
    handles: list[str | Unavailable] = []
    for _ in range(2):
        world.ask_start(HIDES, order(seconds=5), world.now_s, handles.append)
        world.timeline.advance(world.timeline.now_s + 20.0)
    for _ in range(3):
        world.ask_start(HIDES, replace(order(seconds=5), handle="h0"), world.now_s, handles.append)
        world.timeline.advance(world.timeline.now_s + 20.0)
    assert handles == ["h0"] * 5
    assert (world.begun_again, world.alive()) == ([], [])


def test_a_start_comes_to_nothing_only_where_its_own_sandbox_has_ended() -> None:
    world = world_of()
    world.ask_start(HIDES, order(seconds=5), world.now_s, lambda _answer: None)
    assert world.can_begin(order(seconds=5))
    world.timeline.advance(20.0)
    second = replace(order(seconds=5), handle="h0")
    assert world.can_begin(second)
    world.ask_start(HIDES, second, world.now_s, lambda _answer: None)
    world.timeline.advance(60.0)
    assert world.alive() == []
    assert not world.can_begin(second)
    assert world.can_begin(replace(second, sandbox="kept"))  # of a sandbox that is used again


def test_a_name_is_free_again_once_its_sandbox_has_ended() -> None:
    world = world_of()
    handles: list[str | Unavailable] = []
    for _ in range(2):
        world.ask_start(HIDES, order(), world.now_s, handles.append)
        world.timeline.advance(world.timeline.now_s + 300.0)
    assert handles == ["h0", "h1"]


def test_a_full_provider_says_no_and_starts_nothing() -> None:
    world = world_of()
    answers: list[str | Unavailable] = []
    for number in range(4):
        world.ask_start(RATED, order(f"run-{number}", seconds=500), world.now_s, answers.append)
    world.timeline.advance(10.0)
    assert len(world.alive()) == RATED.capacity
    assert sum(isinstance(answer, Unavailable) for answer in answers) == 1


def test_a_task_fails_as_often_as_its_parameters_say() -> None:
    world = world_of()
    for number in range(3):
        world.ask_start(STRICT, order(f"run-{number}", fails=2), world.now_s, lambda _answer: None)
        world.timeline.advance(world.timeline.now_s + 10.0)
    ends = [world.works[f"run-{number}"].end for number in range(3)]
    assert [end is not None and end.ok for end in ends] == [False, False, True]
