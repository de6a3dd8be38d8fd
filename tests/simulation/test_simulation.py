"""Plays seeds of the simulation; a failure prints the seed, the invariant and how to replay it."""

from __future__ import annotations

import pytest

from tests.simulation.runner import Options, Outcome, simulate

# `make simulate SEEDS=n` plays any number; these are for every run of the tests.
SEEDS = 2_000
SEEDS_PER_TEST = 100


def told(outcome: Outcome) -> str:
    lines = [
        f"seed {outcome.seed} ({outcome.scenario} on {outcome.provider}) breaks:",
        *outcome.broken,
        f"replay: python -m tests.simulation 1 --first {outcome.seed}",
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_all_invariants_hold_under_faults_and_crashes(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        outcome = simulate(seed)
        assert not outcome.broken, told(outcome)


def test_a_seed_replays_identically() -> None:
    for seed in range(40):
        assert simulate(seed) == simulate(seed)


def test_the_end_is_the_same_with_and_without_faults() -> None:
    for seed in range(40):
        calm = simulate(seed, Options(faults=False))
        stormy = simulate(seed)
        assert not calm.broken, told(calm)
        assert stormy.ends == calm.ends, told(stormy)
