"""One call as a task made it, and its money: the highest cost is held before it is sent, and the
actual cost is charged after.
"""

from __future__ import annotations

import json
import sqlite3
import time
from dataclasses import dataclass, field
from typing import Any

from fleetctl.gateway.call_ledger import CostHold, UsageKey
from fleetctl.gateway.call_spans import CallSpan
from fleetctl.gateway.endpoints import CallerGrant, GatewayEndpoint
from fleetctl.gateway.gateway_state import GatewayState
from fleetctl.gateway.rules.failures import (
    BUDGET_EXCEEDED,
    LIMIT_REACHED,
    NOT_RECORDED,
    PRICE_UNKNOWN,
    GatewayRefusal,
)
from fleetctl.gateway.rules.usage import (
    NOTHING,
    TokenCount,
    calls_of,
    describe_task_excess,
    price_usd,
)

STREAMS_UNLESS_TOLD = ("/api/chat", "/api/generate")

# Holds of other calls may be released meanwhile, and the controller may send another cap.
CAP_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class EndpointCall:
    state: GatewayState
    grant: CallerGrant
    endpoint: GatewayEndpoint
    path: str
    body: dict[str, Any] = field(repr=False)
    length_bytes: int
    headers: dict[str, str] = field(default_factory=dict, repr=False)  # of the task's, to be sent
    span: CallSpan | None = field(default=None, repr=False)  # None: nobody asked for traces

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


@dataclass(slots=True)
class CallCharge:
    """The cost of a call. usd: charged so far, over all tries; None without a price."""

    call: EndpointCall
    worst: TokenCount
    worst_usd: float | None
    usd: float | None = 0.0
    tokens: TokenCount = NOTHING  # likewise
    _hold: CostHold | None = None  # hold of the next try, or of the one under way
    _sent: bool = False  # the hold is on disk
    _counted: bool = False  # as a call
    _used: bool = False

    async def begin(self) -> None:
        """Holds the worst case. Raises GatewayRefusal: over a limit, or over the cap."""
        call, count = self.call, self.call.count
        try:
            self._check_limits()
            await self._await_cap()
            self._check_limits()  # others may have called meanwhile
        except GatewayRefusal:
            call.state.ledger.add(call.key, refused=count)
            raise
        self._set_aside(count)

    async def again(self) -> None:
        """Prepares one more try, which costs as much once more if the last was charged."""
        if self._hold is None:
            await self._await_cap()
            self._set_aside(0)

    async def send(self) -> None:
        """Writes the worst case to disk. Raises GatewayRefusal if that fails."""
        assert self._hold is not None
        if self._sent:
            self.call.state.ledger.add(self.call.key, tries=1)
            return
        self.call.state.ledger.send(self.call.key, self._hold)
        self._sent = self._counted = True
        try:
            await self.call.state.ledger.durable()
        except sqlite3.Error as error:
            message = f"the gateway cannot write down what a call may cost: {error}"
            raise GatewayRefusal(503, NOT_RECORDED, message) from None

    def hand_over(self) -> CostHold:
        """Returns the hold, to be settled by the caller from here on."""
        assert self._hold is not None
        hold = self._hold
        self._hold = None
        return hold

    def settle(self, tokens: TokenCount) -> None:
        """Charges one try. A try without cost leaves its hold to the next."""
        if tokens != NOTHING:
            self._used = True
            usd = price_usd(self.call.endpoint.spec, self.call.model, tokens)
            used = tokens.inward + tokens.outward
            self.call.endpoint.rate.add(time.monotonic(), tokens=used, usd=usd or 0.0)
            self._settle(tokens, usd)

    def end(self) -> None:
        """No more tries."""
        if self._hold is not None and self._sent:
            self._settle(NOTHING, 0.0)
        elif self._hold is not None:
            self.call.state.ledger.drop(self.call.key, self._hold)
            self.call.state.money.fire()
        if self._counted and not self._used and self.worst_usd is None:
            self.call.state.ledger.add(self.call.key, unpriced=-1)  # no request was sent

    def _set_aside(self, calls: int) -> None:
        self._hold = CostHold(self.worst, self.worst_usd, calls)
        self._sent = False
        self.call.state.ledger.hold(self.call.key, self._hold)

    def _settle(self, tokens: TokenCount, usd: float | None) -> None:
        assert self._hold is not None
        self.call.state.ledger.settle(self.call.key, self._hold, tokens, usd)
        self._hold = None
        self.tokens = TokenCount(
            self.tokens.inward + tokens.inward, self.tokens.outward + tokens.outward
        )
        self.usd = None if usd is None or self.usd is None else self.usd + usd
        self.call.state.money.fire()

    def _check_limits(self) -> None:
        call = self.call
        tree = call.state.ledger.tree(call.key)
        message = describe_task_excess(
            call.endpoint.limits,
            calls=tree.calls,
            tokens=tree.tokens,
            asked=call.count,
        )
        if message:
            raise GatewayRefusal(429, LIMIT_REACHED, f"endpoint {call.endpoint.name}: {message}")

    async def _await_cap(self) -> None:
        state = self.call.state
        uid = self.call.grant.uid
        worst_usd = self.worst_usd
        if worst_usd is None:
            if state.capped(uid):
                raise _unpriced_refusal(self.call)
            return
        until_s = time.monotonic() + CAP_WAIT_S
        while (cap := state.exceeded(uid, worst_usd)) is not None:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                asked = f"${worst_usd:.4f} asked at worst, ${cap.usd:.4f} allowed"
                total_usd = cap.total_usd(state.ledger.usd_of)
                message = (
                    f"budget: ${total_usd:.4f} used and set aside, {asked}; a smaller `max_tokens`"
                    " asks for less"
                )
                raise GatewayRefusal(
                    429, BUDGET_EXCEEDED, f"endpoint {self.call.endpoint.name}: {message}"
                )
            await state.money.wait(left_s)


def _unpriced_refusal(call: EndpointCall) -> GatewayRefusal:
    endpoint = call.endpoint.name
    message = (
        f"endpoint {endpoint}: a budget pays, and `{call.model}` has no price; give `{call.model}`"
        f" in `prices` of endpoint {endpoint}: `{{}}` is a price of 0"
    )
    return GatewayRefusal(403, PRICE_UNKNOWN, message)
