"""What the two sides of the gateway share. Control writes endpoints and grants, data the rest."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Set
from dataclasses import dataclass, field

from aiohttp import ClientSession

from fleetctl.gateway.endpoints import Endpoint, Grant, Times
from fleetctl.gateway.keeping.batches import Batch
from fleetctl.gateway.keeping.cache import Cache
from fleetctl.gateway.keeping.kept import Kept
from fleetctl.gateway.keeping.ledger import Key, Ledger
from fleetctl.gateway.keeping.signal import Signal
from fleetctl.gateway.numbered import Numbered
from fleetctl.gateway.reach.gateway import SharedCap

ROUNDING_USD = 1e-9  # of sums
TIMED_MAX = 2048  # runs and endpoints whose times are kept


@dataclass(slots=True)
class State:
    """granted: set once the controller said who may call, and what; money: fires when a cap or what
    is set aside under it changes. answers: of rows in batches, kept until who asked them is back.
    batches: that servers work on, by tag; gathering: rows that wait for others, by namespace and
    name of their endpoint. leaving: it ends once no batch is under way.
    """

    key: bytes = field(repr=False)
    ledger: Ledger
    cache: Cache
    kept: Kept
    answers: Kept
    client: ClientSession
    ended: asyncio.Event
    endpoints: dict[tuple[str, str], Endpoint] = field(default_factory=dict)  # namespace, name
    grants: dict[str, Grant] = field(default_factory=dict, repr=False)  # by token
    caps: list[SharedCap] = field(default_factory=list)
    granted_runs: Set[str] = field(default_factory=frozenset)
    batches: dict[str, Batch] = field(default_factory=dict)
    gathering: Counter[tuple[str, str]] = field(default_factory=Counter)
    leaving: bool = False
    granted: asyncio.Event = field(default_factory=asyncio.Event)
    money: Signal = field(default_factory=Signal)
    times: OrderedDict[Key, Times] = field(default_factory=OrderedDict)
    numbered: Numbered = field(default_factory=Numbered)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)  # numbered calls under way
    heard: bool = True  # the controller spoke since the last look

    def capped(self, uid: str) -> bool:
        """Whether some budget stops the calls of this object."""
        return any(uid in cap.uids for cap in self.caps)

    def exceeded(self, uid: str, more_usd: float) -> SharedCap | None:
        """The first cap that calls of so much more, of this object, would exceed."""
        for cap in self.caps:
            if uid in cap.uids:
                total_usd = cap.total_usd(self.ledger.usd_of)
                if total_usd + more_usd > cap.usd + ROUNDING_USD:
                    return cap
        return None

    def times_of(self, key: Key) -> Times:
        found = self.times.get(key)
        if found is None:
            found = self.times[key] = Times()
            if len(self.times) > TIMED_MAX:
                self.times.popitem(last=False)
        return found
