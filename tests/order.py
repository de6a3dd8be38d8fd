"""Which tests run on one worker of pytest-xdist, and in which order.

Tests of a file stay together, as they share what takes long to make, such as an emulator: otherwise
each worker would make one of its own. (The marks of pytest-xdist 3.8 say the same and do nothing
under pytest 9.1 and later.) Most files with an emulator wait for it and most others compute, so
they take turns, and cores do not idle. What takes longest comes first, so that no worker is left
alone with it at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent
# Paths in this directory, longest first, by what they took on two cores; a guess is good enough.
LONGEST = (
    "api/test_page.py",
    "api/test_page_plots.py",
    "unit/interpreter",
    "servers/test_examples_on_clouds.py",
    "contracts/test_provider_modal.py",
    "servers/test_live_daytona.py",
    "docs/test_extending.py",
    "contracts/test_provider_kubernetes.py",
    "servers/test_interpreters_given_up.py",
    "unit/manifest/test_manifest_hostile.py",
    "docs/test_wheel.py",
    "docs/test_prompt_batches.py",
    "docs/test_seeds.py",
    "contracts/test_provider_modal_functions.py",
    "servers/test_live_modal.py",
    "servers/test_modal_functions_fleets.py",
    "servers/test_daytona_failures_later.py",
    "docs/test_pages.py",
    "servers/test_modal_first_steps.py",
    "servers/test_modal_failures_crash.py",
    "servers/test_modal_functions_crash.py",
    "unit/guest/test_remote_commands.py",
    "unit/guest/test_remote_ending.py",
    "servers/test_modal_account.py",
    "contracts/test_provider_daytona.py",
    "servers/test_clouds_idle.py",
    "unit/guest/test_remote_beginning.py",
    "docs",
    "servers/test_accounts.py",
    "contracts",
    "api",
    "servers",
    "unit/guest",
    "unit/providers",
    "unit/stores/test_stores_faults.py",
    "unit/cli/test_cli_doctor.py",
)
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


def in_turns(nodeids: Iterable[str]) -> Iterator[str]:
    """The same on every worker, as pytest-xdist demands."""
    groups: dict[str, list[str]] = {}
    for nodeid in nodeids:
        groups.setdefault(group_of(nodeid), []).append(nodeid)
    long = sorted((name for name in groups if name.startswith(LONGEST)), key=_rank)
    computing = [name for name in groups if name.startswith(COMPUTING)]
    short = [name for name in groups if not name.startswith((*COMPUTING, *LONGEST))]
    # The other half is left for workers that have nothing to do while the last long ones end.
    computing += short[: len(short) // 2]
    share = ceil(len(computing) / max(len(long), 1))
    turns: list[str] = []
    for at, name in enumerate(long):
        turns += [name, *computing[at * share : (at + 1) * share]]
    for name in dict.fromkeys([*turns, *groups]):
        yield from groups[name]


def group_of(nodeid: str) -> str:
    path = nodeid.partition("::")[0].removeprefix(f"{ROOT.name}/")
    if path.startswith(COMPUTING):
        return nodeid.removeprefix(f"{ROOT.name}/")
    return next((group for start, group in TOGETHER.items() if path.startswith(start)), path)


def _rank(group: str) -> int:
    return next(rank for rank, start in enumerate(LONGEST) if group.startswith(start))
