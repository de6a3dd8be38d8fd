"""What a call may cost is held before it is asked, and what it did cost is charged after."""

import sqlite3
import time
from dataclasses import dataclass

from fleetctl.gateway.asking.call import Call
from fleetctl.gateway.keeping.ledger import Hold
from fleetctl.gateway.rules.limits import over_task_limit
from fleetctl.gateway.rules.refusal import (
    BUDGET_EXCEEDED,
    LIMIT_REACHED,
    NOT_RECORDED,
    PRICE_UNKNOWN,
    Refusal,
)
from fleetctl.gateway.rules.usage import NOTHING, Tokens, price_usd

# What is set aside for other calls may come free meanwhile, and the controller tell another cap.
CAP_WAIT_S = 2.0


@dataclass(slots=True)
class Charge:
    """usd: charged so far, over all tries; None without a price."""

    call: Call
    worst: Tokens
    worst_usd: float | None
    usd: float | None = 0.0
    tokens: Tokens = NOTHING  # likewise
    _hold: Hold | None = None  # of the try that is next, or under way
    _sent: bool = False  # what is held is on disk
    _counted: bool = False  # as a call
    _used: bool = False

    async def begin(self) -> None:
        """Hold the worst case. Raises Refusal: over a limit, or over the cap."""
        call, count = self.call, self.call.count
        try:
            self._check_limits()
            await self._within_cap()
            self._check_limits()  # others may have called meanwhile
        except Refusal:
            call.state.ledger.add(call.key, refused=count)
            raise
        self._set_aside(count)

    async def again(self) -> None:
        """Before one more try, which costs as much once more if the last was charged."""
        if self._hold is None:
            await self._within_cap()
            self._set_aside(0)

    async def send(self) -> None:
        """The worst case is on disk when it returns. Raises Refusal where it cannot be."""
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
            raise Refusal(503, NOT_RECORDED, message) from None

    def hand_over(self) -> Hold:
        """What is held, to whoever settles it from here on."""
        assert self._hold is not None
        hold, self._hold = self._hold, None
        return hold

    def settle(self, tokens: Tokens) -> None:
        """Of one try. One that cost nothing leaves what is held to the next."""
        if tokens != NOTHING:
            self._used = True
            self._settle(tokens, price_usd(self.call.endpoint.spec, self.call.model, tokens))

    def end(self) -> None:
        """No more tries."""
        if self._hold is not None and self._sent:
            self._settle(NOTHING, 0.0)
        elif self._hold is not None:
            self.call.state.ledger.drop(self.call.key, self._hold)
            self.call.state.money.fire()
        if self._counted and not self._used and self.worst_usd is None:
            self.call.state.ledger.add(self.call.key, unpriced=-1)  # nothing was asked

    def _set_aside(self, calls: int) -> None:
        self._hold, self._sent = Hold(self.worst, self.worst_usd, calls), False
        self.call.state.ledger.hold(self.call.key, self._hold)

    def _settle(self, tokens: Tokens, usd: float | None) -> None:
        assert self._hold is not None
        self.call.state.ledger.settle(self.call.key, self._hold, tokens, usd)
        self._hold = None
        self.tokens = Tokens(
            self.tokens.inward + tokens.inward, self.tokens.outward + tokens.outward
        )
        self.usd = None if usd is None or self.usd is None else self.usd + usd
        self.call.state.money.fire()

    def _check_limits(self) -> None:
        call = self.call
        tree = call.state.ledger.tree(call.key)
        message = over_task_limit(
            call.endpoint.limits, calls=tree.calls, tokens=tree.tokens, asked=call.count
        )
        if message:
            raise Refusal(429, LIMIT_REACHED, f"endpoint {call.endpoint.name}: {message}")

    async def _within_cap(self) -> None:
        state, uid, worst_usd = self.call.state, self.call.grant.uid, self.worst_usd
        if worst_usd is None:
            if state.capped(uid):
                raise _unpriced(self.call)
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
                raise Refusal(
                    429, BUDGET_EXCEEDED, f"endpoint {self.call.endpoint.name}: {message}"
                )
            await state.money.wait(left_s)


def _unpriced(call: Call) -> Refusal:
    endpoint = call.endpoint.name
    message = (
        f"endpoint {endpoint}: a budget pays, and `{call.model}` has no price; give `{call.model}`"
        f" in `prices` of endpoint {endpoint}: `{{}}` is a price of 0"
    )
    return Refusal(403, PRICE_UNKNOWN, message)
