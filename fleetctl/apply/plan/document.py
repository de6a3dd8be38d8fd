"""The report of a plan as `-o json`, the API and the reply to an apply have it, and the phrases
that it shares with the screen and the comment.

A side that is newer may have further fields, which are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from fleetctl.apply.cost.cost_parts import PlannedPlacement, WarmCost
from fleetctl.apply.cost.estimate import OWN, BudgetCap, Cost, compute_per_hour
from fleetctl.apply.plan.plan_report import (
    ObjectPlan,
    PlanAction,
    PlannedWork,
    PlanReport,
    RevisionComparison,
)
from fleetctl.apply.plan.repository import GitCommit
from fleetctl.common.text import format_money
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.values.changes import UNSET, FieldChange

FORM = "fleetctl.dev/plan/v1alpha1"
COMPARISON_FORM = "fleetctl.dev/review/v1alpha1"

_ABSENT = {"absent": True}  # JSON has no value for a field that one side does not have


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
        "maxPerHour": compute_per_hour(work.rate_usd_per_s),
    }


def _render_warm(warm: WarmCost) -> dict[str, object]:
    least = compute_per_hour(warm.least_usd_per_s)
    return {
        "containers": warm.containers,
        "perHour": compute_per_hour(warm.usd_per_s),
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
    price = compute_per_hour(judged.usd_per_s)
    least = compute_per_hour(place.least_usd_per_s)
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


class RiskGroup(NamedTuple):
    """Risks that share a sentence. keys: of their objects; empty for a risk of all."""

    sort: str
    keys: tuple[str, ...]
    sentence: str


def group_risks(found: PlanReport) -> list[RiskGroup]:
    """Returns the risks, in order; risks with the same sentence together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for risk in found.risks:
        groups.setdefault((risk.sort.value, risk.sentence), []).append(risk.key)
    return [
        RiskGroup(sort, tuple(key for key in keys if key), sentence)
        for (sort, sentence), keys in groups.items()
    ]


def format_where(plan: ObjectPlan) -> str:
    """Returns `modal 500, local 12`."""
    return ", ".join(f"{name} {count:,}" for name, count in plan.where.items())


def format_object_cost(plan: ObjectPlan) -> str:
    parts = [] if plan.cost is None else [str(plan.cost)]
    parts += [] if plan.warm is None else [plan.warm.sentence]
    return "; ".join(parts)


def format_cost_change(both: RevisionComparison) -> str:
    """Returns `+$12.40`, `upper bound -$3.00`, or that it is unknown."""
    changed = both.difference
    if changed is None:
        return "cost difference unknown"
    if not round(changed, 2):
        return "cost unchanged"
    bound = "upper bound " if both.bounds else ""
    return f"{bound}{'+' if changed > 0 else '-'}{format_money(abs(changed))}"


def list_cost_lines(plan: ObjectPlan) -> Iterator[str]:
    """Yields where a new object will run and its cost, for the reply to an apply; no line for free
    work on this machine."""
    if plan.warm is not None:
        yield f"cost       {plan.warm.sentence}{_format_caps(plan.warm.caps)}"
    work = plan.work
    if work is None or plan.action is not PlanAction.CREATE or all(map(_is_default, work.places)):
        return
    basis = "" if work.lasts is None else work.lasts.basis
    why = "; ".join(text for text in (work.now.range, basis) if text)
    reason = f"  ({why})" if why and work.now.high != 0.0 else ""
    yield f"placement  {_format_placement(work)}"
    yield f"estimate   {work.now}{reason}{_format_caps(work.caps)}"


def _is_default(place: PlannedPlacement) -> bool:
    """Returns true for the default, which needs no line."""
    return place.judged.provider == DEFAULT_PROVIDER and place.judged.usd_per_s == 0.0


def _format_placement(work: PlannedWork) -> str:
    """Returns `modal L4:1 (36 slots), then local (4 slots); not daytona: no L4 there`. Stages share
    providers."""
    shared = {it.judged.provider: it for it in reversed(work.places)}
    names = dict.fromkeys(it.judged.provider for it in work.places)
    fitting = [_format_slots(shared[it], work.gpu) for it in names if shared[it].judged.fits]
    lost = [f"not {it}: {shared[it].judged.why}" for it in names if not shared[it].judged.fits]
    return "; ".join((", then ".join(fitting) or "nowhere", *lost))


def _format_slots(place: PlannedPlacement, gpu: str) -> str:
    name = " ".join(text for text in (place.judged.provider, gpu) if text)
    slots = f" ({place.slots:,} slot{'' if place.slots == 1 else 's'})" if place.slots else ""
    return name + slots


def _format_caps(caps: Sequence[BudgetCap]) -> str:
    """Returns the object's own cap, such as `   cap $25.00`, else the rest of each Budget."""
    return "".join(
        f"   cap {format_money(it.max_usd)}"
        if it.owner == OWN
        else f"   {it.owner} {format_money(max(0.0, it.max_usd - it.used_usd))} left"
        for it in caps
    )


def dump_report(found: PlanReport) -> dict[str, Any]:
    """Returns the report as JSON has it."""
    marked = replace(found, objects=tuple(map(_mark_absent, found.objects)))
    made: dict[str, Any] = TypeAdapter(PlanReport).dump_python(marked, mode="json")
    return made


def load_report(data: object) -> PlanReport | None:
    """Returns the report; None for one of another version, or none at all."""
    if not isinstance(data, Mapping):
        return None
    try:
        found = TypeAdapter(PlanReport).validate_python(data)
    except ValidationError:
        return None
    return replace(found, objects=tuple(map(_restore_absent, found.objects)))


def _mark_absent(plan: ObjectPlan) -> ObjectPlan:
    def mark(value: object) -> object:
        return _ABSENT if value is UNSET else value

    return _with_values(plan, mark)


def _restore_absent(plan: ObjectPlan) -> ObjectPlan:
    def restore(value: object) -> object:
        return UNSET if value == _ABSENT else value

    return _with_values(plan, restore)


def _with_values(plan: ObjectPlan, change: Any) -> ObjectPlan:
    fields = tuple(
        FieldChange(it.path, change(it.before), change(it.after), it.difference)
        for it in plan.fields
    )
    return replace(plan, fields=fields)
