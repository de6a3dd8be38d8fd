"""What is known to go wrong when sandboxes are made at Modal and when leftovers are swept: failure
modes 1, 2, 3 and 5. Mode 4 is in test_modal_failures_crash.py, 6 to 10 in ..._later.py.

The real engine, store, provider and SDK against the emulator. What was made, what began and what
still lives is asked of the emulator and of the tasks themselves, not of the store.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import RunState
from fleetctl.engine.execute.orphan_sweep import sweep_orphans
from fleetctl.engine.shared.engine_state import EngineSettings
from fleetctl.providers.modal.connection import modal_errors
from fleetctl.providers.modal.runs import modal_creator, modal_streams
from fleetctl.providers.remote import remote_provider
from fleetctl.providers.remote.runs.follower import FollowPace
from tests.contracts.provider_worlds import eventually
from tests.emulators.modal.running import ModalEmulator
from tests.servers.modal_fleet import Fleet, Play, Tally, begins

WAITS = "\nimport time\nprint('begun', flush=True)\ntime.sleep(600)\n"
CALL_S = "5"  # what is not faulted is answered by then, also on a busy machine
SIX = {"tasks": {"completions": 6}, "parallelism": 6}
EACH_OF_SIX_ONCE = {f"{index}/1": 1 for index in range(6)}
GPU = {"resources": {"gpu": "A100:1"}}


# -- 1: the rate limit of creations ----------------------------------------------------------------


def test_1_a_creation_rate_limit_costs_waiting_and_no_attempt(on_modal: Play, tally: Tally) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do(
            "fault", rpc="SandboxCreateV2", status="RESOURCE_EXHAUSTED", retry_after_s=0.2, count=8,
            message="Sandbox creation rate limit (5/s) exceeded",
        )  # fmt: skip
        fleet.apply({"python": tally.python()}, **SIX)
        await fleet.phase("Succeeded")
        assert [run.attempt for run in fleet.runs()] == [1] * 6
        assert tally.begun == EACH_OF_SIX_ONCE
        assert len(fleet.made()) == 6
        assert fleet.emulator.state()["faults"][0]["count"] == 0
        assert fleet.live() == []

    on_modal(tale)


def test_1_a_guest_that_ends_without_a_word_is_why_nothing_begins(
    on_modal: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tale(fleet: Fleet) -> None:
        with monkeypatch.context() as broken:
            lacks = ["/bin/sh", "-c", "exit 127"]
            broken.setattr(modal_streams, "attach_command", lambda *_: lacks)
            fleet.apply({"python": tally.python()})

            async def says_so() -> bool:
                return "exited with code 127" in str(fleet.status().get("message"))

            await eventually(says_so, "the job said what its guest ended with")
            assert "`python3`" in fleet.status()["message"]
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert fleet.live() == []

    # Told at the first answer, not once that has lasted.
    on_modal(tale, pace=FollowPace(retry_initial_s=0.05, retry_max_s=0.5, silent_s=1e6))


@pytest.mark.parametrize("allow", [[], ["10.0.0.0/8", "pkg.example.org"]])
def test_1_a_sandbox_may_reach_what_its_template_says(
    on_modal: Play, tally: Tally, allow: list[str]
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python(), "network": {"allow": allow}})
        await fleet.phase("Succeeded")
        assert [one["network"] for one in fleet.made()] == [{"allowed": allow}]

    on_modal(tale)


# -- 2: too many starting at once, and creates that hang -------------------------------------------


def test_2_creates_that_hang_hold_up_no_more_than_may_start_at_once_and_no_deletion(
    on_modal: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_MODAL_STARTS_AT_ONCE", "2")

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("clear_log")
        fleet.emulator.do("fault", rpc="SandboxCreateV2", delay_s=3600, count=None)
        fleet.apply({"python": tally.python()}, **SIX)

        async def two_are_asked_for() -> bool:
            return fleet.emulator.rpcs().get("SandboxCreateV2", 0) >= 2

        await eventually(two_are_asked_for, "two sandboxes were asked for")
        await asyncio.sleep(0.3)  # a third would be asked for by now
        assert fleet.emulator.rpcs()["SandboxCreateV2"] == 2
        fleet.delete()
        await fleet.gone()
        assert fleet.live() == []
        assert not tally.begun

    on_modal(tale)


def test_2_a_create_that_hangs_is_given_up_and_made_again_once(
    on_modal: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_MODAL_CALL_S", CALL_S)

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("fault", rpc="SandboxCreateV2", delay_s=3600, count=1)
        fleet.emulator.do("fault", rpc="SandboxCreateV2", delay_s=3600, when="after", count=1)
        fleet.apply({"python": tally.python()}, tasks={"completions": 2}, parallelism=2)
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1, "1/1": 1}
        await fleet.nothing_lives()
        assert len(fleet.made()) == 2

    on_modal(tale)


def test_2_a_sandbox_whose_machine_never_starts_is_left_for_another_attempt(
    on_modal: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_MODAL_CALL_S", CALL_S)
    monkeypatch.setattr(remote_provider, "BEGIN_S", 2.0)

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("settings", start_delay_s=3600)
        fleet.apply({"python": tally.python()})

        async def made() -> bool:
            return bool(fleet.made())

        await eventually(made, "a sandbox was made")
        fleet.emulator.do("settings", start_delay_s=0)
        await fleet.phase("Succeeded")
        first, second = fleet.runs()
        assert (first.state, first.reason) == (RunState.LOST, "NeverBegan")
        assert (second.state, second.attempt) == (RunState.SUCCEEDED, 2)
        assert tally.begun == {"0/2": 1}
        assert fleet.live() == []

    # Long enough for the second one to begin on a busy machine.
    on_modal(tale, pace=FollowPace(retry_initial_s=0.05, retry_max_s=0.5, begin_s=30.0))


# -- 3: GPUs that are not free ---------------------------------------------------------------------


def test_3_a_gpu_queue_is_shown_as_pending_with_its_reason_and_ends_in_one_beginning(
    on_modal: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modal_creator, "PATIENCE_S", 0.1)

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("settings", gpu_capacity={"A100": 0})
        fleet.apply({"python": tally.python(), **GPU})
        status = await fleet.waits("Queued")
        assert status["phase"] == "Pending"
        assert "waiting for A100:1 since" in status["message"]
        assert not tally.begun
        fleet.emulator.do("settings", gpu_capacity={"A100": 1})
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert [one["backend"] for one in fleet.made()] == ["v1"]
        assert fleet.live() == []

    on_modal(tale)


def test_3_who_waits_for_a_gpu_can_be_deleted_and_leaves_the_queue(
    on_modal: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modal_creator, "PATIENCE_S", 0.1)

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("settings", gpu_capacity={"A100": 0})
        fleet.apply({"python": tally.python(), **GPU}, tasks={"completions": 3}, parallelism=3)
        await fleet.waits("Queued")
        fleet.delete()
        await fleet.gone()
        assert fleet.live() == []
        fleet.emulator.do("settings", gpu_capacity={"A100": 8})
        assert fleet.live() == []
        assert not tally.begun

    on_modal(tale)


def test_3_an_end_of_the_queue_for_want_of_machines_costs_no_attempt_and_leaves_nothing_in_it(
    on_modal: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    from modal.sandbox import _impl_v1

    monkeypatch.setattr(modal_creator, "PATIENCE_S", 0.1)
    monkeypatch.setattr(_impl_v1, "_SANDBOX_SCHEDULING_TIMEOUT", 1.0)  # it waits 21 minutes
    monkeypatch.setattr(modal_errors, "NO_CAPACITY_AFTER_S", 0.5)

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("settings", gpu_capacity={"A100": 0})
        fleet.apply({"python": tally.python(), **GPU}, maxInfraRetries=0, backoffLimitPerIndex=0)
        status = await fleet.waits("NoCapacity")
        assert "Insufficient capacity" in str(status["message"])
        assert len([one for one in fleet.live() if one["state"] == "queued"]) <= 1
        fleet.emulator.do("settings", gpu_capacity={"A100": 1})
        await fleet.phase("Succeeded")
        assert [run.attempt for run in fleet.runs()] == [1]
        assert tally.begun == {"0/1": 1}
        assert fleet.live() == []

    on_modal(tale)


def test_3_slow_starts_without_a_gpu_are_none_that_wait_for_one(
    on_modal: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_MODAL_QUEUED_MAX", "2")

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("clear_log")
        fleet.emulator.do("fault", rpc="SandboxCreateV2", delay_s=3600, count=None)
        fleet.apply({"python": tally.python()}, name="slow", **SIX)

        async def all_are_asked_for() -> bool:
            return fleet.emulator.rpcs().get("SandboxCreateV2", 0) >= 6

        await eventually(all_are_asked_for, "six sandboxes were asked for")
        fleet.apply({"python": tally.python(), **GPU}, name="quick")
        await fleet.phase("Succeeded", "quick")
        assert fleet.status("slow")["phase"] != "Succeeded"
        fleet.delete("slow")
        await fleet.gone("slow")

    on_modal(tale)


def test_3_who_has_waited_for_a_gpu_too_long_leaves_the_queue_and_stands_in_it_anew(
    on_modal: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modal_creator, "PATIENCE_S", 0.1)
    monkeypatch.setattr(modal_creator, "QUEUED_S", 1.0)

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("settings", gpu_capacity={"A100": 0})
        fleet.apply({"python": tally.python(), **GPU}, maxInfraRetries=0, backoffLimitPerIndex=0)

        async def twice() -> bool:
            return len(fleet.made()) >= 2

        await eventually(twice, "it stood in the queue twice")
        fleet.emulator.do("settings", gpu_capacity={"A100": 1})
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert fleet.live() == []

    on_modal(tale)


def test_3_who_is_in_line_for_the_queue_is_told_when_a_place_gets_free(
    on_modal: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_MODAL_QUEUED_MAX", "2")
    monkeypatch.setattr(modal_creator, "PATIENCE_S", 0.1)
    monkeypatch.setattr(modal_creator, "QUEUED_AGAIN_S", 3600.0)  # nobody asks again by itself

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("settings", gpu_capacity={"A100": 0})
        fleet.apply({"python": tally.python(), **GPU}, tasks={"completions": 6}, parallelism=6)

        async def two_are_at_modal() -> bool:
            return len(fleet.runs()) == 6 and len(fleet.made()) == 2

        await fleet.waits("Queued")
        await eventually(two_are_at_modal, "two of six creates were at Modal")
        fleet.emulator.do("settings", gpu_capacity={"A100": 1})
        await fleet.phase("Succeeded")
        assert tally.begun == EACH_OF_SIX_ONCE
        await fleet.nothing_lives()

    on_modal(tale)


# -- 5: the sweeper --------------------------------------------------------------------------------

SWEEPS = EngineSettings(retry_initial_s=0.05, retry_max_s=1.0, stop_again_s=1.0, sweep_s=0.1)


async def stranger(fleet: Fleet, tags: dict[str, str], *, app: str = "") -> str:
    """A sandbox that somebody else made, in the app of our store unless another is named."""
    import modal

    name = app or f"fleetctl-{fleet.store.store_id}"
    token = fleet.emulator.env["MODAL_TOKEN_ID"], fleet.emulator.env["MODAL_TOKEN_SECRET"]
    client = await modal.Client.from_credentials.aio(*token)
    there = await modal.App.lookup.aio(name, client=client, create_if_missing=True)
    made = await modal.Sandbox.create.aio(
        "sleep", "600", app=there, image=modal.Image.debian_slim(), tags=tags, client=client
    )
    await client.close.aio()
    return str(made.object_id)


def orphan_tags(fleet: Fleet) -> dict[str, str]:
    """What a sandbox of ours carries whose record a restored store does not have."""
    return {"fleet": fleet.store.store_id, "made-at": "1000000000", "run": "forgotten"}


def test_5_the_sweep_ends_what_has_no_record_and_nothing_else(on_modal: Play, tally: Tally) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python(WAITS)}, tasks={"completions": 2}, parallelism=2)

        await begins(tally, 2)
        ours = orphan_tags(fleet)
        orphan = await stranger(fleet, ours)
        kept = [
            await stranger(fleet, {}),
            await stranger(fleet, {**ours, "fleet": "another-store"}),
            await stranger(fleet, ours, app="somebody-elses"),
            # Young: its record may be on its way.
            await stranger(fleet, {**ours, "made-at": str(int(time.time()))}),
        ]
        kept += [run.handle for run in fleet.runs()]

        async def orphan_is_over() -> bool:
            return not fleet.emulator.sandbox(orphan)["live"]

        await eventually(orphan_is_over, "the stray was ended")
        assert len(kept) == 6
        assert all(fleet.emulator.sandbox(one)["live"] for one in kept)

    on_modal(tale, settings=SWEEPS)


@pytest.mark.parametrize("rpc", ["SandboxListV2", "SandboxTagsGetV2"])
def test_5_a_sweep_that_cannot_read_ends_nothing(on_modal: Play, tally: Tally, rpc: str) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python(WAITS)})
        await fleet.phase("Running")
        orphan = await stranger(fleet, orphan_tags(fleet))
        fleet.emulator.do("fault", rpc=rpc, status="INTERNAL", count=None)
        with pytest.raises(Unavailable):
            await sweep_orphans(fleet.engine.state, "modal", fleet.engine.rate_limiters["modal"])
        assert fleet.emulator.sandbox(orphan)["live"]
        fleet.emulator.do("clear_faults")
        assert (
            await sweep_orphans(fleet.engine.state, "modal", fleet.engine.rate_limiters["modal"])
            == 1
        )
        assert fleet.emulator.sandbox(fleet.runs()[0].handle)["live"]

    on_modal(tale)


def test_5_a_token_of_another_workspace_loses_no_run_and_begins_none_again(
    tmp_path: Path, modal_emulator: ModalEmulator, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"

    async def begun() -> None:
        fleet = Fleet(home, modal_emulator)
        fleet.apply({"python": tally.python(WAITS)})
        await begins(tally)
        await fleet.phase("Running")
        await fleet.close()

    async def elsewhere(other: ModalEmulator) -> None:
        fleet = Fleet(home, other)
        fleet.apply({"python": tally.python()}, name="second")
        status = await fleet.waits("AccountNotReady", "second")
        assert "`another`" in status["message"]
        assert "`somebody`" in status["message"]
        assert [run.state for run in fleet.runs()] == [RunState.RUNNING]
        assert other.live() == []
        await fleet.close()

    async def back() -> None:
        fleet = Fleet(home, modal_emulator)
        assert [run.attempt for run in fleet.runs()] == [1]
        assert len(fleet.live()) == 1
        await fleet.phase("Succeeded", "second")  # it has only waited
        fleet.delete()
        await fleet.gone()
        assert fleet.live() == []
        await fleet.close()

    asyncio.run(begun())
    with ModalEmulator() as other, monkeypatch.context() as switched:
        for name, value in other.env.items():
            switched.setenv(name, value)
        other.do("settings", workspace="another")
        asyncio.run(elsewhere(other))
    asyncio.run(back())
    assert tally.begun == {"0/1": 2}  # once each: both jobs are of one task
