"""Compares budgets of the new side with the maximal cost of all work on it. Called by compare.py
and risks.py; pure. Usage so far is known to a store alone: see live.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleetctl.apply.cost.caps import OWN
from fleetctl.apply.cost.cost_text import format_cost
from fleetctl.apply.cost.estimate import FREE, Cost
from fleetctl.apply.cost.plan_report import PlanReport
from fleetctl.common.text import format_money


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """A budget and the cost of the work under it, from nothing."""

    owner: str
    max_usd: float
    cost: Cost

    @property
    def over(self) -> bool:
        """Returns true where the cost may reach the cap; an unbounded cost may."""
        return self.cost.high is None or self.cost.high > self.max_usd

    @property
    def sentence(self) -> str:
        most = "nothing bounds it" if self.cost.high is None else format_cost(self.cost)
        return f"{self.owner}: a cap of {format_money(self.max_usd)}; all work under it: {most}"


def sum_budgets(found: PlanReport) -> list[BudgetUse]:
    """Returns one entry for each Budget, then one for each object with its own."""
    shared: dict[str, BudgetUse] = {}
    own: list[BudgetUse] = []
    for it in found.objects:
        for cap in it.work.caps if it.work is not None else ():
            assert it.work is not None
            if cap.owner == OWN:
                own.append(BudgetUse(f"the budget of {it.change.key}", cap.max_usd, it.work.now))
                continue
            before = shared.get(cap.owner)
            cost = (before.cost if before is not None else FREE) + it.work.now
            shared[cap.owner] = BudgetUse(cap.owner, cap.max_usd, cost)
    return [*(shared[key] for key in sorted(shared)), *own]


def budgets_of(found: PlanReport) -> tuple[str, ...]:
    return tuple(_describe_shared(found))


def _describe_shared(found: PlanReport) -> Iterator[str]:
    for it in sum_budgets(found):
        if not it.owner.startswith("the budget of"):
            yield it.sentence
