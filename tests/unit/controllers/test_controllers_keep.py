"""A kind that ends a run early, and for good: what ends by its own reason does not start again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleetctl.controllers.history.history import History
from fleetctl.controllers.kinds.batchjob import BatchJobController
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Run
from fleetctl.controllers.planning.kind_controller import KeepRunning, ObjectVerdict, StopNow
from fleetctl.controllers.reuse.impact import estimate_impact
from fleetctl.controllers.schedule.starts import AdoptionRefused, match_adoption
from tests.unit.controllers.play import Play, job

PRUNED = "Pruned"


class Pruning(BatchJobController):
    """Ends the second task when the first has succeeded."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.limits = replace(self.limits, final=frozenset({PRUNED}))

    def keep(self, history: History, run: Run) -> KeepRunning | StopNow:
        if run.index == 1 and 0 in history.succeeded:
            return StopNow(PRUNED)
        return super().keep(history, run)

    def verdict(self, history: History) -> ObjectVerdict | None:
        over = len(history.succeeded) + len(history.pruned) == self.total
        return ObjectVerdict(True, "Completed", "") if over else None


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    monkeypatch.setitem(CONTROLLERS, "BatchJob", Pruning)
    found = Play(job(completions=3, parallelism=2))
    found.turn()
    found.confirm_starts()
    found.succeed(0)
    found.settle()
    return found


@pytest.mark.parametrize("restarts", [False, True])
def test_a_run_that_its_kind_ended_is_final(play: Play, restarts: bool) -> None:
    if restarts:
        play.restart()
    play.settle()
    assert play.active == [2]
    assert list(play.history.pruned) == [1]
    assert [name for name in play.rows if name.startswith("run-1-")] == ["run-1-1"]
    play.confirm_starts()
    play.succeed(2)
    play.settle()
    assert (play.status["phase"], play.status["stopped"]) == ("Succeeded", 1)


def test_what_its_kind_ended_is_kept_and_not_to_run(play: Play) -> None:
    play.settle()
    play.change(completions=5)
    told = estimate_impact(play.controller, play.history)
    assert (told.kept, told.to_run) == (2, 2)  # beside the one that runs
    found = match_adoption(play.controller, play.history, 1, what="task")
    assert isinstance(found, AdoptionRefused) and "was stopped early" in found.why


def test_another_program_starts_it_again(play: Play) -> None:
    play.change(template={"python": "SUBMIT(ok=2)"})
    play.settle()
    assert 1 not in play.history.pruned
    assert play.active == [0, 1]


def test_a_run_that_was_stopped_for_another_reason_starts_again(play: Play) -> None:
    play.change(suspend=True)
    play.settle()
    play.change(suspend=None)
    play.settle()
    assert play.active == [2]
