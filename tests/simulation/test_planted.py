"""The test of the tests: every planted bug must be caught within a few hundred seeds."""

from __future__ import annotations

import pytest

from tests.simulation.planted import PLANTS
from tests.simulation.planted.search import SCENARIO, SEEDS_MAX, catch
from tests.simulation.planted.seen import SEEN


def test_there_are_at_least_25_planted_bugs() -> None:
    assert len(PLANTS) >= 25


def test_the_tables_name_planted_bugs_alone() -> None:
    assert SCENARIO.keys() <= PLANTS.keys()
    assert SEEN.keys() <= PLANTS.keys()


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str) -> None:
    seeds = (SEEN.get(name, 0), *range(SEEDS_MAX))
    caught = next((broken for seed in seeds if (broken := catch(name, seed))), None)
    assert caught, f"{name} lives through {SEEDS_MAX} seeds: {PLANTS[name].__doc__}"
    # A plant that no longer fits the code it patches raises, and would be caught for that alone.
    assert "<locals>" not in caught[0], caught[0]
