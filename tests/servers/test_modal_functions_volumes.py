"""Volumes of functions on Modal: what a task in a warm container sees of others, and what others
see of it when its end is told. What a volume holds is asked of the emulator, not of the store.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fleetctl.controllers.model import RunState
from tests.servers.modal_calling import Truth, until
from tests.servers.modal_fleet import Fleet, Play, Tally, begins
from tests.servers.modal_volumes import committed, made, put

WARM = {"provider": "modal", "maxContainers": 1, "scaledownSeconds": 300}
MOUNT = {"name": "shared", "mountPath": "/data"}
NO_RETRY = {"backoffLimitPerIndex": 0, "maxInfraRetries": 0}
WRITES = "\nsave_to_volume('out.txt', 'all of it')\nSUBMIT(ok=True)"
# Nothing marks it as the task's, so that the guest does not find it, from its first moment on.
ORPHAN = (
    "import subprocess\n"
    "subprocess.Popen(['/bin/sleep', '600'], cwd='/data', env={}, start_new_session=True)"
)
WORKER = "kept = open('/data/kept', 'w')"
LISTS = "\nimport os\nSUBMIT(seen=sorted(os.listdir('/data')))"


async def warm(fleet: Fleet, version: int = 2) -> None:
    """One container for all tasks, with a volume of that version."""
    fleet.emulator.do("clear_log")
    await asyncio.to_thread(made, fleet, "shared", version)
    fleet.apply_kind("Function", "warm", {**WARM, "volumes": [MOUNT]})


def reloads(fleet: Fleet) -> list[str]:
    """How each was answered."""
    return [one["status"] for one in fleet.emulator.log() if one["rpc"] == "VolumeReload"]


async def done(fleet: Fleet, name: str, code: str, **spec: Any) -> dict[int, Any]:
    fleet.apply({"python": code, "function": "warm"}, name=name, **NO_RETRY, **spec)
    await fleet.phase("Succeeded", name)
    return fleet.results(name)


@pytest.mark.parametrize("version", [1, 2])
def test_a_task_in_a_warm_container_sees_what_others_committed(
    calls_on_modal: Play, version: int
) -> None:
    async def tale(fleet: Fleet) -> None:
        await warm(fleet, version)
        assert await done(fleet, "before", LISTS) == {0: {"seen": []}}
        await asyncio.to_thread(put, fleet, "shared", "new.txt")
        assert await done(fleet, "after", LISTS) == {0: {"seen": ["new.txt"]}}
        assert len(Truth(fleet).containers()) == 1

    calls_on_modal(tale)


@pytest.mark.parametrize("leaves", [ORPHAN, WORKER], ids=["a process", "a worker"])
def test_10_what_an_earlier_task_keeps_open_does_not_prevent_a_reload(
    calls_on_modal: Play, leaves: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        await warm(fleet)
        one = {"parallelism": 1, "sandbox": {"reuse": "all"}}
        code = f"\nif os.environ['JOB_COMPLETION_INDEX'] == '0':\n{_indented(leaves)}{LISTS}"
        found = await done(fleet, "job", "import os" + code, tasks={"completions": 2}, **one)
        assert sorted(found) == [0, 1]
        assert len(Truth(fleet).containers()) == 1
        assert "FAILED_PRECONDITION" in reloads(fleet)

    calls_on_modal(tale)


def _indented(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.splitlines())


def test_10_a_volume_that_cannot_be_reloaded_fails_its_task_as_infrastructure(
    calls_on_modal: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_MODAL_PATIENCE_S", "0.5")

    async def tale(fleet: Fleet) -> None:
        await warm(fleet)
        words = "there are open files preventing the operation"
        fleet.emulator.do(
            "fault", rpc="VolumeReload", status="FAILED_PRECONDITION", message=words, count=None
        )
        fleet.apply({"python": tally.python(), "function": "warm"}, **NO_RETRY)
        await fleet.phase("Failed")
        (run,) = fleet.runs()
        assert (run.state, run.reason) == (RunState.LOST, "VolumeNotReloaded")
        assert words in run.message
        assert not tally.begun

    calls_on_modal(tale)


# -- what others see -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_what_a_task_wrote_is_committed_when_its_end_is_told_and_its_container_waits(
    calls_on_modal: Play, version: int
) -> None:
    async def tale(fleet: Fleet) -> None:
        await warm(fleet, version)
        assert await done(fleet, "writes", WRITES) == {0: {"ok": True}}
        assert committed(fleet, "shared") == {"out.txt": "all of it"}
        assert len(Truth(fleet).containers(live=True)) == 1

    calls_on_modal(tale)


@pytest.mark.parametrize("version", [1, 2])
def test_what_a_task_with_open_files_wrote_is_committed_too(
    calls_on_modal: Play, version: int
) -> None:
    async def tale(fleet: Fleet) -> None:
        await warm(fleet, version)
        found = await done(fleet, "writes", WORKER + WRITES, sandbox={"reuse": "all"})
        assert found == {0: {"ok": True}}
        assert committed(fleet, "shared") == {"kept": "", "out.txt": "all of it"}
        assert reloads(fleet)[-1] == "FAILED_PRECONDITION"  # the SDK's, after the commit

    calls_on_modal(tale)


@pytest.mark.parametrize("version", [1, 2])
def test_a_process_that_a_task_leaves_ends_with_it_and_keeps_no_file_open(
    calls_on_modal: Play, version: int
) -> None:
    """It has another session and no variable of the run, which is found by its mark."""

    async def tale(fleet: Fleet) -> None:
        await warm(fleet, version)
        assert await done(fleet, "writes", ORPHAN + WRITES) == {0: {"ok": True}}
        assert committed(fleet, "shared") == {"out.txt": "all of it"}
        assert reloads(fleet)[-1] == "OK"

    calls_on_modal(tale)


@pytest.mark.parametrize("version", [1, 2])
def test_what_a_task_wrote_is_committed_while_it_runs(
    calls_on_modal: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setenv("FLEETCTL_MODAL_KEEP_S", "0.2")

    async def tale(fleet: Fleet) -> None:
        await warm(fleet, version)
        code = tally.python(f"{WRITES}\nimport time\ntime.sleep(600)")
        fleet.apply({"python": code, "function": "warm"})
        await begins(tally)
        await until(lambda: "out.txt" in committed(fleet, "shared"), "it was committed")
        fleet.delete()
        await fleet.gone()

    calls_on_modal(tale)


@pytest.mark.parametrize(
    "fault",
    [
        {"status": "FAILED_PRECONDITION", "count": 2},
        {"status": "INTERNAL", "count": 5},
        {"status": "INTERNAL", "when": "after", "count": 5},
    ],
)
def test_a_commit_that_is_refused_before_effect_or_whose_answer_is_lost_costs_no_attempt(
    calls_on_modal: Play, tally: Tally, fault: dict[str, Any]
) -> None:
    async def tale(fleet: Fleet) -> None:
        await warm(fleet)
        fleet.emulator.do("fault", rpc="VolumeCommit", **fault)
        await done(fleet, "writes", tally.python(WRITES))
        assert committed(fleet, "shared") == {"out.txt": "all of it"}
        assert tally.begun == {"0/1": 1}

    calls_on_modal(tale)


def test_a_task_whose_volume_cannot_be_committed_has_not_succeeded(
    calls_on_modal: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_MODAL_PATIENCE_S", "0.5")

    async def tale(fleet: Fleet) -> None:
        await warm(fleet)
        status = {"status": "FAILED_PRECONDITION", "message": "no room", "count": None}
        fleet.emulator.do("fault", rpc="VolumeCommit", **status)
        fleet.apply({"python": tally.python(WRITES), "function": "warm"}, **NO_RETRY)
        await fleet.phase("Failed")
        (run,) = fleet.runs()
        assert (run.state, run.reason) == (RunState.LOST, "SyncFailed")
        assert "cannot be committed: no room" in run.message
        assert fleet.results() == {}
        assert tally.begun == {"0/1": 1}

    calls_on_modal(tale)
