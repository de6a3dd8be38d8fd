"""A plan as data: screens, JSON and comments on pull requests are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fleetctl.apply.change import Change
from fleetctl.apply.cost.caps import BudgetCap
from fleetctl.apply.cost.estimate import Cost, DurationEstimate
from fleetctl.apply.cost.lifetimes import LifetimeLimit
from fleetctl.apply.cost.warm import WarmCost
from fleetctl.controllers.planning.placement import CandidateJudgement
from fleetctl.controllers.reuse.impact import NOT_AGAIN, RepeatedWork


class PlanAction(Enum):
    """The effect on an object; the value is its sign on a screen."""

    CREATE = "+"
    UPDATE = "~"
    REPLACE = "-/+"
    DESTROY = "x"
    KEEP = "="


@dataclass(frozen=True, slots=True)
class PlannedPlacement:
    """A candidate of the placement and its share of the units. least_usd_per_s: where its template
    lists several GPUs, the price of the cheapest; the judgement has that of the dearest. name: of
    the unit, where each has its own template. nodes: of an attempt, `4` or `2 to 4`; "" for one.
    """

    judged: CandidateJudgement
    units: int
    cost: Cost
    slots: int  # units at the same time, when all providers are full
    source: str  # of its price
    least_usd_per_s: float | None = None
    name: str = ""
    gpu: str = ""
    nodes: str = ""


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """The work of an object's units. now: cost of this apply; total: with past costs and the runs
    that continue."""

    unit: str
    to_run: int | None
    kept: int
    cached: int
    going_on: int
    replaced: int
    cancelled: int
    failed: int
    gpu: str
    lasts: DurationEstimate | None  # None where no unit starts
    places: tuple[PlannedPlacement, ...]
    now: Cost
    total: Cost
    spent_usd: float
    unpriced: int  # ended runs of unknown cost
    lost_usd: float | None  # already spent on work that is stopped
    first_s: float | None
    whole_s: float | None
    rate_usd_per_s: float | None  # at most, with all at once
    caps: tuple[BudgetCap, ...]
    limits: tuple[LifetimeLimit, ...] = ()  # providers that may end a sandbox before its task ends
    again: RepeatedWork = NOT_AGAIN  # finished ones of another program, image or source

    @property
    def new(self) -> int | None:
        if self.to_run is None:
            return None
        return self.to_run - self.replaced - self.again.units


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    verb: PlanAction
    change: Change
    about: str  # a phrase that describes an object without work
    work: PlannedWork | None
    notes: tuple[str, ...] = ()
    warm: WarmCost | None = None  # of a Function that keeps containers warm


@dataclass(frozen=True, slots=True)
class PlanReport:
    """One plan. objects: all objects, also the unchanged ones."""

    objects: tuple[ObjectPlan, ...]
    now: Cost
    total: Cost
    sources: tuple[str, ...]  # `modal: modal.com/pricing of 2026-10-08`

    def count(self, verb: PlanAction) -> int:
        return sum(1 for it in self.objects if it.verb is verb)

    @property
    def changes(self) -> bool:
        return any(it.verb is not PlanAction.KEEP for it in self.objects)
