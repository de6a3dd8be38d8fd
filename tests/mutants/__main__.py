"""Play mutants of the product, each against the test that must fail: `python -m tests.mutants`.

Exits with code 1 if one is not caught. `--jobs N` plays N at a time; `--list` only lists them.
"""

from __future__ import annotations

import argparse
import queue
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.mutant import Mutant, load_mutants
from tests.mutants.play import (
    BASELINE_SECONDS_MAX,
    TEST_SECONDS_MAX,
    Verdict,
    copied_tree,
    linked_tree,
    play_mutant,
    run_tests,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these; default all")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time; default 2")
    parser.add_argument("--list", action="store_true", help="list them and play none")
    arguments = parser.parse_args()
    mutants = load_mutants()
    if unknown := set(arguments.names) - {mutant.name for mutant in mutants}:
        parser.error(f"no mutant is called {', '.join(sorted(unknown))}")
    if arguments.names:
        mutants = [mutant for mutant in mutants if mutant.name in arguments.names]
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant.name} ({mutant.promise}): {mutant.breaks}")
        return 0
    return play(mutants, jobs=arguments.jobs)


def play(mutants: Sequence[Mutant], *, jobs: int) -> int:
    """The exit code: 0 when each is caught."""
    began_s = time.monotonic()
    with copied_tree() as tree:
        failing = find_failing(list(dict.fromkeys(mutant.test for mutant in mutants)), tree)
        trees = [linked_tree(tree, f"job-{job}") for job in range(jobs)]
        played = [mutant for mutant in mutants if mutant.test not in failing]
        verdicts = play_in_trees(played, original=tree, trees=trees)
    for mutant in mutants:
        if mutant.test in failing:
            why = f"the test does not pass without the patch: {failing[mutant.test]}"
            verdicts.append(Verdict(mutant, why, 0.0))
    print_table(verdicts)
    caught = sum(verdict.caught for verdict in verdicts)
    print(f"mutants caught: {caught} of {len(verdicts)}; {time.monotonic() - began_s:.0f} s")
    return 0 if caught == len(verdicts) else 1


def find_failing(tests: Sequence[str], tree: Path) -> dict[str, str]:
    """Why, by node id, of those that do not pass without a patch. All run in one session; only
    where that fails each runs alone.
    """
    if run_tests(tree, tests, seconds_max=BASELINE_SECONDS_MAX).clean:
        print(f"{len(tests)} tests pass without a patch", file=sys.stderr)
        return {}
    failing: dict[str, str] = {}
    for test in tests:
        outcome = run_tests(tree, [test], seconds_max=TEST_SECONDS_MAX)
        if not outcome.clean:
            failing[test] = outcome.broken or outcome.failures[0]
            print(f"{test} does not pass without a patch", file=sys.stderr)
    return failing


def play_in_trees(
    mutants: Sequence[Mutant], *, original: Path, trees: Sequence[Path]
) -> list[Verdict]:
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def play_one(mutant: Mutant) -> Verdict:
        tree = free.get()
        try:
            verdict = play_mutant(mutant, tree=tree, original=original)
        finally:
            free.put(tree)
        word = "caught" if verdict.caught else f"NOT caught: {verdict.why}"
        print(f"{mutant.name}: {word}", file=sys.stderr)
        return verdict

    with ThreadPoolExecutor(len(trees)) as pool:
        return list(pool.map(play_one, mutants))


def print_table(verdicts: Sequence[Verdict]) -> None:
    rows = [
        (
            verdict.mutant.name,
            verdict.mutant.promise,
            verdict.mutant.files[0],
            verdict.mutant.test,
            "yes" if verdict.caught else "NO",
            f"{verdict.seconds:.1f}",
        )
        for verdict in verdicts
    ]
    table = [("MUTANT", "PROMISE", "FILE", "TEST", "CAUGHT", "SECONDS"), *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    for verdict in verdicts:
        if not verdict.caught:
            print(f"{verdict.mutant.name}: {verdict.mutant.breaks}\n  {verdict.why}")


if __name__ == "__main__":
    raise SystemExit(main())
