"""Runs in remote sandboxes: begun once, and told as ended when all that comes before is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import UnionType

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Alive, Ended, Gone, Observation
from fleetctl.providers.contract.base import SANDBOX_CLOSED, RunRef, RunRequest
from fleetctl.providers.remote.runs import remote_runs
from fleetctl.providers.remote.runs.follower import FollowPace
from fleetctl.providers.remote.runs.remote_runs import RemoteRuns
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, Fate, RunWork
from fleetctl.specs.blocks.template import Template
from tests.unit.providers.remote import frames
from tests.unit.providers.remote.scripted import QUICK, Script

DONE = frames.started() + frames.ended()
METRIC = frames.line({"e": "metric", "seq": 0, "step": 0, "at": 1.5, "values": {"loss": 0.5}})
LEFT_OPEN = frames.started() + frames.ended(sandbox_open=True)
Tale = Callable[["Scene"], Awaitable[None]]


class Scene:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.script = Script()
        self.told: list[str] = []
        self.runs = self.again()

    def again(self, pace: FollowPace = QUICK) -> RemoteRuns:
        """The next controller's."""
        self.runs = RemoteRuns(self.home, "remote", self.script, notify=self.told.append, pace=pace)
        return self.runs

    def order(self, run: str = "run-0", sandbox: str = "", handle: str = "sb-1") -> RunRequest:
        template = Template.model_validate({"command": ["true"]})
        return RunRequest(
            run=run, sandbox=sandbox or run, owner="store", uid="uid-1", resource="batchjob/x",
            index=0, attempt=1, template=template, template_hash="h", params={}, reusable=False,
            handle=handle,
        )  # fmt: skip

    async def begin(self, run: str = "run-0", sandbox: str = "", handle: str = "sb-1") -> RunRef:
        order = self.order(run, sandbox, handle)
        await self.runs.begin(order, RunWork({}))
        return RunRef(run, order.sandbox, handle, 0, "uid-1")

    async def see(self, ref: RunRef) -> Observation | None:
        return next(iter(await self.runs.observe([ref])), None)

    async def until(self, ref: RunRef, sort: type[Observation] | UnionType) -> Observation:
        for _ in range(12_000):  # a minute; only a hang waits for it
            seen = await self.see(ref)
            if isinstance(seen, sort):
                return seen
            await asyncio.sleep(0.005)
        raise AssertionError(f"{ref.run} was never {sort}; last seen: {seen}")


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Tale], None]:
    def run(tale: Tale) -> None:
        async def told() -> None:
            scene = Scene(tmp_path)
            try:
                await tale(scene)
            finally:
                await scene.runs.close()

        asyncio.run(told())

    return run


REF = RunRef("run-0", "run-0", "sb-1", 0, "uid-1")


def test_an_end_is_told_once_its_sandbox_is_confirmed_over(play: Callable[[Tale], None]) -> None:
    async def tale(scene: Scene) -> None:
        box = scene.script.box("sb-1", "run-0", DONE, b"words\n")
        scene.script.refusals["end"] = 1
        ref = await scene.begin()
        while box.live:
            assert not isinstance(await scene.see(ref), Ended)
            await asyncio.sleep(0.01)
        seen = await scene.until(ref, Ended)
        assert isinstance(seen, Ended)
        assert (seen.ok, seen.handle, seen.sandbox_open) == (True, "sb-1", False)
        assert "run-0" in scene.told
        assert (scene.script.calls.count("end"), scene.script.calls.count("fate")) == (2, 0)

    play(tale)


@pytest.mark.parametrize(
    ("told_before", "metrics"),
    [
        (b"", b""),
        (frames.started(), b""),
        (b"", METRIC),
        (frames.started(), METRIC),
        (frames.started() + METRIC, METRIC),
    ],
    ids=["all", "begun", "all with metrics", "begun, then metrics", "begun and metrics"],
)
def test_an_end_tells_what_came_after_what_was_told_before(
    play: Callable[[Tale], None], told_before: bytes, metrics: bytes
) -> None:
    journal = frames.started() + metrics + frames.ended()
    ref = replace(REF, journal_offset=len(told_before))

    async def tale(scene: Scene) -> None:
        scene.script.box("sb-1", "run-0", journal)
        await scene.begin()
        seen = await scene.until(ref, Ended)
        await scene.runs.close()
        scene.again()  # it has only the journal to read
        assert seen == await scene.until(ref, Ended)
        assert isinstance(seen, Ended)
        assert seen.journal_offset == len(journal)
        fresh = metrics and METRIC not in told_before
        assert [metric.name for metric in seen.metrics] == (["loss"] if fresh else [])

    play(tale)


