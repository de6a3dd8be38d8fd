"""What goes wrong on order: lost and late answers, lagging lists, stuck and failing sandboxes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import daytona_api_client as api
import pytest
from daytona import (
    AsyncDaytona,
    CreateSandboxFromImageParams,
    CreateSandboxFromSnapshotParams,
    Daytona,
    SandboxState,
    SessionExecuteRequest,
    VolumeMount,
)
from daytona.common.errors import (
    DaytonaBadGatewayError,
    DaytonaBadRequestError,
    DaytonaConflictError,
    DaytonaConnectionError,
    DaytonaError,
    DaytonaNotFoundError,
    DaytonaTimeoutError,
)

from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.driving.daytona import delete_failed, failed, until_state, wait_until

SOON_S = 3  # a create that is to be given up has arrived by then, also on a busy machine
NEVER_S = 3600.0  # until it is called off


def named(name: str, **params: object) -> CreateSandboxFromSnapshotParams:
    return CreateSandboxFromSnapshotParams(name=name, **params)  # type: ignore[arg-type]


async def driven(act: Callable[[AsyncDaytona], Any]) -> Any:
    async with AsyncDaytona() as daytona:
        return await act(daytona)


def test_an_answer_that_is_lost_leaves_the_sandbox_behind(emulator: DaytonaEmulator) -> None:
    emulator.fault(operation="createSandbox", when="after", drop=True, count=1)

    async def act(daytona: AsyncDaytona) -> None:
        with pytest.raises(DaytonaConnectionError):
            await daytona.create(named("lost-answer"))
        found = await daytona.get("lost-answer")
        await found.wait_for_sandbox_start()
        await found.delete(wait=True)

    asyncio.run(driven(act))
    assert emulator.count("createSandbox") == 1
    assert emulator.sandbox("lost-answer")["state"] == "destroyed"


def test_a_request_that_never_arrives_leaves_nothing(emulator: DaytonaEmulator) -> None:
    emulator.fault(operation="createSandbox", drop=True, count=1)

    async def act(daytona: AsyncDaytona) -> None:
        with pytest.raises(DaytonaConnectionError):
            await daytona.create(named("never-arrived"))

    asyncio.run(driven(act))
    with pytest.raises(KeyError):
        emulator.sandbox("never-arrived")


def test_a_late_answer_finds_nobody_and_the_sandbox_exists(emulator: DaytonaEmulator) -> None:
    emulator.fault(operation="createSandbox", when="after", delay_s=NEVER_S, count=1)

    async def act(daytona: AsyncDaytona) -> None:
        with pytest.raises(DaytonaTimeoutError) as late:
            await daytona.create(named("late-answer"), timeout=SOON_S)
        assert late.value.sandbox_id is None
        await (await daytona.get("late-answer")).delete(wait=True)

    asyncio.run(driven(act))
    assert emulator.sandbox("late-answer")["state"] == "destroyed"


def test_a_create_that_times_out_after_its_answer_names_the_sandbox(
    emulator: DaytonaEmulator,
) -> None:
    emulator.set(durations_s={"starting": NEVER_S})
    with pytest.raises(DaytonaTimeoutError) as late:
        Daytona().create(named("slow-start"), timeout=SOON_S)
    emulator.set(durations_s={"starting": 0.0})
    assert late.value.sandbox_id == emulator.sandbox("slow-start")["id"]
    emulator.advance(NEVER_S)
    wait_until(lambda: emulator.sandbox("slow-start")["state"] == "started")
    Daytona().get("slow-start").delete(wait=True)


def test_a_list_lags_and_is_right_after_its_bound(emulator: DaytonaEmulator) -> None:
    daytona = Daytona()
    sandboxes = api.SandboxApi(daytona._api_client)

    def listed() -> list[str]:
        """What is answered: of the SDK's objects an event may change the state meanwhile."""
        return [
            one.state for one in sandboxes.list_sandboxes(labels=json.dumps({"of": "lag"})).items
        ]

    emulator.set(list_lag_s=600.0)
    sandbox = daytona.create(named("lagging", labels={"of": "lag"}, auto_stop_interval=0))
    early = listed()
    until_state(daytona.get("lagging"), "started")
    emulator.advance(601)
    assert listed() == ["started"]
    sandbox.delete(wait=True)
    flapping = listed()
    emulator.advance(601)
    assert listed() == []
    emulator.set(list_lag_s=0.0)
    assert (early, flapping) == ([], ["started"])


