"""Every point of a small play is a place to die: each commit and effect, and every await."""

from __future__ import annotations

import pytest

from tests.simulation.faults import CrashAt
from tests.simulation.runner import Options, simulate
from tests.simulation.test_simulation import told

# One seed a scenario; these scenarios have the most states.
PLAYS = {
    "single": 3,
    "delete": 5,
    "equal": 9,
    "reapply": 2,
    "reuse": 2,
    "template": 2,
    "volumes": 1,
}

# Awaits are many; every n-th of them is enough in one run, and another n-th in the next play.
STEP_STRIDE = 11
POINTS_MAX = 150


@pytest.mark.parametrize("scenario", PLAYS)
def test_the_controller_may_die_at_any_point_of_a_play(scenario: str) -> None:
    seed = PLAYS[scenario]
    whole = simulate(seed, Options(scenario=scenario, crashes=()))
    assert not whole.broken, told(whole)
    for sort, stride in (("commit", 1), ("effect", 1), ("step", STEP_STRIDE)):
        for number in range(1, min(whole.points[sort], POINTS_MAX) + 1, stride):
            crashes = (CrashAt(sort=sort, number=number),)
            outcome = simulate(seed, Options(scenario=scenario, crashes=crashes))
            assert not outcome.broken, f"dying at {sort} {number}: {told(outcome)}"
