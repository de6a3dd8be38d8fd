"""What a controller asks of the gateway, and the files by which the two find each other. Imports
nothing heavy: the engine comes through here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

# In the gateway's own directory. The name of a Unix socket's path is limited to some 100 bytes.
SOCKET, PORT, KEY, LEDGER = "sock", "port", "key", "ledger.db"
DIRECTORY = "gateway"  # below FLEETCTL_HOME


@dataclass(frozen=True, slots=True)
class Served:
    """An endpoint as the gateway is to serve it. spec: as a manifest has it, with the addresses of
    servers that are Functions. key: of its servers, or empty; keys: by URL, what a Function's
    containers ask for; both kept in memory alone. stays: the gateway keeps the
    addresses and keys that it has.
    """

    name: str
    namespace: str
    spec: Mapping[str, Any]
    key: str = field(default="", repr=False)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
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
        """Start it unless it runs; whether it has begun anew, and knows nothing of what it was
        told before.
        """
        ...

    async def serve(self, endpoints: Sequence[Served]) -> None:
        """All there are, in place of those before."""
        ...

    async def grant(
        self, grants: Sequence[Grant], caps: Sequence[SharedCap]
    ) -> Mapping[str, float]:
        """All who may call, and every cap, in place of those before. What the calls of objects
        have come to, set aside included, by uid.
        """
        ...

    async def usage(self, after: int, *, wait_s: float) -> tuple[int, Sequence[Mapping[str, Any]]]:
        """Totals of each run and endpoint that changed after `after`, and where to go on from."""
        ...

    async def health(self, *, max_age_s: float) -> Sequence[Mapping[str, Any]]:
        """How each endpoint stands; servers are asked where the last answer is older."""
        ...

    def access(self, run: str) -> tuple[str, str]:
        """(base URL on this machine, token) of a run. Known once it is up."""
        ...

    async def close(self, *, leave: bool) -> None:
        """leave: let it go on for the runs that call it."""
        ...
