"""What a bayes search tells its model of each trial: the value that it counts for."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.controllers.history.history import History
from fleetctl.controllers.kinds.sweep import SweepController
from fleetctl.controllers.model import Metric
from tests.unit.controllers.play import Play


def values(goal: str = "minimize", **metric: Any) -> list[float | None]:
    """Of five trials that reported 3, 1, 2 each plus ten times their index: the first has a result
    of 0.5 beside, the second succeeded, the third failed, the fourth runs, the fifth runs and has
    reported nothing.
    """
    search = {
        "method": "bayes",
        "metric": {"name": "loss", "goal": goal, **metric},
        "parameters": {name: {"min": 0.0, "max": 1.0} for name in "abcd"},
    }
    play = Play({"template": {"python": "pass"}, "search": search, "trials": 5}, "Sweep")
    assert isinstance(play.controller, SweepController)
    play.history = History(play.controller.limits, play.controller.curves())
    while len(play.active) < 5 and play.turn().actions:
        pass  # four start, as many as there is room for
    sign = -1.0 if goal == "maximize" else 1.0
    assert play.history.curves is not None
    for index in range(4):
        parts = [sign * (10 * index + it) for it in (3.0, 1.0, 2.0)]
        reports = [Metric(seq, seq, "loss", value, 0.0) for seq, value in enumerate(parts)]
        play.history.curves.take(index, play.live(index).name, reports)
    play.succeed(0, result=f'{{"loss": {sign * 0.5}}}')
    play.succeed(1)
    play.fail(2)
    while len(play.active) < 2 and play.turn().actions:
        pass
    suggested = play.controller._suggested
    assert suggested is not None
    return [trial.value for trial in suggested._list_trials(play.history)]


@pytest.mark.parametrize(
    ("metric", "failed", "running"),
    [
        ({}, 11.0, None),
        ({"impute": "worst"}, 11.0, None),
        ({"impute": "latest"}, 22.0, None),
        ({"impute": "best"}, 21.0, None),
        ({"impute_while_running": "latest"}, 11.0, 32.0),
        ({"impute_while_running": "best"}, 11.0, 31.0),
        ({"impute_while_running": "worst"}, 11.0, 33.0),
        ({"impute_while_running": "false"}, 11.0, None),
        ({"impute_while_running": False}, 11.0, None),
    ],
    ids=str,
)
@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_a_trial_counts_for_its_best_and_others_as_impute_says(
    goal: str, metric: dict[str, Any], failed: float, running: float | None
) -> None:
    assert values(goal, **metric) == [0.5, 11.0, failed, running, None]
