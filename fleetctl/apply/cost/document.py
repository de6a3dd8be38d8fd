"""The plan as `-o json` prints it, and its part that an apply answers with: for programs, and
complete.
"""

from __future__ import annotations

from fleetctl.apply.cost.caps import Cap
from fleetctl.apply.cost.estimate import Cost, per_hour
from fleetctl.apply.cost.report import ObjectPlan, Place, Report, Verb, Work
from fleetctl.apply.cost.warm import WarmCost
from fleetctl.specs.values.changes import UNSET, FieldChange

FORM = "fleetctl.dev/plan/v1alpha1"
VERBS = {
    Verb.CREATE: "create",
    Verb.UPDATE: "update",
    Verb.REPLACE: "replace",
    Verb.DESTROY: "destroy",
    Verb.KEEP: "keep",
}


def document(found: Report) -> dict[str, object]:
    """Money in USD, times in seconds; null where nobody knows."""
    return {
        "form": FORM,
        "changes": found.changes,
        "objects": [planned(it) for it in found.objects],
        "cost": {"thisApply": cost_of(found.now), "total": cost_of(found.total)},
        "prices": list(found.sources),
    }


def planned(plan: ObjectPlan) -> dict[str, object]:
    made: dict[str, object] = {
        "object": plan.change.key,
        "action": VERBS[plan.verb],
        "fields": [field_of(field) for field in plan.change.fields],
    }
    parts = [text for text in (plan.about, *plan.notes) if text]
    if parts:
        made["notes"] = parts
    if plan.work is not None:
        made["work"] = _work(plan.work)
    if plan.warm is not None:
        made["standing"] = _standing(plan.warm)
    return made


def field_of(field: FieldChange) -> dict[str, object]:
    """A side that does not have the field lacks its key."""
    made: dict[str, object] = {"path": field.path}
    if field.before is not UNSET:
        made["before"] = field.before
    if field.after is not UNSET:
        made["after"] = field.after
    return made


def _work(work: Work) -> dict[str, object]:
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
        "placement": [_place(place) for place in work.places],
        "cost": {"thisApply": cost_of(work.now), "total": cost_of(work.total)},
        "spent": work.spent_usd,
        "unpricedRuns": work.unpriced,
        "lost": work.lost_usd,
        "budgets": [_cap(cap) for cap in work.caps],
        "basis": work.lasts.basis if work.lasts is not None else "",
        "firstResultSeconds": work.first_s,
        "doneSeconds": work.whole_s,
        "maxPerHour": per_hour(work.rate_usd_per_s),
    }


def _standing(warm: WarmCost) -> dict[str, object]:
    least = per_hour(warm.least_usd_per_s)
    return {
        "containers": warm.containers,
        "perHour": per_hour(warm.usd_per_s),
        **({} if least is None else {"leastPerHour": least}),
        "budgets": [
            {"budget": cap.owner, "maxCost": cap.max_usd, "used": cap.used_usd} for cap in warm.caps
        ],
    }


def _cap(cap: Cap) -> dict[str, object]:
    return {
        "budget": cap.owner,
        "maxCost": cap.max_usd,
        "used": cap.used_usd,
        "onExceeded": cap.on_exceeded,
        "says": cap.sentence,
    }


def _place(place: Place) -> dict[str, object]:
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
