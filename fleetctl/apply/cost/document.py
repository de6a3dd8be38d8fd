"""The plan as `-o json` prints it, and the part that the reply to an apply holds: complete, for
programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from fleetctl.apply.cost.caps import BudgetCap
from fleetctl.apply.cost.estimate import Cost, per_hour
from fleetctl.apply.cost.plan_report import (
    ObjectPlan,
    PlanAction,
    PlannedPlacement,
    PlannedWork,
    PlanReport,
)
from fleetctl.apply.cost.warm import WarmCost
from fleetctl.specs.values.changes import UNSET, FieldChange

FORM = "fleetctl.dev/plan/v1alpha1"
VERBS: Mapping[PlanAction, Literal["create", "update", "replace", "destroy", "keep"]] = {
    PlanAction.CREATE: "create",
    PlanAction.UPDATE: "update",
    PlanAction.REPLACE: "replace",
    PlanAction.DESTROY: "destroy",
    PlanAction.KEEP: "keep",
}


def render_plan(found: PlanReport) -> dict[str, object]:
    """Returns the report as a document: money in USD, times in seconds; null for unknown
    figures."""
    return {
        "form": FORM,
        "changes": found.changes,
        "objects": [render_object_plan(it) for it in found.objects],
        "cost": {"thisApply": cost_of(found.now), "total": cost_of(found.total)},
        "prices": list(found.sources),
    }


def render_object_plan(plan: ObjectPlan) -> dict[str, object]:
    made: dict[str, object] = {
        "object": plan.change.key,
        "action": VERBS[plan.verb],
        "fields": [field_of(field) for field in plan.change.fields],
    }
    parts = [text for text in (plan.about, *plan.notes) if text]
    if parts:
        made["notes"] = parts
    if plan.work is not None:
        made["work"] = _render_work(plan.work)
    if plan.warm is not None:
        made["standing"] = _render_warm(plan.warm)
    return made


def field_of(field: FieldChange) -> dict[str, object]:
    """Returns one changed field; a side that does not have the field lacks its key."""
    made: dict[str, object] = {"path": field.path}
    if field.before is not UNSET:
        made["before"] = field.before
    if field.after is not UNSET:
        made["after"] = field.after
    return made


def _render_work(work: PlannedWork) -> dict[str, object]:
    return {
        "unit": work.unit,
        "gpu": work.gpu,
        "kept": work.kept,
        "cached": work.cached,
        "new": work.new,
        "again": work.again.units,
        "replaced": work.replaced,
        "runningOn": work.going_on,
        "cancelled": work.cancelled,
        "failed": work.failed,
        "placement": [_render_placement(place) for place in work.places],
        "cost": {"thisApply": cost_of(work.now), "total": cost_of(work.total)},
        "spent": work.spent_usd,
        "unpricedRuns": work.unpriced,
        "lost": work.lost_usd,
        "budgets": [_render_cap(cap) for cap in work.caps],
        "basis": work.lasts.basis if work.lasts is not None else "",
        "firstResultSeconds": work.first_s,
        "doneSeconds": work.whole_s,
        "maxPerHour": per_hour(work.rate_usd_per_s),
    }


def _render_warm(warm: WarmCost) -> dict[str, object]:
    least = per_hour(warm.least_usd_per_s)
    return {
        "containers": warm.containers,
        "perHour": per_hour(warm.usd_per_s),
        **({} if least is None else {"leastPerHour": least}),
        "budgets": [
            {"budget": cap.owner, "maxCost": cap.max_usd, "used": cap.used_usd} for cap in warm.caps
        ],
    }


def _render_cap(cap: BudgetCap) -> dict[str, object]:
    return {
        "budget": cap.owner,
        "maxCost": cap.max_usd,
        "used": cap.used_usd,
        "onExceeded": cap.on_exceeded,
        "says": cap.sentence,
    }


def _render_placement(place: PlannedPlacement) -> dict[str, object]:
    judged = place.judged
    price = per_hour(judged.usd_per_s)
    least = per_hour(place.least_usd_per_s)
    return {
        **({"name": place.name, "gpu": place.gpu} if place.name else {}),
        **({"nodes": place.nodes} if place.nodes else {}),
        "provider": judged.provider,
        "fits": judged.fits,
        "chosen": judged.won,
        "why": judged.why,
        "perHour": price,
        **({} if least is None else {"leastPerHour": least}),
        "source": place.source,
        "slots": place.slots,
        "units": place.units,
        "cost": cost_of(place.cost),
    }


def cost_of(cost: Cost) -> dict[str, object]:
    return {
        "expected": cost.expected,
        "low": cost.low,
        "high": cost.high,
        "bound": "limits" if cost.at_most else "past runs",
    }
