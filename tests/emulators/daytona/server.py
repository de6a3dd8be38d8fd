"""The server: every part's routes in one aiohttp application on loopback."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from ssl import SSLContext
from types import TracebackType

from aiohttp import web

from tests.emulators.boxes.nursery import nursery_here

from . import admin, bodies, lifecycle, middleware, objects, routes, snapshots, timers, warm_pools
from .events import Events
from .listing import Index
from .settings import Settings
from .state import Sandbox, World

UPLOAD_BYTES_MAX = 1 << 31
BACKLOG = 1024
SHUTDOWN_S = 0.1  # for requests under way; clients are told by the end of the connection


class Server:
    """Owns the listening sockets and the world behind them; use from one event loop.

    async with Server() as server:
        os.environ |= server.env
    """

    def __init__(
        self, directory: Path | None = None, *, settings: Settings | None = None, port: int = 0
    ) -> None:
        self._own = directory is None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="daytona-emulator-"))
        self._port = port
        self._runners: list[web.AppRunner] = []
        self.world = World(self._directory, settings)
        self.events = Events(self.world)
        self.authority = (
            self._directory / "tls" / "ca.pem"
        )  # signs the object storage's certificate

    @property
    def env(self) -> dict[str, str]:
        """Variables under which the SDK finds this server."""
        key = next(key for key, access in self.world.settings.keys.items() if access)
        return {"DAYTONA_API_URL": f"{self.world.url}/api", "DAYTONA_API_KEY": key}

    async def start(self) -> None:
        world = self.world
        for name in ("volumes", "images", "contexts", "venvs"):
            (self._directory / name).mkdir(parents=True, exist_ok=True)
        world.box_directory = (await nursery_here()).scratch
        snapshots.furnish(world)
        world.index = Index(world)
        world.listeners = [
            self._tell,
            lambda sandbox, before: timers.watch(world, sandbox),
            lambda sandbox, before: warm_pools.on_change(world, sandbox),
        ]
        await self._listen()
        self.events.start()

    def _tell(self, sandbox: Sandbox, before: str | None) -> None:
        body = bodies.sandbox(self.world, sandbox)
        self.world.index.on_change(sandbox, body)
        self.events.on_change(sandbox, before, body)

    async def _listen(self) -> None:
        app = web.Application(
            middlewares=middleware.build(self.world), client_max_size=UPLOAD_BYTES_MAX
        )
        self.events.attach(app)
        app.add_routes(routes.everything(self.world))
        app.add_routes(admin.routes(self.world, self.events))
        self.world.url = f"http://127.0.0.1:{await self._serve(app, self._port)}"
        context = await asyncio.to_thread(objects.certificate, self.authority.parent)
        port = await self._serve(objects.application(self.world), 0, tls=context)
        self.world.storage_url = f"https://127.0.0.1:{port}"

    async def _serve(
        self, app: web.Application, port: int, *, tls: SSLContext | None = None
    ) -> int:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", port, backlog=BACKLOG, ssl_context=tls).start()
        return int(runner.addresses[0][1])

    async def stop(self) -> None:
        """End every process of every sandbox, then the server."""
        await lifecycle.end_all(self.world)
        await self.events.stop()
        for runner in self._runners:
            await runner.cleanup()
        if self._own:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
