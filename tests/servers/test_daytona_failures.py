"""What is known to go wrong at Daytona while sandboxes are made, begun and ended: failures 1 to 8.

The real engine, store, provider and SDK against the emulator. What was made, what began and what
is still there is asked of the emulator and of the tasks themselves, not of the store. The other
failures are in test_daytona_failures_later.py.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.engine.execute.orphan_sweep import sweep_orphans
from fleetctl.providers.daytona.runs import daytona_creator
from fleetctl.providers.remote.runs.follower import FollowPace
from tests.contracts.provider_worlds import eventually
from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.driving.daytona import wait_until
from tests.servers.daytona_fleet import Fleet, Play, played
from tests.servers.fleets import Tally, begins

WAITS = "\nimport time\nprint('begun', flush=True)\ntime.sleep(600)\n"
FOUR = {"tasks": {"completions": 4}, "parallelism": 4}
EACH_OF_FOUR_ONCE = {f"{index}/1": 1 for index in range(4)}
NEVER_S = 3600.0  # until the emulator's clock is put forward


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Our own deadlines, in tenths of seconds, until it is called: on a busy machine what is not
    stuck takes longer than that, too.
    """
    usual = {name: getattr(daytona_creator, name) for name in ("SLACK_S", "OTHERS_S", "STATES_S")}
    monkeypatch.setattr(daytona_creator, "LOOK_S", 0.1)
    monkeypatch.setattr(daytona_creator, "SLACK_S", 0.1)
    monkeypatch.setattr(daytona_creator, "OTHERS_S", 0.3)
    monkeypatch.setattr(daytona_creator, "STATES_S", dict.fromkeys(daytona_creator.STATES_S, 0.3))
    monkeypatch.setattr(daytona_creator, "FAILED_AFTER_S", 0.1)

    def patient_again() -> None:
        for name, value in usual.items():
            monkeypatch.setattr(daytona_creator, name, value)

    return patient_again


# -- 1: lists lag, and what was deleted comes back -------------------------------------------------


def test_1_an_index_that_lags_decides_nothing(on_daytona: Play, tally: Tally) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.set(list_lag_s=3600.0)
        fleet.apply({"python": tally.python()}, **FOUR)
        await fleet.phase("Succeeded")
        await sweep_orphans(fleet.engine.state, "daytona", fleet.engine.rate_limiters["daytona"])
        assert tally.begun == EACH_OF_FOUR_ONCE
        assert [run.attempt for run in fleet.runs()] == [1] * 4
        assert len(fleet.made()) == 4
        assert fleet.live() == []

    on_daytona(tale)


# -- 2 and 3: answers to creates that are lost, or late --------------------------------------------


