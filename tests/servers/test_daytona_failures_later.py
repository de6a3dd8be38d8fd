"""What is known to go wrong at Daytona with limits, volumes, sessions, streams, GPUs and lists:
failures 9 to 19. The others are in test_daytona_failures.py.

The real engine, store, provider and SDK against the emulator. What was made, what began and what
is still there is asked of the emulator and of the tasks themselves, not of the store.
"""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Alive, Ended, Observation
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.daytona.assets import daytona_volumes
from fleetctl.providers.daytona.connection import daytona_errors
from fleetctl.providers.daytona.runs import daytona_creator
from tests.contracts.provider_worlds import eventually
from tests.emulators.daytona.running import DaytonaEmulator
from tests.servers.daytona_fleet import Fleet, Play
from tests.servers.fleets import Tally, begins

ONE_GPU = {"resources": {"gpu": "H100:1", "cpu": 1, "memory": "1Gi"}}
FOUR = {"tasks": {"completions": 4}, "parallelism": 4}
# The last one when it is told to: by then as many streams were cut as the test wants to cut.
LINES = (
    "for i in $(seq 1 39); do echo line $i; sleep 0.05; done;"
    " until [ -e /tmp/last ]; do sleep 0.05; done; echo line 40"
)
ALL_LINES = b"".join(b"line %d\n" % number for number in range(1, 41))


async def log_of(fleet: Fleet) -> bytes:
    [run] = fleet.runs()
    path = fleet.home / "daytona" / "jobs" / run.uid / "runs" / f"{run.name}.log"
    return path.read_bytes() if path.exists() else b""


# -- 9: quotas -------------------------------------------------------------------------------------


def test_9_a_quota_is_waited_for_with_its_reason_and_costs_no_attempt(
    on_daytona: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daytona_errors, "QUOTA_AFTER_S", 0.1)

    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python()}, name="warm")
        await fleet.phase("Succeeded", "warm")
        tally.begun.clear()
        fleet.emulator.set(quota={"cpu": 0})
        work = tally.python("\nimport time\ntime.sleep(0.5)\n")
        fleet.apply({"python": work}, tasks={"completions": 5}, parallelism=5)
        status = await fleet.waits("Quota")
        assert "CPU limit exceeded" in json.dumps(status)
        fleet.emulator.set(quota={"cpu": 2})
        await fleet.phase("Succeeded")
        assert tally.begun == {f"{index}/1": 1 for index in range(5)}
        assert len(fleet.made()) == 6
        assert fleet.live() == []

    on_daytona(tale)


def test_9_credits_that_are_used_up_are_waited_for_and_what_runs_goes_on(
    on_daytona: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daytona_errors, "SUSPENDED_AFTER_S", 0.1)
    body = {"statusCode": 403, "message": "Organization is suspended: Depleted credits"}

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.fault(operation="createSandbox", status=403, body=body, skip=1)
        work = tally.python("\nimport time\ntime.sleep(1)\n")
        fleet.apply({"python": work}, tasks={"completions": 2}, parallelism=2)
        await begins(tally)
        fleet.apply({"python": tally.python()}, name="other")
        status = await fleet.waits("SpendLimit", "other")
        assert status["phase"] == "Pending"
        assert "Depleted credits" in status["message"]
        assert "dashboard/billing" in json.dumps(status)
        status = await fleet.waits("SpendLimit")

        async def one_is_done() -> bool:
            return bool(fleet.status()["succeeded"] == 1)

        await eventually(one_is_done, "what ran is done")
        assert status["failed"] == 0
        fleet.emulator.remove_faults()
        await fleet.phase("Succeeded")
        await fleet.phase("Succeeded", "other")
        assert [run.attempt for run in fleet.runs()] == [1, 1]
        assert tally.begun.total() == 3
        assert fleet.live() == []

    on_daytona(tale)


# -- 10: rate limits -------------------------------------------------------------------------------


