"""Counts the cost of a Function's warm containers, used or not, and of a server's containers, which
are counted where they run.

Called by budgets.py, which counts them, and by passes.py. The time of the last charge and the
charges so far are in the Function's status, so that a restart keeps them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fleetctl.controllers.budget import (
    TINY_USD,
    Allowance,
    BudgetAccount,
    BudgetDenial,
    OnExceeded,
    UnitPrice,
)
from fleetctl.controllers.status_keys import Status
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.function import FunctionSpec

if TYPE_CHECKING:
    from fleetctl.engine.capacity.price_book import PriceBook
    from fleetctl.engine.money.ledger import RunCharges
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import Track

KIND = "Function"
# The interval of charges, and the time set aside ahead: that amount is lost when a cap is reached.
CHARGE_S = 300.0


@dataclass(frozen=True, slots=True)
class WarmContainers:
    """containers that cost usd_per_s together; None = unknown. idle_s: how long they outlive their
    last request, in seconds.
    """

    containers: int
    usd_per_s: float | None
    idle_s: float

    def held_s(self, uncharged_s: float) -> float:
        """Returns the seconds set aside, in whole steps, so that a budget is constant between two
        charges.
        """
        return CHARGE_S * max(1, math.ceil(uncharged_s / CHARGE_S)) + self.idle_s


class WarmFunctionCosts:
    """accounts of an object are those of the Budgets that select it; budgets.py hands them in."""

    def __init__(
        self,
        state: EngineState,
        *,
        market: PriceBook,
        charges: RunCharges,
    ) -> None:
        self._state = state
        self._market = market
        self._charges = charges

    def reserve(
        self,
        account: BudgetAccount,
        track: Track,
        *,
        first_s: float,
        now_s: float,
    ) -> None:
        """Adds the amount that a Function holds of a budget whose period began at first_s; other
        objects hold none.
        """
        known = _read_note(track)
        if known is None:
            return
        warm, since_s = known
        uncharged_s = max(0.0, now_s - max(since_s, first_s))
        if warm.usd_per_s is None:
            account.unpriced_live += warm.containers
            return
        account.reserved_usd += warm.usd_per_s * warm.held_s(uncharged_s)
        account.accrued_usd += warm.usd_per_s * uncharged_s

    def status(
        self,
        track: Track,
        accounts: Sequence[BudgetAccount],
        now_s: float,
    ) -> Status:
        """Returns the part of a Function's status about warm containers; charges the amount due."""
        known = _read_note(track)
        wanted = self._choose_containers(track)
        cost = track.status.get("cost")
        cost = cost if isinstance(cost, dict) else {}
        if not track.asset.ready and known is not None:
            wanted = known[0]  # existing containers go on until the new ones have replaced them
        if known is not None:
            warm, since_s = known
            if warm == wanted and now_s < since_s + CHARGE_S:
                self._state.queue.add(track.resource.uid, since_s + CHARGE_S)
                return {"warm": _build_note(warm, since_s), "cost": cost}
            lasted_s = now_s - since_s
            held_s = warm.held_s(lasted_s)
            if wanted is None and _read_spec(track).port is not None:
                # While no controller ran, no one looked: they ended soon after the last look.
                lasted_s = min(lasted_s, CHARGE_S + warm.idle_s)
            self._charge(track, warm, lasted_s)
            cost = _add_cost(cost, warm, lasted_s) | {"until": now_s}
            self._count(accounts, warm, -held_s, charged_s=lasted_s)
        if wanted is None or (known is None and not track.asset.ready):
            if cost:
                return {"cost": cost}
            return {}
        cost = {"from": now_s, **cost, "provider": _read_spec(track).provider}
        self._state.queue.add(track.resource.uid, now_s + CHARGE_S)
        self._count(accounts, wanted, wanted.held_s(0.0), charged_s=0.0)
        return {"warm": _build_note(wanted, now_s), "cost": cost}

    def gone(self, track: Track, accounts: Sequence[BudgetAccount]) -> None:
        """Records that the Function is dropped, and its containers are gone."""
        known = _read_note(track)
        if known is not None:
            warm, since_s = known
            lasted_s = self._state.clock.now_s() - since_s
            self._charge(track, warm, lasted_s)
            self._count(accounts, warm, -warm.held_s(lasted_s), charged_s=lasted_s)
            self._close(track, warm, lasted_s)

    def _close(
        self,
        track: Track,
        warm: WarmContainers,
        lasted_s: float,
    ) -> None:
        """Writes the last status, which stays for users: the total cost, with no warm
        containers.
        """
        before = track.status.get("cost")
        cost = _add_cost(before if isinstance(before, dict) else {}, warm, lasted_s)
        status = {key: value for key, value in track.status.items() if key != "warm"}
        status["cost"] = cost | {"until": self._state.clock.now_s()}
        about = track.resource
        text = json.dumps(status, separators=(",", ":"))
        self._state.store.resources.put_status(about.uid, text, expected_version=about.version)

    def denied(self, track: Track, accounts: list[BudgetAccount]) -> BudgetDenial | None:
        """Returns why the budgets do not pay for making it ready; None once it is, and where they
        do.
        """
        warm = self._choose_containers(track)
        if warm is None or _read_note(track) is not None or track.resource.deleted_at_s is not None:
            return None
        unit_price = UnitPrice(warm.usd_per_s, warm.held_s(0.0))
        return Allowance(accounts, None, "function").denial(unit_price, _read_spec(track).provider)

    def serving_denied(self, track: Track, accounts: list[BudgetAccount]) -> BudgetDenial | None:
        """Returns why the budgets do not pay for a server's container: for a first one, or for
        going on. A server without requests ends after its idle time, which was set aside.
        """
        spec = _read_spec(track)
        each = self._price_container(track) if spec.provider in self._state.providers else 0.0
        if each == 0.0:
            return None
        if _read_note(track) is None:
            unit_price = UnitPrice(each, CHARGE_S + spec.scaledown_seconds)
            unit = f"container of {track.resource.key}"
            denied = Allowance(accounts, None, unit).denial(unit_price, spec.provider)
            if denied is None:
                return None
            # No task's limit of time bounds it.
            hint = denied.hint.removeprefix("lower template.timeoutSeconds, or ")
            return replace(denied, hint=hint)
        for account in accounts:
            cap = account.cap
            over = account.committed_usd > cap.max_usd + TINY_USD
            if over and cap.on_exceeded is not OnExceeded.WARN:
                message = f"{cap.owner} has nothing left for containers of {track.resource.key}"
                return BudgetDenial("BudgetExhausted", message, cap.owner, cap.until_s)
        return None

    def _choose_containers(self, track: Track) -> WarmContainers | None:
        """Returns the containers that the present spec keeps warm, or the running ones of a server;
        None without any, or if they are free.
        """
        spec = _read_spec(track)
        count = _read_spec(track).min_containers
        if spec.port is not None:
            seen = track.asset.containers
            known = _read_note(track)
            if seen is None and known is not None:
                return known[0]  # an earlier controller counted them, and there is no newer count
            count = max(count, seen or 0)
        if not count or spec.provider not in self._state.providers:
            return None
        each = self._price_container(track)
        if each == 0.0:
            return None
        whole = None if each is None else each * count
        return WarmContainers(count, whole, spec.scaledown_seconds)

    def _price_container(self, track: Track) -> float | None:
        """Returns the cost of a container, in USD a second."""
        template = _read_spec(track).applied_to(Template())
        namespace = track.resource.namespace
        return self._market.price(_read_spec(track).provider, template, namespace)

    def _count(
        self,
        accounts: Sequence[BudgetAccount],
        warm: WarmContainers,
        held_s: float,
        *,
        charged_s: float,
    ) -> None:
        """Adds the charge to this tick's accounts too: the passes that follow must not spend the
        same money.
        """
        usd_per_s = warm.usd_per_s or 0.0
        for account in accounts:
            account.reserved_usd = max(0.0, account.reserved_usd + usd_per_s * held_s)
            account.charged_usd += usd_per_s * max(0.0, charged_s)
            if warm.usd_per_s is None:
                account.unpriced_live += warm.containers if held_s > 0 else -warm.containers

    def _charge(
        self,
        track: Track,
        warm: WarmContainers,
        lasted_s: float,
    ) -> None:
        lasted_s = max(0.0, lasted_s)
        usd = (warm.usd_per_s or 0.0) * lasted_s
        unpriced_s = lasted_s * warm.containers if warm.usd_per_s is None else 0.0
        self._charges.add(track, usd, unpriced_s)


