"""Turns the changes of an apply into the report that a user reads before it, its risks first.

Decides nothing itself: changes come from propose.py, providers from placement.py. It is called for
every plan, and in the controller when it takes an apply, so a forecast has the figures of the plan.

A plan over a store knows the runs that would stop and the usage of budgets. A comparison of two
revisions counts from nothing: it compares budgets with all work under them, and leaves out a risk
that both sides have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.apply.change import CONFIGURED, CREATED, PRUNED, UNCHANGED, Change
from fleetctl.apply.consent import deletes_data
from fleetctl.apply.cost.cost_parts import CostPart, parts_of, warm_cost
from fleetctl.apply.cost.estimate import (
    FREE,
    OWN,
    UNKNOWN,
    Cost,
    CostForecast,
    DurationEstimate,
    caps_of,
    estimate_cost,
    whole_s,
)
from fleetctl.apply.cost.offers import OfferBook, describe_lifetimes, market_of
from fleetctl.apply.draft import winner_note
from fleetctl.apply.plan.document import render_object_plan
from fleetctl.apply.plan.plan_report import (
    ObjectPlan,
    PlanAction,
    PlannedWork,
    PlanReport,
    Risk,
    RiskType,
)
from fleetctl.apply.policies.judge import POLICY
from fleetctl.common.clock import SystemClock
from fleetctl.common.text import count_noun, format_money
from fleetctl.controllers.budget import CostEstimate
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import Rollout
from fleetctl.controllers.reuse.impact import NOT_AGAIN, Impact, spent_usd
from fleetctl.providers.contract.base import Backend
from fleetctl.specs.content import list_called_endpoints
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.read.read_only import StoreSnapshot, open_readonly


def build_report(
    stored: StoreSnapshot,
    changes: Sequence[Change],
    market: OfferBook,
    now_s: float,
) -> PlanReport:
    """Returns the report: the effects, providers, costs and risks of the changes."""
    objects = [_plan_object(stored, change, market, now_s) for change in changes]
    works = [it.work for it in objects if it.work is not None]
    places = [place for it in works for place in it.places if place.judged.fits]
    used = {f"{place.judged.provider}: {place.source}" for place in places}
    used |= {it.warm.source for it in objects if it.warm is not None}
    risks = (list_plan_risks(*both) for both in zip(objects, changes, strict=True))
    return PlanReport(
        objects=tuple(objects),
        cost=_sum_costs(it.now for it in works),
        total=_sum_costs(it.total for it in works),
        prices=tuple(sorted(used)),
        risks=sort_risks(risk for it in risks for risk in it),
        budgets=tuple(sorted({cap.sentence for it in works for cap in it.caps})),
    )


def forecast_costs(
    home: Path,
    providers: Mapping[str, Backend],
    changes: Sequence[Change],
) -> dict[str, CostForecast]:
    """Returns forecasts by key, for each changed object that does work or costs while it exists.
    Reads the store as `plan` does; called in a thread, through apply/cost/estimate.py.
    """
    with open_readonly(home) as stored:
        market = market_of(stored, changes, providers)
        found = build_report(stored, changes, market, SystemClock().now_s())
    estimates = costs_of(found)
    return {
        it.key: CostForecast(estimates[it.key], render_object_plan(it))
        for it in found.objects
        if it.key in estimates
    }


def costs_of(found: PlanReport) -> dict[str, CostEstimate]:
    """Returns estimates by key, for each object that is not certainly free. A Function has none: no
    sum bounds work that goes on as long as it exists."""
    costs = (it for it in found.objects if it.work is not None or it.warm is not None)
    totals = ((it.key, UNKNOWN if it.work is None else it.work.total) for it in costs)
    return {key: CostEstimate(it.expected, it.low, it.high) for key, it in totals}


def _plan_object(
    stored: StoreSnapshot,
    change: Change,
    market: OfferBook,
    now_s: float,
) -> ObjectPlan:
    action = _choose_action(change)
    found = change.impact
    work = None
    if found is not None and action is not PlanAction.KEEP:
        work = _plan_work(
            stored,
            change,
            found,
            market,
            now_s,
        )
    stays = action in (PlanAction.CREATE, PlanAction.UPDATE)
    return ObjectPlan(
        change.key,
        action,
        message=change.message,
        fields=change.fields,
        about=_describe_asset(change),
        notes=tuple(_list_notes(change, action, work)),
        work=work,
        warm=warm_cost(change.after, market) if stays else None,
    )


def _choose_action(change: Change) -> PlanAction:
    if change.outcome == CONFIGURED and change.impact is not None and change.impact.replaced:
        return PlanAction.REPLACE
    return {
        CREATED: PlanAction.CREATE,
        CONFIGURED: PlanAction.UPDATE,
        UNCHANGED: PlanAction.KEEP,
        PRUNED: PlanAction.DESTROY,
    }[change.outcome]


def _describe_asset(change: Change) -> str:
    """Returns a phrase that describes a volume, a function or a secret."""
    if KINDS[change.after.kind].runs:
        return ""
    spec = json.loads(change.after.spec)
    names = ("provider", "size", "deletionPolicy", "fromEnv")
    parts = [spec[name] for name in names if name in spec]
    message = ", ".join(it if isinstance(it, str) else json.dumps(it) for it in parts)
    return "; ".join(text for text in (message, change.note) if text)


def _list_notes(
    change: Change,
    action: PlanAction,
    work: PlannedWork | None,
) -> Iterator[str]:
    if action is PlanAction.DESTROY:
        if change.after.kind == "Volume":
            doomed = json.loads(change.after.spec).get("deletionPolicy") == "Delete"
            yield "its data is deleted" if doomed else "its data is kept (deletionPolicy Retain)"
        return
    if json.loads(change.after.spec).get("suspend"):
        yield "spec.suspend is true: nothing starts until it is resumed"
    if action is PlanAction.CREATE and (note := winner_note(change.after)):
        yield note
    if work is not None and work.to_run != 0 and (asked := _list_endpoints(change.after)):
        yield f"calls of {asked} are charged as they are made, and are not in this bill"
    if work is not None and not _goes_on(change):
        text = describe_lifetimes(work.limits, long=KINDS[change.after.kind].lasting)
        yield from (text,) if text else ()


def _list_endpoints(resource: Resource) -> str:
    """Returns the endpoints that its work calls, or ""."""
    return ", ".join(
        f"endpoint/{name}" for name in list_called_endpoints(json.loads(resource.spec))
    )


def _goes_on(change: Change) -> bool:
    """Returns true where work that is interrupted resumes from its last state."""
    checkpoint = json.loads(change.after.spec).get("checkpoint")
    return checkpoint is not None and checkpoint.get("resume") != "None"


def _plan_work(
    stored: StoreSnapshot,
    change: Change,
    found: Impact,
    market: OfferBook,
    now_s: float,
) -> PlannedWork:
    unit = KINDS[change.after.kind].unit_of(change.after.spec)
    goes = change.outcome == PRUNED
    parts = (
        ()
        if goes
        else parts_of(
            stored,
            change.after,
            found,
            unit,
            market,
        )
    )
    now = _sum_costs(part.cost for part in parts)
    live = (*found.going_on, *found.replaced, *found.cancelled)
    ends = live if goes else (*found.replaced, *found.cancelled)
    return PlannedWork(
        unit=unit,
        to_run=0 if goes else found.to_run,
        kept=0 if goes else found.kept,
        cached=0 if goes else found.cached,
        going_on=0 if goes else len(found.going_on),
        replaced=0 if goes else len(found.replaced),
        cancelled=len(live) if goes else len(found.cancelled),
        failed=found.failed,
        gpu=parts[0].gpu if parts else "",
        lasts=_least_known(parts),
        places=tuple(place for part in parts for place in part.places),
        now=now,
        total=_estimate_total(found, parts, now, now_s),
        spent_usd=found.history.spent_usd,
        unpriced=found.history.unpriced,
        lost_usd=spent_usd(ends, now_s),
        first_s=parts[0].lasts.middle_s if parts else None,
        whole_s=_whole_s(parts),
        rate_usd_per_s=_rate_usd_per_s(parts),
        again=NOT_AGAIN if goes else found.again,
        limits=tuple(limit for part in parts for limit in part.limits),
        caps=()
        if goes
        else caps_of(
            change.after,
            market.objects.values(),
            # The number of requests is unknown.
            Cost(now.low, None, None) if _list_endpoints(change.after) else now,
            spent_usd=found.history.charged_usd,
        ),
    )


def _estimate_total(
    found: Impact,
    parts: Sequence[CostPart],
    now: Cost,
    now_s: float,
) -> Cost:
    """Returns the total: the cost of ended runs, of live runs so far, and of the units that
    remain."""
    history = found.history
    total = Cost(history.spent_usd, history.spent_usd, history.spent_usd) + now
    for run in found.going_on:
        if parts:
            total += estimate_cost(1, parts[0].lasts, run.usd_per_s)
        elif (spent := spent_usd((run,), now_s)) is not None:
            total += Cost(spent, spent, None)
    unknown = bool(history.unpriced)
    if unknown:
        return replace(total, expected=None, high=None)
    return total


def _least_known(parts: Sequence[CostPart]) -> DurationEstimate | None:
    """Returns the duration that bounds the whole: of a part without bound, else of the first."""
    unbounded = (it for it in parts if it.lasts.middle_s is None and it.lasts.most_s is None)
    part = next(unbounded, parts[0] if parts else None)
    if part is not None:
        return part.lasts
    return None


def _whole_s(parts: Sequence[CostPart]) -> float | None:
    """Sums up the parts, which run one after the other: they are a run's stages."""
    spans = [whole_s(part.units, part.at_once, part.lasts) for part in parts]
    known = [span for span in spans if span is not None]
    if spans and len(known) == len(spans):
        return sum(known)
    return None


