"""The report of a plan as `-o json`, the API and the reply to an apply have it: complete, for
programs.
"""

from __future__ import annotations

from fleetctl.apply.cost.caps import BudgetCap
from fleetctl.apply.cost.cost_parts import PlannedPlacement
from fleetctl.apply.cost.estimate import Cost, per_hour
from fleetctl.apply.cost.warm import WarmCost
from fleetctl.apply.plan.phrases import (
    format_object_cost,
    format_where,
    list_cost_lines,
)
from fleetctl.apply.plan.plan_report import ObjectPlan, PlannedWork, PlanReport, RevisionComparison
from fleetctl.apply.plan.repository import GitCommit
from fleetctl.specs.values.changes import UNSET, FieldChange

FORM = "fleetctl.dev/plan/v1alpha1"
COMPARISON_FORM = "fleetctl.dev/review/v1alpha1"


def render_plan(found: PlanReport) -> dict[str, object]:
    """Returns the report as a document: money in USD, times in seconds; null for unknown figures.
    The cost of a comparison has both sides. shown: figures in the words of screens."""
    both = found.comparison
    return {
        "form": FORM if both is None else COMPARISON_FORM,
        **({} if both is None else _render_revisions(both)),
        "changes": bool(found.changes),
        "objects": [render_object_plan(it) for it in found.objects],
        "cost": {"thisApply": cost_of(found.cost), "total": cost_of(found.total)}
        if both is None
        else _render_sides(found, both),
        "risks": [
            {"risk": it.sort.value, "object": it.key, "message": it.sentence} for it in found.risks
        ],
        "budgets": list(found.budgets),
        "failed": list(found.failed),
        "prices": list(found.prices),
        "shown": {"cost": found.cost.with_range, "total": found.total.with_range},
    }


def render_object_plan(plan: ObjectPlan) -> dict[str, object]:
    """Returns an object. shown: its cells and lines, in the words of screens and comments."""
    made: dict[str, object] = {
        "object": plan.key,
        "action": plan.action.value,
        "fields": [_render_field(field) for field in plan.fields],
    }
    parts = [text for text in (plan.about, *plan.notes) if text]
    if parts:
        made["notes"] = parts
    if plan.work is not None:
        made["work"] = _render_work(plan.work)
    if plan.warm is not None:
        made["standing"] = _render_warm(plan.warm)
    if plan.before is not None:
        made["costBefore"] = cost_of(plan.before)
    made["shown"] = {
        "units": plan.units,
        "cost": format_object_cost(plan),
        "where": format_where(plan),
        "lines": list(list_cost_lines(plan)),
    }
    return made


def _render_revisions(both: RevisionComparison) -> dict[str, object]:
    return {
        "from": _render_commit(both.before),
        "to": _render_commit(both.after),
        "live": both.live,
    }


def _render_commit(commit: GitCommit) -> dict[str, object]:
    return {"revision": commit.said, "commit": commit.digits}


def _render_sides(found: PlanReport, both: RevisionComparison) -> dict[str, object]:
    return {
        "before": cost_of(both.cost) if both.known else None,
        "after": cost_of(found.cost),
        "difference": both.difference,
        "mostDifference": both.most_difference,
    }


def _render_field(field: FieldChange) -> dict[str, object]:
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
        **({"gone": work.gone} if work.gone else {}),
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
