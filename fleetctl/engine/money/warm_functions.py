"""What the containers cost that a Function keeps warm, whether or not anything runs in them, and
those of a server, which are counted where they run.

Called by budgets.py, which counts them, and by passes.py. Since when they are not charged yet, and
what they were charged before, is in the Function's status, so that no restart forgets it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fleetctl.controllers.money.budget import (
    TINY_USD,
    Account,
    Allowance,
    Denied,
    OnExceeded,
    UnitPrice,
)
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.values.hints import parted, with_hint

if TYPE_CHECKING:
    from fleetctl.engine.capacity.prices import Market
    from fleetctl.engine.money.ledger import Charges
    from fleetctl.engine.shared.state import State
    from fleetctl.tracking.track import Track

KIND = "Function"
# They are charged this often, and so much is set aside ahead: it is lost when a cap is reached.
CHARGE_S = 300.0


@dataclass(frozen=True, slots=True)
class Warm:
    """containers that cost usd_per_s together; None = nobody knows. idle_s: how long they outlive
    the ask for them.
    """

    containers: int
    usd_per_s: float | None
    idle_s: float

    def held_s(self, uncharged_s: float) -> float:
        """What is set aside, in whole steps, so that a budget stands still between two charges."""
        return CHARGE_S * max(1, math.ceil(uncharged_s / CHARGE_S)) + self.idle_s


class Warming:
    """accounts of an object are those of the Budgets that select it; budgets.py hands them in."""

    def __init__(self, state: State, *, market: Market, charges: Charges) -> None:
        self._state = state
        self._market = market
        self._charges = charges

    def reserve(self, account: Account, track: Track, *, first_s: float, now_s: float) -> None:
        """Add what a Function holds of a budget whose period began at first_s."""
        known = _noted(track)
        if known is None:
            return
        warm, since_s = known
        uncharged_s = max(0.0, now_s - max(since_s, first_s))
        if warm.usd_per_s is None:
            account.unpriced_live += warm.containers
            return
        account.reserved_usd += warm.usd_per_s * warm.held_s(uncharged_s)
        account.accrued_usd += warm.usd_per_s * uncharged_s

    def status(self, track: Track, accounts: Sequence[Account], now_s: float) -> Status:
        """The part of a Function's status that tells of them; charges what is due."""
        known, wanted, cost = _noted(track), self._wanted(track), track.status.get("cost")
        cost = cost if isinstance(cost, dict) else {}
        if not track.asset.ready and known is not None:
            wanted = known[0]  # what is there goes on, until the new one has taken its place
        if known is not None:
            warm, since_s = known
            if warm == wanted and now_s < since_s + CHARGE_S:
                self._state.queue.add(track.resource.uid, since_s + CHARGE_S)
                return {"warm": _note(warm, since_s), "cost": cost}
            lasted_s = now_s - since_s
            held_s = warm.held_s(lasted_s)
            if wanted is None and _spec(track).port is not None:
                # Nobody looked while no controller ran: they ended soon after the last look.
                lasted_s = min(lasted_s, CHARGE_S + warm.idle_s)
            self._charge(track, warm, lasted_s)
            cost = _grown(cost, warm, lasted_s) | {"until": now_s}
            self._count(accounts, warm, -held_s, charged_s=lasted_s)
        if wanted is None or (known is None and not track.asset.ready):
            return {"cost": cost} if cost else {}
        cost = {"from": now_s, **cost, "provider": _spec(track).provider}
        self._state.queue.add(track.resource.uid, now_s + CHARGE_S)
        self._count(accounts, wanted, wanted.held_s(0.0), charged_s=0.0)
        return {"warm": _note(wanted, now_s), "cost": cost}

    def gone(self, track: Track, accounts: Sequence[Account]) -> None:
        """The Function is dropped, and its containers are gone."""
        known = _noted(track)
        if known is not None:
            warm, since_s = known
            lasted_s = self._state.clock.now_s() - since_s
            self._charge(track, warm, lasted_s)
            self._count(accounts, warm, -warm.held_s(lasted_s), charged_s=lasted_s)
            self._close(track, warm, lasted_s)

    def _close(self, track: Track, warm: Warm, lasted_s: float) -> None:
        """The last status, which stays for people: what it cost, with nothing warm any more."""
        before = track.status.get("cost")
        cost = _grown(before if isinstance(before, dict) else {}, warm, lasted_s)
        status = {key: value for key, value in track.status.items() if key != "warm"}
        status["cost"] = cost | {"until": self._state.clock.now_s()}
        about = track.resource
        text = json.dumps(status, separators=(",", ":"))
        self._state.store.resources.put_status(about.uid, text, expected_version=about.version)

    def denied(self, track: Track, accounts: list[Account]) -> Denied | None:
        """Why the budgets do not pay for making it ready; None once it is, and where they do."""
        warm = self._wanted(track)
        if warm is None or _noted(track) is not None or track.resource.deleted_at_s is not None:
            return None
        unit_price = UnitPrice(warm.usd_per_s, warm.held_s(0.0))
        return Allowance(accounts, None, "function").denial(unit_price, _spec(track).provider)

    def serving_denied(self, track: Track, accounts: list[Account]) -> Denied | None:
        """Why the budgets do not pay for a server's container: for a first one, or for going on.
        One that nobody asks any more ends after its idle time, which was set aside.
        """
        spec = _spec(track)
        each = self._each(track) if spec.provider in self._state.providers else 0.0
        if each == 0.0:
            return None
        if _noted(track) is None:
            unit_price = UnitPrice(each, CHARGE_S + spec.scaledown_seconds)
            unit = f"container of {track.resource.key}"
            denied = Allowance(accounts, None, unit).denial(unit_price, spec.provider)
            if denied is None:
                return None
            message, hint = parted(denied.message)  # no task's limit of time bounds it
            hint = hint.removeprefix("lower template.timeoutSeconds, or ")
            return replace(denied, message=with_hint(message, hint))
        for account in accounts:
            cap = account.cap
            over = account.committed_usd > cap.max_usd + TINY_USD
            if over and cap.on_exceeded is not OnExceeded.WARN:
                message = f"{cap.owner} has nothing left for containers of {track.resource.key}"
                return Denied("BudgetExhausted", message, cap.owner, cap.until_s)
        return None

    def _wanted(self, track: Track) -> Warm | None:
        """What the present spec keeps warm, or what is there of a server; None where that is
        nothing, or free.
        """
        spec, count = _spec(track), _spec(track).min_containers
        if spec.port is not None:
            seen, known = track.asset.containers, _noted(track)
            if seen is None and known is not None:
                return known[0]  # an earlier controller counted them, and nobody has since
            count = max(count, seen or 0)
        if not count or spec.provider not in self._state.providers:
            return None
        each = self._each(track)
        if each == 0.0:
            return None
        whole = None if each is None else each * count
        return Warm(count, whole, spec.scaledown_seconds)

    def _each(self, track: Track) -> float | None:
        """What a container costs, in USD a second."""
        template, namespace = _spec(track).applied_to(Template()), track.resource.namespace
        return self._market.price(_spec(track).provider, template, namespace)

    def _count(
        self, accounts: Sequence[Account], warm: Warm, held_s: float, *, charged_s: float
    ) -> None:
        """In this tick's accounts too: the passes that follow must not spend the same money."""
        usd_per_s = warm.usd_per_s or 0.0
        for account in accounts:
            account.reserved_usd = max(0.0, account.reserved_usd + usd_per_s * held_s)
            account.charged_usd += usd_per_s * max(0.0, charged_s)
            if warm.usd_per_s is None:
                account.unpriced_live += warm.containers if held_s > 0 else -warm.containers

    def _charge(self, track: Track, warm: Warm, lasted_s: float) -> None:
        lasted_s = max(0.0, lasted_s)
        usd = (warm.usd_per_s or 0.0) * lasted_s
        unpriced_s = lasted_s * warm.containers if warm.usd_per_s is None else 0.0
        self._charges.add(track, usd, unpriced_s)


def _spec(track: Track) -> FunctionSpec:
    assert isinstance(track.spec, FunctionSpec)
    return track.spec


def _note(warm: Warm, since_s: float) -> dict[str, object]:
    fields = {"containers": warm.containers, "usdPerSecond": warm.usd_per_s, "idle": warm.idle_s}
    return {**fields, "since": since_s}


def _grown(cost: dict[str, Any], warm: Warm, lasted_s: float) -> dict[str, Any]:
    """What all of them cost from the first on, up to the last charge. Seconds are of containers."""
    lasted_s = max(0.0, lasted_s)
    more = {"actual": (warm.usd_per_s or 0.0) * lasted_s, "seconds": lasted_s * warm.containers}
    if warm.usd_per_s is None:
        more["unpricedSeconds"] = lasted_s * warm.containers
    return cost | {name: round(cost.get(name, 0.0) + much, 6) for name, much in more.items()}


def _noted(track: Track) -> tuple[Warm, float] | None:
    """(what is warm, since when it is not charged), by the status."""
    noted = track.status.get("warm")
    if not isinstance(noted, dict):
        return None
    return Warm(noted["containers"], noted["usdPerSecond"], noted["idle"]), noted["since"]
