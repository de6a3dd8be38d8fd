"""Starts and stops the three endpoints: control plane, task command router, and HTTP.

All on 127.0.0.1. Lives on one event loop, which should do nothing else.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from aiohttp import web
from modal_proto.api_grpc import ModalClientBase
from modal_proto.task_command_router_grpc import TaskCommandRouterBase

from tests.emulators.boxes import nursery_here

from . import admin, blobs
from .calls import Service
from .grpc import Endpoint
from .router import Router
from .servicer import ControlPlane, admit_to_router
from .state import TOKEN_ID, TOKEN_SECRET, World

BODY_BYTES_MAX = 1 << 30


class Emulator:
    """`directory` is the emulator's own; everything that it keeps lies below."""

    def __init__(self, directory: Path) -> None:
        self.world = World(directory)
        self.control = ControlPlane(self.world)
        self.router = Router(self.world, self.control.values_of)
        self.control_port = self.router_port = self.http_port = 0
        self._endpoints: dict[str, Endpoint] = {}
        self._http: web.AppRunner | None = None

    @property
    def env(self) -> dict[str, str]:
        """What makes an SDK talk to this emulator."""
        return {
            "MODAL_SERVER_URL": self.world.control_url,
            "MODAL_TOKEN_ID": TOKEN_ID,
            "MODAL_TOKEN_SECRET": TOKEN_SECRET,
            "MODAL_CONFIG_PATH": str(self.world.directory / "no-such-file"),
            "MODAL_DISABLE_API_PROXY": "1",
        }

    async def start(self, port: int = 0) -> None:
        nursery = await nursery_here()
        self.world.box_directory = nursery.scratch
        self.world.isolated, self.world.problem = nursery.isolated, nursery.problem
        await self._start_http()
        control = Service(
            ModalClientBase,
            self.control,
            self.control.admit,
            self.world.faults,
            self.world.log,
        )
        router = Service(
            TaskCommandRouterBase,
            self.router,
            admit_to_router,
            self.world.faults,
            self.world.router_log,
        )
        self.router_port = await self._listen("router", router, 0)
        self.world.router_url = f"http://127.0.0.1:{self.router_port}"
        self.control_port = await self._listen("control", control, port)
        self.world.control_url = f"http://127.0.0.1:{self.control_port}"
        self._services = {"control": control, "router": router}

    async def stop(self) -> None:
        """Ends every box and every connection."""
        for sandbox in self.world.sandboxes.live():
            for task in sandbox.tasks:
                task.cancel()
        (await nursery_here()).stop()
        for endpoint in self._endpoints.values():
            endpoint.close()
            endpoint.cut()
        if self._http is not None:
            await self._http.cleanup()

    async def lose(self, name: str, refuse_s: float) -> None:
        """Cuts the connections of `router` or `control` and refuses new ones for a while."""
        old = self._endpoints.pop(name)
        port = self.router_port if name == "router" else self.control_port
        old.close()
        old.cut()
        await asyncio.sleep(refuse_s)
        await self._listen(name, self._services[name], port)

    async def _listen(self, name: str, service: Service, port: int) -> int:
        listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        endpoint = Endpoint(service)
        await endpoint.start(listener)
        self._endpoints[name] = endpoint
        return int(listener.getsockname()[1])

    async def _start_http(self) -> None:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        world = self.world
        app.add_routes(blobs.routes(world.blobs, world.volumes.mounts, world.volumes.directory))
        app.add_routes(admin.routes(self))
        self._http = web.AppRunner(app, access_log=None)
        await self._http.setup()
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        await web.SockSite(self._http, listener).start()
        self.http_port = int(listener.getsockname()[1])
        world.http_url = world.blobs.address = f"http://127.0.0.1:{self.http_port}"
