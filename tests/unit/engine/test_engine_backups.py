"""Backups are made when the settings say so; a moment is done once its copy is whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.common.errors import Unavailable
from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.engine.kinds.backups import BackupResult, Backups
from tests.unit.engine.fake_world import Fleet

HOUR_S = 3_600.0
SPEC = {"backup": {"schedule": "0 * * * *", "to": "/srv/backups", "keep": 3, "secret": "s3"}}


@dataclass
class Target:
    """Where copies come to lie. broken: why they do not."""

    broken: str = ""
    copies: list[str] = field(default_factory=list)
    asked: list[tuple[str, int, Mapping[str, str]]] = field(default_factory=list)

    async def make(self, to: str, keep: int, variables: Mapping[str, str]) -> BackupResult:
        self.asked.append((to, keep, dict(variables)))
        if self.broken:
            raise Unavailable(self.broken, hint="look at it")
        self.copies.append(f"{to}/{len(self.copies)}")
        return BackupResult(self.copies[-1], 10)


def of(world: Fleet, target: Target) -> Backups:
    def secrets(names: tuple[str, ...], namespace: str) -> ResolvedSecrets:
        return ResolvedSecrets({"KEY": f"of {namespace}/{names[0]}"})

    return Backups(world.engine.state, make=target.make, secrets=secrets)


async def at(world: Fleet, target: Target, time_s: float) -> Mapping[str, object]:
    """A controller that begins anew at this time looks once. The block of the status then."""
    world.clock.time_s = time_s
    await world.settle()
    await of(world, target).look()
    await world.settle()
    found = world.status("default")["backup"]
    assert isinstance(found, dict)
    return found


async def test_a_moment_is_backed_up_once_and_of_those_that_were_missed_the_last() -> None:
    async with Fleet() as world:
        target = Target()
        await world.apply("Settings", "default", SPEC)
        kept = await at(world, target, HOUR_S - 1.0)
        assert target.copies == [] and kept["nextTime"] == HOUR_S
        kept = await at(world, target, HOUR_S + 1.0)
        kept = await at(world, target, HOUR_S + 2.0)
        assert len(target.copies) == 1 and kept["lastSuccessfulTime"] == HOUR_S + 1.0
        assert target.asked[0] == ("/srv/backups", 3, {"KEY": "of default/s3"})
        kept = await at(world, target, 9.5 * HOUR_S)  # the machine slept
        kept = await at(world, target, 9.6 * HOUR_S)
        assert len(target.copies) == 2 and kept["nextTime"] == 10 * HOUR_S


async def test_backups_go_on_when_a_clock_that_was_years_ahead_is_right_again() -> None:
    async with Fleet() as world:
        target = Target()
        await world.apply("Settings", "default", SPEC)
        await at(world, target, 300_000 * HOUR_S)
        assert len(target.copies) == 1
        kept = await at(world, target, 2.5 * HOUR_S)
        assert len(target.copies) == 2 and kept["nextTime"] == 3 * HOUR_S
        await at(world, target, 2.6 * HOUR_S)
        assert len(target.copies) == 2
        await at(world, target, 3.5 * HOUR_S)
        assert len(target.copies) == 3


async def test_what_failed_stays_due_is_said_and_is_tried_ever_more_rarely() -> None:
    async with Fleet() as world:
        target = Target(broken="the bucket is away")
        await world.apply("Settings", "default", SPEC)
        tried_s = [HOUR_S + wait for wait in (1.0, 30.0, 62.0, 100.0, 190.0)]
        for time_s in tried_s:
            kept = await at(world, target, time_s)
        assert len(target.asked) == 3  # after a minute, then two
        assert kept["failures"] == 3 and kept["decidedUntil"] < HOUR_S
        status = world.status("default")
        assert (status["phase"], status["reason"]) == ("Pending", "BackupFailed")
        assert status["message"] == "the backup failed: the bucket is away; look at it"
        target.broken = ""
        kept = await at(world, target, HOUR_S + 1_000.0)
        assert (kept["failures"], kept["error"], len(target.copies)) == (0, "", 1)
        assert world.status("default")["phase"] == "Ready"


async def test_a_controller_that_ends_before_the_copy_is_whole_makes_another() -> None:
    async with Fleet() as world:
        target = Target()
        await world.apply("Settings", "default", SPEC)
        await at(world, target, HOUR_S - 1.0)

        async def killed(to: str, keep: int, variables: Mapping[str, str]) -> BackupResult:
            raise KeyboardInterrupt

        world.clock.time_s = HOUR_S + 1.0
        dying = Backups(world.engine.state, make=killed, secrets=lambda *_: ResolvedSecrets())
        try:
            await dying.look()
        except KeyboardInterrupt:
            await world.crash()
        await world.settle()
        assert world.status("default")["backup"]["lastSuccessfulTime"] is None
        await at(world, target, HOUR_S + 5.0)
        assert len(target.copies) == 1


async def test_another_schedule_counts_from_when_it_was_applied_and_none_makes_nothing() -> None:
    async with Fleet() as world:
        target = Target()
        await world.apply("Settings", "default", {})
        world.clock.time_s = 5.5 * HOUR_S
        await world.settle()
        await world.apply("Settings", "default", SPEC)
        assert not of(world, target).is_idle()
        kept = await at(world, target, 5.6 * HOUR_S)
        assert target.copies == [] and kept["nextTime"] == 6 * HOUR_S
        half = {"backup": {**SPEC["backup"], "schedule": "30 * * * *"}}
        world.clock.time_s = 5.7 * HOUR_S
        await world.apply("Settings", "default", half)
        kept = await at(world, target, 5.8 * HOUR_S)
        assert target.copies == [] and kept["nextTime"] == 6.5 * HOUR_S
        await world.apply("Settings", "default", {"backup": {**half["backup"], "suspend": True}})
        kept = await at(world, target, 8 * HOUR_S)
        assert target.copies == [] and kept["nextTime"] is None
        assert of(world, target).is_idle()
        await world.apply("Settings", "default", {})
        assert "backup" not in world.status("default")
