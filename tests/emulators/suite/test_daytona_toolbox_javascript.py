"""The vendor's JavaScript SDK, an independent client, against the emulator: javascript_daytona/."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.driving.daytona import wait_until
from tests.needs import require

SOURCE = Path(__file__).with_name("javascript_daytona")
COMMAND_S = 240.0


@pytest.fixture(scope="module")
def installed() -> Path:
    """The SDK, installed by npm from the lock file; kept between runs for the same lock file."""
    require("node", "npm")
    lock = (SOURCE / "package-lock.json").read_bytes()
    name = f"fleetctl-javascript-{os.getuid()}-{hashlib.sha256(lock).hexdigest()[:16]}"
    directory = Path(tempfile.gettempdir()) / name
    if not directory.exists():
        building = Path(tempfile.mkdtemp(prefix=name))
        for file in ("package.json", "package-lock.json"):
            shutil.copy(SOURCE / file, building)
        words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress"]
        done = subprocess.run(
            words, cwd=building, capture_output=True, text=True, timeout=COMMAND_S
        )
        assert done.returncode == 0, done.stderr
        building.rename(directory)
    return directory


def smoke(directory: Path, env: dict[str, str]) -> dict[str, Any]:
    """What each step saw. Node finds the SDK beside the script, so the script goes there."""
    script = shutil.copy(SOURCE / "smoke.mjs", directory)
    done = subprocess.run(
        ["node", str(script)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_the_javascript_sdk_sees_what_the_emulator_holds(installed: Path, tmp_path: Path) -> None:
    with DaytonaEmulator(directory=tmp_path) as emulator:
        seen = smoke(installed, emulator.env)
        wait_until(lambda: not emulator.state()["live"], what="the end of the sandbox")
        (kept,) = (tmp_path / "volumes").rglob("kept")
        assert kept.read_text() == "7\n", "what the session wrote into the volume"
    assert seen["exec"] == [3, "/tmp\nyes b\nproblem\n"]
    assert (seen["code"], seen["session"]) == ("42\n", "/data\n")
    assert seen["streams"] == {"stdout": "out1\nout2\nout3\n", "stderr": "err1\nerr2\nerr3\n"}
    assert seen["exitCode"] == 4
    assert seen["files"] == ["one", 'ü "2"']
    assert seen["downloads"] == ["one", "zwei", "error"]
    assert seen["found"] == [['up/ü "2"', 1]]
    assert (len(seen["commit"]), seen["branch"]) == (40, "main")
    assert (seen["interpreter"], seen["interpreterError"]) == ("10\n", "ZeroDivisionError")
    assert seen["terminal"] == [5, True]
    errors = ("timeout", "gone", "missing")
    assert [seen[name] for name in errors] == [
        "DaytonaProcessExecutionTimeoutError",
        "DaytonaProcessNotFoundError",
        "DaytonaFileNotFoundError",
    ]
