"""The state that both sides of the gateway share. Control writes endpoints and grants, data the
rest.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Set
from dataclasses import dataclass, field

from aiohttp import ClientSession

from fleetctl.gateway.answer_log import AnswerCache, AnswerLog
from fleetctl.gateway.call_ledger import Batch, CallLedger, ChangeSignal, UsageKey
from fleetctl.gateway.call_spans import CallSpans
from fleetctl.gateway.endpoints import CallerGrant, CallTimes, GatewayEndpoint
from fleetctl.gateway.gateway_client import SharedCap
from fleetctl.gateway.numbered_calls import NumberedCalls

ROUNDING_USD = 1e-9  # of sums
TIMED_MAX = 2048  # runs and endpoints whose times are kept


@dataclass(slots=True)
class GatewayState:
    """The state of the gateway process.

    granted: set once the controller has sent grants and endpoints. money: fires when a cap or a
    hold under it changes. answers: of rows in batches, kept until their callers return. batches:
    batches that servers work on, by tag. gathering: rows that wait for others, by namespace and
    name of their endpoint. leaving: the process ends once no batch is under way. spans: of calls;
    None where none are exported.
    """

    key: bytes = field(repr=False)
    ledger: CallLedger
    cache: AnswerCache
    kept: AnswerLog
    answers: AnswerLog
    client: ClientSession
    ended: asyncio.Event
    spans: CallSpans | None = None
    endpoints: dict[tuple[str, str], GatewayEndpoint] = field(
        default_factory=dict
    )  # namespace, name
    grants: dict[str, CallerGrant] = field(default_factory=dict, repr=False)  # by token
    caps: list[SharedCap] = field(default_factory=list)
    granted_runs: Set[str] = field(default_factory=frozenset)
    batches: dict[str, Batch] = field(default_factory=dict)
    gathering: Counter[tuple[str, str]] = field(default_factory=Counter)
    leaving: bool = False
    granted: asyncio.Event = field(default_factory=asyncio.Event)
    money: ChangeSignal = field(default_factory=ChangeSignal)
    times: OrderedDict[UsageKey, CallTimes] = field(default_factory=OrderedDict)
    numbered: NumberedCalls = field(default_factory=NumberedCalls)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)  # numbered calls under way
    calling: Counter[str] = field(default_factory=Counter)  # requests of each run
    heard: bool = True  # the controller sent a message since the last look
    calls: int = 0  # that tasks have made

    def capped(self, uid: str) -> bool:
        """Returns True if some budget stops the calls of this object."""
        return any(uid in cap.uids for cap in self.caps)

    def exceeded(self, uid: str, more_usd: float) -> SharedCap | None:
        """Returns the first cap that `more_usd` more, for calls of this object, would exceed."""
        for cap in self.caps:
            if uid in cap.uids:
                total_usd = cap.total_usd(self.ledger.usd_of)
                if total_usd + more_usd > cap.usd + ROUNDING_USD:
                    return cap
        return None

    def times_of(self, key: UsageKey) -> CallTimes:
        found = self.times.get(key)
        if found is None:
            found = self.times[key] = CallTimes()
            if len(self.times) > TIMED_MAX:
                self.times.popitem(last=False)
        return found
