"""The last failure to connect, which everybody who asks gets for a while."""

from __future__ import annotations

import asyncio
from copy import copy

from fleetctl.common.errors import FleetctlError

FAILED_FOR_S = 5.0


class LastFailure:
    """A hundred starts that wait in turn must not wait for a hundred deadlines."""

    def __init__(self) -> None:
        self._known: tuple[float, FleetctlError] | None = None

    def remember(self, error: FleetctlError) -> None:
        self._known = asyncio.get_running_loop().time() + FAILED_FOR_S, error

    def forget(self) -> None:
        self._known = None

    def raise_again(self) -> None:
        """Raises the last error again, without the first one's traceback; does no work without an
        error.
        """
        if self._known is None:
            return
        until_s, error = self._known
        if asyncio.get_running_loop().time() >= until_s:
            self._known = None
            return
        raise copy(error)