def test_10_a_rate_limit_is_waited_out_as_long_as_its_own_header_says(
    on_daytona: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        headers = {"rETRY-aFTER-sandbox-create": "2", "X-RateLimit-Limit-sandbox-create": "300"}
        fleet.emulator.fault(operation="createSandbox", status=429, headers=headers, count=1)
        fleet.emulator.forget_requests()
        fleet.apply({"python": tally.python()})
        await fleet.waits("RateLimited")
        await fleet.phase("Succeeded")
        refused_s, taken_s = asked_at_s(fleet, "/api/sandbox", method="POST")
        assert taken_s - refused_s >= 2.0
        assert [run.attempt for run in fleet.runs()] == [1]
        assert fleet.live() == []

    on_daytona(tale)


def test_10_a_rate_limit_of_calls_into_sandboxes_holds_for_all_of_them(
    on_daytona: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": "pass"}, name="warm")
        await fleet.phase("Succeeded", "warm")
        hold_s = 8.0
        headers = {"Retry-After-authenticated": f"{hold_s:g}"}
        fleet.emulator.fault(path="/toolbox/*", status=429, headers=headers)
        fleet.emulator.forget_requests()
        fleet.apply({"python": tally.python()}, **FOUR)

        async def refused() -> bool:
            started = [one["state"] for one in fleet.live()] == ["started"] * 4
            return started and bool(asked_at_s(fleet, "/toolbox/"))

        async def quiet() -> bool:
            before = fleet.emulator.state()["requests"]
            await asyncio.sleep(0.7)
            return bool(fleet.emulator.state()["requests"] == before)

        await eventually(refused, "one was refused")
        await eventually(quiet, "nobody asked, into a sandbox or after it")
        fleet.apply({"python": "SUBMIT(later=True)"}, name="later")

        async def is_there() -> bool:
            return [one["state"] for one in fleet.live()] == ["started"] * 5

        await eventually(is_there, "another sandbox was there")
        fleet.emulator.remove_faults()
        await fleet.phase("Succeeded", "later")
        await fleet.phase("Succeeded")
        assert tally.begun == {f"{index}/1": 1 for index in range(4)}
        assert [run.attempt for run in fleet.runs()] == [1] * 4
        assert fleet.live() == []
        # Those that were under way together, and none of who had not been refused himself.
        first_s, *others_s = asked_at_s(fleet, "/toolbox/")
        assert len([one for one in others_s if one < first_s + hold_s]) < 4

    on_daytona(tale)


def asked_at_s(fleet: Fleet, path: str, *, method: str = "*") -> list[float]:
    """When each request to a path that begins so has come, on the emulator's clock."""
    newest = fleet.emulator.state(requests=True)["newest"]
    found = [one for one in newest if one["path"].startswith(path)]
    return [one["at_s"] for one in found if method in ("*", one["method"])]


# -- 11: volumes -----------------------------------------------------------------------------------


def test_11_a_volume_is_waited_for_and_deleted_after_its_last_user(
    on_daytona: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daytona_volumes, "IN_USE_AFTER_S", 0.1)

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.set(durations_s={"volume.creating": 1.0})
        mounts = [{"name": "slow", "mountPath": "/data", "links": ["/other/data"]}]
        work = tally.python("\nimport time\nwhile 1: time.sleep(0.1)\n")
        fleet.apply({"python": work, "volumes": mounts})
        await begins(tally)
        with pytest.raises(Unavailable) as caught:
            await fleet.provider.remove_volume("slow")
        assert caught.value.reason == "VolumeInUse"
        assert _volume(fleet, "slow")["state"] == "ready"
        fleet.delete()
        await fleet.nothing_lives()
        await fleet.rest()  # who declares the volume would make it again
        await fleet.provider.remove_volume("slow")
        await fleet.provider.remove_volume("slow")
        assert _volume(fleet, "slow")["state"] == "deleted"
        assert fleet.live() == []

    on_daytona(tale)


def test_11_a_volume_that_somebody_makes_at_the_same_moment_is_waited_for(on_daytona: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        await fleet.provider.ensure_volume("twice")
        # Looked up a moment too early: Daytona says 400 to who makes it again.
        missing = {"statusCode": 404, "message": "not found", "source": "DAYTONA_API"}
        fleet.emulator.fault(operation="getVolumeByName", status=404, body=missing, count=1)
        fleet.emulator.forget_requests()
        await fleet.provider.ensure_volume("twice")
        assert fleet.emulator.count("createVolume") == 1
        named = [one for one in fleet.emulator.state()["volumes"] if one["name"] == "twice"]
        assert [one["state"] for one in named] == ["ready"]

    on_daytona(tale)


def test_11_a_volume_that_failed_says_why(on_daytona: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        await fleet.provider.ensure_volume("broken")
        fleet.emulator.set_volume("broken", "error", reason="the bucket is gone")
        fleet.apply({"python": "pass", "volumes": [{"name": "broken", "mountPath": "/data"}]})
        status = await fleet.phase("Failed")
        assert "the bucket is gone" in json.dumps(status)
        assert fleet.live() == []

    on_daytona(tale)


def _volume(fleet: Fleet, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = fleet.emulator.state()["volumes"]
    return [one for one in found if one["name"] == name][-1]


# -- 12 and 13: what a session's shell and its input do to commands --------------------------------


@pytest.mark.parametrize("script", ["sleep 0.6; exit 3", "set -e; sleep 0.6; false", "exec false"])
def test_12_a_script_that_would_end_a_shell_ends_with_its_exit_code(
    on_daytona: Play, script: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"script": script})
        await fleet.phase("Failed")
        [run] = fleet.runs()
        assert run.reason == ("ExitCode:3" if "3" in script else "ExitCode:1")
        assert fleet.live() == []

    on_daytona(tale)


def test_13_a_program_that_reads_its_input_finds_it_closed(on_daytona: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"script": "sleep 0.6; cat; echo done"})
        await fleet.phase("Succeeded")
        assert await log_of(fleet) == b"done\n"

    on_daytona(tale)


# -- 14 and 15: streams and proxies ----------------------------------------------------------------


def test_14_streams_that_are_cut_lose_and_repeat_nothing(on_daytona: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"script": LINES})

        async def says() -> bool:
            return bool(fleet.live()) and b"line 8" in await log_of(fleet)

        await eventually(says, "it said something")
        for _ in range(4):
            [box] = fleet.live()
            fleet.emulator.cut(box["id"])
            await asyncio.sleep(0.2)
        (Path(box["directory"]) / "root/tmp/last").touch()
        await fleet.phase("Succeeded")
        assert await log_of(fleet) == ALL_LINES
        assert len(fleet.made()) == 1
        assert fleet.live() == []

    on_daytona(tale)


def test_15_a_page_of_a_proxy_is_no_message_and_no_failure(on_daytona: Play, tally: Tally) -> None:
    async def tale(fleet: Fleet) -> None:
        page = "<html><body><h1>502 Bad Gateway</h1></body></html>"
        fleet.emulator.fault(path="/toolbox/*", status=502, body=page, count=4)
        fleet.emulator.fault(operation="getSandbox", status=502, body=page, count=2)
        fleet.emulator.fault(operation="deleteSandbox", status=504, body=page, count=2)
        fleet.apply({"python": tally.python()})
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert [run.attempt for run in fleet.runs()] == [1]
        assert fleet.live() == []

    on_daytona(tale)


# -- 16: GPUs --------------------------------------------------------------------------------------


def test_16_a_spot_eviction_is_no_failure_and_the_next_attempt_goes_on(
    on_daytona: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        work = tally.python("\nimport os, time\nif os.environ['FLEETCTL_ATTEMPT'] == '1':")
        fleet.apply({"python": work + "\n    time.sleep(600)\n", **ONE_GPU})
        await begins(tally)
        [box] = fleet.live()
        assert box["intervals"]["delete"] == 0
        fleet.emulator.evict(box["id"])
        status = await fleet.phase("Succeeded")
        assert [run.reason for run in fleet.runs()] == ["Preempted", "Completed"]
        assert tally.begun == {"0/1": 1, "0/2": 1}
        assert status["failed"] == 0
        assert fleet.live() == []

    on_daytona(tale)


def test_16_a_queue_that_times_out_is_waited_in_again(
    on_daytona: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daytona_creator, "PATIENCE_S", 0.1)
    monkeypatch.setenv("FLEETCTL_DAYTONA_QUEUE_S", "60")

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.set(gpus_per_type=0)
        fleet.apply({"python": tally.python(), **ONE_GPU})
        status = await fleet.waits("Queued")
        assert "waiting for H100:1 at Daytona since" in json.dumps(status)
        fleet.emulator.scale(120.0)

        async def asked_again() -> bool:
            return len(fleet.made()) >= 3

        await eventually(asked_again, "the queue timed out twice")
        fleet.emulator.scale(1.0)
        assert not tally.begun
        fleet.emulator.set(gpus_per_type=1)
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert [run.attempt for run in fleet.runs()] == [1]
        assert fleet.live() == []

    on_daytona(tale)


def test_16_a_sandbox_that_waited_in_vain_for_a_machine_is_no_failure_of_its_task(
    on_daytona: Play,
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.set(gpus_per_type=0)
        wanted = {"snapshot": "daytona-gpu", "autoDeleteInterval": 0, "queueTimeout": 1}
        box = _create(fleet.emulator, wanted)
        fleet.emulator.advance(120.0)

        async def timed_out() -> bool:
            return fleet.emulator.sandbox(box)["state"] == "destroyed"

        await eventually(timed_out, "it left the queue")
        ref = RunRef("run-0", "run-0", box, 0, "uid-1")
        seen: list[Observation] = []

        async def told() -> bool:
            seen[:] = await fleet.provider.observe([ref])
            return bool(seen) and not isinstance(seen[0], Alive)

        await eventually(told, "its end was told")
        [end] = seen
        assert isinstance(end, Ended)
        assert (end.ok, end.infrastructure, end.reason) == (False, True, "QueueTimeout")

    on_daytona(tale)


# -- 17: waits of the SDK that need a signal, or break into threads --------------------------------


def test_17_what_waits_for_sandboxes_needs_neither_a_signal_nor_the_main_thread(
    on_daytona: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK without asyncio ends its waits so. Ours is the other one, and has deadlines."""
    usual = {name: getattr(daytona_creator, name) for name in ("SLACK_S", "STATES_S")}
    for name in ("LOOK_S", "SLACK_S", "FAILED_AFTER_S"):
        monkeypatch.setattr(daytona_creator, name, 0.1)
    monkeypatch.setattr(daytona_creator, "STATES_S", {"starting": 0.3})
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.fate(during="starting", outcome="stuck", count=1)
        fleet.apply({"python": tally.python()})

        async def given_up() -> bool:
            return fleet.emulator.count("deleteSandbox") >= 1

        fleet.emulator.forget_requests()
        await eventually(given_up, "its start was given up")
        for name, value in usual.items():  # for one that is not stuck, on a busy machine
            monkeypatch.setattr(daytona_creator, name, value)
        fleet.emulator.advance(1000.0)
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert fleet.live() == []

    try:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(on_daytona, tale).result()
        assert (heard, signal.getitimer(signal.ITIMER_REAL)) == ([], (0.0, 0.0))
    finally:
        signal.signal(signal.SIGALRM, before)


# -- 18 and 19: leftovers, and other people's sandboxes --------------------------------------------


def test_18_what_fails_at_its_start_holds_nothing(on_daytona: Play, tally: Tally) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.fate(during="starting", outcome="error", reason="a bad day", count=3)
        fleet.apply({"python": tally.python()}, tasks={"completions": 3}, parallelism=3)
        await fleet.waits("SandboxFailed")
        fleet.delete()
        await fleet.gone()
        await fleet.nothing_lives()

    on_daytona(tale)


def test_19_a_strange_sandbox_of_somebody_else_spoils_no_listing(
    on_daytona: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        stranger = _create(fleet.emulator, {"labels": {"code-toolbox-language": "cobol"}})
        fleet.apply({"python": tally.python("\nimport time\ntime.sleep(600)\n")})
        await begins(tally)
        [box] = fleet.live()
        assert [one.handle for one in await fleet.provider.owned()] == [box["id"]]
        fleet.delete()
        await fleet.gone()
        await fleet.nothing_lives()
        assert fleet.emulator.sandbox(stranger)["state"] == "started"

    on_daytona(tale)


def _create(emulator: DaytonaEmulator, wanted: dict[str, Any]) -> str:
    """As another program makes one."""
    key = emulator.env["DAYTONA_API_KEY"]
    request = urllib.request.Request(
        f"{emulator.env['DAYTONA_API_URL']}/sandbox",
        data=json.dumps(wanted).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return str(json.loads(answer.read())["id"])
