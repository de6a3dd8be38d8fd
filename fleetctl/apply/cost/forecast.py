"""The cost estimates that the controller reports and stores when it takes an apply: the planner's
own figures.

Called in the controller, in a thread, through apply/forecast.py. Reads the store as `plan` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetctl.apply.change import Change
from fleetctl.apply.cost.document import render_object_plan
from fleetctl.apply.cost.offers import market_of
from fleetctl.apply.cost.plan import build_report
from fleetctl.apply.cost.plan_report import ObjectPlan, PlanReport
from fleetctl.apply.forecast import CostForecast
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.money.estimate import CostEstimate
from fleetctl.providers.contract.base import Backend
from fleetctl.stores.read.read_only import open_readonly


def forecast_costs(
    home: Path,
    providers: Mapping[str, Backend],
    changes: Sequence[Change],
) -> dict[str, CostForecast]:
    """Returns forecasts by key, for each changed object that does work or costs while it exists."""
    with open_readonly(home) as stored:
        market = market_of(stored, changes, providers)
        found = build_report(stored, changes, market, SystemClock().now_s())
    costs = (it for it in found.objects if it.work is not None or it.warm is not None)
    return {
        it.change.key: CostForecast(_estimate_total(it), render_object_plan(it)) for it in costs
    }


def costs_of(found: PlanReport) -> dict[str, CostEstimate]:
    """Returns estimates by key, for each object that is not certainly free."""
    costs = (it for it in found.objects if it.work is not None or it.warm is not None)
    return {it.change.key: _estimate_total(it) for it in costs}


def _estimate_total(plan: ObjectPlan) -> CostEstimate:
    """Returns an object's estimate. A Function has none: no sum bounds work that goes on as long as
    it exists."""
    if plan.work is None:
        return CostEstimate(None, 0.0, None)
    total = plan.work.total
    return CostEstimate(total.expected, total.low, total.high)
