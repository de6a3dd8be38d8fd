"""The emulator as a process: how it is started, what it leaves behind, and how tests reach it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from daytona import AsyncDaytona, CreateSandboxFromSnapshotParams, Daytona, DaytonaConfig

from tests.emulators.daytona.admin import state
from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.daytona.server import Server
from tests.emulators.daytona.settings import Settings
from tests.emulators.driving.daytona import wait_until
from tests.emulators.starting import REPOSITORY
from tests.living import alive


def client_of(env: dict[str, str]) -> DaytonaConfig:
    return DaytonaConfig(api_key=env["DAYTONA_API_KEY"], api_url=env["DAYTONA_API_URL"])


def test_a_killed_emulator_leaves_no_process_of_any_sandbox() -> None:
    with DaytonaEmulator() as emulator:
        sandbox = Daytona(client_of(emulator.env)).create()
        sandbox.process.exec("(sleep 1000 &) >/dev/null 2>&1")
        pids = emulator.sandbox(sandbox.id)["pids"]
        assert all(map(alive, pids)) and pids
        emulator.kill()
    wait_until(lambda: not any(map(alive, pids)), what="the end of the sandbox's processes")


def test_an_emulator_that_is_stopped_leaves_neither_processes_nor_files() -> None:
    with DaytonaEmulator() as emulator:
        sandbox = Daytona(client_of(emulator.env)).create()
        found = emulator.sandbox(sandbox.id)
        pid = emulator.pid
        assert Path(found["directory"]).is_dir()
    assert not any(map(alive, [pid, *found["pids"]]))
    assert not Path(found["directory"]).exists()


def test_the_program_tells_how_to_reach_it_and_ends_when_it_is_told(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.emulators.daytona", "--directory", str(tmp_path)]
    process = subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = dict(process.stdout.readline().strip().split("=", 1) for _ in range(3))
    assert list(Daytona(client_of(told)).list()) == []
    process.terminate()
    assert process.wait() == 0
    process.stdout.close()


def test_settings_are_in_force_from_the_first_request() -> None:
    with DaytonaEmulator(quota={"cpu": 7}, list_lag_s=5.0) as emulator:
        settings = emulator._ask("GET", "settings")
        assert (settings["quota"]["cpu"], settings["list_lag_s"]) == (7, 5.0)
        assert settings["quota"]["memory"] == Settings().quota.memory


@pytest.mark.parametrize("wrong", [{"no_such_setting": 1}])
def test_an_unknown_setting_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(KeyError):
        Settings().change(wrong)


async def _in_process() -> tuple[int, int]:
    async with Server() as server, AsyncDaytona(client_of(server.env)) as daytona:
        params = CreateSandboxFromSnapshotParams(name="here")
        sandbox = await daytona.create(params)
        before = len(state(server.world)["live"])
        await sandbox.delete(wait=True)
        return before, len(state(server.world)["live"])


def test_the_server_also_runs_inside_a_test() -> None:
    assert asyncio.run(_in_process()) == (1, 0)


def test_nothing_of_the_environment_is_changed_by_starting_it() -> None:
    before = dict(os.environ)
    with DaytonaEmulator():
        assert dict(os.environ) == before
