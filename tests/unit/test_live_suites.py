"""The suites of real services have no test that only an emulator could pass: nothing but `make
live-...` runs all of them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator

import pytest

from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.provider_worlds import World
from tests.live import daytona_suite, kubernetes_suite, modal_suite

SUITES: dict[str, tuple[type[ProviderSuite], type[World]]] = {
    "kubernetes": (kubernetes_suite.TestLive, kubernetes_suite.KubernetesWorld),
    "daytona": (daytona_suite.TestLive, daytona_suite.DaytonaWorld),
    "modal": (modal_suite.TestLive, modal_suite.ModalWorld),
}
# What each world must bring of its own, or have no test that asks for it.
OWN = {
    name
    for name, it in inspect.getmembers(World, inspect.isfunction)
    if "raise NotImplementedError" in inspect.getsource(it)
}


def find_tests(suite: type[ProviderSuite]) -> Iterator[tuple[str, Callable[..., object]]]:
    """Names and functions, without the wrapper of `story`."""
    for name, test in inspect.getmembers(suite, inspect.isfunction):
        if name.startswith("test_"):
            yield name, inspect.getclosurevars(test).nonlocals.get("told", test)


@pytest.mark.parametrize("service", list(SUITES))
def test_a_world_of_a_real_service_has_what_its_tests_ask_for(service: str) -> None:
    suite, world = SUITES[service]
    assert suite.sort == service
    missing = {
        f"{name}: world.{asked}"
        for name, test in find_tests(suite)
        for asked in set(re.findall(r"\bworld\.(\w+)\(", inspect.getsource(test))) & OWN
        if getattr(world, asked) is getattr(World, asked)
    }
    assert missing == set()


def test_each_test_of_the_suite_is_looked_at() -> None:
    names = {name for name, _ in find_tests(ProviderSuite)}
    assert len(names) > 50
    assert {"lose", "machine", "allowed_hosts"} < OWN
