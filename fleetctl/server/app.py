"""Puts the application together: routes of the table, the check of callers, errors as data, and the
guard around all. Called by api_server.py and by tests.

`pages`: more routes of Starlette, for pages that a browser opens; they stand behind the same guard,
with the same security headers, and find their caller by `find_caller`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Sequence
from functools import cache, partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError
from fleetctl.common.exec_frames import EXEC_PATH
from fleetctl.server.api_metrics import ServerMetrics
from fleetctl.server.callers import (
    COOKIE,
    EDITOR,
    Caller,
    CallerCheck,
    HttpError,
    ListenAddress,
    page_token,
)
from fleetctl.server.change_feed import ChangeFeed
from fleetctl.server.changes import refusal_response
from fleetctl.server.exec_socket import serve_exec
from fleetctl.server.guard import RequestGuard
from fleetctl.server.openapi import build_openapi
from fleetctl.server.reader_pool import ReaderPool
from fleetctl.server.route_table import ApiCall, ApiRoute, ServerParts
from fleetctl.server.routes import ROUTES
from fleetctl.stores.access import AccessStore

NOBODY = Caller("", "viewer", "-")  # of routes that are open to everybody: it may see nothing


def make_app(
    home: Path,
    listens: ListenAddress,
    pages: Sequence[BaseRoute] = (),
    webhook_secret: bytes = b"",
) -> Starlette:
    """Returns the application of one server. webhook_secret: empty: it takes no webhooks."""
    parts = ServerParts(
        home,
        AccessStore(home),
        ReaderPool(home),
        ChangeFeed(home),
        ServerMetrics(home),
        webhook_secret,
    )

    @contextlib.asynccontextmanager
    async def live(_: Starlette) -> AsyncIterator[None]:
        feed = asyncio.ensure_future(parts.feed.run())
        try:
            yield
        finally:
            feed.cancel()
            parts.feed.close()
            parts.readers.close()

    app = Starlette(
        routes=[_mount_exec(parts), *(_mount_route(it, parts) for it in ROUTES), *pages],
        lifespan=live,
        middleware=[Middleware(RequestGuard, listens=listens)],
        exception_handlers={404: _answer_missing, 405: _answer_missing},
    )
    app.state.parts = parts
    app.state.openapi = cache(partial(build_openapi, ROUTES))
    app.state.callers = CallerCheck(parts.access, listens)
    return app


async def find_caller(request: HTTPConnection) -> Caller:
    """Returns who sends a request. Raises HttpError 401."""
    check: CallerCheck = request.app.state.callers
    return await check.find(
        request.headers,
        request.cookies,
        peer=request.scope["state"].get("peer"),
        address=request.scope["state"].get("address", ""),
        now_s=SystemClock().now_s(),
    )


def _mount_route(route: ApiRoute, parts: ServerParts) -> Route:
    async def answer(request: Request) -> Response:
        began_s = time.monotonic()
        response = await _handle_request(route, request, parts)
        took_s = time.monotonic() - began_s
        parts.metrics.note_http(route.whole_path, route.method, response.status_code, took_s)
        return response

    return Route(route.whole_path, answer, methods=[route.method])


def _mount_exec(parts: ServerParts) -> WebSocketRoute:
    async def answer(websocket: WebSocket) -> None:
        try:
            caller = await find_caller(websocket)
            if caller.by_cookie:
                raise HttpError(403, "a page enters no task; the command line does, with a token")
            caller.require(EDITOR)
            await serve_exec(websocket, caller, parts)
        except FleetctlError as error:
            await websocket.send_denial_response(refusal_response(error))

    return WebSocketRoute(EXEC_PATH, answer)


async def _handle_request(
    route: ApiRoute,
    request: Request,
    parts: ServerParts,
) -> Response:
    try:
        caller = NOBODY
        if route.role is not None:
            caller = await find_caller(request)
            if caller.by_cookie and route.method != "GET":
                check_page_token(request)
            caller.require(route.role)
        made = await route.handler(ApiCall(request, caller, parts))
    except FleetctlError as error:
        return refusal_response(error)
    except ClientDisconnect:
        return Response(status_code=400)  # nobody reads it
    if isinstance(made, Response):
        return made
    return Response(
        json.dumps(made, separators=(",", ":"), ensure_ascii=False), media_type=route.sort
    )


def check_page_token(request: Request) -> None:
    """Raises HttpError where a change that a browser's cookie allows does not come from a page of
    ours: only those can read the cookie's twin and send it as a header."""
    given = request.headers.get("x-csrf-token", "")
    if not hmac.compare_digest(given, page_token(request.cookies.get(COOKIE, ""))):
        raise HttpError(403, "the header X-CSRF-Token is missing or wrong")


async def _answer_missing(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    message = f"there is no `{request.method} {request.url.path[:200]}`"
    hint = "/api/v1/openapi.json lists what there is"
    return JSONResponse({"ok": False, "code": 4, "errors": [message], "hint": hint}, status)
