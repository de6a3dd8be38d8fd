"""What a kind is to the reconciler: what units it wants, which it would stop, and when it is over.

One file a kind answers these questions; everything else (retry, backoff, parallelism, deadline,
suspend, deletion,
TTL, status) is in reconcile.py, once for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.retry import FailureAction, FailureRule, Limits
from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.placement import HOUR_S, Candidate, Placement, Spill
from fleetctl.controllers.plan import Rollout
from fleetctl.specs.content import NO_PINS, Pins

if TYPE_CHECKING:
    from fleetctl.specs.common import Execution
    from fleetctl.specs.template import Template


# Units that a controller remembers: more than are live at once, so that a pass over what is live
# hashes no parameters again; a few hundred bytes each.
UNITS_KEPT_MAX = 4096


@dataclass(frozen=True, slots=True)
class Unit:
    """One piece of wanted work: a task, a trial or a stage. content: of specs/content.py, beside
    the parameters: what comes of it.
    """

    index: int
    params: Mapping[str, object]
    params_hash: str
    template_hash: str
    content: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Let the run go on."""


@dataclass(frozen=True, slots=True)
class StopNow:
    """End the run; `reason` is one CamelCase word."""

    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole is over. waits_for_live: running units may end by themselves first."""

    succeeded: bool
    reason: str
    message: str
    waits_for_live: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """What all running kinds share, read once from the spec. None = no limit; seconds."""

    parallelism: int | None
    suspend: bool
    active_deadline_s: float | None
    ttl_s: float | None
    reuse: int | None  # tasks one sandbox may run in turn; None = no limit
    rollout: Rollout
    placement: Placement
    grace_s: float
    keep_outdated: bool = False  # finished units count whatever content they have
    kept_until_s: float | None = None  # as in fleetctl.specs.content.Pins
    finishing_at_s: float | None = None


class Controller(Protocol):
    """A kind's decisions over one spec. Made anew when the spec changes."""

    policy: Policy
    limits: Limits
    template_hash: str  # of the template that all units share; empty where they differ
    contents: tuple[str, ...]  # of the units, by index; a single one is that of all

    @property
    def total(self) -> int | None:
        """Units wanted; None while it is not known."""
        ...

    def unit(self, index: int) -> Unit | None:
        """The unit as it is wanted now; None when it is no longer wanted."""
        ...

    def template(self, index: int) -> Template:
        """What to run for a wanted unit."""
        ...

    def next(self, history: History) -> Iterator[Unit]:
        """Units that never had an attempt and should start now, lazily, first to start first."""
        ...

    def verdict(self, history: History) -> Verdict | None:
        """Is the whole over? None = not yet."""
        ...

    def summary(self, history: History) -> dict[str, object]:
        """Status of this kind alone, such as a sweep's best trial. JSON.

        `cannotSucceed` says, while units still run, why the whole will fail under this spec.
        """
        ...


class Scoring(Protocol):
    """An optional question: kinds that compare their units by a number answer it."""

    def score(self, result: str | None, metrics: Mapping[str, float]) -> float | None:
        """The unit's value from its result (JSON object) or the last values it reported."""
        ...


class Ordered(Protocol):
    """An optional question: kinds whose units build upon each other answer it."""

    def ready(self, history: History, index: int) -> bool:
        """May this unit, which had attempts before, start now?"""
        ...


# Asked several times a task, where `isinstance` of a Protocol takes longer than the answer.
def scoring(controller: Controller) -> Scoring | None:
    """The same controller, if its kind answers that question."""
    return cast(Scoring, controller) if hasattr(controller, "score") else None


def ordered(controller: Controller) -> Ordered | None:
    """The same controller, if its kind answers that question."""
    return cast(Ordered, controller) if hasattr(controller, "ready") else None


def keep(controller: Controller, run: Run) -> Keep | StopNow:
    """Should this live run go on under the present spec? The same for every kind."""
    unit = controller.unit(run.index)
    if unit is None:
        return StopNow("NoLongerWanted")
    if unit.params_hash != run.params_hash:
        return StopNow("Superseded")
    if unit.template_hash != run.template_hash and controller.policy.rollout is Rollout.REPLACE:
        return StopNow("Superseded")
    return Keep()


