"""Plays seeds of the simulation; a failure prints the seed, the invariant and how to replay it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.selection import ALL
from tests.simulation import chains, givers, queues, races, rows, searches
from tests.simulation.runner import Options, Outcome, simulate
from tests.simulation.scenarios import draw

# `make simulate SEEDS=n` plays any number of seeds; `make test-all` plays as many fresh ones as
# nobody has played before. These are for every run of the tests, and the same in each.
SEEDS = 200
SEEDS_PER_TEST = 50
# In `make test` a scenario is played with every so many-th of its seeds: the planted bugs show that
# these few see what the scenario is there for.
SHARE = 8

Seeds = Callable[[int], range]


def told(outcome: Outcome) -> str:
    lines = [
        f"seed {outcome.seed} ({outcome.scenario} on {outcome.provider}) breaks:",
        *outcome.broken,
        f"replay: python -m tests.simulation 1 --first {outcome.seed}",
    ]
    return "\n".join(lines)


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> Seeds:
    """Returns the seeds below a number: every eighth in `make test`, each with --all."""
    step = 1 if request.config.getoption(ALL) else SHARE
    return lambda count: range(0, count, step)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_all_invariants_hold_under_faults_and_crashes(first: int, seeds: Seeds) -> None:
    for seed in seeds(SEEDS_PER_TEST):
        outcome = simulate(first + seed)
        assert not outcome.broken, told(outcome)


# Found among the campaign's 100,000 fresh lives.
@pytest.mark.parametrize("seed", [99_715, 129_585])
def test_a_life_that_broke_an_invariant_once_holds_all_of_them(seed: int) -> None:
    outcome = simulate(seed)
    assert not outcome.broken, told(outcome)


def test_the_end_is_the_same_with_and_without_faults(seeds: Seeds) -> None:
    compared = 0
    for seed in seeds(60):
        # Where a spec comes in the middle of the work, its moment may decide; those say no units.
        if any(end.succeeded is None for end in draw(seed).expect.values()):
            continue
        calm, stormy = simulate(seed, Options(faults=False)), simulate(seed)
        assert not calm.broken, told(calm)
        assert stormy.ends == calm.ends, told(stormy)
        compared += 1
    assert compared > 3


def test_a_seed_replays_identically_in_another_process() -> None:
    count = 4
    text = f"""
from tests.simulation.runner import simulate
print([(it.digest, it.points) for it in map(simulate, range({count}))])
"""
    replays = {
        subprocess.run(
            [sys.executable, "-c", text],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in (1, 2)
    }
    assert replays == {f"{[(it.digest, it.points) for it in map(simulate, range(count))]}\n"}


def test_what_is_asked_for_again_is_done_again_and_counted_once(seeds: Seeds) -> None:
    for seed in seeds(30):
        outcome = simulate(seed, Options(scenario="retry"))
        assert not outcome.broken, told(outcome)


def test_what_had_succeeded_before_a_deletion_is_taken_over_and_nothing_else(seeds: Seeds) -> None:
    for seed in seeds(15):
        outcome = simulate(seed, Options(scenario="again"))
        assert not outcome.broken, told(outcome)


def test_what_happens_in_one_namespace_touches_nothing_of_another(seeds: Seeds) -> None:
    for seed in seeds(30):
        outcome = simulate(seed, Options(scenario="namespaces"))
        assert not outcome.broken, told(outcome)


def test_a_point_that_was_suggested_is_one_trial_and_stays_it(seeds: Seeds) -> None:
    for seed in seeds(25):
        outcome = simulate(seed, Options(scenario="bayes"))
        assert not outcome.broken, told(outcome)


def test_a_run_that_wandb_hands_out_is_one_trial(seeds: Seeds) -> None:
    for seed in seeds(25):
        outcome = simulate(seed, Options(scenario="wandb"))
        assert not outcome.broken, told(outcome)


def test_a_worker_gets_no_further_task_when_its_life_is_over(seeds: Seeds) -> None:
    for seed in seeds(12):
        outcome = simulate(seed, Options(scenario="workers"))
        assert not outcome.broken, told(outcome)


def test_a_trial_that_is_ended_early_is_judged_by_all_and_stays_ended(seeds: Seeds) -> None:
    for seed in seeds(30):
        outcome = simulate(seed, Options(scenario="early-ends"))
        assert not outcome.broken, told(outcome)


@pytest.mark.parametrize("scenario", givers.NAMED)
def test_what_is_taken_of_a_search_is_what_it_came_to(scenario: str, seeds: Seeds) -> None:
    for seed in seeds(20):
        outcome = simulate(seed, Options(scenario=scenario))
        assert not outcome.broken, told(outcome)


@pytest.mark.parametrize("scenario", chains.NAMED)
def test_what_depends_on_others_begins_when_they_have_come_out_as_they_must(
    scenario: str, seeds: Seeds
) -> None:
    for seed in seeds(10):
        outcome = simulate(seed, Options(scenario=scenario))
        assert not outcome.broken, told(outcome)


@pytest.mark.parametrize("scenario", rows.NAMED)
def test_a_row_that_stays_in_the_file_keeps_its_work(scenario: str, seeds: Seeds) -> None:
    for seed in seeds(40):
        outcome = simulate(seed, Options(scenario=scenario))
        assert not outcome.broken, told(outcome)


@pytest.mark.parametrize("scenario", queues.NAMED)
def test_work_in_queues_stays_within_its_quota_and_goes_in_its_order(
    scenario: str, seeds: Seeds
) -> None:
    for seed in seeds(3):
        outcome = simulate(seed, Options(scenario=scenario))
        assert not outcome.broken, told(outcome)


@pytest.mark.parametrize("scenario", searches.NAMED)
def test_a_search_counts_what_its_own_program_told(scenario: str, seeds: Seeds) -> None:
    for seed in seeds(15):
        outcome = simulate(seed, Options(scenario=scenario))
        assert not outcome.broken, told(outcome)


@pytest.mark.parametrize("scenario", races.NAMED)
def test_all_invariants_hold_while_the_store_changes_under_somebodys_hands(
    scenario: str, seeds: Seeds
) -> None:
    for seed in seeds(20):
        outcome = simulate(seed, Options(scenario=scenario))
        assert not outcome.broken, told(outcome)