def _rate_usd_per_s(parts: Sequence[CostPart]) -> float | None:
    """Returns the rate with as many units at once as allowed; None when a price is unknown."""
    rates = [it.usd_per_s for it in parts]
    known = [rate for rate in rates if rate is not None]
    if len(known) == len(rates):
        return max(known, default=0.0)
    return None


def _sum_costs(costs: Iterable[Cost]) -> Cost:
    total = FREE
    for one in costs:
        total += one
    return total


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """A budget and the cost of the work under it, from nothing. shared: a Budget, not the budget of
    an object."""

    owner: str
    max_usd: float
    cost: Cost
    shared: bool = True

    @property
    def over(self) -> bool:
        """Returns true where the cost may reach the cap; an unbounded cost may."""
        return self.cost.high is None or self.cost.high > self.max_usd

    @property
    def sentence(self) -> str:
        most = "nothing bounds it" if self.cost.high is None else str(self.cost)
        return f"{self.owner}: a cap of {format_money(self.max_usd)}; all work under it: {most}"


def sum_budgets(found: PlanReport) -> list[BudgetUse]:
    """Returns one entry for each Budget, then one for each object with its own."""
    shared: dict[str, BudgetUse] = {}
    own: list[BudgetUse] = []
    caps = ((it.key, it.work.now, cap) for it in found.objects if it.work for cap in it.work.caps)
    for key, cost, cap in caps:
        if cap.owner == OWN:
            own.append(BudgetUse(f"the budget of {key}", cap.max_usd, cost, shared=False))
            continue
        before = shared.get(cap.owner)
        sum_usd = (before.cost if before is not None else FREE) + cost
        shared[cap.owner] = BudgetUse(cap.owner, cap.max_usd, sum_usd)
    return [*(shared[key] for key in sorted(shared)), *own]


