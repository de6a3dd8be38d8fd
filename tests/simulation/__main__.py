"""Play seeds and say what broke: `python -m tests.simulation SEEDS [--first N] [--scenario NAME]`.

`--planted NAME` plays them with one of the planted bugs, `--jobs N` in N processes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

from tests.simulation.planted import PLANTS
from tests.simulation.runner import Options, Outcome, simulate
from tests.simulation.scenarios import NAMED, SCENARIOS

FAILURES_MAX = 5
SEEDS_AT_ONCE = 20  # of one process, so that handing them out costs nothing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", type=int, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=0, help="the first seed; default 0")
    parser.add_argument(
        "--scenario", default="", choices=("", *SCENARIOS, *NAMED), help="only this one"
    )
    parser.add_argument("--planted", choices=PLANTS, help="with this bug planted")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes; default 1")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    plant = PLANTS[arguments.planted] if arguments.planted else nullcontext
    with plant():
        return 1 if play(seeds, arguments.scenario, jobs=arguments.jobs) else 0


def play(seeds: range, scenario: str, *, jobs: int = 1) -> int:
    """How many seeds broke something; stops at FAILURES_MAX."""
    began_s = time.perf_counter()
    totals: defaultdict[str, float] = defaultdict(float)
    failed = 0
    for seed, outcome in zip(seeds, outcomes(seeds, scenario, jobs=jobs), strict=False):
        totals["seeds"] += 1
        totals["crashes"] += outcome.crashes
        totals["virtual hours"] += outcome.virtual_s / 3600
        for sort, passed in outcome.points.items():
            totals[f"{sort}s"] += passed
        if outcome.broken:
            failed += 1
            print(f"seed {seed} ({outcome.scenario}, {outcome.provider}):", *outcome.broken)
        if failed == FAILURES_MAX:
            break
    shown = ", ".join(f"{number:,.0f} {what}" for what, number in totals.items())
    print(f"{failed} failed; {shown}; {time.perf_counter() - began_s:.1f} s")
    return failed


def outcomes(seeds: range, scenario: str, *, jobs: int) -> Iterator[Outcome]:
    """In the order of the seeds. Processes are forks of this one, with the bug that is planted."""
    simulated = partial(simulate, options=Options(scenario=scenario))
    if jobs == 1:
        yield from map(simulated, seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(simulated, seeds, chunksize=SEEDS_AT_ONCE)


if __name__ == "__main__":
    raise SystemExit(main())