def _read_spec(track: Track) -> FunctionSpec:
    assert isinstance(track.spec, FunctionSpec)
    return track.spec


def _build_note(warm: WarmContainers, since_s: float) -> dict[str, object]:
    fields = {"containers": warm.containers, "usdPerSecond": warm.usd_per_s, "idle": warm.idle_s}
    return {**fields, "since": since_s}


def _add_cost(
    cost: dict[str, Any],
    warm: WarmContainers,
    lasted_s: float,
) -> dict[str, Any]:
    """Returns the total cost from the first charge to the last. Seconds are of containers."""
    lasted_s = max(0.0, lasted_s)
    more = {"actual": (warm.usd_per_s or 0.0) * lasted_s, "seconds": lasted_s * warm.containers}
    if warm.usd_per_s is None:
        more["unpricedSeconds"] = lasted_s * warm.containers
    return cost | {name: round(cost.get(name, 0.0) + much, 6) for name, much in more.items()}


def _read_note(track: Track) -> tuple[WarmContainers, float] | None:
    """Returns (the warm containers, since when they are not charged), by the status."""
    noted = track.status.get("warm")
    if not isinstance(noted, dict):
        return None
    return WarmContainers(noted["containers"], noted["usdPerSecond"], noted["idle"]), noted["since"]
