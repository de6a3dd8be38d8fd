"""The check of the real service does not rot: the same code, with the emulator as the service."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.emulators.modal.running import ModalEmulator
from tests.live import modal as live

ROOT = Path(__file__).parents[2]
# The suite's other tests run in tests/contracts; these two make a volume and lose a machine.
SOME = "volume_outlives or machine_died_is_lost"


def run(env: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MODAL_")}
    return subprocess.run(
        [sys.executable, "-m", "tests.live", "modal", *words],
        cwd=ROOT,
        env={**kept, **env},
        capture_output=True,
        text=True,
    )


@pytest.mark.only_all(reason="whole runs of the checks of real services, against emulators")
def test_it_runs_the_suite_measures_what_is_guessed_and_leaves_nothing(tmp_path: Path) -> None:
    with ModalEmulator(tmp_path / "service") as emulator:
        done = run(emulator.env, "-k", SOME)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "2 passed" in done.stdout
        answers = [line for line in done.stdout.splitlines() if line.startswith("  (")]
        assert [line[:5] for line in answers] == [f"  ({letter})" for letter in "abcdefghi"]
        assert not [line for line in answers if "not answered" in line]
        assert "ConflictError: there are open files" in answers[8]
        assert "one by SandboxCreate, one by SandboxCreateV2" in answers[0]
        state = emulator.state()
    assert len(state["sandboxes"]) > 10
    assert not [one for one in state["sandboxes"] if one["live"]]
    assert state["volumes"] == []
    assert {app["state"] for app in state["apps"]} == {"stopped"}
    assert {app["environment"][:14] for app in state["apps"]} == {"fleetctl-live-"}


@pytest.mark.only_all(reason="whole runs of the checks of real services, against emulators")
def test_a_test_that_fails_there_fails_it_and_still_leaves_nothing(tmp_path: Path) -> None:
    with ModalEmulator(tmp_path / "service") as emulator:
        emulator.do("fault", rpc="VolumeGetOrCreate", status="INTERNAL", count=1000)
        done = run(emulator.env, "-k", "volume_outlives")
        assert done.returncode == 1, done.stdout + done.stderr
        assert "1 failed" in done.stdout
        assert emulator.live() == []


def test_without_a_token_it_says_how_to_get_one_and_begins_nothing(tmp_path: Path) -> None:
    done = run({"MODAL_CONFIG_PATH": str(tmp_path / "none.toml")})
    assert done.returncode == 2
    assert done.stdout == ""
    assert "`modal token new`" in done.stderr


def test_it_can_never_cost_ten_cents() -> None:
    assert 0 < live.LIMITS.worst_case_usd() < 0.10


@pytest.mark.parametrize("word", [[], ["daytona-of-old"]])
def test_it_wants_to_know_which_service(word: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.live", *word], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "python -m tests.live modal" in done.stderr
