"""Shared by the contract suites: their assertions explain themselves as those of test modules do,
and which of their tests run on which backend.

`local` and one remote backend, `daytona`, pass the suite whole in `make test`. On the others the
guest is the same program, so that a class with `whole = False` leaves the guest's tests to
`make test-all` and runs those of the seam: starts, adoption, ends, stops, lists, odd replies.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.contracts.provider_outputs")

OF_THE_GUEST = (
    "ProviderCheckpoints",
    "ProviderMetrics",
    "ProviderOutputs",
    "ProviderServices",
    "ProviderWandb",
)
REASON = "contract tests of the guest, which pass on `local` and `daytona`, on the other backends"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        whole = getattr(getattr(item, "cls", None), "whole", True)
        origin = getattr(item, "function", None)
        if not whole and getattr(origin, "__qualname__", "").startswith(OF_THE_GUEST):
            item.add_marker(pytest.mark.only_all(reason=REASON))
