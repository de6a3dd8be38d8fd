"""Lives of a schedule drawn from a seed: clocks that jump both ways, downtime, crashes, writes that
fail, work that ends or hangs. No moment is ever served twice, none is lost without being counted,
and bugs that must be seen are.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fleetctl.controllers.kinds import schedule_decision as deciding
from fleetctl.controllers.kinds.schedule_decision import ScheduledObject, ScheduleMemory
from fleetctl.engine.kinds import schedules
from fleetctl.specs.kinds.schedule import ScheduleSpec
from fleetctl.specs.values.cron import CronSchedule
from fleetctl.tracking.annotations import SCHEDULED_AT
from tests.simulation.planted.plant import around, swapped
from tests.unit.engine.fake_world import Fleet, tasks

SEEDS = 16
SEEDS_OF_A_PLANT = 40
STEPS = 30
NAME = "tick"
# 2026-10-24 22:00 UTC: three hours before clocks go back in Berlin.
BEGIN_S = 1_792_879_200.0
LINES = ("@hourly", "*/20 * * * *", "30 2 * * *", "15 1-4 * * *")


@dataclass(slots=True)
class Life:
    """made: moment -> the object of it, also of those that are gone. broken: what is wrong."""

    world: Fleet
    rng: random.Random
    spec: dict[str, Any]
    made: dict[float, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    highest_s: float = BEGIN_S  # that the clock ever showed

    async def live(self) -> None:
        await self.world.apply("Schedule", NAME, self.spec)
        for _ in range(STEPS):
            act = self.rng.choice(self._acts())
            await act()
            self._look()
        await self._come_to_rest()

    def _acts(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        often = (self._pass_time, self._pass_time, self._pass_time, self._end_work, self._crash)
        return (
            *often,
            self._jump,
            self._set_back,
            self._fail_writes,
            self._be_away,
            self._stop_slowly,
        )

    async def _pass_time(self) -> None:
        await self._later(self.rng.choice((30.0, 600.0, 1800.0)))

    async def _later(self, seconds: float) -> None:
        await self.world.later(seconds)
        self.highest_s = max(self.highest_s, self.world.clock.time_s)

    async def _jump(self) -> None:
        await self._later(self.rng.choice((7200.0, 86_400.0)))

    async def _set_back(self) -> None:
        self.world.clock.time_s -= self.rng.choice((90.0, 5400.0))
        await self.world.settle()

    async def _crash(self) -> None:
        await self.world.crash()
        await self.world.settle()

    async def _be_away(self) -> None:
        await self.world.crash()
        await self._jump()

    async def _fail_writes(self) -> None:
        self.world.fail_commits = self.rng.choice((1, 3))
        await self._later(1800.0)
        self.world.fail_commits = 0

    async def _stop_slowly(self) -> None:
        """For a while the provider does not carry out what it is asked to end."""
        self.world.local.deaf = not self.world.local.deaf
        await self.world.settle()

    async def _end_work(self) -> None:
        for key in self._working():
            if self.rng.random() < 0.7:
                self.world.local.finish(0, of=key, ok=self.rng.random() < 0.7)
        await self.world.settle()

    def _working(self) -> list[str]:
        orders, boxes = self.world.local.orders, self.world.local.boxes.values()
        return [orders[box.working].resource for box in boxes if box.working]

    def _unfinished(self) -> list[str]:
        rows = [it for it in self.world.store.resources.list() if it.kind == "BatchJob"]
        ended = ("Succeeded", "Failed")
        return [it.name for it in rows if json.loads(it.status).get("phase") not in ended]

    def _look(self) -> None:
        times = CronSchedule(self.spec["schedule"], self.spec["timeZone"])
        for row in self.world.store.resources.list():
            if row.kind != "BatchJob":
                continue
            at_s = float(row.annotations[SCHEDULED_AT])
            if self.made.setdefault(at_s, row.uid) != row.uid:
                self.broken.append(f"{at_s} is served twice")
            if times.next_s(at_s - 1) != at_s:
                self.broken.append(f"{at_s} is no moment of the line")
            if at_s > self.highest_s:
                self.broken.append(f"{at_s} is served before its time")
        if self.spec["concurrencyPolicy"] != "Allow" and len(self._working()) > 1:
            self.broken.append(f"{self._working()} work at once")

    async def _come_to_rest(self) -> None:
        """Nothing fails any more, all work ends: every moment is served or counted as missed."""
        self.world.clock.time_s = max(self.highest_s, self.world.clock.time_s)
        self.world.local.deaf = False
        await self.world.crash()  # the stops that were not heard are asked for again
        for _ in range(6):
            for key in self._working():
                self.world.local.finish(0, of=key)
            await self._later(300.0)
            self._look()
        status = json.loads(self.world.row(NAME).status)
        times = CronSchedule(self.spec["schedule"], self.spec["timeZone"])
        whole, at_s = 0, times.next_s(BEGIN_S)
        while at_s is not None and at_s <= self.world.clock.time_s:
            whole, at_s = whole + 1, times.next_s(at_s)
        if len(self.made) + status["missed"] != whole:
            self.broken.append(f"{len(self.made)} made, {status['missed']} missed of {whole}")
        if status["nextScheduleTime"] != at_s or status["active"] != len(self._unfinished()):
            self.broken.append(f"the status is {status}")


def wrong(seed: int) -> list[str]:
    """What is not as it should be in one life."""

    async def play() -> list[str]:
        rng = random.Random(f"schedule {seed}")
        spec = {
            "schedule": rng.choice(LINES),
            "timeZone": "Europe/Berlin",
            "concurrencyPolicy": rng.choice(("Allow", "Forbid", "Replace")),
            "successfulJobsHistoryLimit": rng.choice((0, 2)),
            "template": {"kind": "BatchJob", "spec": tasks(1)},
        }
        if rng.random() < 0.3:
            spec["startingDeadlineSeconds"] = rng.choice((200, 4000))
        world = Fleet()
        world.clock.time_s = world.engine.state.started_at_s = BEGIN_S
        async with world:
            life = Life(world, rng, spec)
            await life.live()
            return life.broken

    return asyncio.run(play())


def test_each_moment_is_served_once_or_counted_as_missed() -> None:
    assert [(seed, found) for seed in range(SEEDS) if (found := wrong(seed))] == []


Plant = AbstractContextManager[object]


def a_schedule_fires_twice() -> Plant:
    """What was decided is forgotten in a crash: it is kept in memory, and the name says nothing."""
    kept: dict[int, ScheduleMemory] = {}

    def make(original: Callable[..., ScheduleMemory]) -> Callable[..., ScheduleMemory]:
        def patched(track: Any, spec: ScheduleSpec, now_s: float) -> ScheduleMemory:
            memory = original(track, spec, now_s)
            if kept.setdefault(id(track), memory) is memory and memory.last_s is not None:
                return replace(memory, decided_s=memory.last_s - 3600.0)
            return memory

        return patched

    return around(schedules, "_read_memory", make)


def a_clock_set_back_begins_anew() -> Plant:
    """What is later than now is taken for a mistake."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def patched(spec: Any, memory: ScheduleMemory, children: Any, now_s: float) -> Any:
            earlier = replace(memory, decided_s=min(memory.decided_s, now_s))
            return original(spec, earlier, children, now_s)

        return patched

    return around(schedules, "decide_schedule", make)


def what_is_being_deleted_is_gone() -> Plant:
    """`Replace` starts while the one before still ends."""
    return swapped(ScheduledObject, "runs", property(lambda it: not it.deleted and not it.over))


def what_was_missed_is_not_counted() -> Plant:
    """Names the last one alone."""

    def make(original: Callable[..., ScheduleMemory]) -> Callable[..., ScheduleMemory]:
        return lambda decision: replace(original(decision), missed=decision.memory.missed)

    return around(schedules, "record_start", make)


def by_the_clock_on_the_wall_alone() -> Plant:
    """The zone is taken for UTC."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda spec, *rest: original(spec.model_copy(update={"time_zone": "UTC"}), *rest)

    return around(schedules, "decide_schedule", make)


@pytest.mark.parametrize(
    "plant",
    [
        a_schedule_fires_twice,
        a_clock_set_back_begins_anew,
        what_is_being_deleted_is_gone,
        what_was_missed_is_not_counted,
        by_the_clock_on_the_wall_alone,
    ],
)
def test_planted_bugs_are_seen(plant: Callable[[], Plant]) -> None:
    assert deciding.decide_schedule is schedules.decide_schedule
    with plant():
        assert any(wrong(seed) for seed in range(SEEDS_OF_A_PLANT))
