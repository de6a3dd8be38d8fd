"""What every ring of tests shares: how hypothesis behaves, what no test may do, and the order of
tests.

A build is repeatable, so examples are the same each time; `pytest --hypothesis-profile explore`
looks further, and `make check` less far. No example has a deadline: no test fails by time.
"""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import settings

from fleetctl.common.author import AGENT_VARIABLES
from tests import costs, guards, needs, selection
from tests.emulators.stamp import SuiteStamp
from tests.guards import _leaves_the_process_as_it_was
from tests.order import pytest_collection_modifyitems, pytest_xdist_make_scheduler

__all__ = [
    "_leaves_the_process_as_it_was",
    "pytest_collection_modifyitems",
    "pytest_xdist_make_scheduler",
]

settings.register_profile("build", deadline=None, derandomize=True, database=None, max_examples=40)
settings.register_profile("check", settings.get_profile("build"), max_examples=15)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("build")


# Who runs us in the background lets us ignore these, and so would all that tests start.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(
            number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        )


# An agent that runs the tests would be the author of all that they apply.
for variable, _ in AGENT_VARIABLES:
    os.environ.pop(variable, None)


# Tests leave little garbage in cycles, and a look at all objects takes a tenth of their time.
gc.set_threshold(50_000, 10, 10)


def pytest_collection_finish() -> None:
    """What stays for the whole of a session is not looked at again: a twentieth of the CPU."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(guards.BEYOND, action="store_true", help="for tests of the real services")
    parser.addoption(selection.ALL, action="store_true", help="with what `make test-all` runs")
    parser.addoption(selection.REST, action="store_true", help="what `make test-all` alone runs")


def pytest_configure(config: pytest.Config) -> None:
    guards.begin(beyond=config.getoption(guards.BEYOND))
    config.pluginmanager.register(selection, "selection")
    config.pluginmanager.register(needs, "needs")
    config.pluginmanager.register(SuiteStamp(config), "emulators")
    if path := os.environ.get(costs.VARIABLE):
        config.pluginmanager.register(costs.CostRecorder(path), "costs")
