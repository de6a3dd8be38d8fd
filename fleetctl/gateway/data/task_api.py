"""The tasks' side of the gateway: finds the caller, the endpoint and the limits of a request."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import web

from fleetctl.common.event_loop import wait_within
from fleetctl.gateway.asking.ask import answer_call
from fleetctl.gateway.asking.call import EndpointCall, key_of
from fleetctl.gateway.batching.batcher import Batcher
from fleetctl.gateway.data import idempotent_calls
from fleetctl.gateway.data.idempotent_calls import serve_websocket as serve_line
from fleetctl.gateway.data.listing import (
    MODELS,
    OF_OLLAMA,
    TAGS,
    ask_ollama,
    find_model,
    list_models,
)
from fleetctl.gateway.endpoints import CallerGrant, GatewayEndpoint
from fleetctl.gateway.gateway_state import GatewayState
from fleetctl.gateway.numbered_calls import CallAnswer
from fleetctl.gateway.rules.failures import (
    BAD_REQUEST,
    ENDPOINT_UNKNOWN,
    LIMIT_REACHED,
    MODEL_NOT_FOUND,
    NO_ANSWER,
    NOT_GRANTED,
    NOT_SERVED,
    GatewayRefusal,
)
from fleetctl.guest.remote.relay.http import to_server

BODY_BYTES_MAX = 16 * 2**20
# After its start, until the controller sends the grants.
GRANTS_WAIT_S = 10.0
CALLS_MAX = 4096  # calls per task at once, each with a connection of its own
FALLBACKS_MAX = 1000  # fallbacks in one message of a helper
ASKING = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/embeddings",
)
_NO_TASK = "the token is of no task that runs"
BATCH = "/batch"  # before a path: its answer may come by a batch, hours later
BATCHED = "/v1/chat/completions"


def data_app(state: GatewayState, batcher: Batcher) -> web.Application:
    # One byte more, so that a body of exactly the most is read.
    app = web.Application(client_max_size=BODY_BYTES_MAX + 1, middlewares=[_only_tasks])

    async def serve(request: web.Request) -> web.StreamResponse:
        try:
            return await _serve_request(state, request)
        except GatewayRefusal as refusal:
            return refusal_response(refusal)

    async def line(request: web.Request) -> web.StreamResponse:
        if state.granted.is_set() and _read_token(request) not in state.grants:
            return refusal_response(GatewayRefusal(401, NOT_GRANTED, _NO_TASK))
        hear = partial(_answer_frame, state, batcher)
        drop = partial(_cancel_call, state)
        return await serve_line(request, hear, drop, BODY_BYTES_MAX)

    app.router.add_get("/calls", line)
    app.router.add_route("*", "/{path:.*}", serve)
    return app


@web.middleware
async def _only_tasks(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuses requests of pages in a browser, also those to a name that resolves to loopback."""
    if request.headers.get("Origin") or not _is_local(request.host):
        return refusal_response(
            GatewayRefusal(
                403, NOT_SERVED, "only tasks may call this gateway, by its loopback address"
            )
        )
    return await handler(request)


def _is_local(host: str) -> bool:
    return host.rsplit(":", 1)[0] in ("127.0.0.1", "localhost")


def refusal_response(refusal: GatewayRefusal) -> web.Response:
    answer = idempotent_calls.answer_of(refusal)
    response = web.Response(
        status=answer.status,
        headers=answer.headers,
        body=answer.body,
    )
    if refusal.status in (401, 403):
        response.force_close()  # a client without a token holds no connection
    return response


async def _serve_request(state: GatewayState, request: web.Request) -> web.StreamResponse:
    path, token = request.path, ""
    if path.startswith("/t/"):
        token, _, rest = path.removeprefix("/t/").partition("/")
        path = "/" + rest
    grant = await _find_grant(state, token or _read_token(request))
    if state.calling[grant.run] >= CALLS_MAX:
        raise GatewayRefusal(429, LIMIT_REACHED, f"this task has {CALLS_MAX:,} calls under way")
    state.calling[grant.run] += 1
    try:
        return await _answer_request(state, request, grant, path)
    finally:
        state.calling[grant.run] -= 1
        if not state.calling[grant.run]:
            del state.calling[grant.run]


def _read_token(request: web.Request) -> str:
    """Returns the token of the header, also as Anthropic's clients send it; empty without a
    token.
    """
    scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return bearer
    return request.headers.get("x-api-key", "")


