"""A real controller is killed with -9 while it deploys, calls or removes a function; the next one
goes on, begins no work twice, and nothing is left at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.contracts.modal_worlds import emulated
from tests.emulators.driving.gates import gate
from tests.emulators.driving.modal import ASKING_PAUSE_S, eventually
from tests.emulators.modal.running import ModalEmulator
from tests.servers.modal_calling import called, look_often
from tests.servers.modal_fleet import Tally
from tests.servers.modal_life import FURTHER_KILLS, ModalLife


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with emulated() as one:
        yield one


def deployed(emulator: ModalEmulator) -> list[dict[str, Any]]:
    apps = emulator.state()["apps"]
    return [
        it for it in apps if it["name"].startswith("fleetctl-fn-") and it["state"] == "deployed"
    ]


def warm(emulator: ModalEmulator) -> list[dict[str, Any]]:
    return [one for one in emulator.state()["functions"]["containers"] if one["live"]]


def under_way(emulator: ModalEmulator) -> list[dict[str, Any]]:
    """What was called and has no outcome yet."""
    calls = emulator.state()["functions"]["calls"]
    return [one for call in calls for one in call["inputs"] if not one["outcome"]]


@pytest.fixture
def life(
    tmp_path: Path, emulator: ModalEmulator, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModalLife]:
    """At its end everything is deleted, the controller is down, and nothing lives at Modal."""
    look_often(monkeypatch)
    emulator.do("clear_log")
    life = ModalLife(tmp_path, Random(3))
    life.start()
    try:
        yield life
        emulator.do("clear_faults")
        assert life.end() == []
        eventually(lambda: deployed(emulator) == [] and warm(emulator) == [])
    finally:
        if life.controller is not None and life.controller.poll() is None:
            life.kill()
        emulator.do("clear_faults")


@FURTHER_KILLS
@pytest.mark.parametrize(
    ("rpc", "when"),
    [
        ("AppPublish", "after"),  # deployed, and nobody heard of it
        ("FunctionMap", "before"),  # deployed and recorded, and not called
        ("FunctionMap", "after"),  # called, and nobody heard of it
        ("FunctionGetOutputs", "before"),  # called and recorded, and nothing was read of it
    ],
)
def test_a_controller_killed_while_modal_answers_begins_nothing_twice(
    life: ModalLife, emulator: ModalEmulator, tally: Tally, rpc: str, when: str
) -> None:
    emulator.do("fault", rpc=rpc, when=when, delay_s=3600)
    life.apply_job(called(tally.python("SUBMIT(n=1)")))
    life.restart_after(lambda: emulator.rpcs().get(rpc))
    life.succeed()
    assert tally.begun == {"0/1": 1}
    assert len(deployed(emulator)) == 1


def test_a_controller_killed_while_it_stops_an_app_leaves_the_rest_to_the_next(
    life: ModalLife, emulator: ModalEmulator, tally: Tally
) -> None:
    life.apply_job(called(tally.python()))
    life.succeed()
    emulator.do("fault", rpc="AppStop", when="before", delay_s=3600)
    life.command("delete", "job/job", "--no-wait")
    life.restart_after(lambda: emulator.rpcs().get("AppStop"))
    eventually(lambda: deployed(emulator) == [])
    life.acknowledged.clear()


def test_calls_that_end_while_no_controller_lives_are_told_by_the_next(
    life: ModalLife, emulator: ModalEmulator, tally: Tally
) -> None:
    with gate() as held:
        code = f"\nprint('works')\n{held.python()}\nprint('worked')\nSUBMIT(n=42)"
        life.apply_job(called(tally.python(code)), tasks=3)
        eventually(lambda: tally.begun.total() == 3)
        eventually(lambda: life.phases()["job"] == "Running", pause_s=ASKING_PAUSE_S)
        life.kill()
        held.open()
        held.passed(3)
        eventually(lambda: not under_way(emulator))
    life.start()
    life.succeed()
    assert tally.begun == {"0/1": 1, "1/1": 1, "2/1": 1}
    assert (
        life.command("logs", "job/job", "--index", "1", "--no-prefix").stdout == "works\nworked\n"
    )
