"""Play seeds and say what broke: `python -m tests.simulation SEEDS [--first N] [--scenario NAME]`.

`--planted NAME` plays them with one of the planted bugs.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from contextlib import nullcontext

from tests.simulation.planted import PLANTS
from tests.simulation.runner import Options, simulate
from tests.simulation.scenarios import NAMED, SCENARIOS

FAILURES_MAX = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", type=int, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=0, help="the first seed; default 0")
    parser.add_argument(
        "--scenario", default="", choices=("", *SCENARIOS, *NAMED), help="only this one"
    )
    parser.add_argument("--planted", choices=PLANTS, help="with this bug planted")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    plant = PLANTS[arguments.planted] if arguments.planted else nullcontext
    with plant():
        return 1 if play(seeds, arguments.scenario) else 0


def play(seeds: range, scenario: str) -> int:
    """How many seeds broke something; stops at FAILURES_MAX."""
    began_s = time.perf_counter()
    totals: defaultdict[str, float] = defaultdict(float)
    failed = 0
    for seed in seeds:
        outcome = simulate(seed, Options(scenario=scenario))
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


if __name__ == "__main__":
    raise SystemExit(main())