async def _answer_request(
    state: GatewayState,
    request: web.Request,
    grant: CallerGrant,
    path: str,
) -> web.StreamResponse:
    name, path = _split_endpoint(path)
    if (
        found := await _answer_without_model(
            state,
            grant,
            name,
            path,
            request,
        )
    ) is not None:
        return found
    if path == "/limits" and request.method == "GET":
        model = request.query.get("model", "")
        return web.json_response(
            _describe_limits(
                state, grant, _choose_endpoint(_list_granted(state, grant, name), model), model
            )
        )
    if path == "/fallbacks" and request.method == "POST":
        return web.json_response(
            _count_fallbacks(state, grant, _parse_body(await request.read()), name)
        )
    if path.startswith(idempotent_calls.ASKED) and request.method == "DELETE":
        idempotent_calls.cancel_call(state, grant.run, path.removeprefix(idempotent_calls.ASKED))
        return web.Response(status=204)
    if path not in ASKING or request.method != "POST":
        raise GatewayRefusal(404, NOT_SERVED, f"{request.method} of this path is not served")
    headers = to_server(request.headers)
    call = replace(
        _build_call(
            state,
            grant,
            name,
            path,
            await request.read(),
        ),
        headers=headers,
    )
    number = request.headers.get(idempotent_calls.NUMBER)
    if number is not None:
        have = idempotent_calls.have_of(request)
        return await idempotent_calls.send_answer(
            request, idempotent_calls.join_call(call, number, have), have
        )
    return await _answer_directly(request, call)


async def _answer_without_model(
    state: GatewayState,
    grant: CallerGrant,
    name: str,
    path: str,
    request: web.Request,
) -> web.Response | None:
    """Answers a request that needs no model; returns None for any other path."""
    if path in (MODELS, TAGS) and request.method == "GET":
        granted = _list_granted(state, grant, name)
        return web.json_response(await list_models(state, path, granted))

    if path.startswith(f"{MODELS}/") and request.method == "GET":
        granted = _list_granted(state, grant, name)
        model = path.removeprefix(f"{MODELS}/")
        return web.json_response(await find_model(state, model, granted))

    if OF_OLLAMA.get(path) != request.method:
        return None
    body = _parse_body(await request.read()) if request.method == "POST" else {}
    model = str(body.get("model") or body.get("name") or "")
    endpoint = _choose_endpoint(_list_granted(state, grant, name), model)
    answer = await ask_ollama(state, endpoint, path, body)
    return web.Response(
        status=answer.status,
        headers=answer.headers,
        body=answer.body,
    )


async def _answer_frame(
    state: GatewayState,
    batcher: Batcher,
    token: str,
    path: str,
    raw: bytes,
    number: str,
) -> CallAnswer:
    """Answers a numbered call of a shared connection, where a refusal is an answer as well."""
    try:
        grant = await _find_grant(state, token)
        name, path = _split_endpoint(path)
        if path == BATCH + BATCHED:
            call = _build_call(
                state,
                grant,
                name,
                BATCHED,
                raw,
            )
            del raw  # thousands wait for hours
            answer = await idempotent_calls.join_call(call, number, 0, by=batcher.ask).whole()
            if answer is not None:
                return answer
            return idempotent_calls.answer_of(_broken_refusal(call))
        if path not in ASKING:
            raise GatewayRefusal(404, NOT_SERVED, "this path is not served")
        call = _build_call(
            state,
            grant,
            name,
            path,
            raw,
        )
        answer = await idempotent_calls.join_call(call, number, 0).whole()
        if answer is None:
            raise _broken_refusal(call)
        return answer
    except GatewayRefusal as refusal:
        return idempotent_calls.answer_of(refusal)


def _broken_refusal(call: EndpointCall) -> GatewayRefusal:
    return GatewayRefusal(502, NO_ANSWER, f"endpoint {call.endpoint.name}: the answer broke off")


def _cancel_call(
    state: GatewayState,
    token: str,
    number: str,
) -> None:
    grant = state.grants.get(token)
    if grant is not None:
        idempotent_calls.cancel_call(state, grant.run, number)


async def _find_grant(state: GatewayState, token: str) -> CallerGrant:
    if not state.granted.is_set():
        await wait_within(state.granted, GRANTS_WAIT_S)
    grant = state.grants.get(token)
    state.calls += grant is not None
    if grant is None:
        raise GatewayRefusal(401, NOT_GRANTED, _NO_TASK)
    return grant


def _split_endpoint(path: str) -> tuple[str, str]:
    """Returns the endpoint that a path names, or "", and the rest of the path."""
    if not path.startswith("/endpoints/"):
        return "", path
    name, _, rest = path.removeprefix("/endpoints/").partition("/")
    return name, "/" + rest


