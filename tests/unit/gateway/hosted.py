"""The gateway in the loop of the test, where it is no matter that it is a process of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from fleetctl.gateway.endpoints import Endpoint
from fleetctl.gateway.serving import serving
from tests.emulators.llm.server import Model
from tests.unit.gateway.test_process import Gateway


class Hosted(Gateway):
    async def start(self) -> None:
        self._life = AsyncExitStack()
        self.state = await self._life.enter_async_context(serving(self.directory, asyncio.Event()))
        await self.connect()

    @property
    def endpoint(self) -> Endpoint:
        return self.state.endpoints["default", "small"]

    async def stop(self) -> None:
        await self.disconnect()
        await self._life.aclose()


@asynccontextmanager
async def hosting(directory: Path, *servers: Model) -> AsyncIterator[Hosted]:
    """Endpoint `small` of these servers, and a grant for run `r1`."""
    for server in servers:
        await server.start()
    gateway = Hosted(directory)
    await gateway.start()
    try:
        await gateway.declare(list(servers))
        await gateway.grant("r1")
        yield gateway
    finally:
        await gateway.stop()
        for server in servers:
            await server.stop()
