"""The parts of `make test-all`: what each runs, how it is counted, why it runs there alone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.campaign import parts as campaign
from tests.record.results import PRODUCT

PYTHON = ".venv/bin/python"
NOTHING_CHOSEN = 5  # pytest's exit code where no test is of that sort
UNFINISHED = 75  # of a part of the campaign that goes on another time


@dataclass(frozen=True, slots=True)
class Part:
    """count: extracts the amount of work from the output, as text. why: why `make test` does not
    run the part; "" if it does. passes: exit codes that are no failure. paths: the tested code,
    whose change makes a result outdated; empty: all code. spent: extracts seconds and CPU seconds
    from the output of a part that continues earlier runs; None: the time of this run counts.
    """

    name: str
    what: str
    command: str
    count: Callable[[str], str]
    why: str = ""
    registry: bool = False
    passes: tuple[int, ...] = (0,)
    paths: tuple[str, ...] = ()
    spent: Callable[[str], tuple[float, float] | None] = lambda _: None


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


def count_campaign(output: str) -> str:
    found = re.search(r"^\w+: ([\d,]+ of [\d,]+ .+; .+); [\d,]+ s, ", output, re.MULTILINE)
    return found[1] if found else "none"


def spent_of_campaign(output: str) -> tuple[float, float] | None:
    """Seconds and CPU seconds of all of its runs together."""
    found = re.search(r"; ([\d,]+) s, ([\d,]+) s CPU$", output, re.MULTILINE)
    if found is None:
        return None
    return float(found[1].replace(",", "")), float(found[2].replace(",", ""))


def count_nothing(output: str) -> str:
    del output
    return ""


def parts(lives: int, minutes: float | None = None) -> list[Part]:
    """Returns the parts in the order in which they run: those that fail soonest and most often
    first. minutes: time after which each part of the campaign stops, to continue later.
    """
    return [*_whole_parts(), *(_campaign(it, lives, minutes) for it in campaign.PARTS.values())]


def _campaign(part: campaign.Part, lives: int, minutes: float | None) -> Part:
    command = f"{PYTHON} -m tests.campaign {part.name}"
    if part.name == "lives":
        command += f" --wanted {lives}"
    return Part(
        part.name,
        part.what,
        command + (f" --minutes {minutes:g}" if minutes else ""),
        count_campaign,
        why="hours; `make test` plays a few of them",
        paths=PRODUCT,
        spent=spent_of_campaign,
    )


def _whole_parts() -> list[Part]:
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
