"""The parts of `make test-all` save the campaign's (tests/campaign/parts.py): the command of each,
how it is counted, why it runs there alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

PYTHON = ".venv/bin/python"
NOTHING_CHOSEN = 5  # pytest's exit code where no test is of that sort


@dataclass(frozen=True, slots=True)
class Part:
    """count: extracts the amount of work from the output, as text. why: why `make test` does not
    run the part; "" if it does. passes: exit codes that are no failure.
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


def count_live(output: str) -> str:
    emulated = ", in an emulated cluster" if "cluster: the emulated one" in output else ""
    return count_passed(output) + emulated


def count_mutants(output: str) -> str:
    found = re.search(r"mutants caught: (\d+) of (\d+)", output)
    return f"{found[1]} of {found[2]} caught" if found else "none"


def count_nothing(output: str) -> str:
    del output
    return ""


def parts() -> list[Part]:
    """Returns the parts in the order in which they run: those that fail soonest and most often
    first.
    """
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
            "--rest",
            count_passed,
            why="each has its reason below",
            passes=(0, NOTHING_CHOSEN),
        ),
        Part(
            "sdk-bounds",
            "the tests of each extra with the oldest and the newest packages that it allows",
            "make sdk-bounds",
            count_passed,
            why="it installs 22 environments from a package registry",
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
            "live-kubernetes",
            "the suite of all providers in a namespace of its own of a cluster",
            # By default it uses no cluster of this machine's own kubeconfig.
            "make live-kubernetes"
            if os.environ.get("KUBECONFIG")
            else f"{PYTHON} -m tests.live kubernetes --emulated",
            count_live,
            why="`make test` plays two of its tests; a real cluster is the one of `KUBECONFIG`",
        ),
        Part(
            "mutants",
            "product code that was broken on purpose, each by the test that must fail",
            f"{PYTHON} -m tests.mutants",
            count_mutants,
            why="each mutant is a run of tests of its own",
        ),
    ]
