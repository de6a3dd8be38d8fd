"""The controller's side of the gateway: endpoints, grants and caps in; usage, the health of servers
and reports on batches out.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from fleetctl.common.tokens import gateway_token
from fleetctl.gateway.asking.call_attempt import headers_of
from fleetctl.gateway.call_ledger import COUNTS, Batch, UsageKey
from fleetctl.gateway.endpoints import (
    WAITING_LONG,
    CallerGrant,
    CallTimes,
    GatewayEndpoint,
    comparable_fields,
)
from fleetctl.gateway.gateway_client import SharedCap
from fleetctl.gateway.gateway_state import GatewayState
from fleetctl.gateway.rules.servers import ASLEEP, BLOCKED, STARTING, UpstreamServer

WAIT_MAX_S = 10.0
USAGE_GAP_S = 0.2  # between two answers with usage
FORGET_EACH_S = 3600.0
_PRIVATE = ("reserved_in", "reserved_out", "tree", "seq", "at_s")
_USD = ("usd", "reserved_usd")

PROBE_PATHS = ("/v1/models", "/api/tags", "/health")
PROBE_S = 5.0
CHAT = "/chat/completions"
READY = "Ready"
NOT_LISTED = "ModelNotListed"  # a warning: requests go there all the same
READY_STATES = (READY, ASLEEP, STARTING, NOT_LISTED)
NAMED_MAX = 5
OLLAMA_WIDER = "start Ollama with OLLAMA_NUM_PARALLEL={n}, and set `slots: {n}` of this server"
WIDER = (
    "llama-server takes `--parallel {n}`, Ollama OLLAMA_NUM_PARALLEL={n}, vLLM `--max-num-seqs {n}`"
)

SHOWN_MAX = 20  # of an endpoint


class ControlApi:
    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self._probes = ServerProbes(state.client)
        self._told_at_s = -math.inf  # of usage
        self._forgot_at_s = -math.inf
        self._tokens: dict[str, str] = {}  # by run; a token is worked out once a run
        # The version of the grants. A process before this one had another.
        self._epoch = secrets.token_hex(8)
        self._changes = 0
        self._served = False
        # runs without a grant at the last look, among those with answers
        self._without: Set[str] = frozenset()
        state.granted_runs = self._tokens.keys()

    async def put_endpoints(self, request: web.Request) -> web.Response:
        state = self._state
        previous = self._state.endpoints
        state.leaving = False  # somebody needs it again
        found: dict[tuple[str, str], GatewayEndpoint] = {}
        for row in (await request.json())["endpoints"]:
            name = (row["namespace"], row["name"])
            endpoint = previous.get(name)
            if endpoint is None:
                endpoint = GatewayEndpoint(row, partial(is_there, state.client))
            elif endpoint.told != comparable_fields(row) and not row.get("stays"):
                endpoint.update(row)
            found[name] = endpoint
        state.endpoints = found
        for name in previous.keys() - found.keys():
            previous[name].end()
        self._served = True
        self._know()
        return web.json_response({})

    def _know(self) -> None:
        """Opens the data side once endpoints and grants are known: before, a caller with a grant
        would be refused for an endpoint that is not there.
        """
        if self._served and self._changes:
            self._state.granted.set()

    async def put_grants(self, request: web.Request) -> web.Response:
        """Stores all grants, or with `since` the changes after that version. A reply without a
        version means that no change was stored: the gateway holds other grants.
        """
        state = self._state
        body = await request.json()
        is_change = "since" in body
        if is_change and body["since"] != self._version:
            return web.json_response({"version": ""})

        grants = [_read_grant(row) for row in body["grants"]]
        over = set(body["ended"]) if is_change else self._tokens.keys() - _list_runs(grants)
        for run in over:
            state.grants.pop(self._tokens.pop(run, ""), None)
        for grant in grants:
            token = self._tokens.get(grant.run)
            if token is None:
                token = self._tokens[grant.run] = gateway_token(state.key, grant.run)
            state.grants[token] = grant
        self._changes += 1

        state.caps = [SharedCap(tuple(it["uids"]), it["usd"]) for it in body["caps"]]
        state.numbered.cancel(over)
        self._know()
        state.money.fire()
        if time.monotonic() - self._forgot_at_s > FORGET_EACH_S:
            self._forget_old_runs()

        uids = {it.uid for it in state.grants.values()}
        for cap in state.caps:
            uids.update(cap.uids)
        totals = {uid: state.ledger.usd_of(uid) for uid in uids}
        return web.json_response({"version": self._version, "totals": totals})

    def _forget_old_runs(self) -> None:
        """Forgets the costs and answers of runs that have no grant any more."""
        state = self._state
        self._forgot_at_s = time.monotonic()
        granted = {run for it in state.grants.values() for run in (it.run, it.tree)}
        state.ledger.forget(time.time(), granted)

        # One odd message of the controller must not lose the work of hours.
        without = state.answers.runs() - state.granted_runs
        state.answers.forget_runs(without & self._without)
        self._without = without

    @property
    def _version(self) -> str:
        return f"{self._epoch}-{self._changes}"

    async def usage(self, request: web.Request) -> web.Response:
        ledger = self._state.ledger
        after = int(request.query.get("after", "0"))
        until_s = time.monotonic() + min(WAIT_MAX_S, float(request.query.get("wait", "0")))
        if after > ledger.seq:
            after = 0  # of a ledger that is gone
        while ledger.seq <= after and (left_s := until_s - time.monotonic()) > 0:
            await ledger.changed.wait(left_s)
        await ledger.durable()
        pause_s = min(until_s, self._told_at_s + USAGE_GAP_S) - time.monotonic()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        self._told_at_s = time.monotonic()
        seq = ledger.seq
        rows = ledger.since(after)
        return web.json_response({"seq": seq, "rows": [self._usage_row(row) for row in rows]})

    def _usage_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        key = UsageKey(*(row[name] for name in UsageKey._fields))
        shown = {
            name: int(value) if name in COUNTS and name not in _USD else value
            for name, value in row.items()
            if name not in _PRIVATE
        }
        return shown | compute_percentiles(self._state.times.get(key))

    async def health(self, request: web.Request) -> web.Response:
        max_age_s = float(request.query.get("max_age", "0"))
        every = self._state.endpoints.values()
        rows = await asyncio.gather(*(self._probes.health(it, max_age_s) for it in every))
        for row in rows:
            row |= batches_of(self._state, (row["namespace"], row["name"]))
        return web.json_response({"endpoints": rows})

    async def bye(self, _: web.Request) -> web.Response:
        """Ends the gateway once the batches that servers work on have ended."""
        self._state.leaving = True
        if not self._state.batches:
            self._state.ended.set()
        return web.json_response({})

    async def ping(self, _: web.Request) -> web.Response:
        return web.json_response({"pid": os.getpid()})


def control_app(state: GatewayState) -> web.Application:
    @web.middleware
    async def heard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        state.heard = True
        return await handler(request)

    app, control = (
        web.Application(client_max_size=64 * 2**20, middlewares=[heard]),
        ControlApi(state),
    )
    app.router.add_get("/ping", control.ping)
    app.router.add_put("/endpoints", control.put_endpoints)
    app.router.add_put("/grants", control.put_grants)
    app.router.add_get("/usage", control.usage)
    app.router.add_get("/health", control.health)
    app.router.add_post("/bye", control.bye)
    return app


def _list_runs(grants: Iterable[CallerGrant]) -> set[str]:
    return {it.run for it in grants}


def _read_grant(row: Mapping[str, Any]) -> CallerGrant:
    return CallerGrant(
        row["run"],
        row["tree"],
        row["uid"],
        f"{row['namespace']}/{row['object']}",
        row["namespace"],
        tuple(row["endpoints"]),
        row.get("traceparent", ""),
    )


class ProbeResult(NamedTuple):
    reason: str
    message: str = ""
    hint: str = ""


@dataclass(slots=True)
class ServerProbes:
    client: ClientSession
    _found: dict[tuple[str, str, str], tuple[float, object, ProbeResult]] = field(
        default_factory=dict
    )

    async def health(self, endpoint: GatewayEndpoint, max_age_s: float) -> dict[str, Any]:
        """Returns the health of an endpoint. max_age_s: a server whose last reply is older is
        probed.
        """
        probes = await asyncio.gather(
            *(self._probe(endpoint, it, max_age_s) for it in endpoint.servers)
        )
        ready = any(probe.reason in READY_STATES for probe in probes)
        none = ProbeResult("ServerUnreachable", "no server is declared")
        first = min(
            probes, key=lambda it: (it.reason != READY, it.reason not in READY_STATES), default=none
        )
        if ready:
            first = next((it for it in map(one_slot, endpoint.servers) if it), first)
            if first.reason == READY and endpoint.most_waiting >= WAITING_LONG:
                first = next((it for it in map(find_undeclared, endpoint.servers) if it), first)
        now_s = time.monotonic()
        servers = [
            {
                "url": server.url,
                "state": probe.reason,
                "in_flight": server.in_flight,
                "slots": server.slots,
                "resting_s": max(0.0, server.resting_until_s - now_s),
                **_function_state(server, now_s),
            }
            for server, probe in zip(endpoint.servers, probes, strict=True)
        ]
        return {
            "name": endpoint.name,
            "namespace": endpoint.namespace,
            "ready": ready,
            **first._asdict(),
            "servers": servers,
            "concurrency": endpoint.concurrency,
            "queue": len(endpoint.waiting),
            "last_minute": endpoint.rate.read(now_s),
            **compute_percentiles(endpoint.times),
        }

    async def _probe(
        self,
        endpoint: GatewayEndpoint,
        server: UpstreamServer,
        max_age_s: float,
    ) -> ProbeResult:
        if server.sleep is not None:
            # A question would wake it, or keep it awake.
            now_s = time.monotonic()
            state = server.sleep.state(now_s)
            message = server.sleep.describe(now_s)
            if state == BLOCKED:
                state, _, message = message.partition(": ")
            return ProbeResult(state, message)
        name = (endpoint.namespace, endpoint.name, server.url)
        asked = (endpoint.access, endpoint.spec)
        at_s, with_, found = self._found.get(name, (0.0, None, ProbeResult("")))
        if with_ == asked and time.monotonic() - at_s < max_age_s:
            return found
        found = await _probe_server(self.client, endpoint, server)
        self._found[name] = time.monotonic(), asked, found
        return found


def _function_state(server: UpstreamServer, now_s: float) -> dict[str, object]:
    if server.sleep is None:
        return {}
    sleep = server.sleep
    resting_s = max(0.0, sleep.resting_until_s - now_s)
    return {"function": sleep.name, "why": sleep.why, "resting_s": resting_s}


def one_slot(server: UpstreamServer) -> ProbeResult | None:
    """Returns a warning for a server that answered simultaneous requests one after another."""
    asked = server.burst.at_once
    if not asked:
        return None
    message = f"{server.url} answers one request at a time, though {asked} were asked at once"
    hint = OLLAMA_WIDER if server.api == "ollama" else WIDER
    return ProbeResult("OneSlot", message, hint.format(n=min(asked, server.slots)))


def find_undeclared(server: UpstreamServer) -> ProbeResult | None:
    """Returns a warning for an Ollama server that gets one request at a time while others wait,
    because no larger number is declared.
    """
    if server.api != "ollama" or server.slots > 1:
        return None
    message = f"{server.url} is asked one request at a time while others wait"
    return ProbeResult("OneSlot", message, OLLAMA_WIDER.format(n=8))


async def _probe_server(
    client: ClientSession,
    endpoint: GatewayEndpoint,
    server: UpstreamServer,
) -> ProbeResult:
    """A server that answers but lists no models counts as ready."""
    url = server.url
    answered = False
    status = 0
    for path in PROBE_PATHS:
        try:
            async with client.get(
                endpoint.url_of(server, path),
                headers=headers_of(endpoint, server),
                timeout=ClientTimeout(PROBE_S),
                allow_redirects=False,
                proxy=server.proxy,
            ) as reply:
                if reply.status in (401, 403):
                    hint = "set spec.apiKey to a secret that holds a key of this server"
                    return ProbeResult(
                        "KeyRefused", f"{url} refused the key ({reply.status})", hint
                    )
                if reply.status != 200:
                    status = status or reply.status
                    continue
                answered = True
                listed = (
                    _read_models(await reply.json(content_type=None)) if path != "/health" else None
                )
        except (ClientError, TimeoutError, OSError, ValueError):
            continue
        if listed is None:
            continue
        return _of_models(url, tuple((endpoint.spec.get("models") or {}).values()), listed)
    if answered:
        return ProbeResult(READY)
    if 300 <= status < 500:
        hint = f"if calls fail, correct its url: what clients add `{CHAT}` to"
        asked = endpoint.url_of(server, PROBE_PATHS[0])
        return ProbeResult(
            NOT_LISTED, f"{asked} answers {status}, so its models are not known", hint
        )
    hint = "start the server, or correct its url in spec.servers"
    by = ""
    if server.proxy:
        by = f" by the proxy {urlsplit(server.proxy).hostname}"
        hint += "; NO_PROXY names the hosts that are asked without the proxy"
    return ProbeResult("ServerUnreachable", f"{url} did not answer{by}", hint)


def _of_models(
    url: str,
    models: Sequence[str],
    listed: Set[str],
) -> ProbeResult:
    """Checks the list of models. A server may serve more than it lists, by wildcards or suffixes of
    a router. One that lists no model of ours is another server, or has not loaded them.
    """
    missing = [it for it in models if not _lists_model(listed, it)]
    if not missing:
        return ProbeResult(READY)
    names = ", ".join(f"`{it}`" for it in missing[:NAMED_MAX])
    known = ", ".join(sorted(listed)[:NAMED_MAX])
    if len(missing) < len(models):
        hint = f"if calls of it fail, load it there, or name one of: {known}"
        return ProbeResult(NOT_LISTED, f"{url} does not list {names}", hint)
    hint = (
        f"load {names} there, or name one of: {known}; if it serves more than it lists, leave"
        " `models` out"
    )
    return ProbeResult("ModelNotFound", f"{url} does not serve {names}", hint)


def _lists_model(listed: Set[str], model: str) -> bool:
    if model in listed or f"{model}:latest" in listed:
        return True
    # LiteLLM lists its routes with wildcards: `*`, `openai/*`.
    return any(it.endswith("*") and model.startswith(it[:-1]) for it in listed)


async def is_there(
    client: ClientSession,
    endpoint: GatewayEndpoint,
    server: UpstreamServer,
) -> bool:
    """Returns True if a server answers again, by a free request that is no caller's. A server
    without that path, or with another key, answers, too.
    """
    for path in PROBE_PATHS:
        try:
            async with client.get(
                endpoint.url_of(server, path),
                headers=headers_of(endpoint, server),
                timeout=ClientTimeout(PROBE_S),
                allow_redirects=False,
                proxy=server.proxy,
            ) as reply:
                if reply.status < 500:
                    return True
        except (ClientError, TimeoutError, OSError):
            return False
    return False


def _read_models(reply: Any) -> set[str] | None:
    if not isinstance(reply, dict):
        return None
    rows = reply.get("data", reply.get("models"))
    if not isinstance(rows, list):
        return None
    names = [row.get("id", row.get("name")) for row in rows if isinstance(row, dict)]
    return {name for name in names if isinstance(name, str)}


def batches_of(state: GatewayState, name: tuple[str, str]) -> dict[str, Any]:
    """Summarizes an endpoint's batches; empty without batches. name: namespace and name of the
    endpoint.
    """
    found = [it for it in state.batches.values() if (it.namespace, it.endpoint) == name]
    found.sort(key=lambda it: it.created_at_s)
    told: dict[str, Any] = {}
    if found:
        told["batches"] = [_batch_status(it) for it in found[:SHOWN_MAX]]
    if state.gathering[name]:
        told["gathering"] = state.gathering[name]
    return told


def _batch_status(batch: Batch) -> Mapping[str, Any]:
    return {
        "tag": batch.tag,
        "id": batch.id,
        "uid": batch.uid,
        "state": batch.status or "sending",
        "rows": batch.total,
        "done": batch.done,
        "failed": batch.failed,
        "trouble": batch.trouble,
    }


def compute_percentiles(times: CallTimes | None) -> dict[str, float | None]:
    """Returns milliseconds by `waiting_ms_p50` and so on; None without samples."""
    found: dict[str, float | None] = {}
    for name in ("waiting_ms", "answer_ms"):
        samples = sorted(getattr(times, name)) if times is not None else []
        found[f"{name}_p50"], found[f"{name}_p95"] = (
            _pick_percentile(samples, 0.5),
            _pick_percentile(samples, 0.95),
        )
    return found


def _pick_percentile(samples: Sequence[float], share: float) -> float | None:
    if samples:
        return samples[min(len(samples) - 1, int(len(samples) * share))]
    return None
