"""A pull request as data: what screens, comments and conditions are made from.

Made by compare.py. Holds no moment and no name of this machine, so that equal revisions give an
equal review.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fleetctl.apply.cost.estimate import FREE, Cost
from fleetctl.apply.review.again import Units
from fleetctl.apply.review.repository import Commit
from fleetctl.specs.values.changes import FieldChange


class Turn(Enum):
    """What becomes of an object; the value is its word for people."""

    CREATED = "create"
    CHANGED = "change"
    DELETED = "delete"


class Sort(Enum):
    """Of a risk; the value is its name in `--fail-on`, the worst first."""

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
    """key: of the object, or "" of all. sentence: goes on from the key. count: of
    units, or 1.
    """

    sort: Sort
    key: str
    sentence: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Reviewed:
    """One object that is not the same on both sides. before, after: what all of its work costs,
    from nothing; None on the side that does not have it, and of what runs nothing. standing: what
    it costs while it exists, as a phrase. where: providers and how many units each would get.
    """

    key: str
    turn: Turn
    fields: tuple[FieldChange, ...] = ()
    notes: tuple[str, ...] = ()
    unit: str = ""
    units: Units | None = None
    total: int | None = None  # units of the new side
    before: Cost | None = None
    after: Cost | None = None
    standing: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Bill:
    """before, after: of everything that a side declares, from nothing. left, come: the same of the
    objects whose cost is another one, so that an unknown cost of the others hides no difference.
    """

    before: Cost = FREE
    after: Cost = FREE
    known_before: bool = True  # False: that side cannot be read
    left: Cost = FREE
    come: Cost = FREE

    @property
    def difference(self) -> float | None:
        """USD, of what is likely; where a side's is not known, of the most that both may cost."""
        if not self.known_before:
            return None
        if self.left.expected is not None and self.come.expected is not None:
            return self.come.expected - self.left.expected
        return self.most_difference

    @property
    def most_difference(self) -> float | None:
        """USD, of the most that both may cost; None where nothing bounds one of them."""
        if not self.known_before or self.left.high is None or self.come.high is None:
            return None
        return self.come.high - self.left.high

    @property
    def bounds(self) -> bool:
        """Whether the difference is one of bounds."""
        return self.left.expected is None or self.come.expected is None


@dataclass(frozen=True, slots=True)
class Review:
    """asked: what `--diff-from` named, where that moved on since `before`. unchanged: how many
    objects stay as they are. budgets: sentences. live: whether a store was looked at.
    """

    before: Commit
    after: Commit
    objects: tuple[Reviewed, ...]
    bill: Bill
    risks: tuple[Risk, ...] = ()
    asked: Commit | None = None
    unchanged: int = 0
    budgets: tuple[str, ...] = ()
    prices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    live: bool = False
    failed: tuple[str, ...] = ()  # conditions of `--fail-on` that hold, as sentences

    def count(self, turn: Turn) -> int:
        return sum(1 for it in self.objects if it.turn is turn)

    def of(self, sort: Sort) -> list[Risk]:
        return [it for it in self.risks if it.sort is sort]
