"""Phrases of a plan that its screen, its comment, its document and the reply to an apply share.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fleetctl.apply.cost.caps import OWN, BudgetCap
from fleetctl.apply.cost.cost_parts import PlannedPlacement
from fleetctl.apply.plan.plan_report import (
    ObjectPlan,
    PlanAction,
    PlannedWork,
    PlanReport,
    RevisionComparison,
)
from fleetctl.common.text import format_money
from fleetctl.specs.builtin import DEFAULT_PROVIDER


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
