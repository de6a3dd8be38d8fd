"""The tasks' side of the gateway: who asks, for which endpoint, and within which limits."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiohttp import web

from fleetctl.common.tasks import within
from fleetctl.gateway.asking.ask import ask
from fleetctl.gateway.asking.call import Call, key_of
from fleetctl.gateway.batching.batcher import Batcher
from fleetctl.gateway.data import retold
from fleetctl.gateway.data.line import serve as serve_line
from fleetctl.gateway.endpoints import Endpoint, Grant
from fleetctl.gateway.numbered import Answer
from fleetctl.gateway.rules.refusal import (
    BAD_REQUEST,
    ENDPOINT_UNKNOWN,
    MODEL_NOT_FOUND,
    NO_ANSWER,
    NOT_GRANTED,
    NOT_SERVED,
    Refusal,
)
from fleetctl.gateway.state import State

BODY_BYTES_MAX = 16 * 2**20
# After its start, until the controller says who may call.
GRANTS_WAIT_S = 10.0
FALLBACKS_MAX = 1000  # of one word of a helper
ASKING = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/embeddings",
)
BATCH = "/batch"  # before a path: its answer may come by a batch, hours later
BATCHED = "/v1/chat/completions"
LISTING = ("/v1/models", "/api/tags")


def data_app(state: State, batcher: Batcher) -> web.Application:
    # One byte more, so that a body of exactly the most is read.
    app = web.Application(client_max_size=BODY_BYTES_MAX + 1, middlewares=[_only_tasks])

    async def serve(request: web.Request) -> web.StreamResponse:
        try:
            return await _serve(state, request)
        except Refusal as refusal:
            return refused(refusal)

    async def line(request: web.Request) -> web.WebSocketResponse:
        hear, drop = partial(_hear, state, batcher), partial(_drop, state)
        return await serve_line(request, hear, drop, BODY_BYTES_MAX)

    app.router.add_get("/calls", line)
    app.router.add_route("*", "/{path:.*}", serve)
    return app


@web.middleware
async def _only_tasks(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """No page in a browser drives the gateway, also not by a name that resolves to loopback."""
    if request.headers.get("Origin") or not _ours(request.host):
        return refused(
            Refusal(403, NOT_SERVED, "only tasks may call this gateway, by its loopback address")
        )
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
    grant = await _grant(state, token)
    name, path = _named(path)
    if path in LISTING and request.method == "GET":
        return web.json_response(_listing(path, _granted(state, grant, name)))
    if path == "/limits" and request.method == "GET":
        model = request.query.get("model", "")
        return web.json_response(
            _limits(state, grant, _choose(_granted(state, grant, name), model), model)
        )
    if path == "/fallbacks" and request.method == "POST":
        return web.json_response(_fallbacks(state, grant, _body(await request.read()), name))
    if path.startswith(retold.ASKED) and request.method == "DELETE":
        retold.cancel(state, grant.run, path.removeprefix(retold.ASKED))
        return web.Response(status=204)
    if path not in ASKING or request.method != "POST":
        raise Refusal(404, NOT_SERVED, f"{request.method} of this path is not served")
    call = _call(state, grant, name, path, await request.read())
    number = request.headers.get(retold.NUMBER)
    if number is not None:
        have = retold.have_of(request)
        return await retold.tell(request, retold.asked(call, number, have), have)
    return await _direct(request, call)


async def _hear(
    state: State, batcher: Batcher, token: str, path: str, raw: bytes, number: str
) -> Answer:
    """The same of a numbered call that comes by a line: a refusal is an answer there."""
    try:
        grant = await _grant(state, token)
        name, path = _named(path)
        if path == BATCH + BATCHED:
            call = _call(state, grant, name, BATCHED, raw)
            del raw  # thousands wait for hours
            answer = await retold.asked(call, number, 0, by=batcher.ask).whole()
            return answer if answer is not None else retold.answer_of(_broken(call))
        if path not in ASKING:
            raise Refusal(404, NOT_SERVED, "this path is not served")
        call = _call(state, grant, name, path, raw)
        answer = await retold.asked(call, number, 0).whole()
        if answer is None:
            raise _broken(call)
        return answer
    except Refusal as refusal:
        return retold.answer_of(refusal)


def _broken(call: Call) -> Refusal:
    return Refusal(502, NO_ANSWER, f"endpoint {call.endpoint.name}: the answer broke off")


def _drop(state: State, token: str, number: str) -> None:
    grant = state.grants.get(token)
    if grant is not None:
        retold.cancel(state, grant.run, number)


async def _grant(state: State, token: str) -> Grant:
    if not state.granted.is_set():
        await within(state.granted, GRANTS_WAIT_S)
    grant = state.grants.get(token)
    if grant is None:
        raise Refusal(401, NOT_GRANTED, "the token is of no task that runs")
    return grant


def _named(path: str) -> tuple[str, str]:
    """The endpoint that a path names, or "", and the rest of it."""
    if not path.startswith("/endpoints/"):
        return "", path
    name, _, rest = path.removeprefix("/endpoints/").partition("/")
    return name, "/" + rest


def _call(state: State, grant: Grant, name: str, path: str, raw: bytes) -> Call:
    if len(raw) > BODY_BYTES_MAX:
        raise Refusal(413, BAD_REQUEST, f"the body has more than {BODY_BYTES_MAX} bytes")
    body = _body(raw)
    endpoint = _choose(_granted(state, grant, name), str(body.get("model") or ""))
    if not body.get("model") and endpoint.usual_model:
        body["model"] = endpoint.usual_model
    return Call(state, grant, endpoint, path, body, len(raw))


def _body(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise Refusal(400, BAD_REQUEST, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refusal(400, BAD_REQUEST, "the body must be a JSON object")
    return body


def _granted(state: State, grant: Grant, name: str) -> list[Endpoint]:
    names = [n for n in grant.endpoints if not name or n == name]
    found = [state.endpoints.get((grant.namespace, n)) for n in names]
    known = [endpoint for endpoint in found if endpoint is not None]
    if not known:
        raise Refusal(404, ENDPOINT_UNKNOWN, "this task has no such endpoint")
    return known


def _choose(endpoints: list[Endpoint], model: str) -> Endpoint:
    """The first that declares the model, else the first that declares none and so takes any. A
    server's own name for a declared model would be asked past its price. No model: the usual one.
    """
    if not model:
        return endpoints[0]
    declaring = [it for it in endpoints if it.knows(model)]
    found = declaring or [it for it in endpoints if not it.spec.get("models")]
    if not found:
        names = ", ".join(f"`{name}`" for it in endpoints for name in it.spec["models"])
        message = f"endpoint {endpoints[0].name} has no model `{model}`; it has {names}"
        raise Refusal(404, MODEL_NOT_FOUND, message)
    return found[0]


def _listing(path: str, endpoints: list[Endpoint]) -> dict[str, Any]:
    names = [name for e in endpoints for name in e.spec.get("models") or {}]
    if path == "/v1/models":
        rows = [{"id": n, "object": "model", "created": 0, "owned_by": "fleetctl"} for n in names]
        return {"object": "list", "data": rows}
    return {"models": [{"name": name, "model": name} for name in names]}


def _limits(state: State, grant: Grant, endpoint: Endpoint, model: str) -> dict[str, Any]:
    """What a helper has to know before it asks n at once."""
    prices = endpoint.spec.get("prices") or {}
    return {
        "endpoint": endpoint.name,
        "price": prices.get(model),  # USD of a million tokens; unknown is never 0
        "calls_used": state.ledger.tree(key_of(grant, endpoint.name)).calls,
        "calls_allowed": endpoint.limits.calls_per_task,
        "concurrency": endpoint.concurrency,
    }


def _fallbacks(state: State, grant: Grant, body: dict[str, Any], name: str) -> dict[str, int]:
    """Count what a helper took in place of answers; totals of the run, over all its endpoints."""
    count = body.get("count")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= FALLBACKS_MAX:
        raise Refusal(400, BAD_REQUEST, f"`count` must be a whole number from 1 to {FALLBACKS_MAX}")
    endpoint = _granted(state, grant, str(body.get("endpoint") or name))[0]
    state.ledger.add(key_of(grant, endpoint.name), fallbacks=count)
    rows = [state.ledger.row(key_of(grant, it)) for it in grant.endpoints]
    return {it: sum(int(row[it]) for row in rows) for it in ("calls", "fallbacks")}


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
