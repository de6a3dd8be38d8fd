"""Returns the budgets that an object's work has to fit into, and how this apply compares to them.
Pure.

Called by plan.py. The controller counts the usage of a budget; here its status is read, or the spec
alone where the budget is new.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fleetctl.apply.cost.estimate import Cost
from fleetctl.controllers.model import Resource
from fleetctl.controllers.money.budget import format_usd, matches_labels
from fleetctl.specs.kinds.budget import BudgetSpec
from fleetctl.specs.kinds.registry import parse_spec

OWN = "its budget"


@dataclass(frozen=True, slots=True)
class BudgetCap:
    """One budget. owner: `its budget` or `budget/team`. high_usd: the most that this apply may
    cost; None = unknown."""

    owner: str
    max_usd: float
    used_usd: float
    expected_usd: float | None
    high_usd: float | None
    on_exceeded: str

    @property
    def sentence(self) -> str:
        known = f"{format_usd(self.used_usd)} of {format_usd(self.max_usd)} used"
        return f"{self.owner}: {known}, {self._rest()}"

    def _rest(self) -> str:
        left_usd = self.max_usd - self.used_usd
        if self.high_usd is not None and self.high_usd <= left_usd:
            return f"this apply fits (at most {format_usd(self.high_usd)})"
        left = f"{format_usd(max(0.0, left_usd))} left"
        then = {
            "Suspend": "it {} stop at the cap",
            "Cancel": "it {} fail at the cap",
            "Warn": "it {} go beyond the cap, with a warning",
        }[self.on_exceeded]
        may = then.format("may")
        will = then.format("will probably")
        if self.expected_usd is not None and self.expected_usd > left_usd:
            return f"about {format_usd(self.expected_usd)} against {left}: {will}"
        if self.high_usd is None:
            return f"nothing bounds this apply, {left}: {may}"
        likely = "" if self.expected_usd is None else f"probably {format_usd(self.expected_usd)}, "
        return f"{likely}at most {format_usd(self.high_usd)} against {left}: {may}"


def caps_of(
    desired: Resource,
    objects: Iterable[Resource],
    now: Cost,
    *,
    spent_usd: float,
) -> tuple[BudgetCap, ...]:
    """The object's own budget first, then the Budgets that select it."""
    return (*_own_caps(desired, now, spent_usd), *_shared_caps(desired, objects, now))


def _own_caps(
    desired: Resource,
    now: Cost,
    spent_usd: float,
) -> Iterator[BudgetCap]:
    own = json.loads(desired.spec).get("budget")
    if own:
        then = str(own.get("onExceeded", "Suspend"))
        yield BudgetCap(
            OWN,
            float(own["maxCost"]),
            spent_usd,
            now.expected,
            now.high,
            then,
        )


def _shared_caps(
    desired: Resource,
    objects: Iterable[Resource],
    now: Cost,
) -> Iterator[BudgetCap]:
    for budget in objects:
        if budget.kind != "Budget" or budget.namespace != desired.namespace:
            continue
        try:
            spec = parse_spec("Budget", budget.spec)
        except ValueError:
            continue  # the controller cannot read it either, and reports that in its status
        assert isinstance(spec, BudgetSpec)
        if matches_labels(spec.selector, desired.labels):
            used = json.loads(budget.status or "{}")
            used_usd = float(used.get("used") or 0.0) + float(used.get("reserved") or 0.0)
            most, then = spec.max_cost, spec.on_exceeded
            yield BudgetCap(
                budget.key,
                most,
                used_usd,
                now.expected,
                now.high,
                then,
            )
