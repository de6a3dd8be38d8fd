"""One call as a task made it, and the answer to it."""

import json
from dataclasses import dataclass, field
from typing import Any

from fleetctl.gateway.endpoints import CallerGrant, GatewayEndpoint
from fleetctl.gateway.gateway_state import GatewayState
from fleetctl.gateway.keeping.call_ledger import UsageKey
from fleetctl.gateway.rules.usage import calls_of

STREAMS_UNLESS_TOLD = ("/api/chat", "/api/generate")


@dataclass(frozen=True, slots=True)
class EndpointCall:
    state: GatewayState
    grant: CallerGrant
    endpoint: GatewayEndpoint
    path: str
    body: dict[str, Any] = field(repr=False)
    length_bytes: int
    headers: dict[str, str] = field(default_factory=dict, repr=False)  # of the task's, to be sent

    @property
    def key(self) -> UsageKey:
        return key_of(self.grant, self.endpoint.name)

    @property
    def model(self) -> str:
        return str(self.body.get("model") or "")

    @property
    def count(self) -> int:
        return calls_of(self.body)

    @property
    def api(self) -> str:
        """Returns the protocol that servers need to answer the call; "" for any: Ollama serves
        OpenAI's paths, too.
        """
        if self.path.startswith("/api/"):
            return "ollama"
        return ""

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream", self.path in STREAMS_UNLESS_TOLD))

    @property
    def prefix(self) -> int | None:
        """A number for the first message: requests that share it share a server's cache."""
        messages = self.body.get("messages")
        if len(self.endpoint.servers) < 2 or not isinstance(messages, list) or not messages:
            return None
        return hash(json.dumps(messages[0], sort_keys=True))


def key_of(grant: CallerGrant, endpoint: str) -> UsageKey:
    return UsageKey(
        grant.run,
        grant.namespace,
        endpoint,
        grant.tree,
        grant.uid,
    )
