"""The test of the tests: every planted bug must be caught within a few hundred seeds."""

from __future__ import annotations

import pytest

from tests.simulation.planted import PLANTS
from tests.simulation.runner import simulate

SEEDS_MAX = 300


def test_there_are_at_least_25_planted_bugs() -> None:
    assert len(PLANTS) >= 25


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str) -> None:
    with PLANTS[name]():
        caught = next(filter(None, (simulate(seed).broken for seed in range(SEEDS_MAX))), None)
    assert caught, f"{name} lives through {SEEDS_MAX} seeds: {PLANTS[name].__doc__}"
    # A plant that no longer fits the code it patches raises, and would be caught for that alone.
    assert "<locals>" not in caught[0], caught[0]