def test_an_end_tells_of_lines_that_a_guest_without_python_handed_on(
    play: Callable[[Tale], None],
) -> None:
    raw = {"e": "metrics", "at": 1.5, "offset": 0, "line": 0, "hex": b"odd\n".hex()}

    async def tale(scene: Scene) -> None:
        scene.script.box("sb-1", "run-0", frames.started() + frames.line(raw) + frames.ended())
        seen = await scene.until(await scene.begin(), Ended)
        assert isinstance(seen, Ended) and seen.ok
        assert seen.message.startswith("line 1 of $FLEETCTL_METRICS is not recorded"), seen

    play(tale)


def test_a_healthy_run_is_observed_without_any_call(play: Callable[[Tale], None]) -> None:
    async def tale(scene: Scene) -> None:
        scene.script.box("sb-1", "run-0", frames.started()).ends_itself = False
        ref = await scene.begin()
        for _ in range(50):
            assert isinstance(await scene.see(ref), Alive)
        assert scene.script.calls == []
        assert len(scene.script.opened) == 1

    play(tale)


@pytest.mark.parametrize(("wait_s", "told"), [(0.0, ["run-0"]), (3600.0, [])])
def test_that_a_run_has_begun_is_no_reason_to_look_for_a_while(
    play: Callable[[Tale], None], wait_s: float, told: list[str]
) -> None:
    async def tale(scene: Scene) -> None:
        scene.script.box("sb-1", "run-0", frames.started()).ends_itself = False
        scene.again(replace(QUICK, first_news_s=wait_s))
        await scene.begin()
        await asyncio.sleep(0.05)
        assert scene.told == told
        # Whoever only follows has nobody else to hear it from.
        other = scene.script.box("sb-2", "run-1", frames.started())
        other.ends_itself, other.begun = False, {"run-1": 1}
        await scene.runs.follow("uid-1", "run-1", "sb-2")
        while "run-1" not in scene.told:
            await asyncio.sleep(0.005)

    play(tale)


def test_an_order_that_comes_again_begins_nothing_new(play: Callable[[Tale], None]) -> None:
    async def tale(scene: Scene) -> None:
        box = scene.script.box("sb-1", "run-0", DONE)
        await asyncio.gather(scene.begin(), scene.begin())
        await scene.until(REF, Ended)
        await scene.begin()
        await scene.runs.close()
        scene.again()
        await scene.begin()
        assert (await scene.until(REF, Ended)) is not None
        assert box.begun == {"run-0": 1}

    play(tale)


def test_the_next_controller_goes_on_where_the_mirror_ends(play: Callable[[Tale], None]) -> None:
    async def tale(scene: Scene) -> None:
        box = scene.script.box("sb-1", "run-0", frames.started(), b"one\ntwo\n")
        box.ends_itself = False
        await scene.begin()
        await scene.runs.close()
        box.journals["run-0"], box.ends_itself = DONE, True
        scene.again()
        seen = await scene.until(REF, Ended)
        assert isinstance(seen, Ended)
        assert seen.ok
        assert scene.script.opened[-1].journal > 0
        assert not box.live

    play(tale)


def test_a_sandbox_whose_end_was_not_confirmed_before_a_crash_is_ended_by_the_next_controller(
    play: Callable[[Tale], None],
) -> None:
    async def tale(scene: Scene) -> None:
        box = scene.script.box("sb-1", "run-0", DONE)
        scene.script.refusals["end"] = 1000
        ref = await scene.begin()
        while "end" not in scene.script.calls:
            await asyncio.sleep(0.005)
        await scene.runs.close()
        scene.script.refusals.clear()
        assert box.live
        scene.again()
        await scene.until(ref, Ended)
        assert not box.live
        assert len(scene.script.opened) == 1

    play(tale)


def test_a_run_that_nobody_began_is_not_spoken_of_and_begins_when_it_is_ordered(
    play: Callable[[Tale], None],
) -> None:
    async def tale(scene: Scene) -> None:
        scene.script.box("sb-1", "run-0", DONE)
        for _ in range(20):
            assert not isinstance(await scene.see(REF), Ended | Gone)
            await asyncio.sleep(0.002)
        await scene.begin()
        await scene.until(REF, Ended)

    play(tale)


def test_what_no_name_leads_to_is_gone_and_a_look_up_that_fails_says_nothing(
    play: Callable[[Tale], None],
) -> None:
    async def tale(scene: Scene) -> None:
        never = RunRef("never", "never", "", 0, "uid-1")
        scene.script.refusals["find"] = 1
        with pytest.raises(Unavailable):
            await scene.see(never)
        assert isinstance(await scene.see(never), Gone)

    play(tale)


