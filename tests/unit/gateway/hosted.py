"""The gateway in the loop of the test, where it is no matter that it is a process of its own."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from pathlib import Path

from fleetctl.gateway.endpoints import GatewayEndpoint
from fleetctl.gateway.serving import serve_gateway
from tests.emulators.llm.server import Model
from tests.unit.gateway.test_process import Gateway, before


class Hosted(Gateway):
    async def start(self) -> None:
        self._life = AsyncExitStack()
        self.state = await self._life.enter_async_context(
            serve_gateway(self.directory, asyncio.Event())
        )
        await self.connect()

    @property
    def endpoint(self) -> GatewayEndpoint:
        return self.state.endpoints["default", "small"]

    async def stop(self) -> None:
        await self.disconnect()
        await self._life.aclose()


def hosting(directory: Path, *servers: Model) -> AbstractAsyncContextManager[Hosted]:
    return before(Hosted(directory), *servers)


@contextmanager
def no_room_for_the_ledger(directory: Path) -> Iterator[None]:
    """Its rows are refused, as by a full disk."""
    db = sqlite3.connect(directory / "ledger.db", isolation_level=None)
    refuse = "create trigger full before insert on used begin select raise(abort, 'full'); end"
    db.execute(refuse)
    yield
    db.execute("drop trigger full")
    db.close()
