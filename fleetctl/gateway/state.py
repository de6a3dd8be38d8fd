"""What the two sides of the gateway share. Control writes endpoints and grants, data the rest."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from aiohttp import ClientSession

from fleetctl.gateway.endpoints import Endpoint, Grant, Times
from fleetctl.gateway.keeping.cache import Cache
from fleetctl.gateway.keeping.ledger import Key, Ledger
from fleetctl.gateway.numbered import Numbered


@dataclass(slots=True)
class State:
    key: bytes = field(repr=False)
    ledger: Ledger
    cache: Cache
    client: ClientSession
    ended: asyncio.Event
    endpoints: dict[tuple[str, str], Endpoint] = field(default_factory=dict)  # namespace, name
    grants: dict[str, Grant] = field(default_factory=dict, repr=False)  # by token
    times: defaultdict[Key, Times] = field(default_factory=lambda: defaultdict(Times))
    numbered: Numbered = field(default_factory=Numbered)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)  # numbered calls under way
    heard: bool = True  # the controller spoke since the last look
