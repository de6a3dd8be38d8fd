"""One odd answer decides nothing: a refusal, a word on the account, a sandbox said to be gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import Observation, RunState
from fleetctl.daemon.verbs import RequestVerbs
from fleetctl.engine.execute.orphan_sweep import sweep_orphans
from fleetctl.engine.observe.provider_health import ProviderHealth, watch_reachability
from fleetctl.providers.contract.base import RunRef, RunRequest
from tests.unit.engine.fake_world import CONTRACT, HANG, SECOND_LOOK_S, Box, Fleet, tasks

KEY = Unavailable(
    "Daytona does not accept the key", reason="KeyRefused", hint="export a new one", account=True
)
SEVERAL = {"ordered": [{"provider": "daytona"}, {"provider": "modal"}]}
BOUND_S = 10.0
LAGGING = replace(CONTRACT, visibility_bound_s=BOUND_S)


# -- refusals --------------------------------------------------------------------------------------


async def test_one_refusal_ends_nothing_when_the_second_look_takes_it() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(3, parallelism=2))
        fleet.local.script["start"] = [Refused("no available runners")]
        fleet.local.finish(0)
        await fleet.settle()
        assert fleet.status("job")["phase"] == "Running"
        assert fleet.local.working() == [1]
        await fleet.later(SECOND_LOOK_S)
        assert fleet.local.working() == [1, 2]


async def test_starts_refused_together_are_one_look() -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [Refused("odd")] * 4
        await fleet.apply("BatchJob", "job", tasks(4, parallelism=4))
        assert fleet.status("job")["phase"] == "Pending"
        assert "odd" in fleet.status("job")["message"]
        await fleet.later(SECOND_LOOK_S)
        assert fleet.local.working() == [0, 1, 2, 3]


async def test_running_siblings_go_on_until_a_refusal_is_said_twice() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(4, parallelism=2))
        fleet.local.script["start"] = [Refused("no such image")] * 2
        fleet.local.finish(0)
        await fleet.settle()
        assert fleet.local.stops == []
        await fleet.later(SECOND_LOOK_S)
        assert fleet.status("job")["reason"] in ("Finishing", "Refused")


async def test_a_start_that_is_taken_between_two_refusals_takes_the_doubt_away() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(9, parallelism=1))
        for index in range(3):
            fleet.local.script["start"] = [Refused("odd")]
            fleet.local.finish(index)
            await fleet.settle()
            await fleet.later(SECOND_LOOK_S)
            assert fleet.local.working() == [index + 1]


async def test_refused_units_are_counted() -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [Refused("no such image")] * 4
        await fleet.apply("BatchJob", "job", tasks(2, parallelism=2))
        await fleet.later(SECOND_LOOK_S)
        status = fleet.status("job")
        counts = ("succeeded", "active", "failed", "refused")
        assert [status[it] for it in counts] == [0, 0, 0, 2]


@pytest.mark.parametrize("changed", [{"parallelism": 2}, {"completions": 3}])
async def test_a_refused_job_that_is_applied_with_a_change_is_asked_for_again(
    changed: dict[str, int],
) -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [Refused("no such image")] * 2
        await fleet.apply("BatchJob", "job", tasks(2, parallelism=1))
        await fleet.later(SECOND_LOOK_S)
        assert fleet.status("job")["reason"] == "Refused"
        spec = {**tasks(2, parallelism=1), **changed}
        await fleet.apply("BatchJob", "job", spec)
        assert fleet.status("job")["phase"] == "Running" or fleet.local.working()
        assert fleet.local.working()


# -- the account -----------------------------------------------------------------------------------


async def test_a_key_that_is_refused_makes_starts_wait_and_running_work_go_on() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(4, parallelism=2))
        fleet.local.script["start"] = [KEY] * 3
        fleet.local.finish(0)
        await fleet.settle()
        status = fleet.status("job")
        assert (status["phase"], status["reason"]) == ("Running", "KeyRefused")
        assert status["message"] == "Daytona does not accept the key"
        assert status["hint"] == "export a new one"
        assert fleet.local.working() == [1]
        assert fleet.local.stops == []
        for _ in range(3):  # asked again, and taken by then
            await fleet.later(100)
        assert fleet.local.working() == [1, 2]
        assert fleet.status("job")["reason"] == "InProgress"


async def test_every_object_of_the_account_says_it_and_none_of_another() -> None:
    async with Fleet(("daytona", "modal")) as fleet:
        for name, place in (("a", "daytona"), ("b", "daytona"), ("c", "modal")):
            await fleet.apply("BatchJob", name, tasks(1, placement={"provider": place}))
        fleet.providers["daytona"].script["start"] = [KEY]
        await fleet.apply("BatchJob", "d", tasks(1, placement={"provider": "daytona"}))
        reasons = {name: fleet.status(name)["reason"] for name in "abcd"}
        assert reasons == {
            "a": "KeyRefused",
            "b": "KeyRefused",
            "c": "InProgress",
            "d": "KeyRefused",
        }
        await fleet.later(61)
        assert {fleet.status(name)["reason"] for name in "abd"} == {"InProgress"}


async def test_a_word_about_the_account_that_nobody_hears_again_is_forgotten() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "a", tasks(1))
        fleet.local.script["start"] = [KEY]
        await fleet.apply("BatchJob", "b", tasks(1))
        await fleet.delete("BatchJob", "b")
        assert fleet.status("a")["reason"] == "KeyRefused"
        await fleet.later(200)
        assert fleet.status("a")["reason"] == "InProgress"


@pytest.mark.parametrize(
    "answer",
    [
        KEY,
        Unavailable("what is this", reason="UnknownAnswer"),
        Unavailable("500: Internal server error"),
        TimeoutError(),
    ],
    ids=["account", "unknown", "500", "no-answer"],
)
async def test_the_next_place_is_tried_after_the_time_that_the_placement_says(
    answer: Exception,
) -> None:
    async with Fleet(("daytona", "modal")) as fleet:
        fleet.providers["daytona"].script["start"] = [answer] * 50
        placement = {**SEVERAL, "spillOver": {"afterSeconds": 30}}
        await fleet.apply("BatchJob", "a", tasks(1, placement=placement))
        assert fleet.providers["modal"].working() == []
        for _ in range(8):
            await fleet.later(10)
        assert fleet.providers["modal"].working() == [0]


async def test_what_was_never_made_is_not_waited_for_when_it_is_deleted() -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [Unavailable("nobody there", reason="Unreachable")] * 9
        fleet.local.script["stop"] = [Unavailable("nobody there", reason="Unreachable")] * 9
        await fleet.apply("BatchJob", "job", tasks(2))
        await fleet.delete("BatchJob", "job")
        assert fleet.names() == []


async def test_a_stop_that_cannot_be_asked_for_says_why_while_the_object_waits() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        fleet.local.script["stop"] = [KEY] * 9
        await fleet.delete("BatchJob", "job")
        [first, *_] = fleet.status("job")["waitingOn"]
        assert first.startswith("1 run is being stopped: its stop failed: Daytona does not")


async def seen_later(fleet: Fleet, seconds: float, run: str) -> None:
    """The time of the next look has come; what wakes it is a clock that this test does not set."""
    fleet.clock.time_s += seconds
    fleet.local.notify(run)
    await fleet.settle()


async def test_an_abandoned_object_is_gone_at_once_and_says_what_it_leaves() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(2, parallelism=1))
        fleet.local.script["stop"] = [Unavailable("nobody there", reason="Unreachable")] * 3
        uid = fleet.row("job").uid
        verbs = RequestVerbs(fleet.engine.state)
        assert (await verbs.abandon({"uids": [uid]}))["results"] == []  # it was not deleted
        await fleet.delete("BatchJob", "job")
        handle = fleet.runs("job")[0].handle
        reply = await verbs.abandon({"uids": [uid]})
        [told] = reply["results"]
        assert told == {
            "key": "batchjob/job",
            "left": [f"sandbox `{handle}` at provider `local`"],
        }
        await fleet.settle()
        assert fleet.names() == []
        # The controller stays until what is left is ended.
        assert not fleet.engine.idle()
        async with asyncio.timeout(300):
            while any(box.alive for box in fleet.local.boxes.values()):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        assert fleet.engine.idle()


# -- gone ------------------------------------------------------------------------------------------


async def test_gone_is_believed_when_it_is_said_twice_across_the_visibility_bound() -> None:
    async with Fleet(contract=LAGGING) as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        await fleet.later(2 * BOUND_S)
        [run] = fleet.runs("job")
        fleet.local.denied = {run.name}
        fleet.local.notify(run.name)
        await fleet.settle()
        await fleet.later(BOUND_S - 1)
        fleet.local.notify(run.name)
        await fleet.settle()
        assert [it.state for it in fleet.runs("job")] == [RunState.RUNNING]
        await seen_later(fleet, 1, run.name)
        assert next(it.state for it in fleet.runs("job")) is RunState.LOST


async def test_one_false_gone_loses_nothing() -> None:
    async with Fleet(contract=LAGGING) as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        await fleet.later(2 * BOUND_S)
        [run] = fleet.runs("job")
        fleet.local.denied = {run.name}
        fleet.local.notify(run.name)
        await fleet.settle()
        fleet.local.denied = set()
        await seen_later(fleet, BOUND_S, run.name)
        fleet.local.denied = {run.name}
        fleet.local.notify(run.name)
        await fleet.settle()
        assert [it.state for it in fleet.runs("job")] == [RunState.RUNNING]
        assert fleet.local.stops == []


async def test_what_is_believed_gone_is_ended_all_the_same() -> None:
    async with Fleet(contract=LAGGING) as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        await fleet.later(2 * BOUND_S)
        [run] = fleet.runs("job")
        fleet.local.denied = {run.name}
        fleet.local.notify(run.name)
        await fleet.settle()
        await seen_later(fleet, BOUND_S, run.name)
        assert fleet.local.stops == [run.name]
        assert [name for name, box in fleet.local.boxes.items() if box.alive] != [run.name]
        assert len([box for box in fleet.local.boxes.values() if box.alive]) == 1


async def test_what_was_asked_too_early_proves_nothing_however_late_its_answer_comes() -> None:
    async with Fleet(contract=LAGGING) as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        await fleet.later(2 * BOUND_S)
        [run] = fleet.runs("job")
        fleet.local.denied = {run.name}
        fleet.local.notify(run.name)
        await fleet.settle()
        released, observe = asyncio.Event(), fleet.local.observe

        async def slowly(refs: Sequence[RunRef]) -> Sequence[Observation]:
            seen = await observe(refs)
            await released.wait()
            return seen

        fleet.local.observe = slowly  # type: ignore[method-assign]
        await fleet.later(BOUND_S - 1)
        fleet.local.notify(run.name)
        await fleet.settle()
        await fleet.later(BOUND_S)
        fleet.local.denied = set()
        released.set()
        await fleet.settle()
        assert [it.state for it in fleet.runs("job")] == [RunState.RUNNING]


async def test_gone_is_not_believed_while_a_start_is_under_way() -> None:
    async with Fleet(contract=LAGGING) as fleet:
        answered, start = asyncio.Event(), fleet.local.start

        async def slowly(order: RunRequest) -> str:
            handle = await start(order)
            await answered.wait()
            return handle

        fleet.local.start = slowly  # type: ignore[method-assign]
        await fleet.apply("BatchJob", "job", tasks(1))
        [run] = fleet.runs("job")
        fleet.local.notify(run.name)
        await fleet.settle()
        assert [it.state for it in fleet.runs("job")] == [RunState.RUNNING]
        fleet.local.denied = {run.name}
        for _ in range(3):
            await seen_later(fleet, BOUND_S, run.name)
        assert [it.state for it in fleet.runs("job")] == [RunState.RUNNING]
        answered.set()
        await fleet.settle()
        for _ in range(3):
            await seen_later(fleet, BOUND_S, run.name)
        assert fleet.runs("job")[0].state is RunState.LOST


async def test_what_a_start_without_an_answer_may_have_made_is_waited_for_and_ended() -> None:
    async with Fleet(contract=LAGGING) as fleet:
        fleet.local.script["start"] = [HANG]
        await fleet.apply("BatchJob", "job", tasks(1))
        [run] = fleet.runs("job")
        answered, observe = asyncio.Event(), fleet.local.observe

        async def slowly(refs: Sequence[RunRef]) -> Sequence[Observation]:
            seen = await observe(refs)
            await answered.wait()
            return seen

        fleet.local.observe = slowly  # type: ignore[method-assign]
        await seen_later(fleet, 0, run.name)
        await fleet.later(BOUND_S / 2)
        await fleet.delete("BatchJob", "job")  # the start is given up, and may take effect yet
        answered.set()  # with what was seen before that
        await fleet.settle()
        await seen_later(fleet, BOUND_S / 2, run.name)
        await fleet.later(BOUND_S / 2 - 1)
        fleet.local.boxes[run.name] = Box(run.name, run.uid, fleet.clock.time_s, working=run.name)
        fleet.local.orders[run.name] = fleet.local.requests[run.name]
        for _ in range(4):
            await seen_later(fleet, BOUND_S, run.name)
        assert fleet.names() == []
        assert not fleet.local.boxes[run.name].alive


# -- orphans and leaving ---------------------------------------------------------------------------


async def test_a_sandbox_without_a_record_keeps_the_controller_until_the_sweep_ended_it() -> None:
    contract = replace(LAGGING, call_deadline_s=900.0)
    async with Fleet(contract=contract) as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        fleet.local.finish(0)
        await fleet.settle()
        assert fleet.engine.idle()
        box = next(iter(fleet.local.boxes.values()))
        fleet.local.boxes["orphan"] = replace(box, sandbox="orphan", alive=True, created_at_s=1000)
        await sweep_orphans(fleet.engine.state, "local", fleet.engine.rate_limiters["local"])
        assert not fleet.engine.idle()
        # Two minutes: the bound, the grace and one interval of the sweep.
        assert BOUND_S + fleet.settings.sweep_grace_s + fleet.settings.sweep_s < 120
        await fleet.later(BOUND_S + fleet.settings.sweep_grace_s + 1)
        await sweep_orphans(fleet.engine.state, "local", fleet.engine.rate_limiters["local"])
        assert not fleet.local.boxes["orphan"].alive
        await sweep_orphans(fleet.engine.state, "local", fleet.engine.rate_limiters["local"])
        assert fleet.engine.idle()


async def test_what_a_provider_still_resolves_keeps_the_controller() -> None:
    async with Fleet() as fleet:
        unresolved = [True]
        fleet.local.unresolved = lambda: unresolved[0]  # type: ignore[attr-defined]
        assert not fleet.engine.idle()
        unresolved[0] = False
        assert fleet.engine.idle()


# -- quota -----------------------------------------------------------------------------------------


async def test_a_start_that_waits_for_quota_is_asked_for_when_one_of_ours_ends() -> None:
    async with Fleet() as fleet:
        fleet.local.quota = 2
        await fleet.apply("BatchJob", "a", tasks(12, parallelism=6))
        await fleet.later(300)  # long waits by now
        for _ in range(12):
            working = fleet.local.working()
            assert len(working) <= 2
            fleet.local.finish(working[0])
            await fleet.settle()
        assert fleet.status("a")["phase"] == "Succeeded"


async def test_the_end_of_one_object_wakes_a_start_of_another() -> None:
    async with Fleet() as fleet:
        fleet.local.quota = 1
        await fleet.apply("BatchJob", "a", tasks(1))
        await fleet.apply("BatchJob", "b", tasks(1))
        await fleet.later(300)
        assert fleet.status("b")["reason"] == "Quota"
        asked = fleet.local.asked
        fleet.local.finish(0, of="batchjob/a")
        await fleet.settle()
        assert fleet.status("b")["reason"] == "InProgress"
        assert fleet.local.asked == asked + 1


# -- the service is away ---------------------------------------------------------------------------


async def test_a_service_that_is_away_is_told_by_what_runs_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fleetctl.engine.observe import provider_health as module

    monkeypatch.setattr(module, "PROBE_EVERY_S", 0.001)
    monkeypatch.setattr(module, "PROBE_AGAIN_S", 0.0)
    async with Fleet() as fleet:
        away: list[Exception | None] = [None]

        async def reach() -> None:
            if away[0] is not None:
                raise away[0]

        fleet.local.reach = reach  # type: ignore[attr-defined]
        await fleet.apply("BatchJob", "a", tasks(1))
        watch = asyncio.ensure_future(
            watch_reachability(
                "local",
                lambda: fleet.local,
                tracks=lambda: list(fleet.engine.state.tracks.values()),
                health=fleet.engine.parts.get(ProviderHealth),
                changed=lambda: None,
            )
        )
        for wrong, reason in (
            (KEY, "KeyRefused"),
            (None, "InProgress"),
            (OSError(), "Unreachable"),
        ):
            away[0] = wrong
            async with asyncio.timeout(300):
                while fleet.status("a")["reason"] != reason:
                    await asyncio.sleep(0.002)
                    fleet.engine.ticks.make()
            assert fleet.local.working() == [0]
        watch.cancel()
