"""The test of the tests: every planted bug must be caught within a few hundred seeds."""

from __future__ import annotations

import pytest

from tests.simulation.planted import PLANTS, chains, equals, handed, queues, savings
from tests.simulation.planted.seen import SEEN
from tests.simulation.runner import Options, simulate

SEEDS_MAX = 300

# Bugs that one scenario shows alone, or far sooner, are looked for there; others would be played in
# vain.
SCENARIO = {
    **dict.fromkeys((plant.__name__.replace("_", "-") for plant in equals.PLANTS), "equal"),
    **dict.fromkeys((plant.__name__.replace("_", "-") for plant in chains.PLANTS), "chain"),
    "results-of-an-older-spec-are-taken": "chain-results",
    **dict.fromkeys((plant.__name__.replace("_", "-") for plant in queues.PLANTS), "queue"),
    "turns-are-not-taken": "queue-fair",
    "key-without-a-volumes-version": "volume-changes",
    "missing-means-gone": "reuse",
    "poison-stops-the-loop": "bulkhead",
    "reuse-without-limit": "reuse",
    **dict.fromkeys((plant.__name__.replace("_", "-") for plant in savings.PLANTS), "checkpoints"),
    "a-worker-is-young-for-ever": "workers",
    "a-worker-is-young-again-after-a-restart": "workers",
    "stop-believed-when-asked": "deadline",
    "stale-write-over-a-deletion": "overtaken",
    "sweep-ends-what-is-unreadable": "damaged",
    "breaker-counted-once-a-turn": "cheapest",
    "creates-forgotten-at-restart": "minutes",
    "creates-not-counted-at-the-gate": "minutes",
    "limits-forgotten-at-restart": "limits",
    "lowered-limit-ignored-by-wished-starts": "limits",
    "points-are-suggested-anew-after-a-restart": "bayes",
    "the-next-point-is-asked-for-again-before-it-is-taken": "bayes",
    "a-winner-is-taken-before-its-sweep-is-over": "winner",
    "a-winner-has-the-parameters-of-another-trial": "winner",
    "trials-are-taken-before-their-sweep-is-over": "prior",
    "trials-are-taken-with-the-values-of-others": "prior",
    "the-best-of-an-older-program-stays-the-best": "search-changes",
    "what-an-older-program-reports-counts": "target",
    "a-target-is-looked-at-when-trials-are-over": "target",
    "half-a-history-after-a-restart": "early-ends",
    "an-early-end-is-no-end": "early-ends",
    **dict.fromkeys((plant.__name__.replace("_", "-") for plant in handed.PLANTS), "wandb"),
    "deadline-ignored": "deadline",
    "end-forgotten-after-restart": "ttl",
    "moved-before-it-is-confirmed-gone": "cheapest",
    "fence-open": "template",
    "infra-retries-never-spent": "gives-up",
    "older-failures-count": "template",
    "outdated-counts-after-a-restart": "template",
    "program-is-no-content": "template",
    "provider-limit-counts-running-alone": "limits",
    "replay-cuts-at-the-first": "template",
    "retain-ignored": "volumes",
    "spill-costs-an-attempt": "spill",
    "a-cheaper-place-is-not-paid-for": "budget-places",
    "a-list-is-priced-at-its-first": "budget-either",
    "what-is-not-told-is-the-cheapest": "budget-either",
    "a-period-counts-the-one-before-again": "budget-turn-of-day",
    "charges-are-kept-in-memory-alone": "budget-shared",
    "only-the-first-start-of-a-pass-is-paid": "budget-own",
    "passes-of-a-turn-do-not-see-each-other": "budget-shared",
    "released-when-stopped-and-not-when-gone": "budget-own",
    "reservations-forgotten-in-a-crash": "budget-own",
    "spent-goes-with-its-object": "budget-shared",
    "stale-sandbox-end-believed": "reuse",
    "stop-asked-once": "deadline",
    "sweep-never": "two-objects",
    "unknown-price-is-free": "budget-unpriced",
    "volume-goes-before-its-users": "volumes",
    "wake-time-ignored": "deadline",
    "what-is-due-sleeps-for-ever": "ttl",
}


def test_there_are_at_least_25_planted_bugs() -> None:
    assert len(PLANTS) >= 25


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str) -> None:
    with PLANTS[name]():
        options = Options(scenario=SCENARIO.get(name, ""))
        seeds = (SEEN.get(name, 0), *range(SEEDS_MAX))
        plays = (simulate(seed, options).broken for seed in seeds)
        caught = next(filter(None, plays), None)
    assert caught, f"{name} lives through {SEEDS_MAX} seeds: {PLANTS[name].__doc__}"
    # A plant that no longer fits the code it patches raises, and would be caught for that alone.
    assert "<locals>" not in caught[0], caught[0]
