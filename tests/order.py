"""Which tests run on one worker of pytest-xdist, and in which order.

Tests of a file stay together, as they share what takes long to make, such as an emulator: otherwise
each worker would make one of its own. (The marks of pytest-xdist 3.8 say the same and do nothing
under pytest 9.1 and later.) Most files with an emulator wait for it and most others compute, so
they take turns, and cores do not idle. What took longest in the runs on record comes first, so that
no worker is left alone with it at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent
# The seconds of each file, as `python -m tests.costs --write` leaves them.
COSTS = Path(__file__).with_name("costs.json")
# From here on a group is long: it begins early, and short ones run beside it.
LONG_S = 12.0
UNKNOWN_S = 1.0  # of a file without a record, if it is a unit test; of another:
UNKNOWN_FAR_S = 30.0
# Files that share more than a file does: the emulators of tests/interpreters.py, the home of the
# examples with the environments that were built in it.
TOGETHER = {
    "unit/interpreter": "unit/interpreter",
    "docs/test_examples.py": "docs/examples",
    "docs/test_starters.py": "docs/examples",
}
# Each test by itself: these share nothing.
COMPUTING = ("simulation", "properties", "soak")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For --dist loadgroup, that is for `make test`; other ways of pytest-xdist are as they are."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False  # the order is ours
    return Together(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where one process runs all tests, they keep the order in which they are written."""
    if hasattr(config, "workerinput"):
        named = {item.nodeid: item for item in items}
        items[:] = [named[nodeid] for nodeid in in_turns(named)]


def in_turns(nodeids: Iterable[str], walls: Mapping[str, float] | None = None) -> Iterator[str]:
    """The same on every worker, as pytest-xdist demands. walls: seconds by path in this directory,
    default those on record.
    """
    groups: dict[str, list[str]] = {}
    for nodeid in nodeids:
        groups.setdefault(group_of(nodeid), []).append(nodeid)
    walls = read_walls() if walls is None else walls
    seconds = {name: _estimate(name, tests, walls) for name, tests in groups.items()}
    longest_first = sorted(groups, key=lambda name: -seconds[name])
    computing = [name for name in groups if name.startswith(COMPUTING)]
    rest = [name for name in longest_first if not name.startswith(COMPUTING)]
    long = [name for name in rest if seconds[name] >= LONG_S]
    short = [name for name in rest if seconds[name] < LONG_S]
    # The other half is left for workers that have nothing to do while the last long ones end.
    computing += short[: len(short) // 2]
    share = ceil(len(computing) / max(len(long), 1))
    turns: list[str] = []
    for at, name in enumerate(long):
        turns += [name, *computing[at * share : (at + 1) * share]]
    for name in dict.fromkeys([*turns, *longest_first]):
        yield from groups[name]


def _estimate(group: str, nodeids: Iterable[str], walls: Mapping[str, float]) -> float:
    """Returns the seconds that a group takes, of its files on record and the others."""
    unknown_s = UNKNOWN_S if group.startswith("unit") else UNKNOWN_FAR_S
    files = {nodeid.partition("::")[0].removeprefix(f"{ROOT.name}/") for nodeid in nodeids}
    return sum(walls.get(file, unknown_s) for file in files)


@cache
def read_walls() -> dict[str, float]:
    """Returns the seconds of each file on record, by its path in this directory."""
    costs = json.loads(COSTS.read_text("utf-8"))
    return {name.removeprefix(f"{ROOT.name}/"): cost["wall_s"] for name, cost in costs.items()}


def group_of(nodeid: str) -> str:
    path = nodeid.partition("::")[0].removeprefix(f"{ROOT.name}/")
    if path.startswith(COMPUTING):
        return nodeid.removeprefix(f"{ROOT.name}/")
    return next((group for start, group in TOGETHER.items() if path.startswith(start)), path)