def test_a_gateways_page_is_a_502_with_its_html(emulator: DaytonaEmulator) -> None:
    page = "<html><h1>502 Bad Gateway</h1></html>"
    emulator.fault(path="/api/sandbox/*", method="GET", status=502, body=page, count=1)
    with pytest.raises(DaytonaBadGatewayError, match="<h1>502"):
        Daytona().get("any")
    with pytest.raises(DaytonaNotFoundError):
        Daytona().get("any")


def test_faults_pass_over_some_requests_and_end(emulator: DaytonaEmulator) -> None:
    emulator.fault(operation="getSandbox", status=500, skip=1, count=2)
    daytona = Daytona()
    parts = []
    for _ in range(4):
        with pytest.raises(DaytonaError) as error:
            daytona.get("any")
        parts.append(error.value.status_code)
    assert parts == [404, 500, 500, 404]
    assert emulator.faults()[0]["met"] == 2


def test_a_sandbox_ends_in_error_with_a_reason_that_only_a_get_tells(
    emulator: DaytonaEmulator,
) -> None:
    emulator.fate(name="doomed", during="starting", reason="runner exploded", recoverable=True)
    emulator.set(durations_s={"starting": 0.3})
    daytona = Daytona()
    with pytest.raises(DaytonaError, match="entered error state"):
        daytona.create(named("doomed"))
    found = daytona.get("doomed")
    assert failed(daytona, "doomed") == (SandboxState.ERROR, "runner exploded")
    emulator.remove_faults()
    found.recover()
    assert emulator.sandbox("doomed")["state"] == "started"
    emulator.set(durations_s={"starting": 0.0})
    found.delete(wait=True)


def test_a_delete_is_refused_in_the_midst_of_a_change(emulator: DaytonaEmulator) -> None:
    emulator.fate(name="stuck", during="starting", outcome="stuck")
    daytona = Daytona()
    with pytest.raises(DaytonaTimeoutError):
        daytona.create(named("stuck"), timeout=SOON_S)
    with pytest.raises(DaytonaConflictError, match="state change in progress"):
        daytona.get("stuck").delete()
    emulator.advance(301)
    wait_until(lambda: daytona.get("stuck").state == "error")
    delete_failed(daytona, "stuck")


def test_a_lost_machine_takes_every_process_with_it(emulator: DaytonaEmulator) -> None:
    daytona = Daytona()
    sandbox = daytona.create(named("lost-machine"))
    emulator.lose("lost-machine", reason="runner is gone")
    until_state(sandbox, "error")
    assert sandbox.error_reason == "runner is gone"
    assert emulator.sandbox("lost-machine")["pids"] == []
    with pytest.raises(DaytonaError):
        sandbox.process.exec("true")
    delete_failed(daytona, "lost-machine")


def test_who_waits_for_a_command_learns_that_the_sandbox_was_lost(
    emulator: DaytonaEmulator,
) -> None:
    async def act(daytona: AsyncDaytona) -> None:
        sandbox = await daytona.create(named("waited-for"))
        waiting = asyncio.create_task(sandbox.process.exec("sleep 1000"))
        while emulator.sandbox("waited-for")["open_requests"] == 0:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(emulator.lose, "waited-for")
        with pytest.raises(DaytonaConnectionError):
            await waiting
        # Without the SDK's own waiting, which takes a late event for a failure of the delete.
        await sandbox.delete()
        while emulator.sandbox(sandbox.id)["state"] != "destroyed":
            await asyncio.sleep(0.01)

    asyncio.run(driven(act))


def test_auto_stop_comes_after_idle_minutes_and_not_while_a_request_is_open(
    emulator: DaytonaEmulator,
) -> None:
    async def act(daytona: AsyncDaytona) -> None:
        sandbox = await daytona.create(named("idle", auto_stop_interval=5))
        until_told = "until [ -e told ]; do sleep 0.02; done; echo done"
        busy = asyncio.create_task(sandbox.process.exec(until_told))
        while emulator.sandbox("idle")["open_requests"] == 0:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(emulator.advance, 301)
        (Path(emulator.sandbox("idle")["directory"]) / "root/home/daytona/told").touch()
        assert (await busy).result == "done\n"
        await sandbox.refresh_data()
        assert sandbox.state == "started"
        await asyncio.to_thread(emulator.advance, 301)
        await sandbox.wait_for_sandbox_stop()
        await sandbox.delete(wait=True)

    asyncio.run(driven(act))


