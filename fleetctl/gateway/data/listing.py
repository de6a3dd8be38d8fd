"""Requests of tasks that no model answers: the list of models, and an Ollama server's description
of its models. They are free and in no ledger. Called by task_api.py.
"""

from collections.abc import Sequence
from typing import Any

from aiohttp import ClientError, ClientTimeout

from fleetctl.gateway.asking.call_attempt import headers_of
from fleetctl.gateway.endpoints import GatewayEndpoint
from fleetctl.gateway.gateway_state import GatewayState
from fleetctl.gateway.numbered_calls import CallAnswer
from fleetctl.gateway.rules.failures import (
    MODEL_NOT_FOUND,
    NOT_SERVED,
    SERVER_UNREACHABLE,
    GatewayRefusal,
    parse_answer,
)
from fleetctl.gateway.rules.servers import UpstreamServer

MODELS = "/v1/models"
TAGS = "/api/tags"
# Ollama's paths that describe the server and a model; the body of the last names one.
OF_OLLAMA = {"/api/ps": "GET", "/api/version": "GET", "/api/show": "POST"}
QUESTION_S = 5.0
ROWS_MAX = 10_000


async def list_models(
    state: GatewayState,
    path: str,
    endpoints: Sequence[GatewayEndpoint],
) -> dict[str, Any]:
    """Lists the names that tasks may use: the declared models, and for an endpoint without declared
    models the list of its servers.
    """
    rows: list[dict[str, Any]] = []
    for endpoint in endpoints:
        declared = endpoint.spec.get("models") or {}
        rows += [_model_row(path, name) for name in declared]
        if not declared:
            rows += await _list_at_servers(state, endpoint, path)
    if path == MODELS:
        return {"object": "list", "data": rows}
    return {"models": rows}


async def find_model(
    state: GatewayState,
    name: str,
    endpoints: Sequence[GatewayEndpoint],
) -> dict[str, Any]:
    """Returns the row of a model in `/v1/models`. Raises GatewayRefusal where no endpoint of the
    task has it.
    """
    rows = (await list_models(state, MODELS, endpoints))["data"]
    found = next((row for row in rows if row.get("id") == name), None)
    if found is None:
        raise GatewayRefusal(404, MODEL_NOT_FOUND, f"no endpoint of this task has a model `{name}`")
    return dict(found)


async def ask_ollama(
    state: GatewayState,
    endpoint: GatewayEndpoint,
    path: str,
    body: dict[str, Any],
) -> CallAnswer:
    """Returns the Ollama server's own answer. Raises GatewayRefusal if there is no such server, or
    no answer.
    """
    server = next((it for it in endpoint.servers if it.api == "ollama"), None)
    if server is None:
        message = f"endpoint {endpoint.name}: {path} is Ollama's, and it has no such server"
        raise GatewayRefusal(404, NOT_SERVED, f"{message}; declare one with `api: ollama`")
    named = {
        name: endpoint.served_name(value) if isinstance(value, str) else value
        for name, value in body.items()
        if name in ("model", "name", "verbose")
    }
    found = await _request_server(
        state,
        endpoint,
        server,
        path,
        named or None,
    )
    if found is None:
        message = f"endpoint {endpoint.name}: {server.url} did not answer"
        raise GatewayRefusal(503, SERVER_UNREACHABLE, message)
    return found


async def _list_at_servers(
    state: GatewayState,
    endpoint: GatewayEndpoint,
    path: str,
) -> list[dict[str, Any]]:
    """Returns the list of the first server that lists any model; does not wake a Function's
    container.
    """
    for server in endpoint.servers:
        if server.sleep is not None or (path == TAGS and server.api != "ollama"):
            continue
        found = await _request_server(state, endpoint, server, path)
        reply = parse_answer(found.body) if found is not None and found.status == 200 else None
        rows = reply.get("data", reply.get("models")) if isinstance(reply, dict) else None
        if isinstance(rows, list) and rows:
            return [row for row in rows if isinstance(row, dict)][:ROWS_MAX]
    return []


async def _request_server(
    state: GatewayState,
    endpoint: GatewayEndpoint,
    server: UpstreamServer,
    path: str,
    body: Any = None,
) -> CallAnswer | None:
    """Returns the server's answer; None without an answer."""
    try:
        async with state.client.request(
            OF_OLLAMA.get(path, "GET"),
            endpoint.url_of(server, path),
            json=body,
            headers=headers_of(endpoint, server),
            timeout=ClientTimeout(QUESTION_S),
            allow_redirects=False,
            proxy=server.proxy,
        ) as reply:
            kind = reply.headers.get("Content-Type", "application/json")
            return CallAnswer(reply.status, {"Content-Type": kind}, await reply.read())
    except (ClientError, TimeoutError, OSError):
        return None


def _model_row(path: str, name: str) -> dict[str, Any]:
    if path == MODELS:
        return {"id": name, "object": "model", "created": 0, "owned_by": "fleetctl"}
    return {"name": name, "model": name}