def superseded(controller: Controller, run: Run) -> bool:
    """True when an ended run's outcome says nothing of the present wish.

    A success counts while its content is the wished one, or is accepted all the same. A refusal
    speaks of its template alone, and failures of an older template do not count against the new
    one. What was put aside says nothing, whatever it came to.
    """
    unit = controller.unit(run.index)
    if unit is None or unit.params_hash != run.params_hash or _is_put_aside(run):
        return True
    if run.state is RunState.SUCCEEDED:
        return outdated(controller, run) and not _accepted(controller.policy, run)
    return unit.template_hash != run.template_hash


def outdated(controller: Controller, run: Run) -> bool:
    """True for the success of a wanted unit with another content than the wished one. What was
    stored without its content is taken for the wished one.
    """
    unit = controller.unit(run.index)
    if unit is None or run.state is not RunState.SUCCEEDED or _is_put_aside(run):
        return False
    return unit.params_hash == run.params_hash and run.content not in ("", unit.content)


def _accepted(policy: Policy, run: Run) -> bool:
    if policy.keep_outdated:
        return True
    ended_at_s = run.created_at_s if run.ended_at_s is None else run.ended_at_s
    if policy.kept_until_s is not None and ended_at_s <= policy.kept_until_s:
        return True
    at_s = policy.finishing_at_s
    return at_s is not None and run.created_at_s <= at_s <= ended_at_s


def _is_put_aside(run: Run) -> bool:
    """Somebody asked for another attempt; a refused run that was forgotten has no template."""
    return run.put_aside or not run.template_hash


def policy_of(
    spec: Execution, pins: Pins = NO_PINS, *, reuse: int = 1, grace_s: float = 0.0
) -> Policy:
    """The shared part of a running kind's spec as plain data; reuse and grace_s where the kind asks
    for more.
    """
    box = spec.sandbox.reuse
    template: Template | None = getattr(spec, "template", None)
    return Policy(
        parallelism=spec.parallelism,
        suspend=spec.suspend,
        active_deadline_s=spec.active_deadline_seconds,
        ttl_s=spec.ttl_seconds_after_finished,
        reuse=None if box == "all" else max(box, reuse),
        rollout=Rollout(pins.rollout or spec.rollout),
        placement=placement_of(spec),
        grace_s=max(template.termination_grace_period_seconds if template else 10.0, grace_s),
        keep_outdated=spec.on_change == "Keep",
        kept_until_s=pins.kept_until_s,
        finishing_at_s=pins.finishing_at_s,
    )


def placement_of(spec: Execution) -> Placement:
    """Where a running kind's units may run as plain data."""
    wished = spec.placement
    spill = wished.spill_over
    return Placement(
        tuple(
            Candidate(it.provider, _per_s(it.max_price_per_hour, wished.max_price_per_hour))
            for it in wished.candidates
        ),
        cheapest=wished.any_of is not None,
        spill=Spill(spill.after_seconds, frozenset(spill.on)),
    )


def _per_s(*usd_per_hour: float | None) -> float | None:
    """The first that is said."""
    said = next((price for price in usd_per_hour if price is not None), None)
    return None if said is None else said / HOUR_S


def limits_of(spec: Execution, *, backoff_limit_per_index: int | None = None) -> Limits:
    """The retry limits of a running kind's spec as plain data."""
    rules = spec.failure_policy.rules if spec.failure_policy else ()
    backoff = spec.retry.backoff
    return Limits(
        backoff_limit_per_index=(
            spec.backoff_limit_per_index
            if backoff_limit_per_index is None
            else backoff_limit_per_index
        ),
        max_infra_retries=spec.max_infra_retries,
        backoff_initial_s=backoff.initial_s,
        backoff_max_s=backoff.max_s,
        backoff_factor=backoff.factor,
        rules=tuple(
            FailureRule(
                name=rule.name or "",
                action=FailureAction(rule.action),
                exit_codes=frozenset(rule.on_exit_codes.values) if rule.on_exit_codes else None,
                negated=bool(rule.on_exit_codes and rule.on_exit_codes.operator == "NotIn"),
                reasons=frozenset(rule.on_reasons),
            )
            for rule in rules
        ),
        seed=spec.seed,
    )
