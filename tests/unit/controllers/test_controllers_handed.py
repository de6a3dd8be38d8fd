"""A sweep whose trials W&B hands out: what begins, what stops, and when it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fleetctl.controllers.history.history import History
from fleetctl.controllers.kinds.sweep import SweepController
from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.planning.kind_controller import KeepRunning, StopNow
from fleetctl.controllers.trials.winner import explain_unreachable
from fleetctl.controllers.wandb import SweepLocation, SweepReport
from fleetctl.specs.content import Pins
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.hints import HintedText

HOME = SweepLocation(
    "abc", "key", "acme", "digits", "https://wandb.ai/acme/digits/sweeps/abc", made=True
)
RUNNING = SweepReport(home=HOME, state="RUNNING", sure=True)
SPEC = {
    "backend": "wandb",
    "wandb": {"project": "digits"},
    "search": {
        "method": "grid",
        "metric": {"name": "loss"},
        "parameters": {"lr": {"values": [1, 2, 3]}},
        "program": "train.py",
    },
}


class World:
    """A controller with its history, as the engine keeps them."""

    def __init__(self, **spec: Any) -> None:
        self.sweep = SweepController(SweepSpec.model_validate({**SPEC, **spec}), {})
        assert self.sweep.handed is not None
        self.handed = self.sweep.handed
        self.history = History(self.sweep.limits)

    def hears(self, *runs: str, said: SweepReport = RUNNING) -> World:
        points: Mapping[str, Any] = {run: {"lr": at} for at, run in enumerate(runs)}
        self.handed.hear(replace(said, handed=points))
        return self

    def begins(self) -> Run:
        """The next trial that is to begin does."""
        unit = next(self.sweep.next(self.history))
        name = f"r{unit.index}"
        run = Run(
            name, "u", unit.index, 1, RunState.RUNNING, "local", name, unit.template_hash,
            "{}", unit.params_hash, 1.0, wandb=self.handed.run_ids[unit.index],
        )  # fmt: skip
        self.history.began(run)
        return run

    def ends(self, run: Run, state: RunState = RunState.SUCCEEDED, reason: str = "") -> None:
        self.history.ended(replace(run, state=state, reason=reason, ended_at_s=2.0))


def test_a_run_is_a_trial_under_one_index_also_when_it_is_told_again() -> None:
    world = World().hears("a", "b")
    assert [unit.params for unit in world.sweep.next(world.history)] == [{"lr": 0}, {"lr": 1}]
    run = world.begins()
    world.hears("a", "b", "c")
    assert [unit.index for unit in world.sweep.next(world.history)] == [1, 2]
    again = World()
    again.handed.recall(replace(run, params='{"lr": 0}'))
    again.history.began(run)
    again.hears("a", "b")
    assert [unit.index for unit in again.sweep.next(again.history)] == [1]
    assert again.handed.run_ids == {0: "a", 1: "b"}


def test_no_more_trials_than_asked_for_begin_or_are_asked_for() -> None:
    world = World(trials=2).hears("a")
    assert world.handed.room(world.history, most=5) == 1
    world.begins()
    assert world.sweep.asks(world.history) is not None
    world.hears("a", "b", "c")
    world.begins()
    assert list(world.sweep.next(world.history)) == []
    assert world.sweep.asks(world.history) is None
    assert world.handed.room(world.history, most=5) == 0


@pytest.mark.parametrize(
    ("said", "begin"),
    [
        (RUNNING, 1),
        (replace(RUNNING, state="PENDING"), 1),
        (replace(RUNNING, state="PAUSED"), 0),
        (replace(RUNNING, state="FINISHED"), 1),  # it was handed out before
        (replace(RUNNING, state="CANCELED"), 0),
        (replace(RUNNING, gone=HintedText("it was deleted")), 0),
        (replace(RUNNING, stopped=frozenset({"a"})), 0),
        (replace(RUNNING, trouble=("Unreachable", HintedText("W&B is away"))), 1),
    ],
)
def test_what_w_and_b_says_decides_what_begins(said: SweepReport, begin: int) -> None:
    world = World().hears("a", said=said)
    assert len(list(world.sweep.next(world.history))) == begin


def test_a_run_that_is_stopped_there_ends_for_good() -> None:
    world = World(backoffLimitPerIndex=3).hears("a")
    run = world.begins()
    assert isinstance(world.sweep.keep(world.history, run), KeepRunning)
    world.hears("a", said=replace(RUNNING, stopped=frozenset({"a"})))
    stop = world.sweep.keep(world.history, run)
    assert isinstance(stop, StopNow) and stop.reason == "StoppedByWandb"
    world.ends(run, RunState.STOPPED, stop.reason)
    assert (0 in world.history.pruned, list(world.history.waiting.due(9e9))) == (True, [])
    assert not world.handed.is_open("a", world.history)


def test_it_is_over_when_nothing_more_comes_and_every_trial_has_ended() -> None:
    finished = replace(RUNNING, state="FINISHED")
    world = World().hears("a", "b")
    first, second = world.begins(), world.begins()
    world.hears("a", "b", said=finished)
    world.ends(first)
    assert world.sweep.verdict(world.history) is None
    world.ends(second, RunState.LOST)
    assert world.sweep.verdict(world.history) is None  # it runs again, as the run that it is
    world.ends(world_again(world, second))
    over = world.sweep.verdict(world.history)
    assert over is not None and (over.succeeded, over.message) == (True, "2 of 2 trials succeeded")


def world_again(world: World, run: Run) -> Run:
    again = replace(run, name="again", sandbox="again", attempt=2)
    world.history.began(again)
    return again


@pytest.mark.parametrize(
    "said",
    [
        replace(RUNNING, exits=1),  # one `exit` alone decides nothing
        replace(RUNNING, exits=2, sure=False),  # an answer is open that may hold a run
        replace(RUNNING, state="FINISHED", sure=False),
    ],
)
def test_one_odd_answer_ends_nothing(said: SweepReport) -> None:
    world = World().hears("a")
    world.ends(world.begins())
    assert world.sweep.verdict(world.hears("a", said=said).history) is None


def test_an_agent_that_is_sent_away_asks_again_when_nothing_runs() -> None:
    world = World().hears("a")
    run = world.begins()
    world.hears("a", said=replace(RUNNING, exits=1))
    assert world.sweep.asks(world.history) is None
    world.ends(run)
    assert world.sweep.asks(world.history) is not None
    world.hears("a", said=replace(RUNNING, exits=2))
    assert world.sweep.asks(world.history) is None


@pytest.mark.parametrize(
    ("said", "reason", "waits"),
    [
        (replace(RUNNING, state="CANCELED"), "CanceledByWandb", False),
        (replace(RUNNING, gone=HintedText("it was deleted")), "WandbSweepGone", True),
    ],
)
def test_what_is_cancelled_or_deleted_there_has_failed(
    said: SweepReport, reason: str, waits: bool
) -> None:
    world = World().hears("a")
    world.begins()
    over = world.hears("a", said=said).sweep.verdict(world.history)
    assert over is not None
    assert (over.succeeded, over.reason, over.waits_for_live) == (False, reason, waits)


def test_why_nothing_begins_is_said() -> None:
    for said, reason in (
        (SweepReport(), "AwaitsWandb"),
        (replace(RUNNING, trouble=("KeyRefused", HintedText("no"))), "KeyRefused"),
        (replace(RUNNING, state="PAUSED"), "PausedByWandb"),
    ):
        lacking = explain_unreachable(World().hears(said=said).handed)
        assert lacking is not None and (lacking.reason, lacking.for_good) == (reason, False)
    assert explain_unreachable(World().hears().handed) is None


def test_its_programs_are_told_whose_run_they_are() -> None:
    template = {"env": {"WANDB_BASE_URL": "https://w.example"}, "secrets": ["wandb"]}
    world = World(template=template).hears("a")
    trial = world.sweep.wandb("lr", 0)
    assert trial is not None
    order = trial.order()
    assert {name: order[name] for name in ("SWEEP_ID", "PROJECT", "ENTITY", "RUN_ID")} == {
        "SWEEP_ID": "abc",
        "PROJECT": "digits",
        "ENTITY": "acme",
        "RUN_ID": "a",
    }
    assert order["BASE_URL"] == "https://w.example"
    assert world.sweep.template(0).command == (
        "/usr/bin/env", "python", "train.py", "--lr=0",
    )  # fmt: skip


def test_an_attached_one_has_the_command_and_the_metric_that_it_has_there() -> None:
    config = '{"command": ["run", "${args}"], "metric": {"name": "acc", "goal": "maximize"}}'
    own = {"backend": "wandb", "wandb": {"sweepId": "abc", "project": "digits"}}
    made = SweepSpec.model_validate(own)
    sweep = SweepController(made, {}, Pins(wandb=config))
    assert sweep.handed is not None
    sweep.handed.hear(replace(RUNNING, handed={"a": {"lr": 0.5}}))
    assert sweep.template(0).command == ("run", "--lr=0.5")
    assert (sweep.metric, sweep.total) == ("acc", None)
