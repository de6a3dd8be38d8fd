"""P4 on this machine: what outlives its controller ends when nobody will ever ask for it."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

from tests.docs.fleet import Fleet
from tests.living import alive

ENDS_S = 240.0


def below(home: Path) -> list[int]:
    """Processes that have a file or directory below a home open, or work in one."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            opened = [
                f"/proc/{name}/cwd",
                *(f"/proc/{name}/fd/{it}" for it in os.listdir(f"/proc/{name}/fd")),
            ]
            if any(os.readlink(it).startswith(f"{home}/") for it in opened):
                found.append(int(name))
        except OSError:
            continue  # it has just ended
    return [it for it in found if it != os.getpid()]


def test_nothing_outlives_its_state_directory(tmp_path: Path) -> None:
    fleet, manifest = Fleet(tmp_path / "home"), tmp_path / "job.yaml"
    template = {"script": "trap '' TERM HUP; sleep 6000 & sleep 6000"}
    head = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": "BatchJob", "metadata": {"name": "x"}}
    manifest.write_text(json.dumps({**head, "spec": {"completions": 1, "template": template}}))
    fleet.ok("apply", "-f", str(manifest))
    until_s = time.monotonic() + ENDS_S
    while not fleet.status("job/x").get("active"):
        assert time.monotonic() < until_s
        time.sleep(0.1)
    processes = below(fleet.home)
    assert len(processes) >= 2  # its controller and its supervisor
    fleet.kill_controller()
    fleet.home.rename(tmp_path / "moved")
    shutil.rmtree(tmp_path / "moved")
    while left := [it for it in processes if alive(it)]:
        assert time.monotonic() < until_s, left
        time.sleep(0.1)
