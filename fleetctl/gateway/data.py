"""The tasks' side of the gateway: who asks, for which endpoint, and within which limits."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from fleetctl.gateway import retold
from fleetctl.gateway.call import Call, Refusal, ask
from fleetctl.gateway.endpoints import Endpoint, Grant
from fleetctl.gateway.state import State

BODY_BYTES_MAX = 16 * 2**20
ASKING = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/embeddings",
)
LISTING = ("/v1/models", "/api/tags")


def data_app(state: State) -> web.Application:
    # One byte more, so that a body of exactly the most is read.
    app = web.Application(client_max_size=BODY_BYTES_MAX + 1, middlewares=[_only_tasks])

    async def serve(request: web.Request) -> web.StreamResponse:
        try:
            return await _serve(state, request)
        except Refusal as refusal:
            return refused(refusal)

    app.router.add_route("*", "/{path:.*}", serve)
    return app


@web.middleware
async def _only_tasks(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """No page in a browser drives the gateway, also not by a name that resolves to loopback."""
    if request.headers.get("Origin") or not _ours(request.host):
        return refused(Refusal(403, "only tasks may call this gateway, by its loopback address"))
    return await handler(request)


def _ours(host: str) -> bool:
    return host.rsplit(":", 1)[0] in ("127.0.0.1", "localhost")


def refused(refusal: Refusal) -> web.Response:
    answer = retold.answer_of(refusal)
    return web.Response(status=answer.status, headers=answer.headers, body=answer.body)


async def _serve(state: State, request: web.Request) -> web.StreamResponse:
    path, token = request.path, ""
    if path.startswith("/t/"):
        token, _, rest = path.removeprefix("/t/").partition("/")
        path = "/" + rest
    scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
    token = bearer if scheme.lower() == "bearer" and not token else token
    grant = state.grants.get(token)
    if grant is None:
        raise Refusal(401, "the token is of no task that runs")
    name = ""
    if path.startswith("/endpoints/"):
        name, _, rest = path.removeprefix("/endpoints/").partition("/")
        path = "/" + rest
    if path in LISTING and request.method == "GET":
        return web.json_response(_listing(path, _granted(state, grant, name)))
    if path.startswith(retold.ASKED) and request.method == "DELETE":
        retold.cancel(state, grant.run, path.removeprefix(retold.ASKED))
        return web.Response(status=204)
    if path not in ASKING or request.method != "POST":
        raise Refusal(404, f"{request.method} of this path is not served")
    raw = await request.read()
    if len(raw) > BODY_BYTES_MAX:
        raise Refusal(413, f"the body has more than {BODY_BYTES_MAX} bytes")
    body = _body(raw)
    endpoint = _choose(_granted(state, grant, name), str(body.get("model") or ""))
    call = Call(state, grant, endpoint, path, body, len(raw))
    number = request.headers.get(retold.NUMBER)
    if number is not None:
        have = retold.have_of(request)
        return await retold.tell(request, retold.asked(call, number, have), have)
    return await _direct(request, call)


def _body(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refusal(400, "the body must be a JSON object")
    return body


def _granted(state: State, grant: Grant, name: str) -> list[Endpoint]:
    names = [n for n in grant.endpoints if not name or n == name]
    found = [state.endpoints.get((grant.namespace, n)) for n in names]
    known = [endpoint for endpoint in found if endpoint is not None]
    if not known:
        raise Refusal(404, "this task has no such endpoint")
    return known


def _choose(endpoints: list[Endpoint], model: str) -> Endpoint:
    return next((e for e in endpoints if e.knows(model)), endpoints[0])


def _listing(path: str, endpoints: list[Endpoint]) -> dict[str, Any]:
    names = [name for e in endpoints for name in e.spec.get("models") or {}]
    if path == "/v1/models":
        rows = [{"id": n, "object": "model", "created": 0, "owned_by": "fleetctl"} for n in names]
        return {"object": "list", "data": rows}
    return {"models": [{"name": name, "model": name} for name in names]}


async def _direct(request: web.Request, call: Call) -> web.StreamResponse:
    response: web.StreamResponse | None = None

    async def begin(status: int, content_type: str) -> None:
        nonlocal response
        response = web.StreamResponse(status=status, headers={"Content-Type": content_type})
        await response.prepare(request)

    async def piece(data: bytes) -> None:
        assert response is not None
        await response.write(data)

    try:
        answer = await ask(call, begin, piece)
    except Refusal:
        if response is None:
            raise
        # The answer had begun: only a cut tells the task that it is not whole.
        if request.transport is not None:
            request.transport.close()
        return response
    if response is None:
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)
    await response.write_eof()
    return response
