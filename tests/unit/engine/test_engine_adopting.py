"""Adoption writes down what lives already: never twice the same unit, never in the sweep's way, and
nothing of it starts by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from fleetctl.apply.request import orphan_of
from fleetctl.common.errors import NotFound, Unavailable, UsageError
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.daemon.adopt import AdoptionResult, OrphanAdopter
from fleetctl.engine.execute.orphan_sweep import sweep_orphans
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.contract.orphans import SHARED, Orphan, work_mark, work_of
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.registry import KINDS
from tests.unit.engine.fake_world import Box, Fleet, tasks


@dataclass
class Claims:
    """Orphans of a provider that only notes who was claimed."""

    fleet: Fleet
    claimed: list[tuple[str, str]] = field(default_factory=list)
    error: Exception | None = None
    swept: int = 0

    async def find_all(self) -> Sequence[Orphan]:
        return []

    async def remove(self, orphan: Orphan) -> None:
        raise AssertionError("nobody asked for that")

    async def claim(self, orphan: Orphan, store_id: str, uid: str) -> None:
        if self.error is not None:
            raise self.error
        assert store_id == self.fleet.store.store_id
        # From here on it is ours and has no record: the sweep must not take it for an orphan.
        self.fleet.clock.time_s += 1e6
        self.swept += await sweep_orphans(
            self.fleet.engine.state,
            orphan.provider,
            self.fleet.engine.rate_limiters[orphan.provider],
        )
        self.claimed.append((orphan.run, uid))

    async def close(self) -> None:
        pass


def orphan(index: int = 0, *, spec: dict[str, object] | None = None, **changes: object) -> Orphan:
    """A task of batchjob/job as a lost store left it."""
    controller = CONTROLLERS["BatchJob"](
        KINDS["BatchJob"].spec.model_validate(spec or tasks(4)), {}
    )
    unit = controller.unit(index)
    assert unit is not None
    fields: dict[str, object] = {
        "provider": "local",
        "handle": f"h-lost-{index}",
        "store": "lost",
        "run": f"lost-{index}",
        "job": "batchjob/job",
        "index": str(index),
        "created_at_s": 500.0,
        "uid": "uid-lost",
        "work": work_mark(unit.template_hash, unit.params_hash),
    }
    return Orphan(**(fields | changes))  # type: ignore[arg-type]


def lives(fleet: Fleet, it: Orphan) -> None:
    """Its sandbox is at the provider, and works."""
    order = RunRequest(
        it.run, it.run, "lost", it.uid, it.job, int(it.index or 0), 1,
        Template(python="pass"), "hash", {}, reusable=False,
    )  # fmt: skip
    fleet.local.orders[it.run] = order
    fleet.local.boxes[it.run] = Box(it.run, it.uid, it.created_at_s, working=it.run)


async def adopt(
    fleet: Fleet, *orphans: Orphan, into: str = ""
) -> tuple[list[AdoptionResult], Claims]:
    claims = Claims(fleet)
    done = await OrphanAdopter(fleet.engine.state, fleet.engine.market, lambda _: claims).adopt(
        orphans, into
    )
    await fleet.settle()
    return done, claims


async def test_a_unit_that_is_still_wished_for_is_taken_over_and_not_begun_again() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(4, parallelism=0))
        lives(fleet, orphan(2))
        (done,), claims = await adopt(fleet, orphan(2))
        assert (done.key, done.index, done.made, done.why) == ("batchjob/job", 2, False, "")
        assert claims.claimed == [("lost-2", fleet.row("job").uid)]
        assert claims.swept == 0 and not fleet.local.stops
        await fleet.apply("BatchJob", "job", tasks(4, parallelism=4))
        assert fleet.local.working() == [0, 1, 2, 3]
        assert fleet.local.run(2) == "lost-2"
        for index in range(4):
            fleet.local.finish(index)
        await fleet.settle()
        assert fleet.status("job")["phase"] == "Succeeded"


async def test_what_was_adopted_survives_a_crash_as_any_run_does() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1, parallelism=0))
        lives(fleet, orphan(0, spec=tasks(1)))
        await adopt(fleet, orphan(0, spec=tasks(1)))
        await fleet.crash()
        await fleet.settle()
        fleet.local.finish(0)
        await fleet.settle()
        assert fleet.status("job")["phase"] == "Succeeded"


async def test_an_object_that_is_made_starts_nothing_and_takes_the_old_uid() -> None:
    async with Fleet() as fleet:
        lives(fleet, orphan(3))
        (done,), _ = await adopt(fleet, orphan(3))
        assert (done.key, done.made) == ("batchjob/adopted-job", True)
        assert fleet.row("adopted-job").uid == "uid-lost"
        fleet.local.boxes["lost-3"].alive = False
        fleet.local.notify("lost-3")
        await fleet.settle()
        assert fleet.status("adopted-job")["phase"] == "Failed"
        assert [run.name for run in fleet.runs("adopted-job")] == ["lost-3"]


async def test_a_cost_that_nobody_knows_is_not_called_zero() -> None:
    async with Fleet() as fleet:
        fleet.local.price = 0.1
        lives(fleet, orphan(0))
        await adopt(fleet, orphan(0))
        (run,) = fleet.runs("adopted-job")
        assert run.usd_per_s is None


async def test_each_that_cannot_be_adopted_says_why_and_is_left_alone() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(4, parallelism=2))
        fleet.local.finish(0)
        await fleet.settle()
        await fleet.apply("BatchJob", "idle", tasks(4, suspend=True))
        done, claims = await adopt(
            fleet,
            orphan(0),
            orphan(1),
            orphan(2, work=SHARED),
            orphan(2, job="batchjob/idle"),
            orphan(3, provider="elsewhere"),
        )
        whys = [it.why for it in done]
        assert "task 0 has succeeded already" in whys[0]
        assert "task 1 runs already" in whys[1]
        assert "take turns" in whys[2]
        assert "suspended" in whys[3]
        assert "no provider `elsewhere`" in whys[4]
        assert claims.claimed == []


async def test_other_work_of_the_same_name_gets_an_object_of_its_own() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(4, template={"python": "other()"}))
        lives(fleet, orphan(2))
        (done,), _ = await adopt(fleet, orphan(2))
        assert done.key == "batchjob/adopted-job"


async def test_a_person_may_name_the_object() -> None:
    async with Fleet() as fleet:
        other = tasks(4, parallelism=0, template={"python": "other()"})
        await fleet.apply("BatchJob", "other", other)
        lives(fleet, orphan(2))
        (done,), _ = await adopt(fleet, orphan(2, work=""), into="batchjob/other")
        assert (done.key, done.index) == ("batchjob/other", 2)
        with pytest.raises(NotFound):
            await adopt(fleet, orphan(3), into="batchjob/none")
        with pytest.raises(UsageError):
            await adopt(fleet, orphan(3), into="volume/data")


async def test_asking_again_after_no_answer_does_no_more_than_once() -> None:
    async with Fleet() as fleet:
        lives(fleet, orphan(1))
        await adopt(fleet, orphan(1))
        (done,), claims = await adopt(fleet, orphan(1))
        assert (done.key, done.why) == ("batchjob/adopted-job", "")
        assert len(claims.claimed) == 1
        assert fleet.names() == ["adopted-job"]


async def test_a_provider_that_does_not_answer_leaves_no_record() -> None:
    async with Fleet() as fleet:
        claims = Claims(fleet, error=Unavailable("no answer"))
        (done,) = await OrphanAdopter(
            fleet.engine.state, fleet.engine.market, lambda _: claims
        ).adopt([orphan(1)])
        assert done.why == "no answer"
        assert fleet.names() == [] and not fleet.engine.state.adopting


def test_reuse_is_told_by_the_tag() -> None:
    order = RunRequest("r", "r", "s", "u", "batchjob/x", 0, 1, Template(), "h", {}, reusable=True)
    assert work_of(order) == SHARED


@pytest.mark.parametrize("item", [None, {}, {"provider": "local"}, "text"])
def test_a_request_of_another_form_is_refused(item: object) -> None:
    with pytest.raises(UsageError):
        orphan_of(item)
