"""`backend: wandb` against the emulated service: a real engine is the agent, and what W&B has seen
is asked of the emulator.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.engine.kinds.wandb import wandb_agent
from tests.contracts.local_worlds import stop_supervisors
from tests.contracts.provider_worlds import eventually
from tests.emulators.wandb.running import WandbEmulator
from tests.emulators.wandb.world.settings import FOREIGN_KEY
from tests.inside import show_files
from tests.servers.wandb_fleet import GRID, Fleet, handed, told_of

Tale = Callable[[Fleet], Awaitable[None]]
Tell = Callable[..., None]
# Its command hands nothing over, as of a third of people's sweep files.
TRAINS = """
import wandb
with wandb.init(config={"lr": 99.0}, project="other") as run:
    for epoch in range(2):
        run.log({"loss": run.config.lr * epoch})
"""
EACH_ONCE = [(json.dumps({"lr": lr}), 1, (0,)) for lr in (1, 2, 3, 4)]


@pytest.fixture
def tell(
    tmp_path: Path, wandb_emulator: WandbEmulator, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Tell]:
    """Tells a tale of one store; `key` is the one that its Secret has."""
    show_files(monkeypatch)  # the gate of trials among them
    home = tmp_path / "home"

    def told(tale: Tale, *, key: str = "") -> None:
        async def scene() -> None:
            fleet = Fleet(home, wandb_emulator, key=key)
            try:
                await tale(fleet)
            finally:
                fleet.let_go()
                await fleet.close()

        asyncio.run(scene())

    yield told
    stop_supervisors(home)


def test_each_point_that_wandb_hands_out_is_a_trial_once(
    tell: Tell, wandb_emulator: WandbEmulator, tmp_path: Path
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.sweep()
        status = await fleet.phase("Succeeded", "lr")
        assert status["wandb"] == {
            "id": fleet.name_there,
            "url": f"{wandb_emulator.url}/acme/digits/sweeps/{fleet.name_there}",
            "state": "FINISHED",
            "runCount": 4,
            "runCountExpected": 4,
            "bestLoss": 1,
        }
        assert sorted(handed(wandb_emulator)) == EACH_ONCE
        sweep = wandb_emulator.sweep(fleet.name_there)
        assert sweep["config"]["metric"] == {"name": "loss"} | sweep["config"]["metric"]
        assert len({it.wandb for it in fleet.runs("lr")}) == 4

    tell(tale)
    assert wandb_emulator.api_key.encode() not in told_of(tmp_path)


@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        ("UpsertSweep", {"when": "after", "drop": True, "count": 1}),
        ("UpsertSweep", {"status": 500, "count": 1}),
        ("CreateAgent", {"when": "after", "drop": True, "count": 1}),
        ("Heartbeat", {"when": "after", "drop": True, "skip": 1, "count": 3}),
        ("*", {"page": True, "skip": 4, "count": 6}),
        ("Heartbeat", {"status": 429, "headers": {"Retry-After": "0.2"}, "count": 2}),
    ],
)
def test_no_answer_that_is_lost_loses_or_doubles_a_run(
    tell: Tell, wandb_emulator: WandbEmulator, operation: str, fault: dict[str, Any]
) -> None:
    async def tale(fleet: Fleet) -> None:
        wandb_emulator.fault(operation, **fault)
        fleet.sweep()
        await fleet.phase("Succeeded", "lr")
        assert sorted(handed(wandb_emulator)) == EACH_ONCE
        assert len(wandb_emulator.state()["sweeps"]) == 1

    tell(tale)


def test_a_restarted_controller_goes_on_with_the_runs_that_live(
    tell: Tell, wandb_emulator: WandbEmulator
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.hold()
        fleet.sweep()
        await fleet.begun(2)
        # Of an answer that nobody heard, W&B knows what it had handed out.
        wandb_emulator.fault("Heartbeat", when="after", drop=True)
        await fleet.restart()
        await fleet.begun(2)
        wandb_emulator.do("clear_faults")
        before = {it.wandb for it in fleet.runs("lr")}

        async def reported() -> bool:
            agents = wandb_emulator.agents(fleet.name_there)
            return {run for it in agents for run in it["reported"]} == before

        await eventually(reported, "its runs were reported as living")
        fleet.let_go()
        await fleet.phase("Succeeded", "lr")
        assert sorted(handed(wandb_emulator)) == EACH_ONCE

    tell(tale)


def test_a_pause_there_lets_runs_end_and_a_resume_goes_on(
    tell: Tell, wandb_emulator: WandbEmulator
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.hold()
        fleet.sweep()
        await fleet.begun(2)
        wandb_emulator.do("move_sweep", sweep=fleet.name_there, state="PAUSED")
        await fleet.at({"state": "PAUSED"})
        fleet.let_go()
        await fleet.waits("PausedByWandb", "lr")
        assert len(handed(wandb_emulator)) == 2
        wandb_emulator.do("move_sweep", sweep=fleet.name_there, state="RUNNING")
        await fleet.phase("Succeeded", "lr")
        assert sorted(handed(wandb_emulator)) == EACH_ONCE

    tell(tale)


def test_suspend_pauses_it_there_and_resume_lets_it_go_on(
    tell: Tell, wandb_emulator: WandbEmulator
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.hold()
        fleet.sweep()
        await fleet.begun(2)
        fleet.suspend("lr", wanted=True)
        await fleet.phase("Suspended", "lr")
        await fleet.at({"state": "PAUSED"})
        fleet.let_go()
        fleet.suspend("lr", wanted=False)
        await fleet.phase("Succeeded", "lr")
        truth = {params: codes for params, _, codes in handed(wandb_emulator)}
        assert truth == {params: codes for params, _, codes in EACH_ONCE}

    tell(tale)


def test_created_alone_it_starts_nothing(tell: Tell, wandb_emulator: WandbEmulator) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.sweep(suspend=True)
        await fleet.phase("Suspended", "lr")
        await fleet.at({"state": "PENDING"})
        assert [it["name"] for it in wandb_emulator.state()["sweeps"]] == [fleet.name_there]
        assert wandb_emulator.agents(fleet.name_there) == []
        fleet.suspend("lr", wanted=False)
        await fleet.phase("Succeeded", "lr")

    tell(tale)


@pytest.mark.parametrize("hears_first", ["we", "its program"])
def test_a_run_that_is_stopped_there_is_over_and_not_run_again(
    tell: Tell, wandb_emulator: WandbEmulator, hears_first: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.hold()
        fleet.sweep(backoffLimitPerIndex=3)
        await fleet.begun(2)
        stopped = fleet.runs("lr")[0]
        if hears_first == "its program":
            wandb_emulator.fault("Heartbeat", status=500)
        wandb_emulator.do("stop_run", run=stopped.wandb)
        if hears_first == "its program":
            fleet.let_go()

        async def over() -> bool:
            return fleet.status("lr").get("stopped") == 1

        await eventually(over, "its trial was over")
        wandb_emulator.do("clear_faults")
        fleet.let_go()
        status = await fleet.phase("Succeeded", "lr")
        assert (status["succeeded"], status["stopped"], status["failed"]) == (3, 1, 0)
        (row,) = [it for it in fleet.runs("lr") if it.wandb == stopped.wandb]
        assert (row.state, row.reason) == ("Stopped", "StoppedByWandb")

    tell(tale)


def test_what_a_real_program_logs_is_at_wandb_and_here(
    tell: Tell, wandb_emulator: WandbEmulator
) -> None:
    async def tale(fleet: Fleet) -> None:
        one = {**GRID, "parameters": {"lr": {"value": 3e-05}}}
        fleet.sweep({**one, "command": [sys.executable, "-c", TRAINS]})
        status = await fleet.phase("Succeeded", "lr")
        (run,) = wandb_emulator.runs(fleet.name_there)
        assert (run["begun"], run["state"], run["config"]["lr"]) == (1, "finished", 3e-05)
        assert [row["loss"] for row in run["history"]] == [0.0, 3e-05]
        assert status["best"]["metric"] == {"name": "loss", "value": 3e-05}

    tell(tale)


@pytest.mark.parametrize(
    ("state", "phase", "reason", "states"),
    [
        ("FINISHED", "Succeeded", "Completed", {"Succeeded": 2}),
        ("CANCELED", "Failed", "CanceledByWandb", {"Stopped": 2}),
    ],
)
def test_a_sweep_that_is_ended_there_is_over(
    tell: Tell,
    wandb_emulator: WandbEmulator,
    state: str,
    phase: str,
    reason: str,
    states: dict[str, int],
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.hold()
        fleet.sweep()
        await fleet.begun(2)
        wandb_emulator.do("move_sweep", sweep=fleet.name_there, state=state)
        await fleet.at({"state": state})
        if state == "FINISHED":
            fleet.let_go()
        status = await fleet.phase(phase, "lr")
        assert (status["reason"], status["wandb"]["state"]) == (reason, state)
        assert Counter(it.state.value for it in fleet.runs("lr")) == states

    tell(tale)


def test_agents_that_are_sent_away_first_do_not_make_a_cancellation_a_success(
    tell: Tell, wandb_emulator: WandbEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        wandb_agent, "READS_EACH", 1_000
    )  # agents hear of it before the sweep is read

    async def tale(fleet: Fleet) -> None:
        fleet.hold()
        fleet.sweep()
        await fleet.begun(2)
        wandb_emulator.do("move_sweep", sweep=fleet.name_there, state="CANCELED")
        status = await fleet.phase("Failed", "lr")
        assert (status["reason"], status["wandb"]["state"]) == ("CanceledByWandb", "CANCELED")

    tell(tale)


def test_one_that_is_deleted_there_lets_its_trials_end(
    tell: Tell, wandb_emulator: WandbEmulator
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.sweep({**GRID, "command": ["sh", "-c", "sleep 0.5", "${args}"]})
        await fleet.begun(2)
        wandb_emulator.do("delete_sweep", sweep=fleet.name_there)
        status = await fleet.phase("Failed", "lr")
        assert (status["reason"], status["succeeded"]) == ("WandbSweepGone", 2)
        assert status["wandb"]["state"] == "GONE" and "make a new one" in status["hint"]

    tell(tale)


def test_an_agent_that_is_sent_away_with_a_run_lets_it_end(
    tell: Tell, wandb_emulator: WandbEmulator
) -> None:
    async def tale(fleet: Fleet) -> None:
        wandb_emulator.do("settings", exits_the_busy=True)
        fleet.hold()
        fleet.sweep()
        await fleet.begun(2)

        async def sent_away() -> bool:
            agents = wandb_emulator.agents(fleet.name_there)
            return sum(it["dismissed"] and it["heartbeats"] > 3 for it in agents) == 2

        await eventually(sent_away, "both agents with a run were sent away")
        assert Counter(it.state.value for it in fleet.runs("lr")) == {"Running": 2}
        fleet.let_go()
        await fleet.phase("Succeeded", "lr")
        assert sorted(handed(wandb_emulator)) == EACH_ONCE

    tell(tale)


@pytest.mark.parametrize("when", ["it is made", "it is asked for work"])
def test_what_wandb_does_not_find_waits_with_what_to_look_at(
    tell: Tell, wandb_emulator: WandbEmulator, when: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        operation = {"it is made": "UpsertSweep", "it is asked for work": "CreateAgent"}[when]
        error = {"errors": [{"message": "project not found"}]}
        wandb_emulator.fault(operation, status=404, body=error)
        fleet.sweep()
        status = await fleet.waits("Refused", "lr")
        assert status["message"] == "W&B does not find it: project not found"
        assert "`entity`" in status["hint"]
        wandb_emulator.do("clear_faults")  # one odd answer decided nothing
        await fleet.phase("Succeeded", "lr")
        assert sorted(handed(wandb_emulator)) == EACH_ONCE

    tell(tale)


def test_deletion_ends_a_sweep_of_ours_and_leaves_another(
    tell: Tell, wandb_emulator: WandbEmulator
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.hold()
        for own in (None, wandb_emulator.do("create_sweep", config=json.dumps(dict(GRID)))):
            fleet.sweep(wandb={"sweepId": own} if own else {})
            await fleet.begun(2)
            there = fleet.name_there
            fleet.delete_kind("Sweep", "lr")
            await fleet.gone("lr")
            assert wandb_emulator.sweep(there)["state"] == ("RUNNING" if own else "FINISHED")

    tell(tale)


def test_it_attaches_to_a_sweep_and_reads_its_search_there(
    tell: Tell, wandb_emulator: WandbEmulator
) -> None:
    async def tale(fleet: Fleet) -> None:
        search = {"command": fleet.command(), **GRID}
        there = wandb_emulator.do("create_sweep", config=json.dumps(search))
        fleet.sweep(None, wandb={"sweepId": there}, trials=3)
        status = await fleet.phase("Succeeded", "lr")
        assert (status["total"], status["metric"]["name"]) == (3, "loss")
        assert status["wandb"]["state"] == "RUNNING"  # not as it was before the first run
        assert sorted(handed(wandb_emulator)) == EACH_ONCE[:3]

    tell(tale)


def test_while_wandb_is_away_what_runs_goes_on_and_nothing_is_lost(
    tell: Tell, wandb_emulator: WandbEmulator
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.sweep({**GRID, "command": ["sh", "-c", "sleep 0.3", "${args}"]})
        await fleet.begun(2)
        wandb_emulator.do("go_away")
        status = await fleet.waits("Unreachable", "lr")
        assert (status["succeeded"], status["active"]) == (2, 0)
        wandb_emulator.do("come_back")
        assert (await fleet.phase("Succeeded", "lr"))["succeeded"] == 4
        assert {len(it["handed_to"]) for it in wandb_emulator.runs(fleet.name_there)} == {1}

    tell(tale)


def test_a_wrong_key_waits_with_what_would_help(tell: Tell, wandb_emulator: WandbEmulator) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.sweep()
        status = await fleet.waits("KeyRefused", "lr")
        assert "WANDB_API_KEY" in status["hint"]
        fleet.environment["WANDB_API_KEY"] = wandb_emulator.api_key
        await fleet.phase("Succeeded", "lr")
        assert sorted(handed(wandb_emulator)) == EACH_ONCE

    tell(tale, key="local-unknown" + "0" * 32)


def test_a_search_that_wandb_refuses_waits_with_its_words(
    tell: Tell, wandb_emulator: WandbEmulator
) -> None:
    async def tale(fleet: Fleet) -> None:
        error = {"errors": [{"message": "Invalid sweep config: lr"}]}
        wandb_emulator.fault("UpsertSweep", status=400, body=error)
        fleet.sweep()
        status = await fleet.waits("Refused", "lr")
        assert status["message"] == "W&B refuses it: Invalid sweep config: lr"
        wandb_emulator.do("clear_faults")
        await fleet.phase("Succeeded", "lr")

    tell(tale)


def test_a_sweep_of_others_is_not_there(tell: Tell, wandb_emulator: WandbEmulator) -> None:
    async def tale(fleet: Fleet) -> None:
        there = wandb_emulator.do("create_sweep", config=json.dumps(dict(GRID)))
        fleet.sweep(wandb={"sweepId": there, "entity": "acme"})
        status = await fleet.phase("Failed", "lr")
        assert status["reason"] == "WandbSweepGone" and there in status["message"]
        assert "wandb: {entity, project, sweepId}" in status["hint"]

    tell(tale, key=FOREIGN_KEY)