def sort_risks(risks: Iterable[Risk]) -> tuple[Risk, ...]:
    """The worst first."""
    order = list(RiskType)
    return tuple(sorted(risks, key=lambda it: (order.index(it.sort), it.key, it.sentence)))


def list_verdict_risks(changes: Iterable[Change]) -> Iterator[Risk]:
    """Yields the verdicts of policies; an exempt object is a warning."""
    for change in changes:
        for it in change.verdicts:
            sort = RiskType.POLICY if it.deny else RiskType.WARNING
            exempt = f" (exempt {it.exempt})" if it.exempt else ""
            yield Risk(sort, change.key, f"policy/{it.policy}: {it.what}{exempt}")


def list_plan_risks(plan: ObjectPlan, change: Change) -> Iterator[Risk]:
    """Yields the risks of one object of an apply."""
    yield from _list_object_risks(plan, change.after, stopped=len(change.destroyed))
    for cap in plan.work.caps if plan.work is not None else ():
        if cap.high_usd is None or cap.high_usd > cap.max_usd - cap.used_usd:
            yield Risk(RiskType.BUDGET, plan.key, cap.sentence)


def list_comparison_risks(
    plans: Iterable[ObjectPlan],
    rows: Mapping[str, Resource],
    sides: tuple[PlanReport, PlanReport],
    stopped: Mapping[str, int] | None,
) -> Iterator[Risk]:
    """Yields the risks of a comparison. rows: the objects as they will be, or deleted ones as they
    are. stopped: by key, the running units that would end; None without a store."""
    for it in plans:
        row = rows[it.key]
        yield from _list_object_risks(it, row, stopped=(stopped or {}).get(it.key, 0))
        if stopped is None and (sentence := _describe_stopped(it, row)):
            yield Risk(RiskType.WORK, it.key, sentence)
        if row.kind == POLICY and it.action is not PlanAction.CREATE:
            word = "is deleted" if it.action is PlanAction.DESTROY else "changes"
            yield Risk(RiskType.WARNING, it.key, f"this policy itself {word}")
    before, after = map(sum_budgets, sides)
    for use in after:
        if use.over and use not in before:
            yield Risk(RiskType.BUDGET, "", use.sentence)


