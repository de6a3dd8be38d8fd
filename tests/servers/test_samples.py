"""Samples of machines, from a real driver program and real processes to the screens:
drawn beside what programs report, and never taken for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.served import ServedFleet, until

# As `nvidia-smi -L` lists devices, and as it prints the fields that the guest asks for.
SMI = """#!/bin/sh
case "$*" in
-L)
  echo 'GPU 0: NVIDIA A100 (UUID: x)'; echo 'GPU 1: NVIDIA A100 (UUID: y)';;
'--query-gpu=index,utilization.gpu,memory.used,memory.total --format=csv,noheader,nounits')
  echo '0, 93, 40960, 81920'; echo '1, 12, 2048, 81920';;
*)
  exit 6;;
esac
"""
WORKS = "report(step=1, loss=0.5)\nwhile True: pass"
SYSTEM = (
    "GPU use in percent",
    "GPU memory in MiB",
    "CPU use in percent of a core",
    "memory in MiB",
)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedFleet]:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(SMI)
    program.chmod(0o755)
    # In the other tiers a program sees the directories of the system alone.
    more = {"PATH": f"{program.parent}:{os.environ['PATH']}", "FLEETCTL_LOCAL_TIER": "process"}
    fleet = ServedFleet(tmp_path / "home", more=more)
    yield fleet
    fleet.close()


def sweep(metric: str, path: str) -> str:
    search: dict[str, Any] = {
        "method": "grid",
        "metric": {"name": metric, "goal": "minimize"},
        "parameters": {"lr": {"values": [0.1]}},
    }
    template = {"python": WORKS, "resources": {"gpu": "A100"}, "env": {"PATH": path}}
    spec = {
        "search": search,
        "template": template,
        "placement": {"ordered": [{"provider": "local"}]},
    }
    made = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": "Sweep", "metadata": {"name": "used"}}
    return json.dumps({**made, "spec": spec})


def test_gpus_and_processes_are_sampled_and_stay_apart_from_metrics(served: ServedFleet) -> None:
    served.ok("apply", "-f", "-", stdin=sweep("system/gpu.0.percent", served.env["PATH"]))

    def drawn() -> list[str]:
        found = served.get("sweeps/used/plots")["system"]
        return [it["title"] for it in found]

    titles = [f"{name} over time" for name in SYSTEM]
    until(lambda: drawn() == titles, "a plot of the machine")
    screen = served.ok("plot", "sweep/used", "--kind", "system")
    assert all(title in screen for title in titles)

    assert "system/" not in served.ok("get", "metrics", "sweep/used", "-o", "json")
    (row,) = json.loads(served.ok("get", "metrics", "sweep/used", "-o", "json"))
    assert row["metric"] == "loss" and row["reports"] == 1
    assert "93 % busy" in served.ok("describe", "sweep/used")
    assert "of a core" in served.ok("describe", "sweep/used")
    asked = served.ok("query", "select distinct metric from metrics", "-o", "json")
    assert json.loads(asked) == [{"metric": "loss"}]
    shown = served.get("plots", runs="sweep/used")
    assert shown["metrics"] == ["loss"] and len(shown["system"]) == 4
    # A sweep that goes by the name of a sample has no score: nothing was reported under it.
    assert "best" not in served.get("sweeps/used")["status"]
    served.ok("delete", "sweep/used", "--yes")
