"""The sandbox of an interpreter at Daytona while it lives: what ends it when its maker is gone, and
what its maker stands through.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl import DaytonaInterpreter
from fleetctl.common.errors import Unavailable
from fleetctl.providers.daytona.runs import daytona_sandboxes
from fleetctl.providers.daytona.runs.daytona_driver import START_SLACK_S
from fleetctl.providers.remote.runs import run_session
from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.driving.modal import eventually
from tests.interpreters import declare_provider


@pytest.fixture
def emulator(
    daytona_emulator: DaytonaEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DaytonaEmulator]:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FLEETCTL_DAYTONA_CONNECT_S", "120")  # the machine may be busy
    yield daytona_emulator
    daytona_emulator.remove_faults()
    assert daytona_emulator.state()["present"] == []


def its_sandbox(emulator: DaytonaEmulator) -> dict[str, Any]:
    [found] = emulator.state()["present"]
    assert isinstance(found, dict)
    return found


def test_it_ends_by_its_age_and_never_for_being_quiet(emulator: DaytonaEmulator) -> None:
    with DaytonaInterpreter(timeout=600) as interpreter:
        found = its_sandbox(emulator)
        assert found["intervals"]["stop"] == 0
        life_s = found["destroy_at_s"] - found["created_at_s"]
        assert life_s == pytest.approx(600 + START_SLACK_S, abs=60)
        emulator.advance(life_s - 60)  # far more than what Daytona stops idle ones after
        assert interpreter.execute("SUBMIT(a=1)").a == 1
        emulator.advance(120)
        eventually(lambda: emulator.state()["present"] == [])


def test_it_runs_at_the_account_of_a_provider_object(
    emulator: DaytonaEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"type": "daytona", "account": {"apiKeyEnv": "TEAM_B_KEY"}}
    declare_provider(tmp_path / "home", "team-b", spec)
    monkeypatch.setenv("TEAM_B_KEY", emulator.env["DAYTONA_API_KEY"])
    monkeypatch.delenv("DAYTONA_API_KEY")
    with DaytonaInterpreter(provider="team-b") as interpreter:
        assert interpreter.execute("SUBMIT(a=1)").a == 1
        labels = its_sandbox(emulator)["labels"]
        assert (labels["fleet"], labels["kind"]) == ("interpreters", "interpreter")


def test_a_spec_of_the_program_cannot_take_that_away(emulator: DaytonaEmulator) -> None:
    spec = {"auto_stop_interval": 1, "ttl_minutes": 100_000, "labels": {"mine": "yes"}}
    with DaytonaInterpreter(timeout=600, sandbox_spec=spec):
        found = its_sandbox(emulator)
        assert found["intervals"]["stop"] == 0
        assert found["destroy_at_s"] - found["created_at_s"] < 2 * 600 + START_SLACK_S
        assert found["labels"]["mine"] == "yes"


def test_a_stream_that_is_cut_is_opened_anew_and_tells_nothing_twice(
    emulator: DaytonaEmulator,
) -> None:
    noted: list[int] = []
    third = threading.Event()

    def note(number: int) -> None:
        noted.append(number)
        if number == 2:
            third.set()

    def cut() -> None:
        third.wait(300)
        emulator.cut(its_sandbox(emulator)["id"])

    with DaytonaInterpreter(timeout=600) as interpreter:
        interpreter.tools = {"note": note}
        cutting = threading.Thread(target=cut)
        cutting.start()
        code = "import time\nfor n in range(8):\n    note(n); time.sleep(0.2)\nSUBMIT(n=n)"
        assert interpreter.execute(code).n == 7
        cutting.join()
    assert noted == list(range(8))


def test_a_sandbox_in_the_midst_of_a_change_is_deleted_once_that_is_over(
    emulator: DaytonaEmulator,
) -> None:
    with DaytonaInterpreter(timeout=600):
        emulator.fault(operation="deleteSandbox", status=409, count=3)
    assert emulator.state()["present"] == []


def test_a_shutdown_that_does_not_come_through_is_told_and_may_be_asked_for_again(
    emulator: DaytonaEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter = DaytonaInterpreter(timeout=600)
    interpreter.start()
    busy = emulator.fault(operation="deleteSandbox", status=409)
    with monkeypatch.context() as short:
        short.setattr(daytona_sandboxes, "END_S", 1.0)
        short.setattr(run_session, "END_S", 1.0)
        with pytest.raises(Unavailable, match="cannot be ended"):
            interpreter.shutdown()
    assert its_sandbox(emulator)["state"] == "started"
    emulator.remove_faults(busy)
    interpreter.shutdown()
    assert emulator.state()["present"] == []
