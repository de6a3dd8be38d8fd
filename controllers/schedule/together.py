"""Checks that units which work together can all start in this pass: the sum of what they take is
asked of the slots of providers, their queue and their budgets before the first one starts. Pure.

Called by starts.py, for kinds that set `together`. It takes nothing: the starts that follow do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from fleetctl.controllers.budget import UnitPrice
from fleetctl.controllers.history.history import History
from fleetctl.controllers.planning.kind_controller import Unit
from fleetctl.controllers.planning.placement import ProviderOffer
from fleetctl.controllers.queues.queue_state import QueueAsk, sum_usages
from fleetctl.controllers.schedule.affordable import QueuedStart, UnpaidStart, unit_price_of
from fleetctl.controllers.schedule.capacity import PassSlots
from fleetctl.controllers.schedule.desired import DesiredObject


@dataclass(frozen=True, slots=True)
class StartObstacle:
    """A reason why some of the units cannot start: one without capacity, or a refused sum."""

    at_capacity: Unit | None = None
    unpaid: UnpaidStart | None = None
    queued: QueuedStart | None = None


def find_obstacle(
    desired: DesiredObject,
    history: History,
    units: Sequence[Unit],
    now_s: float,
) -> StartObstacle | None:
    """Returns the first obstacle to a start of all these units; None where all can start."""
    slots = PassSlots(desired, history, now_s)
    at: dict[str, list[Unit]] = {}
    for unit in units:
        where = next(slots.open(unit), None)
        if where is None:
            return StartObstacle(at_capacity=unit)
        slots.take(where)
        at.setdefault(where.provider, []).append(unit)

    for provider, those in at.items():
        ask = _sum_asks(desired, those, provider)
        refusal = desired.turn.refusal(ask) if desired.turn is not None else None
        if refusal is not None:
            return StartObstacle(queued=QueuedStart(refusal, (ask,)))
        denied = desired.allowance.denial(_sum_prices(desired, those, provider, now_s), provider)
        if denied is not None:
            return StartObstacle(unpaid=UnpaidStart(denied, ()))
    return None


def _sum_asks(
    desired: DesiredObject,
    units: Sequence[Unit],
    provider: str,
) -> QueueAsk:
    """Returns what the units together take of a queue."""
    offers = [
        desired.offers.get(unit.template_hash, {}).get(provider, ProviderOffer()) for unit in units
    ]
    usages = [it.takes for it in offers if it.takes is not None]
    prices = [it.usd_per_s for it in offers if it.usd_per_s is not None]
    return QueueAsk(
        provider,
        sum_usages(usages) if len(usages) == len(offers) else None,
        sum(prices) if len(prices) == len(offers) else None,
    )


def _sum_prices(
    desired: DesiredObject,
    units: Sequence[Unit],
    provider: str,
    now_s: float,
) -> UnitPrice:
    """Returns a price whose worst case is that of all units together."""
    prices = [unit_price_of(desired, unit, provider, now_s) for unit in units]
    rates = [it.usd_per_s for it in prices if it.usd_per_s is not None]
    if len(rates) < len(prices):
        return UnitPrice(None, inf)
    rate = sum(rates)
    worst_usd = sum(it.worst_usd or 0.0 for it in prices)
    return UnitPrice(rate, worst_usd / rate if rate else inf)
