"""A plan as plain data: the effect of an apply, or the difference between two revisions.

Made by build_plan.py and compare.py. Screens, comments, JSON, the API and the Python client read
this report alone. A comparison holds no time and no name of this machine, so that equal revisions
give an equal report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum

from fleetctl.apply.cost.caps import BudgetCap
from fleetctl.apply.cost.cost_parts import PlannedPlacement
from fleetctl.apply.cost.estimate import FREE, NOT_KNOWN, Cost, DurationEstimate
from fleetctl.apply.cost.lifetimes import LifetimeLimit
from fleetctl.apply.cost.warm import WarmCost
from fleetctl.apply.plan.repository import GitCommit
from fleetctl.common.text import count_noun
from fleetctl.controllers.reuse.impact import NOT_AGAIN, RepeatedWork
from fleetctl.specs.values.changes import FieldChange

# The words of counts of units.
KEPT = "kept"
NEW = "new"
REPLACED = "replaced"
AGAIN = "to run again"


class PlanAction(StrEnum):
    """The effect on an object; the value is its word in documents and comments."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    DESTROY = "destroy"
    KEEP = "keep"


class RiskType(Enum):
    """The sort of a risk; the value is its name in `--fail-on`, the worst first."""

    DATA = "destroys-data"
    WORK = "destroys-work"
    POLICY = "policy"
    BUDGET = "over-budget"
    AGAIN = "reruns"
    DELETES = "deletes"
    UNKNOWN = "unknown-cost"
    WARNING = "policy-warning"


@dataclass(frozen=True, slots=True)
class Risk:
    """One risk. key: of the object, or "" for all. sentence: continues after the key. count: of
    units, or 1.
    """

    sort: RiskType
    key: str
    sentence: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """The work of an object's units. now: cost of this apply, or of all its work in a comparison;
    total: with past costs and the runs that continue. kept: None where a comparison cannot count
    units. gone: units that a comparison finds on its first side alone.
    """

    unit: str
    to_run: int | None
    kept: int | None
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
    gone: int = 0

    @property
    def new(self) -> int | None:
        if self.to_run is None:
            return None
        return self.to_run - self.replaced - self.again.units

    def format_counts(self, *, always: Sequence[str] = ()) -> list[str]:
        """Returns `48 kept` and the like, in one order for every reader: counts above zero, and
        those with a word of `always`."""
        counts = (
            (self.kept, KEPT),
            (self.new, NEW),
            (self.replaced, REPLACED),
            (self.again.units, AGAIN),
            (self.cached, "cached"),
            (self.going_on, "running on"),
            (self.cancelled, "cancelled"),
            (self.gone, "gone"),
            (self.failed, "failed before and not tried again"),
        )
        return [
            NOT_KNOWN if count is None else f"{count:,} {word}"
            for count, word in counts
            if count != 0 or word in always
        ]


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """The effect on one object. message: the change as a sentence. about: a phrase that describes
    an object without work. work: None for an object that runs nothing. before: cost of all its work
    on the first side of a comparison.
    """

    key: str
    action: PlanAction
    message: str = ""
    fields: tuple[FieldChange, ...] = ()
    about: str = ""
    notes: tuple[str, ...] = ()
    work: PlannedWork | None = None
    warm: WarmCost | None = None  # of a Function that keeps containers warm
    before: Cost | None = None

    @property
    def new(self) -> int | None:
        """Returns the number of units that would run for the first time; None: not known."""
        return 0 if self.work is None else self.work.new

    @property
    def units(self) -> str:
        """Returns `48 kept, 24 new`, the counts above zero; the number of units alone where a
        comparison cannot count them; empty for an object that runs nothing."""
        work = self.work
        if work is None:
            return ""
        if work.kept is not None:
            return ", ".join(work.format_counts()) or f"0 {NEW}"
        if work.to_run is None:
            return f"{work.unit}s {NOT_KNOWN}"
        return count_noun(work.to_run, work.unit)

    @property
    def cost(self) -> Cost | None:
        return None if self.work is None else self.work.now

    @property
    def where(self) -> Mapping[str, int]:
        """Returns the number of units by provider."""
        taken: Counter[str] = Counter()
        for place in self.work.places if self.work is not None else ():
            taken[place.judged.provider] += place.units
        return +taken


@dataclass(frozen=True, slots=True)
class RevisionComparison:
    """The two sides of a comparison. asked: the revision of `--diff-from`, where that moved on
    since `before`. cost: of all objects of the first side, with no work done yet. known: False
    where that side cannot be read. left, come: costs of both sides for objects whose cost differs,
    so that an unknown cost of other objects hides no difference. live: a store was read as well.
    """

    before: GitCommit
    after: GitCommit
    asked: GitCommit | None = None
    cost: Cost = FREE
    known: bool = True
    left: Cost = FREE
    come: Cost = FREE
    live: bool = False

    @property
    def difference(self) -> float | None:
        """Returns the likely difference in USD; where a side's is unknown, that of the most that
        both may cost."""
        if not self.known:
            return None
        if self.left.expected is not None and self.come.expected is not None:
            return self.come.expected - self.left.expected
        return self.most_difference

    @property
    def most_difference(self) -> float | None:
        """Returns the difference of the maximal costs in USD; None where a side is unbounded."""
        if not self.known or self.left.high is None or self.come.high is None:
            return None
        return self.come.high - self.left.high

    @property
    def bounds(self) -> bool:
        """Returns true where the difference is one of bounds."""
        return self.left.expected is None or self.come.expected is None


@dataclass(frozen=True, slots=True)
class PlanReport:
    """One plan. objects: all objects, also the unchanged ones. cost: of this apply, or of all work
    of the second side of a comparison; total: with past costs and work that continues. prices:
    their sources, `modal: modal.com/pricing of 2026-10-08`. budgets, warnings: sentences. failed:
    met conditions of `--fail-on`, as sentences.
    """

    objects: tuple[ObjectPlan, ...]
    cost: Cost
    total: Cost
    prices: tuple[str, ...] = ()
    risks: tuple[Risk, ...] = ()
    budgets: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    comparison: RevisionComparison | None = None

    @property
    def changes(self) -> tuple[ObjectPlan, ...]:
        """Returns the objects that change; empty where an apply has no effect."""
        return tuple(it for it in self.objects if it.action is not PlanAction.KEEP)

    def count(self, action: PlanAction) -> int:
        return sum(1 for it in self.objects if it.action is action)

    def risks_of(self, sort: RiskType) -> list[Risk]:
        return [it for it in self.risks if it.sort is sort]
