"""The health of an endpoint: its servers' replies to a free request, and whether they are as wide
as their clients assume.
"""

import asyncio
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout

from fleetctl.gateway.asking.call_attempt import headers_of
from fleetctl.gateway.control.times import compute_percentiles
from fleetctl.gateway.endpoints import WAITING_LONG, GatewayEndpoint
from fleetctl.gateway.rules.container_sleep import ASLEEP, BLOCKED, STARTING
from fleetctl.gateway.rules.servers import UpstreamServer

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
