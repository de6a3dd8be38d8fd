"""A plan as data: what screens, JSON and comments on pull requests are made from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fleetctl.apply.change import Change
from fleetctl.apply.cost.caps import Cap
from fleetctl.apply.cost.estimate import Cost, Lasting
from fleetctl.apply.cost.lifetimes import Limit
from fleetctl.apply.cost.warm import WarmCost
from fleetctl.controllers.planning.placement import Judgement
from fleetctl.controllers.reuse.impact import NOT_AGAIN, Again


class Verb(Enum):
    """What happens to an object; the value is its sign on a screen."""

    CREATE = "+"
    UPDATE = "~"
    REPLACE = "-/+"
    DESTROY = "x"
    KEEP = "="


@dataclass(frozen=True, slots=True)
class Place:
    """A candidate of the placement and what it gets. least_usd_per_s: where its template lists
    several GPUs, the price of the cheapest; that of the judgement is of the dearest. name: of the
    unit, where each has its own template. nodes: of one attempt, `4` or `2 to 4`; "" for one.
    """

    judged: Judgement
    units: int
    cost: Cost
    slots: int  # units at the same time, when all places are full
    source: str  # of its price
    least_usd_per_s: float | None = None
    name: str = ""
    gpu: str = ""
    nodes: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """What an object's units do. now: this apply; total: with what is spent and what runs on."""

    unit: str
    to_run: int | None
    kept: int
    cached: int
    going_on: int
    replaced: int
    cancelled: int
    failed: int
    gpu: str
    lasts: Lasting | None  # None where nothing starts
    places: tuple[Place, ...]
    now: Cost
    total: Cost
    spent_usd: float
    unpriced: int  # ended runs whose cost nobody knows
    lost_usd: float | None  # already spent on work that is stopped
    first_s: float | None
    whole_s: float | None
    rate_usd_per_s: float | None  # at most, with all at once
    caps: tuple[Cap, ...]
    limits: tuple[Limit, ...] = ()  # where a sandbox may end before its task does
    again: Again = NOT_AGAIN  # finished ones of another program, image or source

    @property
    def new(self) -> int | None:
        if self.to_run is None:
            return None
        return self.to_run - self.replaced - self.again.units


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    verb: Verb
    change: Change
    about: str  # a phrase on what a thing without work is
    work: Work | None
    notes: tuple[str, ...] = ()
    warm: WarmCost | None = None  # of a Function that keeps containers warm


@dataclass(frozen=True, slots=True)
class Report:
    """objects: all of them, also those that stay as they are."""

    objects: tuple[ObjectPlan, ...]
    now: Cost
    total: Cost
    sources: tuple[str, ...]  # `modal: modal.com/pricing of 2026-10-08`

    def count(self, verb: Verb) -> int:
        return sum(1 for it in self.objects if it.verb is verb)

    @property
    def changes(self) -> bool:
        return any(it.verb is not Verb.KEEP for it in self.objects)
