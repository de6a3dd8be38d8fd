"""A pull request as data: screens, comments and conditions are made from it.

Made by compare.py. Holds no time and no name of this machine, so that equal revisions give an equal
review.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fleetctl.apply.cost.estimate import FREE, Cost
from fleetctl.apply.review.repository import GitCommit
from fleetctl.apply.review.reruns import UnitChanges
from fleetctl.specs.values.changes import FieldChange


class ReviewAction(Enum):
    """The fate of an object; the value is its word on a screen."""

    CREATED = "create"
    CHANGED = "change"
    DELETED = "delete"


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
class ReviewedObject:
    """One object that differs between the sides. before, after: cost of all its work, none of it
    done yet; None on a side without the object, and for objects without work. standing: cost while
    the object exists, as a phrase. where: providers and the number of units for each.
    """

    key: str
    turn: ReviewAction
    fields: tuple[FieldChange, ...] = ()
    notes: tuple[str, ...] = ()
    unit: str = ""
    units: UnitChanges | None = None
    total: int | None = None  # units of the new side
    before: Cost | None = None
    after: Cost | None = None
    standing: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class CostComparison:
    """The costs of both sides. before, after: cost of all declared objects, with no work done yet.
    left, come: the same for objects whose cost differs, so that an unknown cost of other objects
    hides no difference.
    """

    before: Cost = FREE
    after: Cost = FREE
    known_before: bool = True  # False: that side cannot be read
    left: Cost = FREE
    come: Cost = FREE

    @property
    def difference(self) -> float | None:
        """Returns the likely difference in USD; where a side's is unknown, that of the most that
        both may cost."""
        if not self.known_before:
            return None
        if self.left.expected is not None and self.come.expected is not None:
            return self.come.expected - self.left.expected
        return self.most_difference

    @property
    def most_difference(self) -> float | None:
        """Returns the difference of the maximal costs in USD; None where a side is unbounded."""
        if not self.known_before or self.left.high is None or self.come.high is None:
            return None
        return self.come.high - self.left.high

    @property
    def bounds(self) -> bool:
        """Returns true where the difference is one of bounds."""
        return self.left.expected is None or self.come.expected is None


@dataclass(frozen=True, slots=True)
class Review:
    """One review. asked: the revision of `--diff-from`, where that moved on since `before`.
    unchanged: number of unchanged objects. budgets: sentences. live: a store was read as well.
    """

    before: GitCommit
    after: GitCommit
    objects: tuple[ReviewedObject, ...]
    bill: CostComparison
    risks: tuple[Risk, ...] = ()
    asked: GitCommit | None = None
    unchanged: int = 0
    budgets: tuple[str, ...] = ()
    prices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    live: bool = False
    failed: tuple[str, ...] = ()  # conditions of `--fail-on` that are met, as sentences

    def count(self, turn: ReviewAction) -> int:
        return sum(1 for it in self.objects if it.turn is turn)

    def of(self, sort: RiskType) -> list[Risk]:
        return [it for it in self.risks if it.sort is sort]
