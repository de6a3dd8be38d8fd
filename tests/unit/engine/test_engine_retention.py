"""Retention lets go through the engine: of what is over as the store says at that moment, never of
what runs again since it was listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from fleetctl.apply.request import ApplyOptions
from fleetctl.apply.write import commit
from fleetctl.controllers import reconcile
from fleetctl.controllers.history.history import History
from fleetctl.controllers.kinds.retention_decision import (
    ExpiredItem,
    RetentionDecision,
    RetentionItem,
    RetentionLimits,
    RetentionSort,
)
from fleetctl.controllers.planning.plan import FreeScratch, Phase, Plan
from fleetctl.controllers.schedule.desired import DesiredObject
from fleetctl.engine.execute.retention import Retention
from fleetctl.manifest import Document, load_manifests
from fleetctl.providers.sources.source_snapshots import InputFiles, Snapshots
from fleetctl.retention.cleaner import RetentionCleaner
from fleetctl.retention.survey import SortSurvey
from fleetctl.tracking.annotations import ORIGIN, REVISION
from fleetctl.tracking.kept_by import KEPT_BY, KeptBy
from fleetctl.tracking.manifest_sources import ManifestSources
from tests.unit.engine.fake_world import Fleet, tasks


class Listed(RetentionCleaner):
    """A listing that the test writes, of a machine without files."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))
        self.goes: dict[RetentionSort, list[RetentionItem]] = {}
        self.asked: Mapping[RetentionSort, RetentionLimits] = {}
        self.begin_s = 0.0

    def survey(
        self, limits: Mapping[RetentionSort, RetentionLimits], now_s: float
    ) -> dict[RetentionSort, SortSurvey]:
        self.asked = limits
        return {
            sort: SortSurvey(sort, limits[sort], self._decision(sort)) for sort in RetentionSort
        }

    def _decision(self, sort: RetentionSort) -> RetentionDecision:
        goes = tuple(ExpiredItem(it, "maxAge") for it in self.goes.get(sort, ()))
        return RetentionDecision(goes, len(goes), 0, 0)

    def begins_s(self, now_s: float) -> float:
        return self.begin_s

    def let_go(self, sort: RetentionSort, items: Sequence[RetentionItem]) -> int:
        return 0


def item(world: Fleet, name: str) -> RetentionItem:
    row = world.store.resources.get("BatchJob", name)
    assert row is not None
    return RetentionItem(row.uid, row.key, 1, 0.0)


def told(world: Fleet) -> list[str]:
    query = "SELECT message FROM events WHERE reason = 'PastRetention'"
    return [text for (text,) in world.database.events.execute(query)]


async def finished(world: Fleet, name: str) -> RetentionItem:
    await world.apply("BatchJob", name, tasks(1, cache={"policy": "Never"}))
    world.local.finish(0, of=f"batchjob/{name}")
    await world.settle()
    return item(world, name)


async def test_work_directories_of_what_is_over_are_freed_once_and_that_is_told() -> None:
    async with Fleet() as world:
        cleaner = Listed()
        retention = Retention(world.engine.state, cleaner)
        it = await finished(world, "job")
        cleaner.goes[RetentionSort.WORK_DIRECTORIES] = [it]
        for _ in range(2):
            await retention.round()
            await world.settle()
        assert world.local.freed == [(it.key, True)]
        assert world.status("job")["scratchFreed"] is True
        assert told(world) == [
            "the work directory of its runs is past `retention.workDirectories.maxAge`"
        ]


async def freed_while_it_runs(world: Fleet) -> list[tuple[str, bool]]:
    """What was freed of an object that runs again since it was listed."""
    cleaner = Listed()
    retention = Retention(world.engine.state, cleaner)
    it = await finished(world, "job")
    await world.apply("BatchJob", "job", tasks(2, cache={"policy": "Never"}))
    assert world.local.working() == [0, 1] or world.local.working() == [1]
    cleaner.goes[RetentionSort.WORK_DIRECTORIES] = [it]
    await retention.round()
    await world.settle()
    return list(world.local.freed)


