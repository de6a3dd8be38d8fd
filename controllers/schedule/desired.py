"""Describes one resource for a pass: the desired work, earlier decisions, and what may start.

Made by the engine for every pass; read by reconcile.py and status.py. Plain data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.controllers.budget import Allowance, CostEstimate, SandboxTerms
from fleetctl.controllers.depends.dependency_status import DependencyStatus
from fleetctl.controllers.planning.kind_controller import KindController, RunPolicy
from fleetctl.controllers.planning.placement import ProviderCapacity, ProviderOffer
from fleetctl.controllers.planning.plan import TERMINAL_PHASES, Phase, Shortage
from fleetctl.controllers.queues.queue_admission import QueueAdmission
from fleetctl.controllers.trials.winner import MissingInput
from fleetctl.specs.values.hints import HintedText


@dataclass(frozen=True, slots=True)
class StartWait:
    """The reason why a desired start has not happened yet: the provider's own words.

    short_since_s: since when it reports no capacity; None when it reports otherwise. asking: a
    request to the provider is under way. account: it concerned the account, not this work.
    """

    reason: str
    message: str
    retry_at_s: float
    short_since_s: float | None = None
    asking: bool = False
    account: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ProviderTrouble:
    """The reason why a provider serves none of our work now, in one CamelCase word and a
    sentence.
    """

    reason: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class StartCapacity:
    """The capacity for new starts, of any object. places: provider -> what is left; not in it = no
    limit.
    """

    places: Mapping[str, ProviderCapacity] = field(default_factory=dict)
    paused: str = ""  # a sentence why starts are paused, or empty
    until_s: float | None = None  # when a pause is looked at again


@dataclass(frozen=True, slots=True)
class PriorStatus:
    """The permanent decisions of earlier passes."""

    phase: Phase | None = None
    generation: int = 0
    active_since_s: float | None = None  # start of the present activity: deadline counts from here
    completed_at_s: float | None = None
    scratch_freed: bool = False
    over_budget: str = ""  # why a budget with onExceeded Cancel ended it, under `generation`


@dataclass(frozen=True, slots=True)
class DesiredObject:
    """One resource as the pass sees it. `prior` is the status that was written last, and None
    before the first.
    """

    uid: str
    generation: int
    deleted: bool
    controller: KindController
    providers: Mapping[str, int]  # name -> default parallelism, of providers where units may start
    prior: PriorStatus
    waits: Mapping[str, StartWait] = field(
        default_factory=dict
    )  # run name -> why it has not started
    held: Mapping[str, HintedText] = field(default_factory=dict)  # run -> why it is not over yet
    counting: str = ""  # why what its calls cost is not known yet; it is not over before
    counts_later: str = ""  # the same, once it is no longer awaited
    batched: str = ""  # in which batches of a server its rows are, as a sentence; or empty
    # provider -> why it does not serve now; of providers where this object has runs.
    troubles: Mapping[str, ProviderTrouble] = field(default_factory=dict)
    # template hash -> provider -> its offer for that template; not in it = unknown.
    offers: Mapping[str, Mapping[str, ProviderOffer]] = field(default_factory=dict)
    terms: Mapping[str, SandboxTerms] = field(default_factory=dict)  # by provider
    shortages: Mapping[str, Shortage] = field(default_factory=dict)  # provider -> what was learned
    room: StartCapacity = StartCapacity()
    cached: Mapping[int, tuple[str, str]] = field(default_factory=dict)  # unit -> known result
    uncached: str = ""  # why no result is used again, or empty
    lacking: MissingInput | None = None  # needed input of another object, while that is not known
    dependencies: tuple[DependencyStatus, ...] = ()  # of `dependsOn`, as they are now
    blocked: bool = False  # a dependency is lacking: no unit may begin
    swept: bool = False  # all that its runs left at providers, logs too, is freed
    past_retention: str = ""  # why what its runs left at providers, but logs, is to go; or empty
    before_removal: str = (
        ""  # for a deleted object: the remaining work before it may go, as a sentence
    )
    # The money that the pass may spend; reduced as it decides.
    allowance: Allowance = field(default_factory=Allowance)
    turn: QueueAdmission | None = (
        None  # in its queue, used like the allowance; unset: it has no queue
    )
    evicted: Mapping[str, str] = field(default_factory=dict)  # run -> why it has to make room
    estimate: CostEstimate | None = None  # of the whole, when its spec was applied


def ends_at_s(desired: DesiredObject, now_s: float) -> float | None:
    """Returns the deadline of the object, if it has one."""
    return deadline_at_s(desired.controller.policy, desired.prior, desired.generation, now_s)


def deadline_at_s(
    policy: RunPolicy,
    prior: PriorStatus,
    generation: int,
    now_s: float,
) -> float | None:
    """Counts from the start of the present activity: suspending stops the clock, and resuming a
    finished object or changing its spec starts the clock again.
    """
    if policy.active_deadline_s is None or policy.suspend:
        return None
    begins = prior.active_since_s is None or is_revived(prior, generation)
    since_s = now_s if begins or prior.active_since_s is None else prior.active_since_s
    return since_s + policy.active_deadline_s


def is_revived(prior: PriorStatus, generation: int) -> bool:
    """Returns True when the spec of a finished object has changed."""
    return prior.phase in TERMINAL_PHASES and prior.generation != generation
