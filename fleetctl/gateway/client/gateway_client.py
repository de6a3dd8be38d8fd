"""The requests of a controller to the gateway, and the files by which the two find each other.
Imports nothing heavy: the engine comes through here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

# In the gateway's own directory. The name of a Unix socket's path is limited to some 100 bytes.
SOCKET = "sock"
PORT = "port"
KEY = "key"
LEDGER = "ledger.db"
DIRECTORY = "gateway"  # below FLEETCTL_HOME


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """An endpoint as the gateway is to serve it.

    spec: as a manifest has it, with the addresses of servers that are Functions. key: key of its
    servers, or empty; keys: by URL, the keys of a Function's containers; both kept in memory alone.
    stays: the gateway keeps the addresses and keys that it has.
    """

    name: str
    namespace: str
    spec: Mapping[str, Any]
    key: str = field(default="", repr=False)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    stays: bool = False


@dataclass(frozen=True, slots=True)
class EndpointGrant:
    """A run that may call. tree: the run whose limits count: itself, or the one at the root."""

    run: str
    tree: str
    uid: str
    object: str
    namespace: str
    endpoints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SharedCap:
    """The most in USD that all calls of these objects, by uid, may ever come to together."""

    uids: tuple[str, ...]
    usd: float

    def total_usd(self, usd_of: Callable[[str], float]) -> float:
        return sum(map(usd_of, self.uids))


class Gateway(Protocol):
    """Raises Unavailable while the gateway does not answer or cannot be started."""

    async def up(self) -> bool:
        """Starts the gateway unless it runs; returns True if it has just started, without the state
        that it received before.
        """
        ...

    async def serve(self, endpoints: Sequence[EndpointConfig]) -> None:
        """Sends all endpoints; they replace the former ones."""
        ...

    async def grant(
        self, grants: Sequence[EndpointGrant], caps: Sequence[SharedCap]
    ) -> Mapping[str, float]:
        """Sends all grants and every cap; they replace the former ones. Returns the cost of each
        object's calls, holds included, by uid.
        """
        ...

    async def usage(self, after: int, *, wait_s: float) -> tuple[int, Sequence[Mapping[str, Any]]]:
        """Totals of each run and endpoint that changed after `after`, and where to go on from."""
        ...

    async def health(self, *, max_age_s: float) -> Sequence[Mapping[str, Any]]:
        """Returns the health of each endpoint; servers whose last answer is older are probed."""
        ...

    def access(self, run: str) -> tuple[str, str]:
        """Returns (base URL on this machine, token) of a run. Known once the gateway is up."""
        ...

    async def close(self, *, leave: bool) -> None:
        """Closes the client. leave: lets the gateway go on for the runs that call it."""
        ...
