"""The controller's side of the gateway: endpoints and grants in, usage and health out."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from fleetctl.common.tokens import gateway_token
from fleetctl.gateway.endpoints import Endpoint, Grant
from fleetctl.gateway.ledger import COUNTS
from fleetctl.gateway.state import State

PROBE_PATHS = ("/v1/models", "/api/tags", "/health")
PROBE_S = 5.0
WAIT_MAX_S = 10.0
_PRIVATE = ("reserved_in", "reserved_out")


def control_app(state: State) -> web.Application:
    @web.middleware
    async def heard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        state.heard = True
        return await handler(request)

    app = web.Application(client_max_size=64 * 2**20, middlewares=[heard])

    async def put_endpoints(request: web.Request) -> web.Response:
        rows = (await request.json())["endpoints"]
        previous = state.endpoints
        state.endpoints = {}
        for row in rows:
            name = (row["namespace"], row["name"])
            old = previous.get(name)
            same = old is not None and (old.spec, old.key) == (row["spec"], row.get("key") or "")
            kept = {s.url: s for s in old.servers} if old else {}
            state.endpoints[name] = old if same and old else Endpoint(row, kept)
        return web.json_response({})

    async def put_grants(request: web.Request) -> web.Response:
        state.grants = {
            gateway_token(state.key, row["run"]): Grant(
                row["run"],
                f"{row['namespace']}/{row['object']}",
                row["namespace"],
                tuple(row["endpoints"]),
                row.get("usd_left"),
            )
            for row in (await request.json())["grants"]
        }
        return web.json_response({})

    async def usage(request: web.Request) -> web.Response:
        after = int(request.query.get("after", "0"))
        until_s = time.monotonic() + min(WAIT_MAX_S, float(request.query.get("wait", "0")))
        while state.ledger.seq <= after and (left_s := until_s - time.monotonic()) > 0:
            await asyncio.sleep(min(0.1, left_s))
        rows = [_usage_row(state, row) for row in state.ledger.changed(after)]
        return web.json_response({"seq": state.ledger.seq, "rows": rows})

    async def health(_: web.Request) -> web.Response:
        every = await asyncio.gather(*(_health(state.client, e) for e in state.endpoints.values()))
        return web.json_response({"endpoints": list(every)})

    async def bye(_: web.Request) -> web.Response:
        state.ended.set()
        return web.json_response({})

    async def ping(_: web.Request) -> web.Response:
        return web.json_response({"pid": os.getpid()})

    app.router.add_get("/ping", ping)
    app.router.add_put("/endpoints", put_endpoints)
    app.router.add_put("/grants", put_grants)
    app.router.add_get("/usage", usage)
    app.router.add_get("/health", health)
    app.router.add_post("/bye", bye)
    return app


def _usage_row(state: State, row: dict[str, Any]) -> dict[str, Any]:
    key = (row["run"], row["namespace"], row["endpoint"])
    times = state.times.get(key)
    for name in COUNTS:
        if not name.endswith("usd"):
            row[name] = int(row[name])
    shown = {name: value for name, value in row.items() if name not in (*_PRIVATE, "seq")}
    for name in ("waiting_ms", "answer_ms"):
        samples = sorted(getattr(times, name)) if times else []
        shown[f"{name}_p50"], shown[f"{name}_p95"] = _rank(samples, 0.5), _rank(samples, 0.95)
    return shown


def _rank(samples: Sequence[float], share: float) -> float | None:
    return samples[min(len(samples) - 1, int(len(samples) * share))] if samples else None


async def _health(client: ClientSession, endpoint: Endpoint) -> dict[str, Any]:
    probes = [await _probe(client, endpoint, server.url) for server in endpoint.servers]
    ready = [probe for probe in probes if probe[0] == "Ready"]
    reason, message, hint = (ready or probes or [("ServerUnreachable", "no server", "")])[0]
    now_s = time.monotonic()
    servers = [
        {
            "url": server.url,
            "state": probe[0],
            "in_flight": server.in_flight,
            "slots": server.slots,
            "resting_s": max(0.0, server.resting_until_s - now_s),
        }
        for server, probe in zip(endpoint.servers, probes, strict=True)
    ]
    return {
        "name": endpoint.name,
        "namespace": endpoint.namespace,
        "ready": bool(ready),
        "reason": reason,
        "message": message,
        "hint": hint,
        "servers": servers,
        "concurrency": endpoint.adaptive.limit,
        "queue": len(endpoint.waiting),
    }


async def _probe(client: ClientSession, endpoint: Endpoint, url: str) -> tuple[str, str, str]:
    """Reason, message and hint; a server that answers but lists no models counts as ready."""
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    answered = False
    for path in PROBE_PATHS:
        try:
            async with client.get(
                url + path,
                headers=headers,
                timeout=ClientTimeout(PROBE_S),
                allow_redirects=False,
            ) as reply:
                if reply.status in (401, 403):
                    hint = "set spec.apiKey to a secret that holds a key of this server"
                    return "KeyRefused", f"{url} refused the key ({reply.status})", hint
                if reply.status != 200:
                    continue
                answered = True
                listed = _models(await reply.json(content_type=None)) if path != "/health" else None
        except (ClientError, TimeoutError, OSError, ValueError):
            continue
        if listed is None:
            continue
        for model in (endpoint.spec.get("models") or {}).values():
            if model not in listed and f"{model}:latest" not in listed:
                hint = f"load `{model}` there, or name one of: {', '.join(sorted(listed)[:5])}"
                return "ModelNotFound", f"{url} does not serve `{model}`", hint
        return "Ready", "", ""
    if answered:
        return "Ready", "", ""
    hint = "start the server, or correct its url in spec.servers"
    return "ServerUnreachable", f"{url} did not answer", hint


def _models(reply: Any) -> set[str] | None:
    if not isinstance(reply, dict):
        return None
    rows = reply.get("data", reply.get("models"))
    if not isinstance(rows, list):
        return None
    names = [row.get("id", row.get("name")) for row in rows if isinstance(row, dict)]
    return {name for name in names if isinstance(name, str)}