def _list_object_risks(plan: ObjectPlan, row: Resource, *, stopped: int) -> Iterator[Risk]:
    if plan.action is PlanAction.DESTROY:
        if deletes_data(row):
            sentence = "deleting it deletes its data (deletionPolicy is Delete)"
            yield Risk(RiskType.DATA, plan.key, sentence)
        yield Risk(RiskType.DELETES, plan.key, "leaves the files")
    unit = KINDS[row.kind].unit_of(row.spec)
    if stopped:
        running = count_noun(stopped, f"running {unit}")
        yield Risk(RiskType.WORK, plan.key, f"{running} would be stopped")
    if plan.work is None:
        return
    if again := plan.work.again.units:
        sentence = f"runs again: {count_noun(again, unit)} done under the old content"
        yield Risk(RiskType.AGAIN, plan.key, sentence, count=again)
    if plan.work.now.high is None:
        yield Risk(RiskType.UNKNOWN, plan.key, "nothing bounds what it costs")


def _describe_stopped(plan: ObjectPlan, row: Resource) -> str:
    """Returns a sentence for work that would end if it runs then, which only a store knows; or
    ""."""
    work = plan.work
    if not KINDS[row.kind].runs or plan.action is PlanAction.CREATE or work is None:
        return ""
    if plan.action is PlanAction.DESTROY:
        return "its running work would be stopped"
    finishes = json.loads(row.spec).get("rollout") == Rollout.FINISH_RUNNING
    if work.gone or work.kept is None or (work.again.units and not finishes):
        return "its running work under the old content would be stopped"
    return ""
