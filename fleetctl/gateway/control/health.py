"""How an endpoint stands: what its servers answer to a question that costs nothing, and whether
they are as wide as they were asked to be.
"""

import asyncio
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout

from fleetctl.gateway.asking.attempt import headers_of
from fleetctl.gateway.control.times import percentiles
from fleetctl.gateway.endpoints import WAITING_LONG, Endpoint
from fleetctl.gateway.rules.servers import Server
from fleetctl.gateway.rules.sleep import ASLEEP, BLOCKED, STARTING

PROBE_PATHS = ("/v1/models", "/api/tags", "/health")
PROBE_S = 5.0
READY = "Ready"
NOT_LISTED = "ModelNotListed"  # asked all the same: a warning
READY_STATES = (READY, ASLEEP, STARTING, NOT_LISTED)
NAMED_MAX = 5
OLLAMA_WIDER = "start Ollama with OLLAMA_NUM_PARALLEL={n}, and set `slots: {n}` of this server"
WIDER = (
    "llama-server takes `--parallel {n}`, Ollama OLLAMA_NUM_PARALLEL={n}, vLLM `--max-num-seqs {n}`"
)


class Found(NamedTuple):
    reason: str
    message: str = ""
    hint: str = ""


@dataclass(slots=True)
class Probes:
    client: ClientSession
    _found: dict[tuple[str, str, str], tuple[float, object, Found]] = field(default_factory=dict)

    async def health(self, endpoint: Endpoint, max_age_s: float) -> dict[str, Any]:
        """max_age_s: a server is asked where its last answer is older."""
        probes = await asyncio.gather(
            *(self._probe(endpoint, it, max_age_s) for it in endpoint.servers)
        )
        ready = any(probe.reason in READY_STATES for probe in probes)
        none = Found("ServerUnreachable", "no server is declared")
        first = min(
            probes, key=lambda it: (it.reason != READY, it.reason not in READY_STATES), default=none
        )
        if ready:
            first = next((it for it in map(one_slot, endpoint.servers) if it), first)
            if first.reason == READY and endpoint.most_waiting >= WAITING_LONG:
                first = next((it for it in map(undeclared, endpoint.servers) if it), first)
        now_s = time.monotonic()
        servers = [
            {
                "url": server.url,
                "state": probe.reason,
                "in_flight": server.in_flight,
                "slots": server.slots,
                "resting_s": max(0.0, server.resting_until_s - now_s),
                **_function(server, now_s),
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
            **percentiles(endpoint.times),
        }

    async def _probe(self, endpoint: Endpoint, server: Server, max_age_s: float) -> Found:
        if server.sleep is not None:
            # A question would wake it, or keep it awake.
            now_s = time.monotonic()
            state, message = server.sleep.state(now_s), server.sleep.told(now_s)
            if state == BLOCKED:
                state, _, message = message.partition(": ")
            return Found(state, message)
        name = (endpoint.namespace, endpoint.name, server.url)
        asked = (endpoint.key, endpoint.spec)
        at_s, with_, found = self._found.get(name, (0.0, None, Found("")))
        if with_ == asked and time.monotonic() - at_s < max_age_s:
            return found
        found = await _ask(self.client, endpoint, server)
        self._found[name] = time.monotonic(), asked, found
        return found


def _function(server: Server, now_s: float) -> dict[str, object]:
    if server.sleep is None:
        return {}
    sleep = server.sleep
    resting_s = max(0.0, sleep.resting_until_s - now_s)
    return {"function": sleep.name, "why": sleep.why, "resting_s": resting_s}


def one_slot(server: Server) -> Found | None:
    """It answered in turn what it was asked at once."""
    asked = server.burst.at_once
    if not asked:
        return None
    message = f"{server.url} answers one request at a time, though {asked} were asked at once"
    hint = OLLAMA_WIDER if server.api == "ollama" else WIDER
    return Found("OneSlot", message, hint.format(n=min(asked, server.slots)))


def undeclared(server: Server) -> Found | None:
    """One of Ollama's that takes one at a time unless it is told otherwise, and so is asked."""
    if server.api != "ollama" or server.slots > 1:
        return None
    message = f"{server.url} is asked one request at a time while others wait"
    return Found("OneSlot", message, OLLAMA_WIDER.format(n=8))


async def _ask(client: ClientSession, endpoint: Endpoint, server: Server) -> Found:
    """A server that answers but lists no models counts as ready."""
    url = server.url
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    answered = False
    for path in PROBE_PATHS:
        try:
            async with client.get(
                url + path,
                headers=headers,
                timeout=ClientTimeout(PROBE_S),
                allow_redirects=False,
                proxy=server.proxy,
            ) as reply:
                if reply.status in (401, 403):
                    hint = "set spec.apiKey to a secret that holds a key of this server"
                    return Found("KeyRefused", f"{url} refused the key ({reply.status})", hint)
                if reply.status != 200:
                    continue
                answered = True
                listed = _models(await reply.json(content_type=None)) if path != "/health" else None
        except (ClientError, TimeoutError, OSError, ValueError):
            continue
        if listed is None:
            continue
        return _of_models(url, tuple((endpoint.spec.get("models") or {}).values()), listed)
    if answered:
        return Found(READY)
    hint = "start the server, or correct its url in spec.servers"
    by = ""
    if server.proxy:
        by = f" by the proxy {urlsplit(server.proxy).hostname}"
        hint += "; NO_PROXY names the hosts that are asked without the proxy"
    return Found("ServerUnreachable", f"{url} did not answer{by}", hint)


def _of_models(url: str, models: Sequence[str], listed: Set[str]) -> Found:
    """A server may serve more than it lists, by wildcards or suffixes of a router. One that lists
    none of the models is another server, or has not loaded them.
    """
    missing = [it for it in models if not _lists(listed, it)]
    if not missing:
        return Found(READY)
    names = ", ".join(f"`{it}`" for it in missing[:NAMED_MAX])
    known = ", ".join(sorted(listed)[:NAMED_MAX])
    if len(missing) < len(models):
        hint = f"if calls of it fail, load it there, or name one of: {known}"
        return Found(NOT_LISTED, f"{url} does not list {names}", hint)
    hint = (
        f"load {names} there, or name one of: {known}; if it serves more than it lists, leave"
        " `models` out"
    )
    return Found("ModelNotFound", f"{url} does not serve {names}", hint)


def _lists(listed: Set[str], model: str) -> bool:
    if model in listed or f"{model}:latest" in listed:
        return True
    # LiteLLM lists its routes with wildcards: `*`, `openai/*`.
    return any(it.endswith("*") and model.startswith(it[:-1]) for it in listed)


async def is_there(client: ClientSession, endpoint: Endpoint, server: Server) -> bool:
    """Whether a server answers again, by a question that is no caller's and costs nothing. One
    that has no such path, or wants another key, answers.
    """
    for path in PROBE_PATHS:
        try:
            async with client.get(
                server.url + path,
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


def _models(reply: Any) -> set[str] | None:
    if not isinstance(reply, dict):
        return None
    rows = reply.get("data", reply.get("models"))
    if not isinstance(rows, list):
        return None
    names = [row.get("id", row.get("name")) for row in rows if isinstance(row, dict)]
    return {name for name in names if isinstance(name, str)}
