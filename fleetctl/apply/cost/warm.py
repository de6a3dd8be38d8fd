"""The cost of a Function for as long as it exists: its warm containers, and the containers of a
server while it receives requests. Called by plan.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.apply.cost.caps import BudgetCap, caps_of
from fleetctl.apply.cost.estimate import UNKNOWN, format_hourly
from fleetctl.apply.cost.offers import OfferBook
from fleetctl.common.text import count_noun, format_duration
from fleetctl.controllers.model import Resource
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.function import FunctionSpec

KIND = "Function"


@dataclass(frozen=True, slots=True)
class WarmCost:
    """The cost of all containers together, USD a second; None where the price is unknown.
    least_usd_per_s: with the cheapest GPU, where the Function lists several. caps: the budgets that
    it counts against. A server that keeps no container warm counts with its maximal number of
    containers.
    """

    containers: int
    usd_per_s: float | None
    least_usd_per_s: float | None
    source: str
    caps: tuple[BudgetCap, ...]
    idle_s: float | None = None  # of a server: how long its containers outlive the last request

    @property
    def sentence(self) -> str:
        """Returns `$63.20/h while it exists: 2 containers stay warm, ...`, or for a server `$0.84/h
        while it is asked, and 60s after: at most 1 container`."""
        rate = format_hourly(self.least_usd_per_s, self.usd_per_s)
        rate += "" if self.usd_per_s is None else "/h"
        many = count_noun(self.containers, "container")
        if self.idle_s is not None:
            after = format_duration(self.idle_s)
            return f"{rate} while it is asked, and {after} after: at most {many}"
        stay = "stays" if self.containers == 1 else "stay"
        return f"{rate} while it exists: {many} {stay} warm, whether or not anything runs"


def warm_cost(desired: Resource, market: OfferBook) -> WarmCost | None:
    """Returns the cost, or None for a Function that keeps no container warm, or for free ones."""
    if desired.kind != KIND:
        return None
    spec = FunctionSpec.model_validate_json(desired.spec)
    sleeps = spec.port is not None and not spec.min_containers
    count = (spec.max_containers or 1) if sleeps else spec.min_containers
    if not count or spec.provider not in market.providers:
        return None
    template = spec.applied_to(Template())
    each = market.usd_per_s(spec.provider, template)
    if each == 0.0:
        return None
    least = market.least_usd_per_s(spec.provider, template, desired.namespace)
    return WarmCost(
        containers=count,
        usd_per_s=None if each is None else each * count,
        least_usd_per_s=None if least is None else least * count,
        source=f"{spec.provider}: {market.source(spec.provider)}",
        caps=caps_of(desired, market.objects.values(), UNKNOWN, spent_usd=0.0),
        idle_s=spec.scaledown_seconds if sleeps else None,
    )
