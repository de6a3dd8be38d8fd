"""A store that was put back from a backup, and a provider that knows more than it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import RunState
from fleetctl.daemon.adopt import RestoreRecovery
from fleetctl.providers.contract.base import BEGUN_AS_ANOTHER
from fleetctl.providers.contract.orphans import Orphan, work_mark
from fleetctl.specs.values.hashing import params_hash
from fleetctl.stores.queries import STATES
from fleetctl.stores.sqlite.store import MemoryDatabase
from tests.unit.engine.fake_world import FakeProvider, Fleet, tasks


class Listing:
    """What the fake provider lives with, as `orphans` sees it."""

    def __init__(self, world: Fleet, trouble: Exception | None = None) -> None:
        self._provider: FakeProvider = world.local
        self._store_id = world.store.store_id
        self._trouble = trouble
        self.removed: list[str] = []

    async def find_all(self) -> Sequence[Orphan]:
        if self._trouble is not None:
            raise self._trouble
        provider = self._provider
        return [
            Orphan(
                "local", f"h-{name}", self._store_id, name, order.resource, str(order.index),
                box.created_at_s, order.uid,
                work_mark(order.template_hash, params_hash(order.params)),
            )
            for name, box in provider.boxes.items()
            if box.alive and (order := provider.orders.get(name)) is not None
        ]  # fmt: skip

    async def remove(self, orphan: Orphan) -> None:
        self.removed.append(orphan.run)
        # As at a provider where a name is free again once its sandbox is gone.
        del self._provider.boxes[orphan.run], self._provider.orders[orphan.run]

    async def claim(self, orphan: Orphan, store_id: str, uid: str) -> None:
        raise AssertionError("it is ours")

    async def close(self) -> None:
        pass


def copy_of(database: MemoryDatabase) -> MemoryDatabase:
    copy = MemoryDatabase()
    database.state.backup(copy.state)
    database.events.backup(copy.events)
    copy.founded = True
    return copy


async def restored(
    world: Fleet, copy: MemoryDatabase, trouble: Exception | None = None
) -> tuple[Listing, RestoreRecovery, list[bool]]:
    """The controller dies, its store becomes the copy, and a new one begins on it."""
    world.database = copy
    await world.crash()
    listing, done = Listing(world, trouble), [False]
    recovery = RestoreRecovery(
        world.engine.state,
        world.engine.market,
        lambda _: listing,
        lambda: done.__setitem__(0, True),
    )
    world.engine.state.recovery = recovery
    await recovery.begin()
    world.engine.ticks.load()
    await world.settle()
    return listing, recovery, done


def begun(world: Fleet) -> list[int]:
    """The index of every order that was begun: a start under a known name begins nothing."""
    return sorted(order.index for order in world.local.orders.values())


SPEC = tasks(4, parallelism=2, cache={"policy": "Never"})


async def test_what_began_after_the_backup_is_taken_over_and_nothing_begins_twice() -> None:
    async with Fleet() as world:
        await world.apply("BatchJob", "job", SPEC)
        copy = copy_of(world.database)
        for index in (0, 1):
            world.local.finish(index)
            await world.settle()
        assert world.local.working() == [2, 3]
        listing, recovery, done = await restored(world, copy)
        assert not recovery.unasked and done == [True] and listing.removed == []
        for index in (2, 3):
            world.local.finish(index)
            await world.settle()
        assert world.status("job")["phase"] == "Succeeded"
        assert begun(world) == [0, 1, 2, 3]


@pytest.mark.parametrize("known", [True, False])
async def test_what_is_not_the_wished_work_any_more_is_ended_and_counts_for_nothing(
    known: bool,
) -> None:
    """The file was edited after the backup, and a task was tried again with the other program.
    known: the backup knows how the attempt before that ended.
    """
    async with Fleet() as world:
        spec = {**SPEC, "parallelism": 1, "backoffLimitPerIndex": 3}
        await world.apply("BatchJob", "job", spec)
        copy = copy_of(world.database)  # the first task lives
        world.local.finish(0, ok=False)
        await world.settle()
        if known:
            copy = copy_of(world.database)
        other = {**spec, "template": {"python": "SUBMIT(other=True)"}}
        await world.apply("BatchJob", "job", other)
        await world.later(60.0)
        (alive,) = [name for name, box in world.local.boxes.items() if box.alive]
        lost = world.local.orders[alive]
        assert lost.template.python == "SUBMIT(other=True)"
        listing, _, _ = await restored(world, copy)
        assert listing.removed == [alive]
        for _ in range(8):
            for index in world.local.working():
                world.local.finish(index)
            for name in list(world.engine.state.owner_of):
                world.engine.notify(name)  # as a poll would
            await world.later(30.0)
        assert world.status("job")["phase"] == "Succeeded"
        # All that counts is the work of the file as it was at the backup.
        rows = "SELECT runs.name FROM runs JOIN results USING (run_id) WHERE state = 3"
        names = {name for (name,) in world.database.state.execute(rows)}
        works = [world.local.orders[name].template.python for name in names]
        assert set(works) == {"SUBMIT(ok=True)"} and len(works) == 4
        assert (lost.index, lost.attempt, RunState.STOPPED) in states(world.database) or not known


async def test_where_a_provider_does_not_answer_nothing_starts_until_it_does() -> None:
    async with Fleet() as world:
        await world.apply("BatchJob", "job", {**SPEC, "parallelism": 1})
        copy = copy_of(world.database)
        world.local.finish(0)
        await world.settle()
        assert world.local.working() == [1]
        listing, recovery, done = await restored(world, copy, Unavailable("no answer"))
        assert recovery.unasked == {"local"} and done == [False]
        await world.later(5.0)
        assert begun(world) == [0, 1]
        status = world.status("job")
        assert status["reason"] == "AfterRestore" and "put back from a backup" in status["message"]
        listing._trouble = None
        await recovery._round()
        await world.later(2.0)
        assert not recovery.unasked and done == [True]
        for index in (1, 2, 3):
            world.local.finish(index)
            await world.later(1.0)
        assert begun(world) == [0, 1, 2, 3] and world.status("job")["phase"] == "Succeeded"


@pytest.mark.parametrize("trouble", [Refused("no token")])
async def test_a_provider_that_is_not_set_up_holds_nothing_up(trouble: Exception) -> None:
    async with Fleet() as world:
        await world.apply("BatchJob", "job", SPEC)
        copy = copy_of(world.database)
        _, recovery, done = await restored(world, copy, trouble)
        assert not recovery.unasked and done == [True]


async def test_a_name_under_which_other_work_ended_is_passed_over() -> None:
    async with Fleet() as world:
        world.local.script["start"] = [Unavailable("other work", reason=BEGUN_AS_ANOTHER)]
        await world.apply("BatchJob", "job", {**SPEC, "completions": 1})
        assert states(world.database)[0] == (0, 1, RunState.STOPPED)
        (order,) = world.local.orders.values()
        assert (order.index, order.attempt) == (0, 2)
        world.local.finish(0)
        await world.settle()
        assert world.status("job")["phase"] == "Succeeded"


def states(database: MemoryDatabase) -> list[Any]:
    rows: sqlite3.Cursor = database.state.execute("SELECT idx, attempt, state FROM runs")
    return [(index, attempt, RunState(STATES[state])) for index, attempt, state in rows]
