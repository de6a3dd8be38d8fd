"""A line to the agent of a machine: opened when it is first needed, and again after it broke.

A machine that cannot be reached is not asked again at once by each of its runs. Made by the
providers, with what opens it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.providers.machines.agent_link import AgentFault, AgentLink, LineBroken

log = logging.getLogger("fleetctl.providers")

CALL_S = 60.0
AGAIN_S = 2.0  # between two tries to reach a machine
AWAY_S = 5.0


class AgentLine:
    """The line to one machine. All verbs raise Unavailable when it cannot be reached now. name: in
    messages. open_link: raises Refused and Unavailable with what keeps the line from being opened.
    """

    def __init__(self, name: str, open_link: Callable[[], Awaitable[AgentLink]]) -> None:
        self.name = name
        self._open = open_link
        self._link: AgentLink | None = None
        self._opening = asyncio.Lock()
        self._failed: FleetctlError | None = None
        self._failed_at_s = 0.0
        self._silent_since_s: float | None = None

    @property
    def facts(self) -> Mapping[str, Any]:
        """The host's facts as last asked; empty before."""
        return self._link.facts if self._link is not None else {}

    @property
    def silent_s(self) -> float:
        """Returns how long this process has tried in vain to reach it."""
        if self._silent_since_s is None:
            return 0.0
        return time.monotonic() - self._silent_since_s

    async def link(self) -> AgentLink:
        async with self._opening:
            if self._link is not None and not self._link.broken:
                return self._link
            if self._failed is not None and time.monotonic() - self._failed_at_s < AGAIN_S:
                raise self._failed
            if self._link is not None:
                await self._link.close()
            try:
                self._link = await self._open()
            except (Refused, Unavailable) as error:
                self._failed = error
                self._failed_at_s = time.monotonic()
                self._silent_since_s = self._silent_since_s or self._failed_at_s
                raise
            self._failed = self._silent_since_s = None
            log.info("host reached", extra={"host": self.name})
            return self._link

    async def call(
        self,
        op: str,
        fields: Mapping[str, object] | None = None,
        payload: bytes = b"",
        *,
        deadline_s: float = CALL_S,
    ) -> dict[str, Any]:
        """Raises Unavailable, and AgentFault for the user's faults."""
        async with self.asked(deadline_s=deadline_s):
            return await (await self.link()).call(op, fields, payload)
        raise AssertionError

    @asynccontextmanager
    async def asked(self, *, deadline_s: float = CALL_S) -> AsyncIterator[None]:
        """Translates what a line raises."""
        try:
            async with asyncio.timeout(deadline_s):
                yield
        except LineBroken as error:
            raise Unavailable(
                f"the line to host `{self.name}` broke: {error}",
                reason="Unreachable",
                retry_after_s=AGAIN_S,
            ) from error
        except TimeoutError as error:
            raise Unavailable(
                f"host `{self.name}` does not answer", reason="Unreachable", retry_after_s=AWAY_S
            ) from error
        except AgentFault as error:
            if error.sort != "machine":
                raise
            raise Unavailable(
                f"host `{self.name}` cannot do that now: {error}",
                reason="MachineFailed",
                retry_after_s=AWAY_S,
            ) from error

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()
            self._link = None
