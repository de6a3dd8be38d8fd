"""Every point of a small play is a place to die: each commit and effect, and every await. An
eightieth of them in `make test`, and all with --all.
"""

from __future__ import annotations

import pytest

from tests.selection import ALL
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
    "wandb": 1,
}

# Awaits are many; every n-th of them is enough.
STRIDES = {"commit": 80, "effect": 80, "step": 800}
STRIDES_OF_ALL = {"commit": 1, "effect": 1, "step": 11}
POINTS_MAX = {"commit": 150, "effect": 150, "step": 1500}


@pytest.mark.parametrize("scenario", ["bayes", "prior"])
def test_the_controller_may_die_between_a_suggestion_and_its_trial(scenario: str) -> None:
    """Each suggestion of four plays is lost once; I28 holds that no point is a second trial."""
    lost = 0
    for seed in range(4):
        whole = simulate(seed, Options(scenario=scenario, crashes=()))
        for number in range(1, whole.points.get("suggestion", 0) + 1):
            crashes = (CrashAt(sort="suggestion", number=number),)
            outcome = simulate(seed, Options(scenario=scenario, crashes=crashes))
            assert not outcome.broken, f"dying after suggestion {number}: {told(outcome)}"
            assert outcome.crashes == 1
            lost += 1
    assert lost >= 4


@pytest.mark.parametrize("scenario", PLAYS)
def test_the_controller_may_die_at_any_point_of_a_play(
    scenario: str, request: pytest.FixtureRequest
) -> None:
    strides = STRIDES_OF_ALL if request.config.getoption(ALL) else STRIDES
    seed = PLAYS[scenario]
    whole = simulate(seed, Options(scenario=scenario, crashes=()))
    assert not whole.broken, told(whole)
    for sort, stride in strides.items():
        for number in range(1, min(whole.points[sort], POINTS_MAX[sort]) + 1, stride):
            crashes = (CrashAt(sort=sort, number=number),)
            outcome = simulate(seed, Options(scenario=scenario, crashes=crashes))
            assert not outcome.broken, f"dying at {sort} {number}: {told(outcome)}"
