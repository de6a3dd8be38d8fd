"""What is known to go wrong once work runs at Modal: failure modes 6 to 10, a test or more each.

The others are in test_modal_failures.py, which says how they are played.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fleetctl.controllers.model import RunState
from fleetctl.providers.remote.runs.follower import FollowPace
from tests.servers.modal_fleet import Fleet, Play, Tally, begins
from tests.servers.modal_volumes import committed

WAITS = "\nimport time\nprint('begun', flush=True)\ntime.sleep(600)\n"
SIX = {"tasks": {"completions": 6}, "parallelism": 6}
EACH_OF_SIX_ONCE = {f"{index}/1": 1 for index in range(6)}


# -- 6: preemption ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "reason"), [({"gpu": "A100:1"}, "Preempted"), ({}, "ProviderLost")]
)
def test_6_a_preempted_task_goes_on_in_another_attempt_and_has_not_failed(
    on_modal: Play, tally: Tally, resources: dict[str, str], reason: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        code = tally.python(
            "\nif os.environ['FLEETCTL_ATTEMPT'] == '1':" + WAITS.replace("\n", "\n    ")
        )
        fleet.apply({"python": code, "resources": resources}, backoffLimitPerIndex=0)
        await fleet.phase("Running")
        await begins(tally)
        fleet.emulator.do("preempt", sandbox_id=fleet.live()[0]["sandbox_id"])
        await fleet.phase("Succeeded")
        first, second = fleet.runs()
        assert (first.state, first.reason) == (RunState.LOST, reason)
        assert (second.state, second.attempt) == (RunState.SUCCEEDED, 2)
        assert tally.begun == {"0/1": 1, "0/2": 1}
        assert fleet.live() == []

    on_modal(tale)


# -- 7: endings that can mean anything -------------------------------------------------------------


@pytest.mark.parametrize("code", [137, 124, 255])
def test_7_an_exit_code_of_the_task_is_the_tasks_own_failure(
    on_modal: Play, tally: Tally, code: int
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"script": f"echo so ends it; exit {code}"})
        await fleet.phase("Failed")
        [run] = fleet.runs()
        assert (run.state, run.reason, run.exit_code) == (RunState.FAILED, f"ExitCode:{code}", code)
        assert "so ends it" in run.message
        assert fleet.live() == []

    on_modal(tale)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("SUCCESS", "ProviderLost"),  # exit code 0, and no end record
        ("INTERNAL_FAILURE", "ProviderLost"),
        ("TERMINATED", "Terminated"),
        ("TIMEOUT", "ProviderTimeout"),
        # The SDK tells these apart by nothing but an exit code that says no more than 0.
        ("INIT_FAILURE", "ProviderLost"),
        ("IDLE_TIMEOUT", "ProviderLost"),
        ("KERNEL_OOM_KILL", "ProviderLost"),
        ("MEMORY_MANAGER_EVICTION", "ProviderLost"),
    ],
)
def test_7_a_sandbox_that_is_over_without_an_end_record_is_never_a_success(
    on_modal: Play, tally: Tally, status: str, reason: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python(WAITS)}, maxInfraRetries=0)
        await fleet.phase("Running")
        await begins(tally)
        fleet.emulator.do("preempt", sandbox_id=fleet.live()[0]["sandbox_id"], status=status)
        await fleet.phase("Failed")
        [run] = fleet.runs()
        assert (run.state, run.reason) == (RunState.LOST, reason)
        assert fleet.live() == []

    on_modal(tale)


def test_7_a_supervisor_that_was_killed_for_memory_takes_its_sandbox_along(
    on_modal: Play, tally: Tally
) -> None:
    """The kernel kills what is largest; Modal sees no end of the sandbox then."""
    killed = "\nimport signal\nos.kill(os.getppid(), signal.SIGKILL)\n" + WAITS

    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python(killed)}, maxInfraRetries=0)
        await fleet.phase("Failed")
        [run] = fleet.runs()
        assert (run.state, run.reason) == (RunState.LOST, "OOMKilled")
        assert tally.begun == {"0/1": 1}
        assert fleet.live() == []

    on_modal(tale)


# -- 8: a sandbox that dies under the supervisor, streams that never end ---------------------------


def test_8_a_stream_that_never_says_anything_is_left_for_another(
    on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("fault", rpc="TaskExecStdioRead", delay_s=3600, count=1)
        fleet.apply({"python": tally.python("SUBMIT(n=7)")})
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert fleet.results() == {0: {"n": 7}}
        assert fleet.live() == []

    on_modal(tale, pace=FollowPace(silence_s=0.5, retry_initial_s=0.05, retry_max_s=0.5))


def test_8_sandboxes_that_die_at_any_moment_never_hang_their_job(
    on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        code = tally.python("\nimport time\ntime.sleep(0.2)\nSUBMIT(i=1)")
        fleet.apply({"python": code}, **SIX, maxInfraRetries=100)
        killed = 0
        while fleet.status().get("phase") != "Succeeded":
            assert fleet.status().get("phase") != "Failed", fleet.status()
            if killed < 12 and (live := fleet.live()):
                fleet.emulator.do("preempt", sandbox_id=live[killed % len(live)]["sandbox_id"])
                killed += 1
            await asyncio.sleep(0.05)
        assert killed
        assert max(tally.begun.values()) == 1
        succeeded = [run.index for run in fleet.runs() if run.state is RunState.SUCCEEDED]
        assert sorted(succeeded) == list(range(6))
        assert fleet.live() == []

    on_modal(tale)


@pytest.mark.parametrize("endpoint", ["router", "control"])
def test_8_a_service_that_is_away_for_a_while_costs_no_attempt(
    on_modal: Play, tally: Tally, endpoint: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        code = tally.python("\nimport time\ntime.sleep(1)\nprint('done')\nSUBMIT(i=1)")
        fleet.apply({"python": code}, **SIX)
        await begins(tally, 6)
        fleet.emulator.do("lose", endpoint=endpoint, refuse_s=1.5)
        await fleet.phase("Succeeded")
        assert tally.begun == EACH_OF_SIX_ONCE
        assert fleet.live() == []

    on_modal(tale)


# -- 9: the spend limit ----------------------------------------------------------------------------


def test_9_a_spend_limit_is_told_and_waited_for_and_makes_nothing(
    on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do(
            "fault", rpc="SandboxCreateV2", status="RESOURCE_EXHAUSTED", count=None,
            message="Workspace spend limit reached",
        )  # fmt: skip
        fleet.apply({"python": tally.python()})
        status = await fleet.waits("SpendLimit")
        assert status["phase"] == "Pending"
        assert "spend limit" in status["message"]
        assert fleet.made() == []
        [run] = fleet.runs()
        assert (run.state, run.attempt) == (RunState.STARTING, 1)
        fleet.emulator.do("clear_faults")
        fleet.delete()
        await fleet.gone()
        assert not tally.begun

    on_modal(tale)


# -- 10: data of volumes ---------------------------------------------------------------------------


def on_volume(fleet: Fleet, name: str, code: str) -> dict[str, Any]:
    fleet.apply_kind("Volume", name, {"provider": "modal"})
    return {"python": code, "volumes": [{"name": name, "mountPath": "/data"}]}


def test_10_what_a_task_wrote_is_committed_when_its_end_is_told(
    on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        code = tally.python("save_to_volume('out.txt', 'all of it')\nSUBMIT(ok=True)")
        fleet.apply(on_volume(fleet, "told", code))
        await fleet.phase("Succeeded")
        assert committed(fleet, "told") == {"out.txt": "all of it"}

    on_modal(tale)


def test_10_what_was_not_committed_is_lost_with_its_machine_and_made_again(
    on_modal: Play, tally: Tally
) -> None:
    writes = """
