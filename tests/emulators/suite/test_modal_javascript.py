"""Modal's JavaScript SDK, an independent client, against the emulator: javascript_modal/."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import modal
import pytest

from tests.emulators.driving.modal import Driver
from tests.emulators.modal.running import ModalEmulator
from tests.needs import require

SOURCE = Path(__file__).with_name("javascript_modal")
APP = "js-functions"


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
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress"]
        done = subprocess.run(command, cwd=building, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        building.rename(directory)
    return directory


def run_smoke(directory: Path, env: dict[str, str]) -> dict[str, Any]:
    """What each step saw. Node finds the SDK beside the script, so the script goes there."""
    script = shutil.copy(SOURCE / "smoke.mjs", directory)
    done = subprocess.run(
        ["node", str(script)],
        env={**os.environ, **env, "MODAL_LOGLEVEL": "error"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_the_javascript_sdk_sees_what_the_emulator_holds(installed: Path) -> None:
    def double(n: int) -> int:
        return n + n

    with ModalEmulator() as emulator, Driver(emulator, APP) as driver:
        app = modal.App(APP)
        app.function(image=driver.image, serialized=True, name="double")(double)
        app.deploy(client=driver.client)
        seen = run_smoke(installed, {**emulator.env, "SMOKE_FUNCTION_APP": APP})
        state = emulator.state()
    sandboxes = {one["sandbox_id"]: one for one in state["sandboxes"]}
    assert not [one for one in sandboxes.values() if one["live"]]
    first, gpu = sandboxes[seen["create"]], sandboxes[seen["gpu"]]
    assert (first["backend"], first["name"]) == ("v2", "first")
    assert first["tags"] == {"team": "js", "round": "2"}
    assert (gpu["backend"], gpu["gpu"], gpu["exitcode"]) == ("v1", "A100:2", 3)
    assert sandboxes[seen["terminate"]]["ending"] == "GENERIC_STATUS_TERMINATED"
    (volume,) = [one for one in state["volumes"] if one["volume_id"] == seen["volume"]]
    assert volume["files"] == {"note": 5}
    calls = {one["call_id"]: one for one in state["functions"]["calls"]}
    (spawned,) = calls[seen["function"]]["inputs"]
    assert (spawned["outcome"], len(spawned["began"])) == ("success", 1)
