"""A sweep that people's own `wandb agent` shares with ours, whose controller is killed on the way:
what each has run is asked of the emulated service.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.contracts.local_worlds import stop_supervisors
from tests.emulators.wandb.running import WandbEmulator
from tests.servers.wandb_fleet import Fleet, held

# `wandb agent` but for its pause of five seconds between two questions.
AGENT = """
import sys, wandb
from wandb import wandb_agent
wandb_agent.Agent.POLL_INTERVAL = 0.05
wandb.agent(sys.argv[1], entity="acme", project="digits")
"""
SERVE = """
import sys
from pathlib import Path
from tests.servers.test_wandb_shared import serve
serve(Path(sys.argv[1]), sys.argv[2])
"""
ROOT = Path(__file__).parents[2]
POINTS = 8
WAIT_S = 180.0  # against a hang alone


def serve(home: Path, there: str) -> None:
    """Our controller, until the sweep is over; in a process of its own."""

    async def scene() -> None:
        fleet = Fleet(home, Elsewhere())
        if not fleet.status("lr"):
            fleet.sweep(None, wandb={"sweepId": there})
        await fleet.phase("Succeeded", "lr")
        await fleet.close()

    asyncio.run(scene())


class Elsewhere(WandbEmulator):
    """The one that the parent process has started."""

    def __init__(self) -> None:
        super().__init__()
        self.env = dict(os.environ)


@pytest.fixture
def environment(tmp_path: Path, wandb_emulator: WandbEmulator) -> Mapping[str, str]:
    inherited = {name: value for name, value in os.environ.items() if "WANDB" not in name}
    own = dict.fromkeys(("HOME", "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"), str(tmp_path))
    # Trials see the gate among other files of this machine.
    return {
        **inherited,
        **own,
        "FLEETCTL_LOCAL_TIER": "process",
        "WANDB_SILENT": "true",
        **wandb_emulator.env,
    }


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    stop_supervisors(tmp_path / "home")


def test_each_point_of_a_shared_sweep_runs_once_though_the_controller_is_killed(
    wandb_emulator: WandbEmulator, environment: Mapping[str, str], home: Path
) -> None:
    gate = home.with_name("gate")
    gate.touch()
    search = {
        "method": "grid",
        "command": [sys.executable, "-c", held(gate), "${args}"],
        "parameters": {"lr": {"values": list(range(POINTS))}},
    }
    there = wandb_emulator.do("create_sweep", config=json.dumps(search))
    words = [
        sys.executable,
        "-c",
        SERVE,
        str(home),
        there,
    ]
    ours = subprocess.Popen(words, env=environment, cwd=ROOT)
    theirs = subprocess.Popen(
        [sys.executable, "-c", AGENT, there], env=environment, cwd=home.parent
    )
    try:
        _until(lambda: len(wandb_emulator.runs(there)) == 3)  # two of ours, one of theirs
        ours.kill()
        ours.wait()
        ours = subprocess.Popen(words, env=environment, cwd=ROOT)
        gate.unlink()
        assert ours.wait(WAIT_S) == 0 and theirs.wait(WAIT_S) == 0
    finally:
        for process in (ours, theirs):
            process.kill()
            process.wait()
    runs = wandb_emulator.runs(there)
    assert sorted(it["params"]["lr"] for it in runs) == list(range(POINTS))
    assert {(it["begun"], *it["exit_codes"]) for it in runs} == {(1, 0)}
    hosts = {
        it["host"].startswith("fleetctl-") for it in wandb_emulator.agents(there) if it["runs"]
    }
    assert hosts == {True, False}


def _until(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.02)
