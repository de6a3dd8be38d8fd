"""One resource as a pass sees it: what is desired, what was decided before, what may start.

Made by the engine for every pass; read by reconcile.py and status.py. Plain data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.controllers.depends.standing import Standing
from fleetctl.controllers.money.budget import Allowance, Terms
from fleetctl.controllers.money.estimate import Estimate
from fleetctl.controllers.planning.kind import KindController, Policy
from fleetctl.controllers.planning.placement import Capacity, Offer
from fleetctl.controllers.planning.plan import TERMINAL_PHASES, Phase, Shortage
from fleetctl.controllers.queues.turn import Turn
from fleetctl.controllers.trials.winner import Lacking


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a start that is desired has not happened yet: the provider's own words.

    short_since_s: since when it is told that there is no room; None when it is told otherwise.
    asking: the provider is being asked again just now. account: it told of the account, not of this
    work.
    """

    reason: str
    message: str
    retry_at_s: float
    short_since_s: float | None = None
    asking: bool = False
    account: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a provider serves none of our work now, in one CamelCase word and a sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Room:
    """What may start now, whoever asks. places: provider -> what is left; not in it = no limit."""

    places: Mapping[str, Capacity] = field(default_factory=dict)
    paused: str = ""  # a sentence why nothing may start, or empty
    until_s: float | None = None  # when a pause is looked at again


@dataclass(frozen=True, slots=True)
class Prior:
    """What earlier passes decided for good."""

    phase: Phase | None = None
    generation: int = 0
    active_since_s: float | None = None  # start of the present activity: deadline counts from here
    completed_at_s: float | None = None
    scratch_freed: bool = False
    over_budget: str = ""  # why a budget with onExceeded Cancel ended it, under `generation`


@dataclass(frozen=True, slots=True)
class Desired:
    """One resource as the pass sees it. `prior` is the status that was written last, and None
    before the first.
    """

    uid: str
    generation: int
    deleted: bool
    controller: KindController
    providers: Mapping[str, int]  # name -> default parallelism, of those where something may start
    prior: Prior
    waits: Mapping[str, Wait] = field(default_factory=dict)  # run name -> why it has not started
    held: Mapping[str, str] = field(default_factory=dict)  # run name -> why it is not over yet
    counting: str = ""  # why what its calls cost is not known yet; it is not over before
    counts_later: str = ""  # the same, once nobody waits for it any more
    batched: str = ""  # in which batches of a server its rows are, as a sentence; or empty
    # provider -> why it serves nobody now; of those where this object has something.
    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    # template hash -> provider -> what it is to that template; not in it = nothing is known.
    offers: Mapping[str, Mapping[str, Offer]] = field(default_factory=dict)
    terms: Mapping[str, Terms] = field(default_factory=dict)  # by provider
    shortages: Mapping[str, Shortage] = field(default_factory=dict)  # provider -> what was learned
    room: Room = Room()
    cached: Mapping[int, tuple[str, str]] = field(default_factory=dict)  # unit -> known result
    uncached: str = ""  # why no result is used again, or empty
    lacking: Lacking | None = None  # what it needs of another object, while that is not known
    dependencies: tuple[Standing, ...] = ()  # of `dependsOn`, as they are now
    blocked: bool = False  # what is lacking is a dependency: nothing of it may begin
    swept: bool = False  # all that its runs left at providers, logs too, is freed
    past_retention: str = ""  # why what its runs left at providers, but logs, is to go; or empty
    before_removal: str = (
        ""  # of a deleted one: what else must be done before it may go, as a sentence
    )
    # What the pass may spend; taken from as it decides.
    allowance: Allowance = field(default_factory=Allowance)
    turn: Turn | None = None  # in its queue, asked and taken from like the allowance; None: in none
    evicted: Mapping[str, str] = field(default_factory=dict)  # run -> why it has to make room
    estimate: Estimate | None = None  # of the whole, when its spec was applied


def ends_at_s(desired: Desired, now_s: float) -> float | None:
    """The deadline of the object, if it has one."""
    return deadline_at_s(desired.controller.policy, desired.prior, desired.generation, now_s)


def deadline_at_s(policy: Policy, prior: Prior, generation: int, now_s: float) -> float | None:
    """Counts from the start of the present activity: suspending stops the clock, and resuming or
    changing the spec of an object that was over starts it anew.
    """
    if policy.active_deadline_s is None or policy.suspend:
        return None
    begins = prior.active_since_s is None or revived(prior, generation)
    since_s = now_s if begins or prior.active_since_s is None else prior.active_since_s
    return since_s + policy.active_deadline_s


def revived(prior: Prior, generation: int) -> bool:
    """True when the spec of an object that was over has changed."""
    return prior.phase in TERMINAL_PHASES and prior.generation != generation
