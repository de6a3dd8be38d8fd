"""A plan as plain data: the effect of an apply, or the difference between two revisions, and the
conditions of `--fail-on` that it may meet.

Screens, comments, JSON, the API and the Python client read this report alone. A comparison holds
no time and no name of this machine, so that equal revisions give an equal report.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum

from fleetctl.apply.cost.cost_parts import PlannedPlacement, WarmCost
from fleetctl.apply.cost.estimate import FREE, NOT_KNOWN, BudgetCap, Cost, DurationEstimate
from fleetctl.apply.cost.offers import LifetimeLimit
from fleetctl.apply.plan.repository import GitCommit
from fleetctl.common.errors import UsageError
from fleetctl.common.text import and_more, count_noun, did_you_mean, format_money
from fleetctl.controllers.reuse.impact import NOT_AGAIN, RepeatedWork
from fleetctl.specs.values.changes import FieldChange

# The words of counts of units.
KEPT = "kept"
NEW = "new"
REPLACED = "replaced"
AGAIN = "to run again"

COST = "cost"
INCREASE = "cost-increase"
CHANGES = "changes"
KEYS_SHOWN_MAX = 3


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


# By name: the meaning, and whether a number may or must follow.
MEANINGS: dict[str, str] = {
    COST: "all of it may cost more than so many USD, or nothing bounds it",
    INCREASE: "it may cost so many USD more than before, or that is not known",
    RiskType.UNKNOWN.value: "nothing bounds what something costs",
    RiskType.BUDGET.value: "the work under a budget may cost more than that",
    RiskType.DATA.value: "a volume goes with its data",
    RiskType.WORK.value: "work that runs would be stopped, as far as is known",
    RiskType.AGAIN.value: "finished work would run again; `reruns>10`: more than so many units",
    RiskType.DELETES.value: "objects are deleted; `deletes>3`: more than so many",
    RiskType.POLICY.value: "a policy denies something",
    RiskType.WARNING.value: "a policy warns of something",
    CHANGES: "anything changes at all",
}
_NEEDS_NUMBER = (COST, INCREASE)
_MAY_COUNT = (RiskType.AGAIN.value, RiskType.DELETES.value)
_TERM = re.compile(r"(?P<name>[^<>=\s]*)\s*(?:(?P<sign>[<>=]+)\s*(?P<number>.*))?")
_NUMBER = re.compile(r"\$?(?P<number>\d{1,9}(?:\.\d{1,6})?)(?:USD)?")


@dataclass(frozen=True, slots=True)
class FailCondition:
    """One condition. above: the number to exceed; 0 where a first one is enough."""

    name: str
    above: float = 0.0
    text: str = ""


def conditions_of(texts: Iterable[str]) -> list[FailCondition]:
    """Reads comma-separated lists. Raises UsageError for an invalid condition."""
    terms = [term.strip() for text in texts for term in text.split(",")]
    return [_parse_condition(term) for term in terms if term]


def _parse_condition(term: str) -> FailCondition:
    match = _TERM.fullmatch(term)
    name = match["name"] if match is not None else term
    if match is None or name not in MEANINGS:
        raise UsageError(
            f"`--fail-on {term[:80]}`: there is no condition `{name[:80]}`",
            hint=did_you_mean(name, [*MEANINGS]) or f"there are {', '.join(MEANINGS)}",
        )
    if match["sign"] is None:
        if name in _NEEDS_NUMBER:
            raise UsageError(f"`--fail-on {name}` needs an amount in USD", hint=f"{name}>50")
        return FailCondition(name, text=term)
    number = _NUMBER.fullmatch(match["number"])
    if name not in (*_NEEDS_NUMBER, *_MAY_COUNT):
        raise UsageError(f"`--fail-on {term[:80]}`: {name} takes no number", hint=name)
    if match["sign"] != ">" or number is None:
        raise UsageError(f"`--fail-on {term[:80]}` is not NAME>NUMBER", hint=f"{name}>50")
    return FailCondition(name, float(number["number"]), term)


def list_met_conditions(conditions: Iterable[FailCondition], report: PlanReport) -> list[str]:
    """Returns a sentence for each condition that is met."""
    found = (f"{it.text}: {why}" for it in conditions if (why := _explain_condition(it, report)))
    return list(dict.fromkeys(found))


def _explain_condition(it: FailCondition, report: PlanReport) -> str:
    if it.name == CHANGES:
        if report.changes:
            return "something changes"
        return ""
    both = report.comparison
    # Warm containers of an apply have no bound.
    warm = both is None and any(plan.warm is not None for plan in report.objects)
    most_usd = None if warm else report.cost.high
    if it.name == COST:
        return _describe_excess(most_usd, it.above, "it may cost", "nothing bounds what it costs")
    if it.name == INCREASE:
        # The cost of an apply is added cost.
        increase_usd = most_usd if both is None else both.most_difference
        unknown = "it is not known how much more it may cost"
        return _describe_excess(increase_usd, it.above, "it may cost more by", unknown)
    risks = [risk for risk in report.risks if risk.sort.value == it.name]
    if sum(risk.count for risk in risks) <= it.above:
        return ""
    keys = list(dict.fromkeys(risk.key for risk in risks if risk.key))
    if keys:
        return and_more(keys, most=KEYS_SHOWN_MAX)
    return risks[0].sentence


def _describe_excess(
    found_usd: float | None,
    above_usd: float,
    may: str,
    unknown: str,
) -> str:
    if found_usd is None:
        return unknown
    if found_usd > above_usd:
        return f"{may} {format_money(found_usd)}"
    return ""
