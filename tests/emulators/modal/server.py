"""Starts and stops the three endpoints: control plane, task command router, and HTTP.

All on 127.0.0.1. Lives on one event loop, which should do nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import weakref
from pathlib import Path
from typing import Any

import grpclib.server
from aiohttp import web
from grpclib.config import Configuration
from modal._utils.grpc_utils import custom_detail_codec
from modal_proto.api_grpc import ModalClientBase
from modal_proto.task_command_router_grpc import TaskCommandRouterBase

from tests.emulators.boxes import nursery_here

from . import admin, blobs
from .calls import Service
from .gathering import Gathering
from .router import Router
from .servicer import ControlPlane, admit_to_router
from .state import TOKEN_ID, TOKEN_SECRET, World

WINDOW_BYTES = 4 * 1024 * 1024
BODY_BYTES_MAX = 1 << 30
BACKLOG = 1024


class GrpcEndpoint(grpclib.server.Server):
    """A server whose connections can be cut from our side."""

    def __init__(self, service: Service) -> None:
        super().__init__(
            [service],
            status_details_codec=custom_detail_codec,
            config=Configuration(
                http2_connection_window_size=WINDOW_BYTES, http2_stream_window_size=WINDOW_BYTES
            ),
        )
        self.protocols: weakref.WeakSet[Any] = weakref.WeakSet()

    def _protocol_factory(self) -> Any:
        protocol = super()._protocol_factory()
        made = protocol.connection_made
        protocol.connection_made = lambda transport: made(Gathering(transport))
        self.protocols.add(protocol)
        return protocol

    def cut(self) -> int:
        """Closes all connections without a word; returns how many there were."""
        open_ones = [one.connection for one in self.protocols if hasattr(one, "connection")]
        alive = [one._transport for one in open_ones if not one.is_closing()]
        for transport in alive:
            transport.abort()
        return len(alive)


class Emulator:
    """`directory` is the emulator's own; everything that it keeps lies below."""

    def __init__(self, directory: Path) -> None:
        self.world = World(directory)
        self.control = ControlPlane(self.world)
        self.router = Router(self.world, self.control.values_of)
        self.control_port = self.router_port = self.http_port = 0
        self._endpoints: dict[str, GrpcEndpoint] = {}
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
        self.router_port = await self._listen("router", router, _bound(0))
        self.world.router_url = f"http://127.0.0.1:{self.router_port}"
        self.control_port = await self._listen("control", control, _bound(port))
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
        # Bound and not listening it refuses, and nobody else of this machine can take the port.
        listener = _bound(port)
        old.cut()
        with contextlib.suppress(asyncio.CancelledError):
            await old.wait_closed()
        await asyncio.sleep(refuse_s)
        await self._listen(name, self._services[name], listener)

    async def _listen(self, name: str, service: Service, listener: socket.socket) -> int:
        listener.listen(BACKLOG)
        endpoint = GrpcEndpoint(service)
        await endpoint.start(sock=listener)
        self._endpoints[name] = endpoint
        return int(listener.getsockname()[1])

    async def _start_http(self) -> None:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        world = self.world
        app.add_routes(blobs.routes(world.blobs, world.volumes.mounts, world.volumes.directory))
        app.add_routes(admin.routes(self))
        self._http = web.AppRunner(app, access_log=None)
        await self._http.setup()
        listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        await web.SockSite(self._http, listener).start()
        self.http_port = int(listener.getsockname()[1])
        world.http_url = world.blobs.address = f"http://127.0.0.1:{self.http_port}"


def _bound(port: int) -> socket.socket:
    listener = socket.socket()
    # Connections of who listened there before may still be about to close.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    return listener
