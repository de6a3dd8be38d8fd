"""Web functions: a URL on loopback for each, whose requests start containers and are passed to the
port of one, as the service's own proxy does.

A request waits until a container takes it. Ground truth is that of all functions: containers with
their start and end, in function_fleet.Fleet.truth, and here the requests of each function.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, web
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .function_container import Container
from .function_pool import Pool, World
from .function_state import Function

_HOP = ("host", "content-length", "transfer-encoding", "connection")
Waiting = "asyncio.Future[Container | None]"


def check_web(request: Any) -> None:
    config = request.webhook_config
    if config.type != api_pb2.WEBHOOK_TYPE_WEB_SERVER:
        raise GRPCError(Status.UNIMPLEMENTED, "of web functions the emulator runs web servers only")
    if config.requires_proxy_auth or config.custom_domains:
        raise GRPCError(Status.UNIMPLEMENTED, "the emulator knows no proxy tokens and no domains")


class WebPool(Pool):
    """`requests`: when each came, its path, and the container that took it."""

    def __init__(self, function: Function, world: World) -> None:
        super().__init__(function, world)
        self.requests: list[dict[str, Any]] = []
        self._waiting: deque[asyncio.Future[Container | None]] = deque()
        self._under_way: dict[str, int] = {}  # by task id
        self._runner: web.AppRunner | None = None
        self._client: ClientSession | None = None

    async def listen(self) -> str:
        """Its URL."""
        if self._runner is None:
            self._client = ClientSession(
                cookie_jar=DummyCookieJar(), auto_decompress=False, timeout=ClientTimeout(None)
            )
            app = web.Application(client_max_size=2**30)
            app.router.add_route("*", "/{path:.*}", self._handle)
            self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
            await self._runner.setup()
            await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self, reason: str) -> None:
        self._refuse()
        await super().close(reason)
        if self._runner is not None and self._client is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()
            await self._client.close()

    # -- requests ---------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        note = {"at_s": time.time(), "path": request.path, "task_id": ""}
        self.requests.append(note)
        future: asyncio.Future[Container | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.pump()
        try:
            container = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result() is not None:
                self._left(future.result())
            with contextlib.suppress(ValueError):
                self._waiting.remove(future)
            raise
        if container is None:
            return web.Response(status=500, text="modal-http: internal error: container crashed")
        note["task_id"] = container.task_id
        try:
            return await self._passed(request, container)
        finally:
            self._left(container)

    async def _passed(self, request: web.Request, container: Container) -> web.StreamResponse:
        assert self._client is not None
        port = self.function.definition.webhook_config.web_server_port
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP}
        answer: web.StreamResponse | None = None
        try:
            async with self._client.request(
                request.method,
                f"http://127.0.0.1:{port}{request.raw_path}",
                headers=headers,
                data=await request.read(),
                allow_redirects=False,
            ) as reply:
                kept = {k: v for k, v in reply.headers.items() if k.lower() not in _HOP}
                answer = web.StreamResponse(status=reply.status, headers=kept)
                await answer.prepare(request)
                async for data in reply.content.iter_any():
                    await answer.write(data)
                await answer.write_eof()
                return answer
        except (ClientError, OSError):
            container.stop("its web server cannot be reached")
            if answer is not None:
                raise
            return web.Response(status=502, text="modal-http: bad gateway")

    def _left(self, container: Container | None) -> None:
        if container is None:
            return
        left = self._under_way[container.task_id] = self._under_way[container.task_id] - 1
        if not left and container.state == "busy":
            container.state, container.idle_since = "idle", time.time()
            later = self.function.scaledown_s + 0.05
            asyncio.get_running_loop().call_later(later, self._scale_down)
        self.pump()

    # -- scheduling -------------------------------------------------------------------------------

    def pump(self) -> None:
        if self.closed:
            return
        most = self.function.definition.max_concurrent_inputs or 1
        for container in self.containers.values():
            ready = container.state in ("idle", "busy") and not container.draining
            while ready and self._waiting and self._under_way.get(container.task_id, 0) < most:
                future = self._waiting.popleft()
                if future.done():
                    continue
                container.state = "busy"
                container.inputs_taken += 1
                self._under_way[container.task_id] = self._under_way.get(container.task_id, 0) + 1
                future.set_result(container)
        serving = [one for one in self.containers.values() if not one.draining]
        starting = sum(one.state == "starting" for one in serving)
        wanted = max(
            math.ceil(len(self._waiting) / most) - starting,
            self.function.min_containers - len(serving),
        )
        for _ in range(min(wanted, self.function.max_containers - len(serving))):
            if not self._start_cluster():
                return

    def _on_failed_start(self, failure: tuple[dict[str, Any], bytes]) -> None:
        self._refuse()

    def _refuse(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