def test_a_ttl_destroys_whatever_the_state(emulator: DaytonaEmulator) -> None:
    daytona = Daytona()
    running = daytona.create(named("ttl-1", ttl_minutes=10, auto_stop_interval=0))
    stopped = daytona.create(named("ttl-2", ttl_minutes=10))
    stopped.stop()
    emulator.fate(name="ttl-3", during="starting", outcome="stuck")
    with pytest.raises(DaytonaTimeoutError):
        daytona.create(named("ttl-3", ttl_minutes=3), timeout=SOON_S)
    emulator.advance(181)
    wait_until(lambda: emulator.sandbox("ttl-3")["state"] == "destroyed")
    assert emulator.sandbox(running.id)["state"] == "started"
    emulator.advance(500)
    for one in (running, stopped):
        wait_until(lambda one=one: emulator.sandbox(one.id)["state"] == "destroyed")
    assert emulator.state()["live"] == []


def test_auto_delete_counts_from_the_stop(emulator: DaytonaEmulator) -> None:
    daytona = Daytona()
    sandbox = daytona.create(named("auto-delete", auto_delete_interval=30))
    sandbox.stop()
    emulator.advance(29 * 60)
    until_state(daytona.get("auto-delete"), "stopped")
    emulator.advance(61)
    wait_until(lambda: emulator.sandbox(sandbox.id)["state"] == "destroyed")


def test_auto_archive_counts_from_the_stop(emulator: DaytonaEmulator) -> None:
    daytona = Daytona()
    sandbox = daytona.create(named("auto-archive", auto_archive_interval=60))
    sandbox.stop()
    emulator.advance(60 * 60 + 1)
    wait_until(lambda: daytona.get("auto-archive").state == "archived")
    sandbox.delete(wait=True)


def test_the_clock_runs_as_fast_as_it_is_told(emulator: DaytonaEmulator) -> None:
    sandbox = Daytona().create(named("fast", ttl_minutes=1, auto_stop_interval=0))
    emulator.scale(600)
    wait_until(lambda: emulator.sandbox(sandbox.id)["state"] == "destroyed")
    emulator.scale(1)


def test_without_its_socket_the_sdk_polls(emulator: DaytonaEmulator) -> None:
    emulator.set(events=False)
    sandbox = Daytona().create(named("polling"))
    # The SDK hears of changes on a thread of its own, and may hear of an earlier one late.
    wait_until(lambda: sandbox.state == "started")
    assert emulator.state()["clients"] == 0 or emulator.count("getSandbox") >= 1
    emulator.set(events=True)
    sandbox.delete(wait=True)


def test_latency_is_added_to_every_request(emulator: DaytonaEmulator) -> None:
    emulator.set(latency_s=0.2)
    began_s = time.monotonic()
    with pytest.raises(DaytonaNotFoundError):
        Daytona().get("any")
    assert time.monotonic() - began_s >= 0.2
    emulator.set(latency_s=0.0)


def test_fifty_at_once_are_created_asked_and_deleted(emulator: DaytonaEmulator) -> None:
    async def one(daytona: AsyncDaytona, number: int) -> str:
        sandbox = await daytona.create(named(f"many-{number}", labels={"of": "many"}))
        result = await sandbox.process.exec(f"echo {number}")
        await sandbox.delete(wait=True)
        return str(result.result)

    async def act(daytona: AsyncDaytona) -> list[str]:
        return await asyncio.gather(*(one(daytona, number) for number in range(50)))

    assert asyncio.run(driven(act)) == [f"{number}\n" for number in range(50)]
    assert emulator.state()["live"] == []
    assert emulator.count("createSandbox") == 50


def test_a_start_calls_archiving_off(emulator: DaytonaEmulator) -> None:
    emulator.set(durations_s={"archiving": 600.0})
    sandbox = Daytona().create(named("archiving"))
    sandbox.stop()
    sandbox.archive()
    until_state(sandbox, "archiving")
    sandbox.start()
    emulator.set(durations_s={"archiving": 0.1})
    until_state(sandbox, "started")
    sandbox.delete(wait=True)


