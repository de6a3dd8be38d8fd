"""What every request passes: the count, latency, faults, the key, the throttlers, the box at hand.

Outermost first. A fault `before` leaves the world as it was; one `after` lets the route do its work
and then spoils the answer, which is how an answer gets lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from .asking import SANDBOX
from .errors import Refused, answer, bad_request, not_found
from .faults import Fault
from .state import World

LOG = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
# Requests that need no key: they are public, or carry a signature or token that the route checks.
OPEN = ("/admin/", "/api/health", "/api/config", "/api/socket.io", "/preview/", "/signed/")
SIGNED_FILES = ("/files/download", "/files/upload-v2")
LIFECYCLE = frozenset(
    ("start", "stop", "pause", "resize", "archive", "recover", "fork", "snapshot", "backup")
)


def build(world: World) -> list[Any]:
    throttle = Throttle(world)

    @web.middleware
    async def outer(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith("/admin/"):
            return await handler(request)
        operation, began_s = operation_of(request), time.monotonic()
        world.requests.counts[operation] += 1
        entry: dict[str, Any] = {"method": request.method, "path": request.path}
        entry |= {"operation": operation, "at_s": world.clock.now_s()}
        world.requests.newest.append(entry)
        if world.settings.latency_s > 0:
            await asyncio.sleep(world.settings.latency_s)
        response = await faulted(request, operation, handler)
        entry["status"] = response.status
        entry["took_s"] = time.monotonic() - began_s
        return response

    async def faulted(request: web.Request, operation: str, handler: Handler) -> web.StreamResponse:
        where = (request.method, request.path, operation)
        if before := world.faults.of(*where, "before"):
            spoiled = await spoil(before, request)
            if spoiled is not None:
                return spoiled
        if during := world.faults.of(*where, "during"):
            asyncio.get_running_loop().call_later(during.delay_s, cut, during, request)
        response = await refusing(request, handler)
        if after := world.faults.of(*where, "after"):
            return await spoil(after, request) or response
        return response

    async def refusing(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            authorise(world, request)
            limits = throttle.take(request)
            with_sandbox = request.path.startswith("/toolbox/")
            response = await (
                toolbox(world, request, handler) if with_sandbox else handler(request)
            )
        except Refused as refused:
            return answer(refused, request, world.clock.iso())
        except web.HTTPException as refused:
            if refused.status < 400:
                raise
            said = Refused(refused.status, f"Cannot {request.method} {request.path}")
            return answer(said, request, world.clock.iso())
        except Exception:
            LOG.exception("a route failed")
            said = Refused(500, "Internal server error")
            return answer(said, request, world.clock.iso())
        if not response.prepared:
            response.headers.update(limits)
        return response

    return [outer]


def operation_of(request: web.Request) -> str:
    """The operation's name in the specification, or its method and path pattern."""
    route = request.match_info.route
    if route.name:
        return route.name
    resource = route.resource
    return f"{request.method} {resource.canonical if resource else request.path}"


async def spoil(fault: Fault, request: web.Request) -> web.StreamResponse | None:
    """The answer that the fault makes, if it makes one."""
    if fault.delay_s > 0:
        await asyncio.sleep(fault.delay_s)
    if fault.drop or fault.reset:
        cut(fault, request)
        return web.Response(status=499)  # nobody reads it
    if fault.status is None:
        return None
    if isinstance(fault.body, str):
        return web.Response(
            status=fault.status, headers=fault.headers, text=fault.body, content_type="text/html"
        )
    body = fault.body
    if body is None:
        body = {"statusCode": fault.status, "message": "emulated fault", "error": "Fault"}
    text = json.dumps(body)
    kind = "application/json"
    return web.Response(status=fault.status, headers=fault.headers, text=text, content_type=kind)


def cut(fault: Fault, request: web.Request) -> None:
    """Some clients send a request again after an end, and not after a reset."""
    transport = request.transport
    if transport is not None and fault.reset:
        transport.abort()
    elif transport is not None:
        transport.close()


def authorise(world: World, request: web.Request) -> None:
    path = request.path
    if path.startswith(OPEN) or not path.startswith(("/api/", "/toolbox/")):
        return
    if path.startswith("/toolbox/") and path.endswith(SIGNED_FILES):
        return
    kind, _, key = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or key not in world.settings.keys:
        raise Refused(401, "Unauthorized")
    if not world.settings.keys[key]:
        raise Refused(403, "Forbidden resource")


async def toolbox(world: World, request: web.Request, handler: Handler) -> web.StreamResponse:
    """Find the sandbox; while one of its requests is under way, it is in use."""
    sandbox = world.sandbox(request.path.split("/")[2])
    if sandbox is None or sandbox.state == "destroyed":
        raise not_found(f"Sandbox with ID {request.path.split('/')[2]} not found")
    if sandbox.state != "started" or sandbox.box is None:
        raise bad_request("no IP address found. Is the Sandbox started?")
    request[SANDBOX] = sandbox
    sandbox.activity_at_s = world.clock.now_s()
    sandbox.open_requests += 1
    connection = request.transport
    if connection is not None:  # it is when the client is gone already
        sandbox.connections.add(connection)
    try:
        return await handler(request)
    finally:
        sandbox.open_requests -= 1
        if connection is not None:
            sandbox.connections.discard(connection)
        sandbox.activity_at_s = world.clock.now_s()


class Throttle:
    """Requests a minute for each kind of request, in a window that slides."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._taken: dict[str, deque[float]] = {}

    def take(self, request: web.Request) -> dict[str, str]:
        """Headers to send along. Raises the 429 of the platform, with the throttler's headers."""
        headers: dict[str, str] = {}
        if not request.path.startswith("/api/") or request.path.startswith(OPEN):
            return headers
        for name in throttlers(request):
            limit = self._world.settings.rate_per_minute.get(name)
            if limit is not None:
                headers.update(self._take(name, limit))
        return headers

    def _take(self, name: str, limit: int) -> dict[str, str]:
        now_s = self._world.clock.now_s()
        taken = self._taken.setdefault(name, deque())
        while taken and taken[0] <= now_s - 60:
            taken.popleft()
        reset_s = max(1, round(60 - (now_s - taken[0]))) if taken else 60
        headers = {
            f"X-RateLimit-Limit-{name}": str(limit),
            f"X-RateLimit-Reset-{name}": str(reset_s),
        }
        if len(taken) >= limit:
            headers |= {f"X-RateLimit-Remaining-{name}": "0", f"Retry-After-{name}": str(reset_s)}
            raise Refused(429, "ThrottlerException: Too Many Requests", headers=headers)
        taken.append(now_s)
        return headers | {f"X-RateLimit-Remaining-{name}": str(limit - len(taken))}


def throttlers(request: web.Request) -> list[str]:
    parts = request.path.split("/")[2:]
    if parts == ["sandbox"] and request.method == "POST":
        return ["authenticated", "sandbox-create"]
    if parts[0] == "sandbox" and len(parts) > 1:
        changes = request.method == "POST" and parts[-1] in LIFECYCLE
        if changes or (request.method == "DELETE" and len(parts) == 2):
            return ["authenticated", "sandbox-lifecycle"]
    return ["authenticated"]