import os, time
before = sorted(os.listdir("/data"))
with open("/data/half.txt", "w") as file:
    file.write(os.environ["FLEETCTL_ATTEMPT"])
"""
    ends = """
if os.environ["FLEETCTL_ATTEMPT"] == "1":
    time.sleep(600)
SUBMIT(before=before)
"""

    async def tale(fleet: Fleet) -> None:
        fleet.apply(on_volume(fleet, "lost", writes + tally.python() + ends))
        await fleet.phase("Running")
        await begins(tally)
        fleet.emulator.do("preempt", sandbox_id=fleet.live()[0]["sandbox_id"])
        await fleet.phase("Succeeded")
        assert fleet.results() == {0: {"before": []}}
        assert committed(fleet, "lost") == {"half.txt": "2"}

    on_modal(tale)


def test_10_a_checkpoint_that_was_committed_is_where_the_next_attempt_goes_on(
    on_modal: Play, tally: Tally
) -> None:
    saves = """
import os, subprocess, time
found = os.path.exists("/data/step")
if not found:
    with open("/data/step", "w") as file:
        file.write("41")
    subprocess.run(["sync", "/data"], check=True)
"""
    ends = """
if not found:
    time.sleep(600)
SUBMIT(step=int(open("/data/step").read()) + 1)
"""

    async def tale(fleet: Fleet) -> None:
        fleet.apply(on_volume(fleet, "kept", saves + tally.python() + ends))
        await fleet.phase("Running")
        await begins(tally)
        fleet.emulator.do("preempt", sandbox_id=fleet.live()[0]["sandbox_id"])
        await fleet.phase("Succeeded")
        assert fleet.results() == {0: {"step": 42}}

    on_modal(tale)


def test_10_the_last_writer_of_a_file_wins_and_files_of_others_stay(
    on_modal: Play, tally: Tally
) -> None:
    code = """
index = os.environ["JOB_COMPLETION_INDEX"]
for name in ("shared", index):
    save_to_volume(name + ".txt", index)
"""

    async def tale(fleet: Fleet) -> None:
        template = on_volume(fleet, "shared", tally.python(code))
        fleet.apply(template, tasks={"completions": 3}, parallelism=3)
        await fleet.phase("Succeeded")
        files = committed(fleet, "shared")
        assert files.pop("shared.txt") in {"0", "1", "2"}
        assert files == {"0.txt": "0", "1.txt": "1", "2.txt": "2"}

    on_modal(tale)
