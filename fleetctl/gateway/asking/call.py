"""One call as a task made it, and the answer to it."""

import json
from dataclasses import dataclass, field
from typing import Any

from fleetctl.gateway.endpoints import Endpoint, Grant
from fleetctl.gateway.keeping.ledger import Key
from fleetctl.gateway.rules.usage import calls_of
from fleetctl.gateway.state import State

STREAMS_UNLESS_TOLD = ("/api/chat", "/api/generate")


@dataclass(frozen=True, slots=True)
class Call:
    state: State
    grant: Grant
    endpoint: Endpoint
    path: str
    body: dict[str, Any] = field(repr=False)
    length_bytes: int

    @property
    def key(self) -> Key:
        return key_of(self.grant, self.endpoint.name)

    @property
    def model(self) -> str:
        return str(self.body.get("model") or "")

    @property
    def count(self) -> int:
        return calls_of(self.body)

    @property
    def api(self) -> str:
        """Of the servers that can answer it; "" all: Ollama serves OpenAI's paths, too."""
        return "ollama" if self.path.startswith("/api/") else ""

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


def key_of(grant: Grant, endpoint: str) -> Key:
    return Key(grant.run, grant.namespace, endpoint, grant.tree, grant.uid)
