"""The provider's pacing at Daytona; every number can be set in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.providers.remote.connection.pacing import read_settings

PREFIX = "FLEETCTL_DAYTONA_"


@dataclass(frozen=True, slots=True)
class DaytonaSettings:
    """Settings of the provider. Defaults are the limits of Daytona's smallest tier, where it
    documents them.
    """

    creates_per_s: float = 5.0  # 300 a minute; more is answered with 429
    creates_burst: float = 60.0
    making_max: float = 500.0  # sandboxes under way at once; each is looked at now and then
    # TTL of a sandbox whose task names no timeoutSeconds: our dead-man's switch. It cuts no task
    # that names one.
    lifetime_s: float = 86_400.0
    queue_s: float = 3600.0  # a sandbox with a GPU waits this long for a machine, then asks again
    # Until Daytona has answered at all. Ten seconds, less the SDK's import and all else that a
    # command does before.
    connect_s: float = 5.0
    call_s: float = 30.0  # our own deadline for a call
    quick_s: float = 2.0  # a task that ends sooner is begun, followed and ended in one call


def from_environment(environ: Mapping[str, str] | None = None) -> DaytonaSettings:
    """Raises Refused for a value that is not a positive number."""
    return read_settings(DaytonaSettings, PREFIX, os.environ if environ is None else environ)
