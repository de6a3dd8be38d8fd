"""Lists the risks of a plan, which a reader should see first, for build_plan.py and compare.py.
Pure.

A plan over a store knows the runs that would stop and the usage of budgets. A comparison counts
from nothing: its budgets are compared with all work under them, and a risk of both sides is left
out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fleetctl.apply.change import Change
from fleetctl.apply.consent import deletes_data
from fleetctl.apply.cost.caps import OWN
from fleetctl.apply.cost.estimate import FREE, Cost
from fleetctl.apply.plan.plan_report import ObjectPlan, PlanAction, PlanReport, Risk, RiskType
from fleetctl.apply.policies.judge import POLICY
from fleetctl.common.text import count_noun, format_money
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import Rollout
from fleetctl.specs.kinds.registry import KINDS


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
    unit = KINDS[row.kind].unit
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
