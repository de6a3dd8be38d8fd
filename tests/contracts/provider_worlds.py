"""What the provider suite needs of a provider under test, beside the world of fleetctl.testing: the
machine that it got, and its declaration.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fleetctl.providers.contract.base import RunRef
from fleetctl.testing.provider_world import PAUSE_S, ProviderWorld
from fleetctl.testing.provider_world import command_task as command
from fleetctl.testing.provider_world import contract_test as story
from fleetctl.testing.provider_world import python_task as python
from fleetctl.testing.provider_world import script_task as script
from fleetctl.testing.provider_world import wait_until as eventually

__all__ = ["MOUNT", "PAUSE_S", "World", "command", "eventually", "python", "script", "story"]

# Where tasks find a volume: on machines that are used as they are, a path of this machine, which
# the suite of another provider in another process must not have too.
MOUNT = f"/data-of-suite-{os.getpid()}"


class World(ProviderWorld):
    # Of a template; `machine` returns the same of the machine that was got.
    resources: Mapping[str, Any] = {"cpu": 2, "memory": 2 * 1024**3}
    # The spec of its Provider object, where the built-in provider is not the one of this world.
    declared: Mapping[str, Any] = {}

    async def machine(self, ref: RunRef, printed: Mapping[str, Any]) -> Mapping[str, object]:
        """Returns the resources of a run's machine, those in `resources`. printed: by the run."""
        raise NotImplementedError

    async def allowed_hosts(self, ref: RunRef) -> list[str]:
        """Returns the hosts that a run's machine may reach."""
        raise NotImplementedError
