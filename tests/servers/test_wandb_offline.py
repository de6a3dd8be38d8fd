"""Programs with the real wandb package, unchanged, in trials of ours: no account and no network."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from fleetctl.controllers.model import Alive, WandbTrial
from fleetctl.providers.contract.base import Backend
from fleetctl.providers.local.local_provider import LocalProvider
from fleetctl.providers.remote.runs.follower import FollowPace
from tests.contracts import daytona_worlds, modal_worlds
from tests.contracts.local_worlds import LocalWorld, stop_supervisors
from tests.contracts.provider_worlds import World, command, story
from tests.inside import show_checkout
from tests.servers import daytona_fleet, fleets, modal_fleet

ALONE = WandbTrial("lr", "digits", "", only=True)
PARAMS = {"lr": 3e-05, "momentum": 1.0, "tag": "on", "optimizer": {"eps": 1e-8, "name": "1e5"}}

# As people write it: defaults in init, attributes and items, a nested metric, a summary.
TRAINS = """
import wandb
run = wandb.init(config={"lr": 99.0, "epochs": 3}, project="other", id="mine")
lr = wandb.config.lr
assert isinstance(lr, float) and isinstance(wandb.config["optimizer"]["eps"], float)
for epoch in range(wandb.config.epochs):
    wandb.log({"val/loss": lr * epoch, "nested": {"deep": epoch}, "bad": float("nan")})
run.summary["config"] = repr([lr, wandb.config.momentum, wandb.config.tag])
run.summary["optimizer"] = repr(dict(wandb.config.optimizer))
wandb.finish()
with wandb.init() as again:
    again.log({"second": lr})
"""
WAITS = """
import time, wandb
wandb.init()
wandb.log({"val/loss": 0.5})
print("logged", flush=True)
time.sleep(600)
"""
ASKS_NOTHING = "print('training with what I think best')"


def program(text: str) -> list[str]:
    """In the tests' own Python, which has wandb."""
    return [sys.executable, "-c", text]


@pytest.fixture(autouse=True)
def _sees_its_python(monkeypatch: pytest.MonkeyPatch) -> None:
    show_checkout(monkeypatch)


class TestLocal:
    @pytest.fixture(autouse=True)
    def _nothing_left(self, tmp_path: Path) -> Iterator[None]:
        yield
        stop_supervisors(tmp_path / "home")

    def world(self, tmp_path: Path) -> World:
        return LocalWorld(tmp_path)

    @story
    async def test_parameters_arrive_and_all_that_is_logged_comes_back(self, world: World) -> None:
        seen = await world.run(command(*program(TRAINS)), wandb=ALONE, params=PARAMS)
        assert (seen.ok, seen.reason) == (True, "Completed"), seen.message
        losses = [it.value for it in seen.metrics if it.name == "val/loss"]
        assert losses == [0.0, 3e-05, 6e-05]
        assert [it.value for it in seen.metrics if it.name == "nested.deep"] == [0.0, 1.0, 2.0]
        assert [it.value for it in seen.metrics if it.name == "second"] == [3e-05]
        result = json.loads(seen.result or "")
        assert result["config"] == "[3e-05, 1.0, 'on']"
        assert result["optimizer"] == "{'eps': 1e-08, 'name': '1e5'}"
        assert (result["val/loss"], result["second"]) == (6e-05, 3e-05)
        assert seen.message == "`bad` at step 0 is not a finite number"

    @story
    async def test_values_come_while_it_runs_and_stay_when_it_is_killed(self, world: World) -> None:
        ref = await world.start(command(*program(WAITS)), wandb=ALONE, params=PARAMS)
        seen = await world.until(
            ref, lambda seen: isinstance(seen, Alive) and bool(seen.metrics), "told its metrics"
        )
        assert isinstance(seen, Alive)
        assert [(it.name, it.value) for it in seen.metrics] == [("val/loss", 0.5)]
        assert await world.log(ref) == b"logged\n"
        await world.provider.stop(ref, grace_s=0)
        ended = await world.ended(ref)
        assert [(it.name, it.value) for it in ended.metrics] == [("val/loss", 0.5)]

    @story
    async def test_a_program_that_asks_nobody_has_failed(self, world: World) -> None:
        seen = await world.run(command(*program(ASKS_NOTHING)), wandb=ALONE, params=PARAMS)
        assert (seen.ok, seen.reason) == (False, "ParametersUnread")


class LocalFleet(fleets.Fleet):
    """A controller of this machine's provider."""

    name = "local"

    def build(self, home: Path, pace: FollowPace) -> Backend:
        return LocalProvider(home, store_id=self.store.store_id, notify=self.told)

    async def search(self, text: str) -> dict[str, Any]:
        """The status of a grid over three points at its end. Its command hands nothing over."""
        search = {
            "method": "grid",
            "program": text,
            "command": [sys.executable, "-c", "${program}"],
            "metric": {"name": "val/loss", "goal": "minimize"},
            "parameters": {"lr": {"values": [0.5, 3e-05, 0.25]}},
        }
        self.apply_kind("Sweep", "lr", {"search": search, "parallelism": 1})
        return await self.over("Sweep", "lr")