async def test_the_work_directory_of_what_runs_again_since_it_was_listed_stays() -> None:
    async with Fleet() as world:
        assert await freed_while_it_runs(world) == []
        for index in world.local.working():
            world.local.finish(index)
        await world.settle()
        assert world.local.freed == []  # what it left now is new


async def test_a_gc_that_frees_what_runs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: what was listed goes, whatever became of its object since."""

    def hasty(desired: DesiredObject, history: History, now_s: float) -> Plan | None:
        if not desired.past_retention or desired.prior.scratch_freed:
            return None
        freeing = FreeScratch(desired.uid, True, desired.past_retention)
        return Plan((freeing,), Phase.RUNNING, "InProgress", active=True)

    monkeypatch.setattr(reconcile, "RULES", (hasty, *reconcile.RULES))
    async with Fleet() as world:
        assert await freed_while_it_runs(world) != []


async def test_a_copy_of_a_source_stays_while_any_of_its_users_runs(tmp_path: Path) -> None:
    """The listing names the first of them alone, and others come after it."""
    origin = tmp_path / "project"
    origin.mkdir()
    (origin / "train.py").write_text("pass")
    async with Fleet() as world:
        cleaner = Listed()
        cleaner.copies = copies = Snapshots(tmp_path / "home")
        retention = Retention(world.engine.state, cleaner)
        tree = copies.keep(origin, (), copies.look(origin, ()))
        notes = {REVISION: tree.revision, ORIGIN: str(origin)}
        first = await finished(world, "first")
        await world.apply("BatchJob", "second", tasks(1, cache={"policy": "Never"}))
        row = world.store.resources.get("BatchJob", "second")
        assert row is not None
        with world.store.transaction():
            world.store.resources.put(
                replace(row, annotations={**row.annotations, **notes}), expected_version=row.version
            )
        await world.settle()
        key = copies.key_of(tree.revision, origin.name)
        cleaner.goes[RetentionSort.SOURCES] = [RetentionItem(key, first.name, 1, 1e12)]
        await retention.round()
        assert copies.path_of(tree.revision, origin.name) is not None
        world.local.finish(0, of="batchjob/second")
        await world.settle()
        cleaner.goes[RetentionSort.SOURCES] = [
            RetentionItem(key, first.name, 1, 0.0)
        ]  # kept anew since
        await retention.round()
        assert copies.path_of(tree.revision, origin.name) is not None
        cleaner.goes[RetentionSort.SOURCES] = [RetentionItem(key, first.name, 1, 1e12)]
        await retention.round()
        assert copies.path_of(tree.revision, origin.name) is None


async def test_a_file_of_tasks_stays_while_any_of_its_users_runs(tmp_path: Path) -> None:
    """The listing was made when all of them had finished."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one")
    digest = sha256(b"one").hexdigest()
    sources = ManifestSources(tmp_path / "home")
    stored = InputFiles(tmp_path / "home")
    async with Fleet() as world:
        world.engine.state.sources = sources
        cleaner = Listed()
        retention = Retention(world.engine.state, cleaner)

        async def applied(name: str) -> None:
            text = f'kind: BatchJob\nname: {name}\nscript: work\ntasks: {{fromFiles: "in/*"}}\n'
            manifests = load_manifests([Document("job.yaml", text, str(tmp_path))])
            looked = sources.keep(manifests, await sources.look(manifests))
            options = ApplyOptions(looked=looked, sources=sources)
            commit.apply_manifests(world.store, manifests, world.clock.now_s(), options)
            await world.settle()

        async def dropped(unused_since_s: float) -> bool:
            item = RetentionItem(digest, "batchjob/first", 1, unused_since_s)
            cleaner.goes[RetentionSort.INPUTS] = [item]
            await retention.round()
            return stored.path_of(digest) is None

        await applied("first")
        world.local.finish(0, of="batchjob/first")
        await world.settle()
        await applied("second")
        assert not await dropped(1e12)
        world.local.finish(0, of="batchjob/second")
        await world.settle()
        assert not await dropped(0.0)  # an apply has kept it again since the listing
        assert await dropped(1e12)


