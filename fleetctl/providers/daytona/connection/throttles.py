"""Stops calls of one kind after a 429 until Daytona takes them again: a wait that one caller
received holds for all callers.

Kept by daytona_sandboxes.py, one throttle for each sort of call; checked and set by
daytona_errors.retryable_call and by the streams. Makes no call. Creates have a bucket of their own,
in which they wait in line.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from fleetctl.common.errors import FleetctlError, Unavailable

RATE_LIMITED = "RateLimited"


class Throttle:
    def __init__(self) -> None:
        self._until_s = 0.0

    def check(self, what: str) -> None:
        """Raises Unavailable with the rest of the wait that Daytona asked for."""
        left_s = self._until_s - time.monotonic()
        if left_s > 0:
            message = f"{what}: Daytona takes no such calls for {left_s:.1f} s yet"
            raise Unavailable(message, reason=RATE_LIMITED, retry_after_s=left_s)

    def hear(self, error: FleetctlError | None) -> None:
        if isinstance(error, Unavailable) and error.reason == RATE_LIMITED:
            self._until_s = max(self._until_s, time.monotonic() + error.retry_after_s)


@dataclass(frozen=True, slots=True)
class Throttles:
    """looks: at sandboxes, one or many. ends: deletes. toolbox: all that goes into a sandbox."""

    looks: Throttle = field(default_factory=Throttle)
    ends: Throttle = field(default_factory=Throttle)
    toolbox: Throttle = field(default_factory=Throttle)
