"""Failure mode 4 of Modal: orphans. A real controller is killed with -9 between any two steps; the
next one takes over what the first made, begins no work twice, and nothing is left at the end.

What was made and lives is asked of the emulator, what began of the tasks themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import sleep

import pytest

from tests.contracts.modal_worlds import emulated
from tests.emulators.driving.gates import gate
from tests.emulators.driving.modal import ASKING_PAUSE_S, eventually
from tests.emulators.modal.running import ModalEmulator
from tests.servers.modal_fleet import Tally
from tests.servers.modal_life import FURTHER_KILLS, ModalLife

GPU = {"resources": {"gpu": "A100:1"}}


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with emulated() as one:
        yield one


@pytest.fixture
def life(tmp_path: Path, emulator: ModalEmulator) -> Iterator[ModalLife]:
    """At its end everything is deleted, the controller is down, and nothing lives at Modal."""
    emulator.do("clear_log")
    life = ModalLife(tmp_path, Random(3))
    life.start()
    try:
        yield life
        emulator.do("clear_faults")
        assert life.end() == []
        assert emulator.live() == []
    finally:
        if life.controller is not None and life.controller.poll() is None:
            life.kill()
        emulator.do("clear_faults")
        emulator.do("settings", gpu_capacity={})


@FURTHER_KILLS
@pytest.mark.parametrize(
    ("rpc", "when"),
    [
        ("SandboxCreateV2", "after"),  # made, and nobody heard of it
        ("TaskExecStart", "before"),  # made and recorded, and not begun
        ("TaskExecStart", "after"),  # begun, and nobody heard of it
        ("TaskExecStdioRead", "before"),  # begun, and nothing was read of it
        ("SandboxTerminateV2", "before"),  # ended, and its sandbox lives
        ("SandboxTerminateV2", "after"),  # its sandbox is over, and nobody heard of it
    ],
)
def test_4_a_controller_killed_while_modal_answers_leaves_no_orphan_and_begins_nothing_twice(
    life: ModalLife, emulator: ModalEmulator, tally: Tally, rpc: str, when: str
) -> None:
    before = len(emulator.state()["sandboxes"])
    emulator.do("fault", rpc=rpc, when=when, delay_s=3600)
    life.apply_job({"python": tally.python("SUBMIT(n=1)")})
    life.restart_after(lambda: emulator.rpcs().get(rpc))
    life.succeed()
    assert tally.begun == {"0/1": 1}
    assert len(emulator.state()["sandboxes"]) - before == 1


def test_4_a_controller_killed_while_a_sandbox_waits_for_a_gpu_leaves_one_in_the_queue(
    life: ModalLife, emulator: ModalEmulator, tally: Tally
) -> None:
    before = len(emulator.state()["sandboxes"])
    emulator.do("settings", gpu_capacity={"A100": 0})
    life.apply_job({"python": tally.python(), **GPU})
    life.restart_after(emulator.live)
    life.restart_after(lambda: emulator.rpcs().get("SandboxGetFromName"))
    assert not tally.begun
    emulator.do("settings", gpu_capacity={"A100": 1})
    life.succeed()
    assert tally.begun == {"0/1": 1}
    assert len(emulator.state()["sandboxes"]) - before == 1


def test_4_work_that_ends_while_no_controller_lives_is_told_by_the_next(
    life: ModalLife, emulator: ModalEmulator, tally: Tally
) -> None:
    with gate() as held:
        code = f"\nprint('works')\n{held.python()}\nprint('worked')\nSUBMIT(n=42)"
        life.apply_job({"python": tally.python(code)})
        eventually(lambda: tally.begun)
        eventually(lambda: life.phases()["job"] == "Running", pause_s=ASKING_PAUSE_S)
        life.kill()
        held.open()
        held.passed(1)
        sleep(1.0)  # no promise depends on it: the end is most often before the next controller
    life.start()
    life.succeed()
    assert tally.begun == {"0/1": 1}
    rows = json.loads(life.command("results", "job/job", "-o", "json").stdout)
    assert [row["result"] for row in rows] == [{"n": 42}]
    assert life.command("logs", "job/job").stdout.splitlines() == ["[0/1] works", "[0/1] worked"]


@pytest.mark.only_all(reason="a controller killed at random moments, as the simulation plays it")
def test_4_a_controller_killed_at_random_moments_begins_no_attempt_twice_and_leaves_nothing(
    life: ModalLife, emulator: ModalEmulator, tally: Tally
) -> None:
    code = tally.python("\nimport time\ntime.sleep(0.3)\nSUBMIT(n=1)")
    life.apply_job({"python": code}, tasks=12)
    for _ in range(4):
        sleep(life.random.uniform(0.8, 2.2))
        life.kill()
        life.start()
    life.succeed()
    assert tally.begun == {f"{index}/1": 1 for index in range(12)}