async def test_objects_go_by_the_ordinary_deletion_and_one_that_runs_again_does_not() -> None:
    async with Fleet() as world:
        cleaner = Listed()
        retention = Retention(world.engine.state, cleaner)
        gone, again = await finished(world, "gone"), await finished(world, "again")
        await world.apply("BatchJob", "again", tasks(2, cache={"policy": "Never"}))
        cleaner.goes[RetentionSort.OBJECTS] = [gone, again]
        await retention.round()
        await world.settle()
        assert world.names() == ["again"]
        assert world.local.freed == [(gone.key, False)]  # with its logs


async def test_an_object_that_a_source_took_since_it_was_listed_stays() -> None:
    async with Fleet() as world:
        cleaner = Listed()
        retention = Retention(world.engine.state, cleaner)
        cleaner.goes[RetentionSort.OBJECTS] = [await finished(world, "job")]
        row = world.store.resources.get("BatchJob", "job")
        assert row is not None
        note = KeptBy("source/infra", "jobs.yaml:1", "abc", "d").text()
        with world.store.transaction():
            world.store.resources.put(
                replace(row, annotations={KEPT_BY: note}), expected_version=row.version
            )
        await retention.round()
        await world.settle()
        assert world.names() == ["job"]


async def test_of_an_older_store_nothing_goes_by_itself_until_limits_begin_or_are_said() -> None:
    async with Fleet() as world:
        cleaner = Listed()
        cleaner.begin_s = world.clock.now_s() + 100.0
        retention = Retention(world.engine.state, cleaner)
        it = await finished(world, "job")
        cleaner.goes[RetentionSort.WORK_DIRECTORIES] = [it]
        assert await retention.round(asked=False) == {}
        await world.settle()
        assert world.local.freed == []
        await world.apply("Settings", "default", {"retention": {"logs": {"maxAge": "1h"}}})
        await retention.round(asked=False)
        await world.settle()
        assert world.local.freed == [(it.key, True)]


async def test_the_settings_of_the_store_are_those_that_hold() -> None:
    async with Fleet() as world:
        cleaner = Listed()
        retention = Retention(world.engine.state, cleaner)
        await retention.round()
        assert cleaner.asked[RetentionSort.LOGS].max_age_s == 30 * 86_400.0
        spec = {"retention": {"logs": {"maxAge": "1h"}, "deleted": {"maxAge": 0}}}
        await world.apply("Settings", "default", spec)
        await retention.round()
        assert cleaner.asked[RetentionSort.LOGS].max_age_s == 3_600.0
        assert cleaner.asked[RetentionSort.LOGS].max_bytes == 1 << 30
        assert world.status("default")["phase"] == "Ready"


async def test_records_of_what_is_over_are_thinned_and_that_is_told() -> None:
    async with Fleet() as world:
        cleaner = Listed()
        retention = Retention(world.engine.state, cleaner)
        it, again = await finished(world, "job"), await finished(world, "again")
        await world.apply("BatchJob", "again", tasks(2, cache={"policy": "Never"}))
        cleaner.goes = {RetentionSort.RUNS: [it, again], RetentionSort.EVENTS: [it, again]}
        before = world.database.events.execute("SELECT count(*) FROM events").fetchone()[0]
        await retention.round()
        left = world.database.events.execute(
            "SELECT count(*) FROM events WHERE uid = ?", (it.key,)
        ).fetchone()[0]
        assert before > 3 and left == 1
        assert told(world) == ["earlier events are past `retention.events.maxAge`"]