def test_a_run_whose_handle_was_lost_is_found_by_its_name(play: Callable[[Tale], None]) -> None:
    async def tale(scene: Scene) -> None:
        box = scene.script.box("sb-1", "run-0", DONE)
        box.begun["run-0"] = 1
        seen = await scene.until(RunRef("run-0", "run-0", "", 0, "uid-1"), Ended)
        assert isinstance(seen, Ended)
        assert seen.handle == "sb-1"

    play(tale)


@pytest.mark.parametrize(
    ("fate", "sort", "reason"),
    [
        (Fate(Cause.UNKNOWN), Gone, ""),
        (Fate(Cause.LOST), Ended, "ProviderLost"),
        (Fate(Cause.PREEMPTED), Ended, "Preempted"),
        (Fate(Cause.TERMINATED, "exit code 137"), Ended, "Terminated"),
        (Fate(Cause.TIMEOUT), Ended, "ProviderTimeout"),
    ],
)
def test_a_sandbox_that_went_without_an_end_record_is_nobodys_success(
    play: Callable[[Tale], None], fate: Fate, sort: type[Observation], reason: str
) -> None:
    async def tale(scene: Scene) -> None:
        box = scene.script.box("sb-1", "run-0", frames.started())
        box.ends_itself, box.fate = False, fate
        ref = await scene.begin()
        box.live = False
        seen = await scene.until(ref, sort)
        if isinstance(seen, Ended):
            assert (seen.ok, seen.infrastructure, seen.reason) == (False, True, reason)
            assert fate.detail in seen.message
        assert not isinstance(await scene.see(ref), Alive)

    play(tale)


def test_a_supervisor_that_died_without_a_word_loses_the_run_and_its_sandbox_is_ended(
    play: Callable[[Tale], None],
) -> None:
    async def tale(scene: Scene) -> None:
        box = scene.script.box("sb-1", "run-0", frames.started())
        box.journals["run-0"] += b'{"e":"lost","message":"killed"}\n'
        seen = await scene.until(await scene.begin(), Ended)
        assert isinstance(seen, Ended)
        assert (seen.infrastructure, seen.reason) == (True, "OOMKilled")
        assert not box.live

    play(tale)


def test_a_stop_gives_the_task_its_grace_and_then_ends_the_sandbox(
    play: Callable[[Tale], None],
) -> None:
    async def tale(scene: Scene) -> None:
        box = scene.script.box("sb-1", "run-0", frames.started())
        box.ends_itself = False
        ref = await scene.begin()
        scene.script.cuts = [1]
        scene.runs.stop(ref, "sb-1", grace_s=60)
        scene.runs.stop(ref, "sb-1", grace_s=60)
        await asyncio.sleep(0.02)
        assert scene.script.calls.count("ask_stop") == 1
        scene.runs.stop(ref, "sb-1", grace_s=0)
        # Whether the stop or the stream that broke with it tells first.
        await scene.until(ref, Ended | Gone)
        assert not box.live

    play(tale)


def test_the_end_of_a_reused_sandbox_is_reported_to_all_of_its_runs(
    play: Callable[[Tale], None],
) -> None:
    async def tale(scene: Scene) -> None:
        scene.script.box("sb-1", "run-0", LEFT_OPEN)
        first = await scene.begin()
        await scene.until(first, Ended)
        box = scene.script.box("sb-1", "run-1", frames.started())
        second = await scene.begin("run-1", "run-0")
        await scene.until(second, Alive)
        scene.told.clear()
        scene.runs.stop(second, "sb-1", grace_s=0)
        await scene.until(second, Ended | Gone)
        told = {"run-0", "run-1"}
        for _ in range(12_000):  # a minute; only a hang waits for it
            if scene.runs.is_over("run-0") and told <= set(scene.told):
                break
            await asyncio.sleep(0.005)
        assert (scene.runs.is_over("run-0"), box.live) == (True, False)
        assert told <= set(scene.told)

    play(tale)


def test_a_stop_without_a_record_here_still_ends_the_sandbox(play: Callable[[Tale], None]) -> None:
    async def tale(scene: Scene) -> None:
        box = scene.script.box("sb-1", "run-0", frames.started())
        scene.runs.stop(RunRef("run-0", "run-0", "sb-1", 0, ""), "sb-1", grace_s=10)
        while box.live:
            await asyncio.sleep(0.005)
        assert "ask_stop" not in scene.script.calls

    play(tale)


