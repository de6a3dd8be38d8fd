"""Interpreters whose provider throttles: they wait as they are told; and how a program has set its
own SDK stays as it was.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl import DaytonaInterpreter, ModalInterpreter
from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.modal.running import ModalEmulator

TOO_MANY = {
    "rpc": "SandboxCreateV2", "status": "RESOURCE_EXHAUSTED", "retry_after_s": 0.3,
    "message": "Sandbox creation rate limit (5/s) exceeded",
}  # fmt: skip

PROGRAM = """
import os, sys
import modal
from fleetctl import ModalInterpreter
from tests.emulators.modal.running import _answer
import json, urllib.request

def throttle(count):
    fault = json.dumps({fault!r} | {{"count": count}}).encode()
    headers = {{"Content-Type": "application/json"}}
    _answer(urllib.request.Request({admin!r} + "/fault", data=fault, headers=headers))

before = dict(os.environ)
throttle(2)
with ModalInterpreter(timeout=60) as interpreter:
    print(interpreter.execute("print(1 + 1)"), end="")
assert dict(os.environ) == before
throttle(1)
app = modal.App.lookup("of-the-program", create_if_missing=True)
try:
    modal.Sandbox.create("true", app=app).terminate()
    print("made")
except modal.exception.ResourceExhaustedError:
    print("throttled")
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.usefixtures("home")
def test_an_interpreter_waits_when_modal_throttles_and_the_sdk_tells(
    modal_emulator: ModalEmulator,
) -> None:
    made = len(modal_emulator.state()["sandboxes"])
    modal_emulator.do("fault", **TOO_MANY, count=3)
    with ModalInterpreter(timeout=60) as interpreter:
        assert interpreter.execute("print(1 + 1)") == "2\n"
        assert len(modal_emulator.state()["sandboxes"]) == made + 1
    assert modal_emulator.state()["faults"][-1]["count"] == 0
    modal_emulator.do("clear_faults")
    assert modal_emulator.live() == []


@pytest.mark.only_all(reason="further settings of Modal's SDK", of=("30", "throttled"))
@pytest.mark.parametrize(("setting", "own"), [(None, "made"), ("0", "throttled"), ("30", "made")])
def test_a_program_finds_its_own_sdk_set_as_it_was(
    home: Path, modal_emulator: ModalEmulator, setting: str | None, own: str
) -> None:
    environ = {**os.environ, "FLEETCTL_HOME": str(home), "MODAL_MAX_THROTTLE_WAIT": setting or ""}
    if setting is None:
        del environ["MODAL_MAX_THROTTLE_WAIT"]
    code = PROGRAM.format(fault=TOO_MANY, admin=modal_emulator.admin_url)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ
    )
    modal_emulator.do("clear_faults")
    assert (done.returncode, done.stdout) == (0, f"2\n{own}\n"), done.stderr
    for left in modal_emulator.live():
        modal_emulator.do("end_sandbox", sandbox_id=left["sandbox_id"])


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("where", [{"operation": "createSandbox"}, {"path": "/toolbox/*"}], ids=str)
def test_an_interpreter_waits_when_daytona_throttles(
    daytona_emulator: DaytonaEmulator, where: dict[str, str]
) -> None:
    fault = daytona_emulator.fault(**where, status=429, headers={"Retry-After": "0.2"}, count=2)
    with DaytonaInterpreter(timeout=60) as interpreter:
        assert interpreter.execute("print(1 + 1)").strip() == "2"
        assert len(daytona_emulator.state()["present"]) == 1
    [met] = [one["met"] for one in daytona_emulator.faults() if one["id"] == fault]
    assert met == 2
    daytona_emulator.remove_faults(fault)
    assert daytona_emulator.state()["present"] == []
