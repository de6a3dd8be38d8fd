"""The socket on which the SDK learns of sandboxes that were made or changed their state."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import socketio
from aiohttp import web

from . import bodies
from .state import Sandbox, World

PATH = "api/socket.io"


class _Json:
    dumps, loads = staticmethod(bodies.text), staticmethod(json.loads)


class _Told(socketio.packet.Packet):
    """All that is told is JSON: nobody has to look through each body for bytes."""

    uses_binary_events = False
    json = _Json


class Events:
    """Told by whoever changes something; sends to every connected client, in order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._clients: dict[str, asyncio.Transport | None] = {}
        self._waiting: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self._sender: asyncio.Task[None] | None = None
        self._socket = socketio.AsyncServer(
            async_mode="aiohttp", cors_allowed_origins="*", serializer=_Told
        )
        self._socket.on("connect", self._connected)
        self._socket.on("disconnect", self._disconnected)

    def attach(self, app: web.Application) -> None:
        self._socket.attach(app, socketio_path=PATH)

    def start(self) -> None:
        self._sender = asyncio.get_running_loop().create_task(self._send())

    async def stop(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
        await self._socket.shutdown()

    @property
    def clients(self) -> int:
        return len(self._clients)

    def on_change(self, sandbox: Sandbox, before: str | None, body: dict[str, Any]) -> None:
        if not self._clients or before == sandbox.state:
            return
        if before is None:
            self._waiting.put_nowait(("sandbox.created", body))
            return
        fields = {"sandbox": body, "oldState": before, "newState": sandbox.state}
        self._waiting.put_nowait(("sandbox.state.updated", fields))

    def hang_up(self) -> None:
        """Cut every client off; each may come back."""
        for connection in list(self._clients.values()):
            if connection is not None:
                connection.abort()

    async def _connected(self, client: str, environ: dict[str, Any], auth: Any = None) -> bool:
        token = auth.get("token") if isinstance(auth, dict) else None
        if not self._world.settings.events or not self._world.settings.keys.get(str(token)):
            return False
        self._clients[client] = environ["aiohttp.request"].transport
        return True

    async def _disconnected(self, client: str, reason: Any = None) -> None:
        self._clients.pop(client, None)

    async def _send(self) -> None:
        while True:
            name, data = await self._waiting.get()
            packet = _Told(socketio.packet.EVENT, [name, data]).encode()
            # As `emit` does, which makes a task for each client and waits for all of them.
            manager = self._socket.manager
            for client in list(self._clients):
                if manager.is_connected(client, "/"):
                    await self._socket.eio.send(manager.eio_sid_from_sid(client, "/"), packet)