def test_an_open_sandbox_takes_the_next_task_and_its_end_closes_all_of_it(
    play: Callable[[Tale], None],
) -> None:
    async def tale(scene: Scene) -> None:
        box = scene.script.box("sb-1", "run-0", LEFT_OPEN)
        first = await scene.begin()
        seen = await scene.until(first, Ended)
        assert isinstance(seen, Ended)
        assert (seen.sandbox_open, box.live) == (True, True)
        scene.script.box("sb-1", "run-1", DONE)
        second = await scene.begin("run-1", "run-0")
        await scene.until(second, Ended)
        assert not box.live
        seen = await scene.see(first)
        assert isinstance(seen, Ended)
        assert not seen.sandbox_open

    play(tale)


def test_an_idle_sandbox_that_went_is_noticed_without_asking_all_the_time(
    play: Callable[[Tale], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tale(scene: Scene) -> None:
        box = scene.script.box("sb-1", "run-0", LEFT_OPEN)
        ref = await scene.begin()
        await scene.until(ref, Ended)
        box.live = False
        for _ in range(20):
            await scene.see(ref)
        assert scene.script.calls.count("fate") <= 1
        monkeypatch.setattr("fleetctl.providers.remote.runs.remote_runs.FATE_ASKED_EVERY_S", 0.0)
        seen = await scene.see(ref)
        assert isinstance(seen, Ended)
        assert not seen.sandbox_open

    play(tale)


def test_a_task_for_a_sandbox_that_is_gone_is_certain_not_to_have_begun(
    play: Callable[[Tale], None],
) -> None:
    async def tale(scene: Scene) -> None:
        scene.script.box("sb-1", "run-1", DONE).live = False
        with pytest.raises(Unavailable) as caught:
            await scene.begin("run-1", "run-0")
        assert caught.value.reason == SANDBOX_CLOSED

    play(tale)


def test_a_task_that_may_have_begun_before_is_lost_and_not_called_unbegun(
    play: Callable[[Tale], None],
) -> None:
    """An earlier controller handed the order over and saw nothing of it."""

    async def tale(scene: Scene) -> None:
        box = scene.script.box("sb-1", "run-1", DONE)
        scene.script.cuts = [-1] * 50
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await scene.begin("run-1", "run-0")
        await scene.runs.close()
        box.live = False
        scene.again()
        ref = await scene.begin("run-1", "run-0")
        await scene.until(ref, Gone)

    play(tale)


def test_an_end_that_is_not_confirmed_for_long_says_what_it_waits_for(
    play: Callable[[Tale], None],
) -> None:
    async def tale(scene: Scene) -> None:
        scene.again(replace(QUICK, close_s=0.02))
        scene.script.box("sb-1", "run-0", DONE)
        scene.script.refusals["end"] = MUTE
        ref = await scene.begin()
        wanted = "the end of sandbox `sb-1`"
        while not isinstance(seen := await scene.see(ref), Alive) or wanted not in seen.held.text:
            await asyncio.sleep(0.005)
        assert scene.told[-1] == "run-0"
        scene.script.refusals["end"] = 0
        assert (await scene.until(ref, Ended)).run == "run-0"

    play(tale)


MUTE = 1_000_000  # cuts: streams that break at once, with nothing said


def test_a_sandbox_that_never_says_a_word_of_its_work_is_ended_and_the_run_is_lost(
    play: Callable[[Tale], None],
) -> None:
    async def tale(scene: Scene) -> None:
        scene.again(replace(QUICK, begin_s=0.1))
        box = scene.script.box("sb-1", "run-0", DONE)
        scene.script.cuts = [0] * MUTE
        seen = await scene.until(await scene.begin(), Ended)
        assert isinstance(seen, Ended)
        assert (seen.ok, seen.infrastructure, seen.reason) == (False, True, "NeverBegan")
        assert not box.live

    play(tale)


def test_an_order_that_began_nothing_is_sent_again(play: Callable[[Tale], None]) -> None:
    """The guest was killed before its latch; what follows says that nobody began the run."""

    async def tale(scene: Scene) -> None:
        box = scene.script.box("sb-1", "run-0", DONE)
        scene.script.forgets = 3
        seen = await scene.until(await scene.begin(), Ended)
        assert isinstance(seen, Ended) and seen.ok
        assert box.begun == {"run-0": 1}

    play(tale)


def test_no_phase_switches_off_the_net_under_a_beginning(play: Callable[[Tale], None]) -> None:
    async def tale(scene: Scene) -> None:
        scene.again(replace(QUICK, begin_s=0.1))
        box = scene.script.box("sb-1", "run-0", DONE)
        scene.script.forgets = MUTE
        seen = await scene.until(await scene.begin(), Ended)
        assert isinstance(seen, Ended)
        assert (seen.infrastructure, seen.reason) == (True, "NeverBegan")
        assert not box.live

    play(tale)


@pytest.mark.parametrize("gone", [False, True])
def test_a_run_that_nobody_began_comes_to_an_end_after_a_restart(
    play: Callable[[Tale], None], monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """An earlier controller took it for begun, and its order is no more."""
    monkeypatch.setattr(remote_runs, "FATE_ASKED_EVERY_S", 0.0)

    async def tale(scene: Scene) -> None:
        scene.again(replace(QUICK, begin_s=600.0 if gone else 0.1))
        box = scene.script.box("sb-1", "run-0", DONE)
        await scene.see(REF)
        box.live, box.fate = not gone, Fate(Cause.TERMINATED)
        seen = await scene.until(REF, Ended)
        assert isinstance(seen, Ended)
        assert (seen.ok, seen.infrastructure) == (False, True)
        assert seen.reason == ("Terminated" if gone else "NeverBegan")
        assert not box.live

    play(tale)


def test_time_without_an_answer_does_not_count_against_a_sandbox(
    play: Callable[[Tale], None],
) -> None:
    """The service is away for a while: work that began there must not be ended for that."""

    async def tale(scene: Scene) -> None:
        scene.again(replace(QUICK, begin_s=0.05))
        box = scene.script.box("sb-1", "run-0", DONE)
        scene.script.cuts = [0] * MUTE
        scene.script.refusals["fate"] = MUTE
        beginning = asyncio.ensure_future(scene.begin())
        await asyncio.sleep(0.15)
        scene.script.cuts.clear()
        seen = await scene.until(await beginning, Ended)
        assert isinstance(seen, Ended)
        assert seen.ok
        assert box.begun == {"run-0": 1}

    play(tale)


def test_output_is_read_while_it_comes_and_the_reading_ends_with_the_run(
    play: Callable[[Tale], None],
) -> None:
    async def tale(scene: Scene) -> None:
        scene.script.box("sb-1", "run-0", DONE, b"one\ntwo\n")
        ref = await scene.begin()
        chunks = [it async for it in scene.runs.logs(ref, offset=4, follow=True)]
        assert b"".join(it.data for it in chunks) == b"two\n"
        assert chunks[-1].eof

    play(tale)


def test_a_following_that_a_bug_ended_begins_anew_after_a_while_and_not_at_every_look(
    play: Callable[[Tale], None],
) -> None:
    async def tale(scene: Scene) -> None:
        scene.script.box("sb-1", "run-0", DONE).begun["run-0"] = 1
        scene.script.bugs = 2
        scene.again(replace(QUICK, crash_s=3600.0))
        for _ in range(50):
            assert isinstance(await scene.see(REF), Alive)
            await asyncio.sleep(0)
        assert len(scene.script.opened) == 1
        assert scene.told == []  # not until it is time to look again
        await scene.runs.close()
        scene.again()  # after a hundredth of a second
        assert isinstance(await scene.until(REF, Ended), Ended)
        assert len(scene.script.opened) == 3

    play(tale)


def test_a_start_that_a_bug_ended_is_not_told_as_begun(play: Callable[[Tale], None]) -> None:
    async def tale(scene: Scene) -> None:
        box = scene.script.box("sb-1", "run-0", DONE)
        scene.script.bugs = 1
        with pytest.raises(ZeroDivisionError):
            await scene.begin()
        assert box.begun == {}
        await scene.begin()
        assert isinstance(await scene.until(REF, Ended), Ended)
        assert box.begun == {"run-0": 1}

    play(tale)


def test_what_is_forgotten_is_followed_no_more(play: Callable[[Tale], None]) -> None:
    async def tale(scene: Scene) -> None:
        scene.script.box("sb-1", "run-0", frames.started()).ends_itself = False
        await scene.begin()
        await scene.runs.forget_all_of("uid-1")
        assert len(asyncio.all_tasks()) == 1

    play(tale)


def test_memory_of_ended_runs_is_bounded_and_they_are_told_all_the_same(
    play: Callable[[Tale], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.providers.remote.runs.remote_runs.TRACKED_MAX", 4)

    async def tale(scene: Scene) -> None:
        refs = []
        for number in range(12):
            run, handle = f"run-{number}", f"sb-{number}"
            scene.script.box(handle, run, DONE)
            refs.append(await scene.begin(run, handle=handle))
            await scene.until(refs[-1], Ended)
            assert len(scene.runs._tracked) <= 4
        assert isinstance(await scene.until(refs[0], Ended), Ended)

    play(tale)
