"""`python -m tests.simulation SEEDS [--first N] [--scenario NAME] [--planted NAME]`: play seeds and
say what broke.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict

from tests.simulation.runner import Options, simulate
from tests.simulation.scenarios import SCENARIOS

FAILURES_MAX = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", type=int, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=0, help="the first seed; default 0")
    parser.add_argument("--scenario", default="", choices=("", *SCENARIOS), help="only this one")
    arguments = parser.parse_args()
    options = Options(scenario=arguments.scenario)
    began_s = time.perf_counter()
    failed = 0
    totals: defaultdict[str, float] = defaultdict(float)
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        outcome = simulate(seed, options)
        for sort, passed in outcome.points.items():
            totals[sort] += passed
        totals["crashes"] += outcome.crashes
        totals["virtual hours"] += outcome.virtual_s / 3600
        if outcome.broken:
            failed += 1
            print(f"seed {seed} ({outcome.scenario}, {outcome.provider}):")
            for text in outcome.broken:
                print(f"  {text}")
            if failed == FAILURES_MAX:
                break
    took_s = time.perf_counter() - began_s
    print(
        f"{arguments.seeds} seeds in {took_s:.1f} s, {failed} failed; "
        + ", ".join(f"{n:,.0f} {what}" for what, n in totals.items())
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
