"""The contract of providers as a suite of tests, for packages of other projects; it needs pytest.

A test module holds `class TestMine(ProviderContract)`, whose `world` returns a ProviderWorld of its
provider. fleetctl's own providers are held to the same class.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("fleetctl.testing.provider_contract")

from fleetctl.testing.provider_contract import ProviderContract  # noqa: E402 - rewritten first
from fleetctl.testing.provider_world import (  # noqa: E402
    ProviderWorld,
    command_task,
    python_task,
    script_task,
)

__all__ = [
    "ProviderContract",
    "ProviderWorld",
    "command_task",
    "python_task",
    "script_task",
]
