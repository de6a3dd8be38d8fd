"""What a Function costs for as long as it exists: its containers that stay warm. Called by
plan.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.apply.cost.caps import Cap, caps_of
from fleetctl.apply.cost.estimate import UNKNOWN, per_hour
from fleetctl.apply.cost.offers import Market
from fleetctl.apply.cost.words import stands
from fleetctl.controllers.model import Resource
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.registry import parse_spec

KIND = "Function"


@dataclass(frozen=True, slots=True)
class WarmCost:
    """Of all containers together, USD a second; None where the price is not known. least_usd_per_s:
    of the cheapest GPU, where the Function lists several. caps: what it counts against.
    """

    containers: int
    usd_per_s: float | None
    least_usd_per_s: float | None
    source: str
    caps: tuple[Cap, ...]

    @property
    def sentence(self) -> str:
        return stands(self.containers, per_hour(self.least_usd_per_s), per_hour(self.usd_per_s))


def warm_cost(desired: Resource, market: Market) -> WarmCost | None:
    """None of what keeps nothing warm, or nothing that costs."""
    if desired.kind != KIND:
        return None
    spec = parse_spec(KIND, desired.spec)
    assert isinstance(spec, FunctionSpec)
    if not spec.min_containers or spec.provider not in market.providers:
        return None
    template = spec.applied_to(Template())
    each = market.usd_per_s(spec.provider, template)
    if each == 0.0:
        return None
    least = market.least_usd_per_s(spec.provider, template, desired.namespace)
    return WarmCost(
        containers=spec.min_containers,
        usd_per_s=None if each is None else each * spec.min_containers,
        least_usd_per_s=None if least is None else least * spec.min_containers,
        source=f"{spec.provider}: {market.source(spec.provider)}",
        caps=caps_of(desired, market.objects.values(), UNKNOWN, spent_usd=0.0),
    )