def test_a_delete_that_failed_can_be_asked_for_again(emulator: DaytonaEmulator) -> None:
    emulator.fate(name="sticky", during="destroying", reason="volume busy", count=1)
    daytona = Daytona()
    sandbox = daytona.create(named("sticky"))
    with pytest.raises(DaytonaError, match="entered error state"):
        sandbox.delete(wait=True)
    assert emulator.sandbox("sticky")["error_reason"] == "volume busy"
    delete_failed(daytona, sandbox.id)
    assert emulator.sandbox("sticky")["state"] == "destroyed"


def test_the_synchronous_sdk_sends_an_exec_again_when_its_answer_is_lost(
    emulator: DaytonaEmulator,
) -> None:
    sandbox = Daytona().create(named("twice"))
    emulator.fault(path="*/process/execute", when="after", drop=True, count=1)
    sandbox.process.exec("echo ran >> runs")
    assert sandbox.process.exec("cat runs").result == "ran\nran\n"
    sandbox.delete(wait=True)


def test_a_stream_can_be_cut_while_its_command_goes_on(emulator: DaytonaEmulator) -> None:
    async def act(daytona: AsyncDaytona) -> None:
        sandbox = await daytona.create(named("cut"))
        await sandbox.process.create_session("s")
        first = "echo first words; until [ -e /tmp/go ]; do sleep 0.02; done; echo b > /tmp/on"
        wanted = SessionExecuteRequest(command=first, run_async=True)
        command = await sandbox.process.execute_session_command("s", wanted)
        parts: list[str] = []
        following = asyncio.create_task(
            sandbox.process.get_session_command_logs_async(
                "s", command.cmd_id, parts.append, parts.append
            )
        )
        while "first words" not in "".join(parts):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(emulator.cut, "cut")
        with pytest.raises(DaytonaError, match="1006"):
            await following
        running = await sandbox.process.get_session_command("s", command.cmd_id)
        assert running.exit_code is None
        await sandbox.process.exec("touch /tmp/go")
        while (await sandbox.process.exec("cat /tmp/on")).result != "b\n":
            await asyncio.sleep(0.05)
        await sandbox.delete(wait=True)

    asyncio.run(driven(act))


def test_a_volume_in_error_is_not_mounted_and_can_be_deleted(emulator: DaytonaEmulator) -> None:
    daytona = Daytona()
    volume = daytona.volume.create("broken")
    wait_until(lambda: daytona.volume.get("broken").state == "ready")
    emulator.set_volume("broken", "error", reason="bucket is gone")
    assert daytona.volume.get("broken").error_reason == "bucket is gone"
    mount = VolumeMount(volume_id="broken", mount_path="/data")
    with pytest.raises(DaytonaBadRequestError, match="Current state: error"):
        daytona.create(named("unmountable", volumes=[mount]))
    daytona.volume.delete(volume)
    wait_until(lambda: "broken" not in [one.name for one in daytona.volume.list()])


def test_a_build_can_be_made_to_fail(emulator: DaytonaEmulator) -> None:
    emulator.fate(
        during="building_snapshot", outcome="build_failed", reason="builder lost", count=1
    )
    daytona = Daytona()
    params = CreateSandboxFromImageParams(name="unbuilt", image="debian:12.5")
    with pytest.raises(DaytonaError, match="BUILD_FAILED"):
        daytona.create(params)
    assert failed(daytona, "unbuilt") == (SandboxState.BUILD_FAILED, "builder lost")
    delete_failed(daytona, "unbuilt")


def test_a_socket_that_is_cut_is_opened_again(emulator: DaytonaEmulator) -> None:
    daytona = Daytona()
    sandbox = daytona.create(named("reconnects"))
    wait_until(lambda: emulator.state()["clients"] >= 1)
    opened = emulator.count("GET /api/socket.io/")
    emulator.hang_up()
    wait_until(lambda: emulator.count("GET /api/socket.io/") > opened, what="the reconnect")
    sandbox.stop()
    until_state(sandbox, "stopped")
    sandbox.delete(wait=True)
