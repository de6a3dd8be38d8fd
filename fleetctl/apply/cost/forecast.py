"""What the controller says and notes of costs when it takes an apply: the planner's own figures.

Called in the controller, in a thread, through apply/forecast.py. Reads the store as `plan` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetctl.apply.change import Change
from fleetctl.apply.cost.document import planned
from fleetctl.apply.cost.offers import market_of
from fleetctl.apply.cost.plan import report
from fleetctl.apply.cost.report import ObjectPlan, Report
from fleetctl.apply.forecast import Forecast
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.money.estimate import Estimate
from fleetctl.providers.contract.base import Backend
from fleetctl.stores.read.read_only import open_readonly


def forecast(
    home: Path, providers: Mapping[str, Backend], changes: Sequence[Change]
) -> dict[str, Forecast]:
    """By key, of all that does work or costs while it stands, and changes."""
    with open_readonly(home) as stored:
        market = market_of(stored, changes, providers)
        found = report(stored, changes, market, SystemClock().now_s())
    costs = (it for it in found.objects if it.work is not None or it.warm is not None)
    return {it.change.key: Forecast(_estimate(it), planned(it)) for it in costs}


def costs_of(found: Report) -> dict[str, Estimate]:
    """By key, of what is not free for sure."""
    costs = (it for it in found.objects if it.work is not None or it.warm is not None)
    return {it.change.key: _estimate(it) for it in costs}


def _estimate(plan: ObjectPlan) -> Estimate:
    """Of a Function nothing: no sum bounds what goes on as long as it exists."""
    if plan.work is None:
        return Estimate(None, 0.0, None)
    total = plan.work.total
    return Estimate(total.expected, total.low, total.high)