def _build_call(
    state: GatewayState,
    grant: CallerGrant,
    name: str,
    path: str,
    raw: bytes,
) -> EndpointCall:
    if len(raw) > BODY_BYTES_MAX:
        raise GatewayRefusal(413, BAD_REQUEST, f"the body has more than {BODY_BYTES_MAX} bytes")
    body = _parse_body(raw)
    if body.get("background") and path == "/v1/responses":
        message = "an answer in the background cannot be counted; leave `background` out"
        raise GatewayRefusal(400, BAD_REQUEST, message)
    endpoint = _choose_endpoint(_list_granted(state, grant, name), str(body.get("model") or ""))
    if not body.get("model") and endpoint.usual_model:
        body["model"] = endpoint.usual_model
    return EndpointCall(
        state,
        grant,
        endpoint,
        path,
        body,
        len(raw),
    )


def _parse_body(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise GatewayRefusal(400, BAD_REQUEST, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise GatewayRefusal(400, BAD_REQUEST, "the body must be a JSON object")
    return body


def _list_granted(
    state: GatewayState,
    grant: CallerGrant,
    name: str,
) -> list[GatewayEndpoint]:
    names = [n for n in grant.endpoints if not name or n == name]
    found = [state.endpoints.get((grant.namespace, n)) for n in names]
    known = [endpoint for endpoint in found if endpoint is not None]
    if not known:
        raise GatewayRefusal(404, ENDPOINT_UNKNOWN, "this task has no such endpoint")
    return known


def _choose_endpoint(endpoints: list[GatewayEndpoint], model: str) -> GatewayEndpoint:
    """Returns the first endpoint that declares the model, else the first without declared models,
    which takes any. A server's own name for a declared model would bypass its price. Without a
    model: the usual endpoint.
    """
    if not model:
        return endpoints[0]
    declaring = [it for it in endpoints if it.knows(model)]
    found = declaring or [it for it in endpoints if not it.spec.get("models")]
    if not found:
        names = ", ".join(f"`{name}`" for it in endpoints for name in it.spec["models"])
        message = f"endpoint {endpoints[0].name} has no model `{model}`; it has {names}"
        raise GatewayRefusal(404, MODEL_NOT_FOUND, message)
    return found[0]


def _describe_limits(
    state: GatewayState,
    grant: CallerGrant,
    endpoint: GatewayEndpoint,
    model: str,
) -> dict[str, Any]:
    """Returns the limits that a helper needs before it sends n calls at once."""
    prices = endpoint.spec.get("prices") or {}
    return {
        "endpoint": endpoint.name,
        "price": prices.get(model),  # USD of a million tokens; unknown is never 0
        "calls_used": state.ledger.tree(key_of(grant, endpoint.name)).calls,
        "calls_allowed": endpoint.limits.calls_per_task,
        "concurrency": endpoint.concurrency,
    }


def _count_fallbacks(
    state: GatewayState,
    grant: CallerGrant,
    body: dict[str, Any],
    name: str,
) -> dict[str, int]:
    """Counts the fallbacks that a helper used instead of answers; totals of the run, over all its
    endpoints.
    """
    count = body.get("count")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= FALLBACKS_MAX:
        raise GatewayRefusal(
            400, BAD_REQUEST, f"`count` must be a whole number from 1 to {FALLBACKS_MAX}"
        )
    endpoint = _list_granted(state, grant, str(body.get("endpoint") or name))[0]
    state.ledger.add(key_of(grant, endpoint.name), fallbacks=count)
    rows = [state.ledger.row(key_of(grant, it)) for it in grant.endpoints]
    return {it: sum(int(row[it]) for row in rows) for it in ("calls", "fallbacks")}


async def _answer_directly(request: web.Request, call: EndpointCall) -> web.StreamResponse:
    response: web.StreamResponse | None = None

    async def begin(status: int, headers: dict[str, str]) -> None:
        nonlocal response
        response = web.StreamResponse(status=status, headers=headers)
        await response.prepare(request)

    async def piece(data: bytes) -> None:
        assert response is not None
        await response.write(data)

    try:
        answer = await answer_call(call, begin, piece)
    except GatewayRefusal:
        if response is None:
            raise
        # The answer had begun: only a cut shows the task that it is not whole.
        if request.transport is not None:
            request.transport.close()
        return response
    if response is None:
        return web.Response(
            status=answer.status,
            headers=answer.headers,
            body=answer.body,
        )
    await response.write_eof()
    return response