def searched(tmp_path: Path, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def tale(fleet: LocalFleet) -> None:
        found.update(await fleet.search(text))

    fleets.telling(lambda: LocalFleet(tmp_path / "home"))(tale)
    stop_supervisors(tmp_path / "home")
    return found


def test_a_sweep_whose_program_knows_wandb_alone_finds_its_best_point(tmp_path: Path) -> None:
    """A value that was logged and one that the summary alone has count alike."""
    logs = (
        "import wandb; run = wandb.init(); lr = run.config.lr\n"
        "if lr > 0.3: run.log({'val/loss': lr})\n"
        "else: run.summary['val/loss'] = lr\n"
    )
    status = searched(tmp_path, logs)
    assert (status["phase"], status["succeeded"]) == ("Succeeded", 3)
    assert status["best"]["params"] == {"lr": 3e-05}
    assert status["best"]["metric"] == {"name": "val/loss", "value": 3e-05}
    assert "warning" not in status


def test_a_sweep_whose_parameters_reach_nobody_stops_after_its_first_trial(tmp_path: Path) -> None:
    status = searched(tmp_path, ASKS_NOTHING)
    assert (status["phase"], status["reason"]) == ("Failed", "ParametersUnread")
    assert (status["succeeded"], status["failed"], status["total"]) == (0, 1, 3)
    assert "wandb.config" in status["hint"]


def test_the_winner_of_a_sweep_trains_with_the_parameters_that_wandb_tells(tmp_path: Path) -> None:
    """The sweep's own program, which has them from `wandb.init` alone; a task's own win."""
    search = {
        "method": "grid",
        "command": ["sh", "-c", 'cp "$FLEETCTL_PARAMS" "$FLEETCTL_RESULT"'],
        "metric": {"name": "lr", "goal": "maximize"},
        "parameters": {"lr": {"values": [0.5, 3e-05]}, "tag": {"value": "on"}},
    }
    text = (
        "import wandb; run = wandb.init(config={'lr': 99.0, 'seed': 0})\n"
        "assert 'WANDB_SWEEP_ID' not in __import__('os').environ\n"
        "run.summary['told'] = repr([run.config.lr, run.config.tag, run.config.seed])\n"
    )
    job = {
        "paramsFrom": {"sweep": "lr"},
        "tasks": {"matrix": {"seed": [7]}},
        "template": {"command": program(text)},
    }
    found: dict[str, Any] = {}

    async def tale(fleet: LocalFleet) -> None:
        fleet.apply_kind("Sweep", "lr", {"search": search})
        fleet.apply_kind("BatchJob", "full", job)
        found.update(await fleet.over("BatchJob", "full"))
        row = fleet.store.resources.get("BatchJob", "full")
        assert row is not None
        found["results"] = [result for _, result in fleet.store.runs.of(row.uid)]

    fleets.telling(lambda: LocalFleet(tmp_path / "home"))(tale)
    stop_supervisors(tmp_path / "home")
    assert found["phase"] == "Succeeded", found
    assert json.loads(found["results"][0])["told"] == "[0.5, 'on', 7]"


@pytest.fixture(scope="module", params=["modal", "daytona"])
def cloud(request: pytest.FixtureRequest) -> Iterator[Callable[[Path], fleets.Fleet]]:
    with ExitStack() as stack:
        if request.param == "modal":
            modal = stack.enter_context(modal_worlds.emulated())
            yield lambda home: modal_fleet.Fleet(home, modal)
        else:
            daytona = stack.enter_context(daytona_worlds.emulated())
            yield lambda home: daytona_fleet.Fleet(home, daytona)


def test_the_real_package_runs_in_sandboxes_of_a_cloud(
    cloud: Callable[[Path], fleets.Fleet], tmp_path: Path
) -> None:
    """Two trials in one sandbox, whose image installs it; who wants parameters asks wandb."""
    text = (
        "import wandb; run = wandb.init(config={'lr': 99.0}, project='other')\n"
        "for epoch in range(3): run.log({'val/loss': run.config.lr + epoch})\n"
        "run.summary['tag'] = run.config.tag\n"
    )
    search = {
        "method": "grid",
        "program": text,
        "command": ["${interpreter}", "-c", "${program}"],
        "metric": {"name": "val/loss"},
        "parameters": {"lr": {"values": [0.5, 3e-05]}, "tag": {"value": "on"}},
    }
    template = {"image": {"pip": [f"wandb=={version('wandb')}"]}}
    spec = {"search": search, "template": template, "trialsPerWorker": 2, "parallelism": 1}

    async def tale(fleet: fleets.Fleet) -> None:
        fleet.apply_kind("Sweep", "lr", {**spec, "placement": {"provider": fleet.name}})
        status = await fleet.over("Sweep", "lr")
        assert (status["phase"], status["succeeded"]) == ("Succeeded", 2), status
        best = {"name": "val/loss", "value": 2 + 3e-05}
        assert (status["best"]["metric"], "warning" in status) == (best, False)
        row = fleet.store.resources.get("Sweep", "lr")
        assert row is not None
        runs = list(fleet.store.runs.of(row.uid))
        parts = [[it.value for it in fleet.store.runs.metrics_of(run.name)] for run, _ in runs]
        assert parts == [[0.5, 1.5, 2.5], [3e-05, 1 + 3e-05, 2 + 3e-05]]
        assert [json.loads(result or "")["tag"] for _, result in runs] == ["on", "on"]
        assert len({run.sandbox for run, _ in runs}) == 1
        fleet.delete_kind("Sweep", "lr")
        await fleet.gone("lr")

    fleets.telling(lambda: cloud(tmp_path / "home"))(tale)
