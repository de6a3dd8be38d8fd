"""The parts of `make test-all`: what each runs, how it is counted, why it runs there alone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

PYTHON = ".venv/bin/python"
NOTHING_CHOSEN = 5  # pytest's exit code where no test is of that sort


@dataclass(frozen=True, slots=True)
class Part:
    """count: from the output, how much was run, in words. why: why `make test` does not run it, ""
    where it does. passes: exit codes that are no failure.
    """

    name: str
    what: str
    command: str
    count: Callable[[str], str]
    why: str = ""
    registry: bool = False
    passes: tuple[int, ...] = (0,)


def count_passed(output: str) -> str:
    """All runs of pytest in one output, together."""
    passed = sum(int(it) for it in re.findall(r"(\d+) passed", output))
    return f"{passed:,} tests"


def count_mutants(output: str) -> str:
    found = re.search(r"mutants caught: (\d+) of (\d+)", output)
    return f"{found[1]} of {found[2]} caught" if found else "none"


def count_lives(output: str) -> str:
    found = re.search(r"([\d,]+) seeds, ([\d,]+) crashes", output)
    return f"{found[1]} lives, {found[2]} crashes" if found else "none"


def count_nothing(output: str) -> str:
    del output
    return ""


def parts(lives: int) -> list[Part]:
    """In the order in which they run: what fails soonest and most often first."""
    cores = os.cpu_count() or 1
    return [
        Part("lint", "linters, types, import contracts, the pages", "make lint", count_nothing),
        Part("tests", "what `make test` runs", "make unit", count_passed),
        Part(
            "emulators",
            "the emulators' own suite",
            "make emulators",
            count_passed,
            why="`make test` runs it when the emulators or the pinned packages have changed",
        ),
        Part(
            "only-all",
            "tests that are marked `only_all`",
            f"{PYTHON} -m tests.workers 8 --dist loadgroup --timeout 1200 --timeout-method thread "
            "--all -m only_all",
            count_passed,
            why="each has its reason below",
            passes=(0, NOTHING_CHOSEN),
        ),
        Part(
            "sdk-bounds",
            "each cloud's tests with the oldest and the newest SDK that its extra allows",
            "make sdk-bounds",
            count_passed,
            why="it installs six environments from a package registry",
            registry=True,
        ),
        Part(
            "frameworks",
            "real Hugging Face, Lightning, Orbax, Ray, dspy and litellm",
            "make test-frameworks",
            count_passed,
            why="it installs 6 GB from a package registry",
            registry=True,
        ),
        Part(
            "mutants",
            "product code that was broken on purpose, each by the test that must fail",
            f"{PYTHON} -m tests.mutants",
            count_mutants,
            why="each mutant is a run of tests of its own",
        ),
        Part(
            "lives",
            "simulated lives of the engine, with crashes and faults",
            f"{PYTHON} -m tests.simulation {lives} --jobs {cores}",
            count_lives,
            why="hours; `make check` and `make test` play the first of them",
        ),
    ]
