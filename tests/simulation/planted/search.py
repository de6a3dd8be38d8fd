"""Plays single seeds with a bug planted, and finds the seed that shows each bug most cheaply:
`python -m tests.simulation.planted.search` writes seen.py.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.simulation.planted import PLANTS, chains, equals, handed, queues, rows, savings
from tests.simulation.planted.seen import SEEN
from tests.simulation.runner import Options, simulate

SEEDS_MAX = 300
HEAD = '''"""A seed that catches each planted bug cheaply, where that is not the first seed.

Only where to begin: a bug that this seed no longer shows is looked for from the first seed on.
`python -m tests.simulation.planted.search` writes this file.
"""

SEEN = {
'''
# A play that catches a bug in this time is cheap enough; else a few seeds more are looked at.
CHEAP_S = 0.2
LOOKED_AT = 10

# Bugs that one scenario shows alone, or far sooner, are looked for there; others would be played in
# vain.
SCENARIO = {
    **dict.fromkeys((plant.__name__.replace("_", "-") for plant in equals.PLANTS), "equal"),
    **dict.fromkeys((plant.__name__.replace("_", "-") for plant in chains.PLANTS), "chain"),
    "results-of-an-older-spec-are-taken": "chain-results",
    **dict.fromkeys((plant.__name__.replace("_", "-") for plant in queues.PLANTS), "queue"),
    "turns-are-not-taken": "queue-fair",
    **dict.fromkeys((plant.__name__.replace("_", "-") for plant in rows.PLANTS), "rows"),
    "key-without-a-volumes-version": "volume-changes",
    "missing-means-gone": "reuse",
    "poison-stops-the-loop": "bulkhead",
    "reuse-without-limit": "reuse",
    **dict.fromkeys((plant.__name__.replace("_", "-") for plant in savings.PLANTS), "checkpoints"),
    "an-end-is-told-before-its-last-checkpoint": "checkpoints",
    "a-worker-is-young-for-ever": "workers",
    "a-worker-is-young-again-after-a-restart": "workers",
    "stop-believed-when-asked": "deadline",
    "stale-write-over-a-deletion": "overtaken",
    "sweep-ends-what-is-unreadable": "damaged",
    "breaker-counted-once-a-turn": "cheapest",
    "creates-forgotten-at-restart": "minutes",
    "creates-not-counted-at-the-rate-limiter": "minutes",
    "limits-forgotten-at-restart": "limits",
    "lowered-limit-ignored-by-starts": "limits",
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
    "suspend-unset-by-an-apply": "suspended-and-applied",
    "sweep-never": "two-objects",
    "unknown-price-is-free": "budget-unpriced",
    "volume-goes-before-its-users": "volumes",
    "wake-time-ignored": "deadline",
    "what-is-due-sleeps-for-ever": "ttl",
}


def catch(name: str, seed: int) -> list[str]:
    """Returns the invariants that the seed breaks with the bug planted; empty if none."""
    with PLANTS[name]():
        return simulate(seed, Options(scenario=SCENARIO.get(name, ""))).broken


def find_cheapest_seed(name: str, hint: int) -> int | None:
    """Returns the seed whose play catches the bug in the least CPU; None if none catches it.

    hint: the seed that did so at the last search, looked at first.
    """
    found: list[tuple[float, int]] = []
    for number, seed in enumerate((hint, *range(SEEDS_MAX))):
        began_s = time.process_time()
        if catch(name, seed):
            found.append((time.process_time() - began_s, seed))
        if found and (number >= LOOKED_AT or min(found)[0] < CHEAP_S):
            break
    return min(found)[1] if found else None


def write_seen(path: Path) -> None:
    seeds = {name: find_cheapest_seed(name, SEEN.get(name, 0)) for name in sorted(PLANTS)}
    rows = "".join(f'    "{name}": {seed},\n' for name, seed in seeds.items() if seed)
    path.write_text(HEAD + rows + "}\n", "utf-8")


if __name__ == "__main__":
    write_seen(Path(__file__).with_name("seen.py"))
