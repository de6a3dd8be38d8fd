"""The emulated W&B with the real package, unmodified: programs, agents, the public interface."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.emulators.wandb.light import LIGHT
from tests.emulators.wandb.running import WandbEmulator

# A step of its own for each value, a late item of the configuration, a summary.
TRAINS = """
import wandb
run = wandb.init(project="digits", config={"lr": 0.5})
run.config["late"] = [1, 2]
for epoch in range(3):
    wandb.log({"val/loss": 1.0 - epoch * run.config.lr, "nested": {"deep": epoch}})
run.summary["note"] = "done"
wandb.finish()
"""
# `wandb agent` but for its pause of five seconds between two questions.
AGENT = """
import sys, wandb
from wandb import wandb_agent
wandb_agent.Agent.POLL_INTERVAL = 0.05
wandb.agent(sys.argv[1], entity="acme", project="digits")
"""
# What `wandb sweep` and its --pause, --resume, --stop do, and a look; the service stumbles once.
STEERS = """
import sys, wandb
from wandb.apis.public.sweeps import _set_sweep_state
config = {"method": "random", "run_cap": 3, "parameters": {"lr": {"min": 0.0, "max": 1.0}}}
name = wandb.sweep(config, project="digits")
api = wandb.Api()
for state in ("RUNNING", "PAUSED", "RUNNING", "FINISHED"):
    _set_sweep_state(api, name, state, entity="acme", project="digits")
try:
    _set_sweep_state(api, name, "CANCELED", entity="acme", project="digits")
except Exception as error:
    print(error)
found = api.sweep(f"acme/digits/{name}")
print(found.state, found.expected_run_count, len(found.runs))
"""


@pytest.fixture
def environment(tmp_path: Path, wandb_emulator: WandbEmulator) -> Mapping[str, str]:
    """Of programs with wandb, which keep all they write to themselves."""
    inherited = {name: value for name, value in os.environ.items() if "WANDB" not in name}
    own = dict.fromkeys(("HOME", "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"), str(tmp_path))
    quiet = {"WANDB_SILENT": "true", "WANDB_X_DISABLE_STATS": "true", "WANDB_DISABLE_GIT": "true"}
    path = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    return {**inherited, **own, **quiet, **path, **wandb_emulator.env}


def test_all_that_a_program_logs_arrives(
    wandb_emulator: WandbEmulator, environment: Mapping[str, str], tmp_path: Path
) -> None:
    wandb_emulator.fault("UpsertBucket", status=500, count=1)
    wandb_emulator.fault("file_stream", when="after", drop=True, count=1)
    subprocess.run([sys.executable, "-c", TRAINS], env=environment, cwd=tmp_path, check=True)
    (run,) = wandb_emulator.state()["runs"]
    assert (run["entity"], run["project"], run["state"]) == ("acme", "digits", "finished")
    assert (run["begun"], run["exit_codes"]) == (1, [0])
    assert run["config"] == {"lr": 0.5, "late": [1, 2]}
    assert [row["val/loss"] for row in run["history"]] == [1.0, 0.5, 0.0]
    assert [row["nested"]["deep"] for row in run["history"]] == [0, 1, 2]
    assert (run["summary"]["val/loss"], run["summary"]["note"]) == (0.0, "done")
    assert "config.yaml" in run["uploads"]


def test_two_agents_of_the_package_run_each_point_of_a_grid_once(
    wandb_emulator: WandbEmulator, environment: Mapping[str, str], tmp_path: Path
) -> None:
    config = f"{{method: grid, program: '{LIGHT}', parameters: {{n: {{values: [1, 2, 3, 4]}}}}}}"
    name = wandb_emulator.do("create_sweep", config=config)
    agent = [sys.executable, "-c", AGENT, name]
    agents = [
        subprocess.Popen(agent, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    assert [one.wait() for one in agents] == [0, 0]
    runs = wandb_emulator.runs(name)
    assert [one["params"]["n"] for one in runs] == [1, 2, 3, 4]
    assert [one["config"]["n"] for one in runs] == [1, 2, 3, 4]
    assert [(one["state"], one["begun"], len(one["handed_to"])) for one in runs] == [
        ("finished", 1, 1)
    ] * 4
    assert wandb_emulator.sweep(name)["state"] == "FINISHED"
    assert [one["dismissed"] for one in wandb_emulator.agents(name)] == [True, True]


def test_the_package_steers_a_sweep_while_the_service_stumbles(
    wandb_emulator: WandbEmulator, environment: Mapping[str, str], tmp_path: Path
) -> None:
    wandb_emulator.do("settings", unknown_inputs=["launchScheduler", "templateVariableValues"])
    wandb_emulator.fault("GetSweep", status=503, count=1)
    command = [sys.executable, "-c", STEERS]
    output = subprocess.run(
        command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    assert output.splitlines()[-2:] == ["Sweep already finished.", "FINISHED 3 0"]
    (sweep,) = wandb_emulator.state()["sweeps"]
    assert sweep["states"] == ["PENDING", "RUNNING", "PAUSED", "RUNNING", "FINISHED"]
