"""Describes how an attempt reaches the model endpoints of its template: by the gateway on this
machine; and what the gateway reaches of servers that are a Function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

ENDPOINT_TOKEN = "OPENAI_API_KEY"  # noqa: S105 - the name of the variable, not its value


@dataclass(frozen=True, slots=True)
class EndpointAccess:
    """An attempt's access to its endpoints. names: of the endpoints, the first is the usual one.
    models: the first one's model names, each with the name at its servers. base_url: of the
    gateway, `http://127.0.0.1:PORT`, as seen from this machine. token: of this attempt alone, never
    stored. max_fallback_share: the part of its calls that its helpers may replace; the smallest of
    its endpoints'.
    """

    names: tuple[str, ...]
    models: Mapping[str, str]
    base_url: str
    token: str = field(repr=False)
    max_fallback_share: float = 0.05

    def variables(self, base_url: str) -> dict[str, str]:
        """Returns the variables by which programs of an attempt find the gateway. base_url: where
        the attempt itself sees it. Clients of Ollama send no token: theirs is in the path. Without
        models no FLEETCTL_LLM_MODEL.
        """
        base = base_url.rstrip("/")
        usual = next(iter(self.models), None)
        return {
            "OPENAI_BASE_URL": f"{base}/v1",
            ENDPOINT_TOKEN: self.token,
            "OLLAMA_HOST": f"{base}/t/{self.token}",
            "FLEETCTL_LLM_URL": base,
            "FLEETCTL_LLM_MAX_FALLBACK_SHARE": f"{self.max_fallback_share:g}",
            **({"FLEETCTL_LLM_MODEL": usual} if usual is not None else {}),
        }


@dataclass(frozen=True, slots=True)
class ServerOrder:
    """The server in a container of a Function with a `port`. ready: a path, or "" for a connection.
    startup_s: until it must be ready. concurrency: requests that one container takes at once.
    """

    port: int
    command: tuple[str, ...]
    ready: str
    startup_s: float
    concurrency: int


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server. key: sent in the header `x-fleetctl-key`; kept in memory alone."""

    url: str
    key: str = field(repr=False)


@runtime_checkable
class Serving(Protocol):
    """A provider whose functions may answer HTTP, in containers that come when they are asked.
    Optional: the others refuse such a function.
    """

    async def containers(self, name: str) -> int:
        """Returns how many containers of a function cost money now, from their start to their end.
        The question wakes and keeps no container. Raises Refused and Unavailable.
        """
        ...
