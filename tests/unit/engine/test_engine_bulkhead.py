"""One bad object, answer or disk never stops the engine; what rests costs nothing."""

from __future__ import annotations

import pytest

from tests.unit.engine.fake_world import HANG, Fleet, tasks


async def test_an_unreadable_object_is_set_aside_and_the_others_go_on() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "bad", tasks(1))
        await fleet.apply("BatchJob", "good", tasks(1))
        fleet.spoil("bad", '{"from":"the future"}')
        await fleet.settle()
        assert fleet.status("bad")["reason"] == "Quarantined"
        fleet.local.finish(0, of="batchjob/good")
        await fleet.settle()
        assert fleet.status("good")["phase"] == "Succeeded"


async def test_an_object_that_was_set_aside_goes_on_once_it_can_be_read() -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [HANG]
        await fleet.apply("BatchJob", "job", tasks(1))
        spec = fleet.row("job").spec
        fleet.spoil("job", '{"from":"the future"}')
        await fleet.settle()
        await fleet.engine.effects.cancel_all()
        await fleet.settle()
        fleet.spoil("job", spec)
        await fleet.settle()
        await fleet.later(10)
        assert fleet.local.working() == [0]
        fleet.local.finish(0)
        await fleet.settle()
        assert fleet.status("job")["phase"] == "Succeeded"


async def test_an_unreadable_object_can_be_deleted_and_leaves_nothing() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(2, sandbox={"reuse": "all"}))
        fleet.spoil("job", '{"from":"the future"}')
        await fleet.settle()
        await fleet.delete("BatchJob", "job")
        await fleet.later(100)
        assert fleet.names() == []
        assert not any(box.alive for box in fleet.local.boxes.values())


async def test_an_answer_that_cannot_be_true_sets_aside_its_own_object_only() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        await fleet.apply("BatchJob", "other", tasks(1))
        bad = fleet.local.run(0, of="batchjob/job")
        fleet.local.metrics[bad] = [None]  # type: ignore[list-item]
        fleet.local.finish(0, of="batchjob/other")
        fleet.engine.notify(bad)
        await fleet.settle()
        assert fleet.status("other")["phase"] == "Succeeded"
        assert fleet.status("job")["reason"] == "Quarantined"


@pytest.mark.parametrize("commits", [1, 3])
async def test_a_store_that_refuses_for_a_while_loses_and_repeats_nothing(commits: int) -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(3, parallelism=1))
        fleet.fail_commits = commits
        for index in range(3):
            fleet.local.finish(index)
            for _ in range(4):
                await fleet.later(100)
        assert len(fleet.local.orders) == 3
        assert fleet.status("job")["succeeded"] == 3


async def test_a_store_that_refuses_during_a_start_begins_the_work_once() -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [HANG]
        await fleet.apply("BatchJob", "job", tasks(1))
        fleet.fail_commits = 1
        fleet.engine.state.poke(fleet.row("job").uid)
        fleet.engine.state.say(fleet.row("job").uid, "Said", "something")
        await fleet.settle()
        assert fleet.fail_commits == 0
        await fleet.later(100)
        assert fleet.local.working() == [0]
        assert len(fleet.runs("job")) == 1


async def test_an_idle_engine_writes_nothing() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(2))
        before, _ = fleet.store.resources.watch(0)
        row = fleet.row("job")
        for _ in range(5):
            await fleet.later(30)
            fleet.engine.notify(fleet.local.run(0))
            await fleet.settle()
        assert fleet.row("job") == row
        assert fleet.store.resources.watch(0)[0] == before


async def test_a_store_that_keeps_refusing_is_asked_ever_more_rarely() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        fleet.fail_commits = tries = 1_000
        fleet.local.finish(0)
        for _ in range(600):
            await fleet.later(1)
        assert 8 <= tries - fleet.fail_commits <= 20
        fleet.fail_commits = 0
        await fleet.later(100)
        assert fleet.status("job")["phase"] == "Succeeded"


async def test_an_object_that_is_set_aside_with_a_sandbox_to_close_stops_no_other() -> None:
    async with Fleet() as fleet:
        fleet.local.deaf = True
        await fleet.apply("BatchJob", "bad", tasks(2, parallelism=2, sandbox={"reuse": "all"}))
        fleet.local.finish(0)
        await fleet.settle()
        assert fleet.local.stops != []
        fleet.spoil("bad", '{"from":"the future"}')
        await fleet.apply("BatchJob", "good", tasks(1, template={"python": "SUBMIT(good=1)"}))
        fleet.local.finish(0, of="batchjob/good")
        await fleet.later(100)
        assert fleet.status("good")["phase"] == "Succeeded"
