"""The check of the real service does not rot: the same code, with the emulator as the service."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from daytona import AsyncDaytona, CreateSandboxFromSnapshotParams, CreateSnapshotParams

from tests.emulators.daytona.running import DaytonaEmulator
from tests.live import daytona as live

ROOT = Path(__file__).parents[2]
# The suite's other tests run in tests/contracts; these two make a volume and lose a machine.
SOME = "volume_outlives or machine_died_is_lost"
SOON = {"FLEETCTL_LIVE_LONG_S": "0.2"}


def run(env: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DAYTONA_")}
    return subprocess.run(
        [sys.executable, "-m", "tests.live", "daytona", *words],
        cwd=ROOT,
        env={**kept, **SOON, **env},
        capture_output=True,
        text=True,
    )


@pytest.mark.only_all(reason="whole runs of the checks of real services, against emulators")
def test_it_runs_the_suite_measures_what_is_guessed_and_leaves_nothing() -> None:
    with DaytonaEmulator() as emulator:
        emulator.scale(8.0)  # a TTL is a minute at least
        done = run(emulator.env, "-k", SOME)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "2 passed" in done.stdout
        answers = [line for line in done.stdout.splitlines() if line.startswith("  (")]
        assert [line[:5] for line in answers] == [f"  ({letter})" for letter in "abcdefghij"]
        assert not [line for line in answers if "not answered" in line], answers
        assert "name taken: DaytonaConflictError 409" in answers[1]
        state = emulator.state()
    assert len(state["sandboxes"]) > 8
    assert {one["name"][:14] for one in state["sandboxes"]} == {"fleetctl-live-"}
    assert state["present"] == []
    assert {one["state"] for one in state["volumes"]} == {"deleted"}
    built = [one["state"] for one in state["snapshots"] if one["name"].startswith("fleetctl-")]
    assert set(built) <= {"removing"}


@pytest.mark.only_all(reason="whole runs of the checks of real services, against emulators")
def test_a_test_that_fails_there_fails_it_and_still_leaves_nothing() -> None:
    with DaytonaEmulator() as emulator:
        emulator.fault(operation="createVolume", status=403, count=1000)
        done = run(emulator.env, "-k", "volume_outlives")
        assert done.returncode == 1, done.stdout + done.stderr
        assert "1 failed" in done.stdout
        assert "what is guessed" not in done.stdout
        assert emulator.state()["present"] == []


def test_what_is_left_is_deleted_and_nothing_of_anybody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play(emulator: DaytonaEmulator) -> str:
        async with AsyncDaytona() as client:
            for name in ("fleetctl-live-1-left", "mine"):
                await client.volume.create(name)
                await client.create(CreateSandboxFromSnapshotParams(name=name))
            for name in ("fleetctl-old", "fleetctl-new", "mine"):
                await client.snapshot.create(CreateSnapshotParams(name=name, image="debian:12.9"))
        emulator.fault(operation="deleteSandbox", status=409, count=1)
        return await live.cleared("fleetctl-live-1", {"fleetctl-old"}, list_lag_s=0.0)

    with DaytonaEmulator(list_lag_s=0.0) as emulator:
        for name, value in emulator.env.items():
            monkeypatch.setenv(name, value)
        told = asyncio.run(play(emulator))
        state = emulator.state()
    assert told == (
        "sandboxes that were left: 1 of 1 that the list had; deleted with 1 volumes and 1 snapshots"
    )
    assert [one["name"] for one in state["present"]] == ["mine"]
    assert [one["name"] for one in state["volumes"] if one["state"] == "ready"] == ["mine"]
    kept = {one["name"] for one in state["snapshots"] if one["state"] == "active"}
    assert kept & {"fleetctl-old", "fleetctl-new", "mine"} == {"fleetctl-old", "mine"}


def test_without_a_key_it_says_how_to_get_one_and_begins_nothing() -> None:
    done = run({})
    assert done.returncode == 2
    assert done.stdout == ""
    assert "export DAYTONA_API_KEY" in done.stderr


def test_it_can_never_cost_fifteen_cents() -> None:
    assert 0 < live.LIMITS.worst_case_usd() < 0.15