@pytest.mark.parametrize("how", [{"drop": True}, {"reset": True}, {"status": 504}])
def test_2_a_create_whose_answer_is_lost_makes_one_sandbox_and_begins_once(
    on_daytona: Play, tally: Tally, how: dict[str, object]
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.fault(operation="createSandbox", when="after", count=3, **how)
        fleet.apply({"python": tally.python()}, **FOUR)
        await fleet.phase("Succeeded")
        assert tally.begun == EACH_OF_FOUR_ONCE
        assert [run.attempt for run in fleet.runs()] == [1] * 4
        assert len(fleet.made()) == 4
        assert fleet.live() == []

    on_daytona(tale)


def test_3_a_create_that_is_not_answered_is_found_by_its_name(
    on_daytona: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daytona_creator, "LOOK_S", 0.1)

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.fault(operation="createSandbox", when="after", delay_s=NEVER_S, count=1)
        fleet.apply({"python": tally.python()})
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert len(fleet.made()) == 1
        assert fleet.live() == []

    on_daytona(tale)


def test_3_a_create_that_nobody_takes_says_so_and_is_asked_for_again_soon(
    on_daytona: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was made, so that there is nothing to be stuck, and nothing to delete."""
    monkeypatch.setattr(daytona_creator, "LOOK_S", 0.1)
    monkeypatch.setattr(daytona_creator, "PATIENCE_S", 1.0)
    monkeypatch.setattr(daytona_creator, "UNANSWERED_S", 3.0)
    monkeypatch.setattr(daytona_creator, "FAILED_AFTER_S", 0.1)

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.fault(operation="createSandbox", delay_s=NEVER_S, count=1)
        fleet.apply({"python": tally.python()})
        status = await fleet.waits("Unreachable")
        # A look may come before it is given up or after.
        said = "Daytona (has not answered|does not answer) the create of "
        assert re.search(said, status["message"]), status
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert [run.attempt for run in fleet.runs()] == [1]
        assert len(fleet.made()) == 1
        assert fleet.live() == []

    on_daytona(tale)


def test_3_a_controller_that_dies_while_a_sandbox_starts_leaves_it_to_the_next(
    tmp_path: Path, daytona_emulator: DaytonaEmulator, tally: Tally
) -> None:
    async def first(fleet: Fleet) -> None:
        fleet.emulator.set(durations_s={"starting": 2.0})
        fleet.apply({"python": tally.python()})

        async def is_made() -> bool:
            return len(fleet.made()) == 1

        await eventually(is_made, "a sandbox was made")

    async def second(fleet: Fleet) -> None:
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert len(fleet.made()) == 1
        assert fleet.live() == []

    for tale in (first, second):
        with played(tmp_path / "home", daytona_emulator) as play:
            play(tale)


# -- 4: a start that is sent again -----------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_4_a_start_whose_answer_is_lost_begins_the_work_once(
    on_daytona: Play, tally: Tally, when: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        path = "/toolbox/*/process/execute"
        fleet.emulator.fault(method="POST", path=path, when=when, drop=True, count=3)
        fleet.apply({"python": tally.python("SUBMIT(done=True)")}, **FOUR)
        await fleet.phase("Succeeded")
        assert tally.begun == EACH_OF_FOUR_ONCE
        assert fleet.results() == {index: {"done": True} for index in range(4)}
        assert len(fleet.made()) == 4
        assert fleet.live() == []

    on_daytona(tale)


@pytest.mark.parametrize("code", [137, 127])
def test_4_a_first_command_that_ends_without_a_word_is_sent_again(
    on_daytona: Play, tally: Tally, code: int
) -> None:
    """Killed before its latch, for want of memory or on a full disk."""

    async def tale(fleet: Fleet) -> None:
        path = "/toolbox/*/process/execute"
        body = {"exitCode": code, "result": ""}
        fleet.emulator.fault(method="POST", path=path, status=200, body=body, count=3)
        fleet.apply({"python": tally.python("SUBMIT(done=True)")}, **FOUR)
        await fleet.phase("Succeeded")
        assert tally.begun == EACH_OF_FOUR_ONCE
        assert len(fleet.made()) == 4
        assert fleet.live() == []

    on_daytona(tale)


def test_4_a_guest_that_ends_without_a_word_is_why_nothing_begins(
    on_daytona: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        body = {"exitCode": 127, "result": ""}
        path = "/toolbox/*/process/execute"
        fleet.emulator.fault(method="POST", path=path, status=200, body=body)
        fleet.apply({"python": tally.python()})

        async def says_so() -> bool:
            return "exited with code 127" in str(fleet.status().get("message"))

        await eventually(says_so, "the job said what its guest ended with")
        assert "`python3`" in fleet.status()["message"]
        fleet.emulator.remove_faults()
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert fleet.live() == []

    # Told at the first answer, not once that has lasted.
    on_daytona(tale, pace=FollowPace(retry_initial_s=0.05, retry_max_s=0.5, silent_s=1e6))


# -- 5: sandboxes that are stuck -------------------------------------------------------------------


@pytest.mark.parametrize("state", ["creating", "starting"])
def test_5_a_sandbox_that_is_stuck_is_given_up_and_deleted_when_that_can_be(
    on_daytona: Play, tally: Tally, impatient: Callable[[], None], state: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.fate(during=state, outcome="stuck", count=1)
        fleet.emulator.forget_requests()
        fleet.apply({"python": tally.python()})

        async def given_up() -> bool:
            return fleet.emulator.count("deleteSandbox") >= 2

        await eventually(given_up, "its deletion was asked for, and again")
        impatient()  # no more: the next one is not stuck
        # It cannot be deleted in the midst of a change.
        assert [one["state"] for one in fleet.made()] == [state]
        fleet.emulator.advance(1000.0)  # Daytona gives it up, too
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert len(fleet.made()) == 2
        assert fleet.live() == []

    on_daytona(tale)


# -- 6: deletes that are refused -------------------------------------------------------------------


def test_6_a_delete_that_is_refused_is_asked_again_until_it_is_confirmed(
    on_daytona: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.fault(operation="deleteSandbox", status=409, count=3)
        fleet.apply({"python": tally.python()})
        await fleet.phase("Succeeded")
        assert fleet.live() == []
        assert len(fleet.made()) == 1

    on_daytona(tale)


def test_6_deleting_what_is_still_starting_leaves_nothing(on_daytona: Play, tally: Tally) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.set(durations_s={"starting": NEVER_S})
        fleet.emulator.forget_requests()
        fleet.apply({"python": tally.python()})

        async def starts() -> bool:
            return [one["state"] for one in fleet.made()] == ["starting"]

        async def asked() -> bool:
            return fleet.emulator.count("deleteSandbox") > 0

        await eventually(starts, "the sandbox was starting")
        fleet.delete()
        await eventually(asked, "its deletion was asked for")
        fleet.emulator.advance(NEVER_S)
        await fleet.gone()
        await fleet.nothing_lives()
        assert not tally.begun

    on_daytona(tale)


def test_6_a_sandbox_that_takes_long_to_be_destroyed_is_waited_for(
    on_daytona: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.set(durations_s={"destroying": 1.0})
        fleet.apply({"python": tally.python()}, tasks={"completions": 2}, parallelism=1)
        await fleet.phase("Succeeded")
        one, two = fleet.made()
        assert two["created_at_s"] >= one["destroyed_at_s"]
        assert fleet.live() == []

    on_daytona(tale)


def test_6_what_sticks_in_its_deletion_says_so_until_it_is_over(
    on_daytona: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.set(durations_s={"destroying": NEVER_S})
        fleet.apply({"python": tally.python("SUBMIT(n=1)")})

        async def says_so() -> bool:
            return "is not confirmed yet" in str(fleet.status().get("message"))

        await eventually(says_so, "the job said what it waits for")
        status = fleet.status()
        assert (status["phase"], status["reason"]) == ("Running", "Waiting")
        assert f"`{fleet.live()[0]['id']}`" in str(status["waitingOn"])
        fleet.emulator.advance(NEVER_S)
        done = await fleet.phase("Succeeded")
        assert done["waitingOn"] == []
        assert fleet.results() == {0: {"n": 1}}
        assert fleet.live() == []

    on_daytona(tale, pace=FollowPace(retry_initial_s=0.05, retry_max_s=0.5, close_s=0.3))


# -- 7: sandboxes that fail ------------------------------------------------------------------------


def test_7_why_a_sandbox_failed_to_start_is_told_and_it_is_deleted(
    on_daytona: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daytona_creator, "FAILED_AFTER_S", 1.0)

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.fate(during="starting", outcome="error", reason="no space left", count=1)
        fleet.apply({"python": tally.python()})
        status = await fleet.waits("SandboxFailed")
        assert "no space left" in str(status)
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert [run.attempt for run in fleet.runs()] == [1]
        assert fleet.live() == []

    on_daytona(tale)


def test_7_a_sandbox_whose_machine_failed_is_no_fault_of_its_task_and_is_deleted(
    on_daytona: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        work = tally.python("\nimport os, time\nif os.environ['FLEETCTL_ATTEMPT'] == '1':")
        fleet.apply({"python": work + "\n    time.sleep(600)\n"})
        await begins(tally)
        [box] = fleet.live()
        fleet.emulator.lose(box["id"], reason="the runner is gone", recoverable=True)
        await fleet.phase("Succeeded")
        lost, _ = fleet.runs()
        assert lost.reason == "SandboxFailed"
        assert "the runner is gone" in lost.message
        assert tally.begun == {"0/1": 1, "0/2": 1}
        assert fleet.live() == []

    on_daytona(tale)


# -- 8: auto-stop, and the dead-man's switch -------------------------------------------------------


def test_8_a_task_that_works_alone_is_not_stopped_and_nothing_outlives_its_ttl(
    on_daytona: Play, tally: Tally, daytona_emulator: DaytonaEmulator
) -> None:
    boxes = []

    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python(WAITS), "timeoutSeconds": 7200})
        await begins(tally)
        fleet.emulator.advance(3600.0)
        await asyncio.sleep(0.3)
        [box] = fleet.live()
        assert (box["state"], box["intervals"]["stop"]) == ("started", 0)
        assert box["intervals"]["delete"] == 0
        assert box["destroy_at_s"] - box["created_at_s"] < 7200 + 1200
        boxes.append(box["id"])

    on_daytona(tale)
    # The controller is gone, and comes never again.
    daytona_emulator.advance(7200.0)
    wait_until(lambda: daytona_emulator.sandbox(boxes[0])["state"] == "destroyed", what="its end")
