"""The relays of a provider, one a live run with endpoints. Called by the provider's face."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from fleetctl.common.tasks import cancel_tasks
from fleetctl.providers.contract.endpoint_access import EndpointAccess
from fleetctl.providers.remote.relay.relay import RunRelay
from fleetctl.providers.remote.runs.follower import FollowPace
from fleetctl.providers.remote.sandboxes.exec_channel import ExecChannel

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger("fleetctl.providers")


class RelayLines(Protocol):
    async def line(self, handle: str, run: str) -> ExecChannel:
        """Join the relay of a sandbox for a run, by the guest's verb. Raises SandboxOver,
        Unavailable, Refused or OSError.
        """
        ...


class Relays:
    def __init__(
        self,
        lines: RelayLines,
        *,
        lives: Callable[[str], bool | None],
        pace: FollowPace,
    ) -> None:
        """lives: whether a run may live; None for a run without a follower."""
        self._lines = lines
        self._lives = lives
        self._pace = pace
        self._relays: dict[str, RunRelay] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None

    def hold(
        self,
        run: str,
        handle: str,
        access: EndpointAccess,
    ) -> None:
        """Carries the calls of a run until it is over. A second call switches to another
        gateway.
        """
        if run in self._relays:
            self._relays[run].access = access
            return
        self._relays[run] = RunRelay(
            run,
            access,
            open_line=partial(self._lines.line, handle, run),
            lives=partial(self._lives, run),
            client=self._client(),
            pace=self._pace,
        )
        self._begin(run)

    def end(self, run: str) -> None:
        """The run is over, or never began."""
        if run in self._relays:
            self._relays[run].end()

    def look(self, run: str) -> None:
        """Something about the run has changed."""
        if run in self._relays and self._lives(run) is False:
            self._relays[run].end()

    async def close(self) -> None:
        """Leave all runs to the next controller."""
        tasks = list(self._tasks.values())
        self._tasks = {}
        self._relays = {}
        await cancel_tasks(tasks)
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _begin(self, run: str) -> None:
        if run in self._relays:
            task = self._tasks[run] = asyncio.ensure_future(self._relays[run].carry())
            task.add_done_callback(partial(self._settled, run))

    def _settled(self, run: str, done: asyncio.Task[None]) -> None:
        if self._tasks.get(run) is not done:
            return
        if done.cancelled() or done.exception() is None:
            del self._tasks[run], self._relays[run]
            return
        log.error("relaying failed", exc_info=done.exception(), extra={"run": run})
        asyncio.get_running_loop().call_later(self._pace.crash_s, self._begin, run)

    def _client(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,  # a proxy would be asked for our own loopback
            )
        return self._session
