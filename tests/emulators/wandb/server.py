"""The server: /graphql, the files of runs, and everything that a request passes on its way there.

An operation is named by its GraphQL document (`Heartbeat`, `UpsertSweep`, …), or `file_stream`,
`upload`, `otel`. Faults and counts go by these names.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import socket
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from aiohttp import web

from . import admin, files
from .errors import Refused, not_logged_in
from .faults import AFTER, BEFORE, Fault
from .files import CALLER
from .graphql.documents import Document, Unreadable, parse
from .graphql.execution import mutate, query
from .schema.access import Caller
from .schema.mutations import mutations
from .schema.queries import root
from .world.settings import API_KEY
from .world.state import World

BACKLOG = 256
BODY_BYTES_MAX = 1 << 28
SHUTDOWN_S = 0.1


class Server:
    """Owns the sockets and the world behind them; use from one event loop.

    async with Server() as server:
        os.environ |= server.env
    """

    def __init__(self) -> None:
        self.world = World()
        self.admin_url = ""
        self._port = 0
        self._held: socket.socket | None = None  # keeps our port for us while we are away
        self._connections: WeakSet[asyncio.Transport] = WeakSet()
        self._runner = web.AppRunner(
            self._application(), access_log=None, shutdown_timeout=SHUTDOWN_S
        )
        self._admin = web.AppRunner(self._commands(), access_log=None, shutdown_timeout=SHUTDOWN_S)
        self._site: web.SockSite | None = None
        self._documents: dict[str, Document] = {}

    @property
    def env(self) -> dict[str, str]:
        """Variables under which the package finds this server, and hurries."""
        return {
            "WANDB_BASE_URL": self.world.url,
            "WANDB_API_KEY": API_KEY,
            "WANDB_X_FILE_STREAM_TRANSMIT_INTERVAL": "1",
            "WANDB_ERROR_REPORTING": "false",
        }

    async def start(self) -> None:
        await self._runner.setup()
        self._held = _bound(0)
        self._port = int(self._held.getsockname()[1])
        self.world.url = f"http://127.0.0.1:{self._port}"
        await self.come_back()
        await self._admin.setup()
        listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        await web.SockSite(self._admin, listener).start()
        self.admin_url = f"http://127.0.0.1:{listener.getsockname()[1]}/admin"

    async def stop(self) -> None:
        self.world.faults.clear()
        await self._runner.cleanup()
        await self._admin.cleanup()
        if self._held is not None:
            self._held.close()

    async def go_away(self) -> None:
        """Cut every connection and refuse new ones, until `come_back`."""
        if self._site is not None:
            await self._site.stop()
            self._site, self._held = None, _bound(self._port)
        for connection in list(self._connections):
            connection.abort()

    async def come_back(self) -> None:
        if self._held is not None:
            self._site = web.SockSite(self._runner, self._held, backlog=BACKLOG)
            self._held = None
            await self._site.start()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def _application(self) -> web.Application:
        @web.middleware
        async def passing(request: web.Request, handler: Any) -> web.StreamResponse:
            return await self._pass(request, handler)

        app = web.Application(middlewares=[passing], client_max_size=BODY_BYTES_MAX)
        app.add_routes([web.post("/graphql", self._graphql), *files.routes(self.world)])
        return app

    def _commands(self) -> web.Application:
        app = web.Application()
        app.add_routes(admin.routes(admin.Verbs(self)))
        return app

    async def _pass(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if isinstance(request.transport, asyncio.Transport):
            self._connections.add(request.transport)
        world = self.world
        entry: dict[str, Any] = {"at_s": world.clock(), "path": request.path}
        operation = entry["operation"] = await self._operation(request, entry)
        world.requests[operation] += 1
        world.newest.append(entry)
        if world.settings.latency_s > 0:
            await asyncio.sleep(world.settings.latency_s)
        response: web.StreamResponse | None = None
        if before := world.faults.find(operation, BEFORE):
            response = await self._spoil(before, request)
        if response is None:
            response = await self._answer(request, handler)
            if after := world.faults.find(operation, AFTER):
                response = await self._spoil(after, request) or response
        entry["status"] = response.status
        return response

    async def _answer(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            request[CALLER] = self._caller(request)
            response: web.StreamResponse = await handler(request)
        except Refused as refused:
            return web.json_response(refused.body(), status=refused.status)
        return response

    async def _spoil(self, fault: Fault, request: web.Request) -> web.Response | None:
        """The answer that the fault makes, if it makes one."""
        await self.world.faults.wait(fault)
        if fault.drop:
            if request.transport is not None:
                request.transport.close()
            return web.Response(status=499)  # nobody reads it
        if fault.status is None:
            return None
        if isinstance(fault.body, str):
            page, kind = fault.body, "text/html"
        else:
            error = {"errors": [{"message": "emulated fault"}], "data": None}
            page, kind = json.dumps(error if fault.body is None else fault.body), "application/json"
        return web.Response(
            status=fault.status, headers=fault.headers, text=page, content_type=kind
        )

    def _caller(self, request: web.Request) -> Caller:
        """Nobody, without a key. Raises Refused for a wrong one."""
        kind, _, value = request.headers.get("Authorization", "").partition(" ")
        if not kind:
            return Caller(self.world, ())
        try:
            user, _, key = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            user = key = ""
        if kind.lower() != "basic" or user != "api" or key not in self.world.settings.keys:
            raise not_logged_in()
        return Caller(self.world, self.world.settings.keys[key])

    async def _graphql(self, request: web.Request) -> web.Response:
        body = await request.json()
        variables = body.get("variables") or {}
        caller = request[CALLER]
        document = self._document(body.get("query") or "")
        if document.kind == "mutation":
            data = mutate(document, variables, mutations(self.world, caller))
        else:
            data = query(document, variables, root(self.world, caller))
        return web.json_response({"data": data})

    async def _operation(self, request: web.Request, entry: dict[str, Any]) -> str:
        """Its name. Adds what is asked to the entry of the log."""
        if request.path != "/graphql":
            return request.match_info.route.name or f"{request.method} {request.path}"
        try:
            body = json.loads(await request.read())
            entry |= {"variables": body.get("variables"), "document": body["query"]}
            return self._document(body["query"]).name or "anonymous"
        except (ValueError, KeyError, Refused):
            return "unreadable"

    def _document(self, text: str) -> Document:
        if text not in self._documents:
            try:
                self._documents[text] = parse(text)
            except Unreadable as error:
                raise Refused(400, str(error)) from error
        return self._documents[text]


def _bound(port: int) -> socket.socket:
    listener = socket.socket()
    # Connections of who listened there before may still be about to close.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    return listener
