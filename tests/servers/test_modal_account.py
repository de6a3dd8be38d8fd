"""One odd answer of Modal ends nothing: trouble of the account and pages of gateways make starts
wait, what runs goes on, and what was sent is found again.

What was made and what still lives is asked of the emulator, what began of the tasks themselves.
"""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.controllers.model import RunState
from fleetctl.engine.observe import provider_health
from fleetctl.providers.modal.connection import modal_errors
from fleetctl.providers.modal.runs import modal_creator
from tests.contracts.provider_worlds import eventually
from tests.emulators.driving.gates import gate
from tests.servers.modal_fleet import Fleet, Play, Tally, begins

THREE = {"tasks": {"completions": 3}, "parallelism": 3}
EACH_OF_THREE_ONCE = {f"{index}/1": 1 for index in range(3)}
GPU = {"resources": {"gpu": "A100:1"}}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again in the time of a test."""
    for name in ("ACCOUNT_AFTER_S", "RETRY_AFTER_S", "LIMIT_AFTER_S", "QUOTA_AFTER_S"):
        monkeypatch.setattr(modal_errors, name, 0.3)
    monkeypatch.setattr(modal_creator, "PATIENCE_S", 0.1)


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        ({"status": "UNAUTHENTICATED", "message": "revoked"}, "KeyRefused", "accept the token"),
        ({"status": "PERMISSION_DENIED", "message": "no role"}, "AccessDenied", "no role"),
        (
            {"status": "PERMISSION_DENIED", "message": "billing is off"},
            "SpendLimit",
            "billing is off",
        ),
        ({"status": "RESOURCE_EXHAUSTED", "message": "odd words"}, "UnknownAnswer", "odd words"),
        ({"status": "UNIMPLEMENTED", "message": "later"}, "UnknownAnswer", "later"),
    ],
    ids=["key", "permission", "billing", "exhausted", "unimplemented"],
)
def test_an_answer_that_blames_no_template_makes_starts_wait_and_running_work_goes_on(
    on_modal: Play, tally: Tally, fault: dict[str, Any], reason: str, words: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        with gate() as door:
            fleet.emulator.do("fault", rpc="SandboxCreateV2", skip=2, count=None, **fault)
            fleet.apply({"python": tally.python(door.python())}, **THREE)
            await begins(tally, 2)

            async def is_told() -> bool:
                return words in str(fleet.status().get("waitingOn"))

            await eventually(is_told, f"it said why: {words}")
            assert tally.begun.total() == 2

            async def two_run() -> bool:  # that a run has begun is written a little later
                states = sorted(run.state for run in fleet.runs())
                return states == sorted([RunState.RUNNING, RunState.RUNNING, RunState.STARTING])

            await eventually(two_run, "two run and one waits")
            assert len(fleet.live()) == 2
            fleet.emulator.do("clear_faults")
            await begins(tally, 3)
            door.open()
            await fleet.phase("Succeeded")
        assert tally.begun == EACH_OF_THREE_ONCE
        assert len(fleet.made()) == 3
        await fleet.nothing_lives()

    on_modal(tale)


@pytest.mark.parametrize("status", ["PAGE_401", "PAGE_403", "PAGE_404", "PAGE_502"])
def test_a_gateways_page_is_no_answer_of_modal(on_modal: Play, tally: Tally, status: str) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("fault", rpc="SandboxCreateV2", status=status, skip=1, count=5)
        fleet.apply({"python": tally.python()}, **THREE)
        await fleet.phase("Succeeded")
        assert tally.begun == EACH_OF_THREE_ONCE
        await fleet.nothing_lives()

    on_modal(tale)


@pytest.mark.parametrize("status", ["UNAUTHENTICATED", "PERMISSION_DENIED", "PAGE_403"])
def test_queued_gpu_sandboxes_whose_polling_is_refused_are_found_again_and_none_leaks(
    on_modal: Play, tally: Tally, status: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("settings", gpu_capacity={"A100": 0})
        fleet.apply({"python": tally.python(), **GPU}, **THREE)
        await fleet.waits("Queued")
        queued = {one["sandbox_id"] for one in fleet.live()}
        assert len(queued) == 3
        # The SDK's own attempt to end what it does not watch any more is refused as well.
        # Polling is refused last, and all is until the three have made theirs.
        refused = ("SandboxGetFromName*", "SandboxTerminate", "SandboxGetTaskId")
        for rpc in refused:
            fleet.emulator.do("fault", rpc=rpc, status=status, count=None)

        async def all_were_refused() -> bool:
            return all(one["hits"] >= 3 for one in fleet.emulator.state()["faults"])

        await eventually(all_were_refused, "every look-up was refused")
        assert {run.state for run in fleet.runs()} == {RunState.STARTING}
        fleet.emulator.do("clear_faults")
        fleet.emulator.do("settings", gpu_capacity={"A100": 3})
        await fleet.phase("Succeeded")
        assert tally.begun == EACH_OF_THREE_ONCE
        assert {one["sandbox_id"] for one in fleet.made()} == queued
        await fleet.nothing_lives()

    on_modal(tale)


def test_a_queued_gpu_sandbox_whose_polling_is_refused_is_ended_by_a_deletion(
    on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("settings", gpu_capacity={"A100": 0})
        fleet.apply({"python": tally.python(), **GPU})
        await fleet.waits("Queued")
        for rpc in ("SandboxGetFromName*", "SandboxTerminate", "SandboxGetTaskId"):
            fleet.emulator.do("fault", rpc=rpc, status="UNAUTHENTICATED", count=None)
        await fleet.waits("KeyRefused")
        fleet.delete()

        async def stop_was_refused() -> bool:
            faults = fleet.emulator.state()["faults"]
            return bool(faults[1]["hits"] >= 2 or faults[0]["hits"] >= 3)

        await eventually(stop_was_refused, "its end was asked for and refused")
        assert len(fleet.live()) == 1
        fleet.emulator.do("clear_faults")
        await fleet.gone()
        assert fleet.live() == []
        fleet.emulator.do("settings", gpu_capacity={"A100": 1})
        assert fleet.live() == []
        assert not tally.begun

    on_modal(tale)


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        ({"status": "UNAUTHENTICATED"}, "KeyRefused", "does not accept the token"),
        ({"delay_s": 3600}, "Unreachable", "does not answer"),
    ],
    ids=["revoked", "silent"],
)
def test_a_modal_that_serves_us_no_more_is_told_by_what_runs_and_by_a_deletion(
    on_modal: Play,
    tally: Tally,
    monkeypatch: pytest.MonkeyPatch,
    fault: dict[str, Any],
    reason: str,
    words: str,
) -> None:
    monkeypatch.setattr(provider_health, "PROBE_EVERY_S", 0.2)
    monkeypatch.setattr(provider_health, "PROBE_TIMEOUT_S", 1.0)

    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python("\nimport time\ntime.sleep(600)")})
        await begins(tally)
        await fleet.phase("Running")
        fleet.emulator.do("fault", rpc="*", count=None, **fault)
        status = await fleet.waits(reason)
        assert status["phase"] == "Running"
        assert words in status["message"]
        assert [run.state for run in fleet.runs()] == [RunState.RUNNING]
        fleet.delete()

        def why() -> str:
            [row] = [row for row in fleet.store.resources.list() if row.name == "job"]
            return row.status

        async def is_told() -> bool:
            return '"Deleting"' in why() and words in why()

        await eventually(is_told, "the deletion said why it waits")
        assert len(fleet.live()) == 1
        fleet.emulator.do("clear_faults")
        fleet.emulator.do("release")
        await fleet.gone()
        assert fleet.live() == []
        assert tally.begun == {"0/1": 1}

    on_modal(tale)


@pytest.mark.parametrize("gpu", [{}, GPU], ids=["cpu", "gpu"])
def test_an_image_that_is_gone_at_modal_is_built_again(
    on_modal: Play, tally: Tally, gpu: dict[str, Any]
) -> None:
    async def tale(fleet: Fleet) -> None:
        template = {"image": {"env": {"A": "1"}}, **gpu}
        fleet.apply({"python": tally.python(), **template}, name="before")
        await fleet.phase("Succeeded", "before")
        fleet.emulator.do("forget_images")
        # Other work, or it would be known what comes of it.
        fleet.apply({"python": tally.python("\nanother = 1"), **template}, name="after")
        await fleet.phase("Succeeded", "after")
        assert [run.attempt for run in fleet.runs("after")] == [1]
        assert tally.begun == {"0/1": 2}

    on_modal(tale)
