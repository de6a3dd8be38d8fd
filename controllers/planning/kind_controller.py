"""Defines a kind for the reconciler: the units it wants, the runs it would stop, and when it has
finished.

One file a kind answers these questions; everything else (retry, backoff, parallelism, deadline,
suspend, deletion, TTL, status) is in reconcile.py, once for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from fleetctl.controllers.history.curves import MetricCurves
from fleetctl.controllers.history.facts import Score
from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.retry_limits import (
    ANSWER_FILTERED,
    COMMAND_NOT_FOUND,
    OUTPUTS_TOO_LARGE,
    RESULT_INVALID,
    FailureAction,
    FailureRule,
    RetryLimits,
)
from fleetctl.controllers.model import (
    CheckpointOrder,
    ProgressOrder,
    Run,
    RunGroups,
    RunState,
    WandbTrial,
)
from fleetctl.controllers.planning.placement import HOUR_S, Candidate, Placement, SpillRule
from fleetctl.controllers.planning.plan import Rollout
from fleetctl.controllers.status_keys import Status
from fleetctl.controllers.wandb import AssignedRuns
from fleetctl.specs.content import NO_PINS, Pins

if TYPE_CHECKING:
    from fleetctl.specs.blocks import placement as blocks
    from fleetctl.specs.blocks import policies
    from fleetctl.specs.blocks.common import ParamsFrom, WorkSpec
    from fleetctl.specs.blocks.template import Template


# Units that a controller remembers: more than are live at once, so that a pass over what is live
# hashes no parameters again; a few hundred bytes each.
UNITS_KEPT_MAX = 4096


@dataclass(frozen=True, slots=True)
class Unit:
    """One piece of wanted work: a task, a trial or a stage. content: of specs/content.py,
    identifies the result together with the parameters. params_hash: of the unit's own parameters;
    parameters that another object gives to all units are in content and template_hash.
    """

    index: int
    params: Mapping[str, object]
    params_hash: str
    template_hash: str
    content: str


Params = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class KeepRunning:
    """Let the run go on."""


@dataclass(frozen=True, slots=True)
class StopNow:
    """Ends the run; `reason` is one CamelCase word, `message` a sentence about this run."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class ObjectVerdict:
    """The end of the whole object. waits_for_live: running units may end by themselves first.
    skipped: it did not succeed, and that is no failure.
    """

    succeeded: bool
    reason: str
    message: str
    waits_for_live: bool = False
    skipped: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """The settings that all running kinds share, read once from the spec. None = no limit;
    seconds.
    """

    parallelism: int | None
    suspend: bool
    active_deadline_s: float | None
    ttl_s: float | None
    reuse: int | None  # tasks one sandbox may run in turn; unset = no limit
    sandbox_life_s: float | None  # after which it gets no further task
    task_s: float | None  # the longest that an attempt takes
    rollout: Rollout
    placement: Placement
    grace_s: float
    keep_outdated: bool = False  # finished units count with any content
    kept_until_s: float | None = None  # as in fleetctl.specs.content.Pins
    finishing_at_s: float | None = None


class KindController(ABC):
    """Decides for one kind over one spec. Created again when the spec changes.

    A method with a body here is an optional question: a kind without an opinion keeps this default.
    """

    policy: RunPolicy
    limits: RetryLimits
    template_hash: str  # of the template that all units share; empty where they differ
    contents: tuple[str, ...]  # of the units, by index; a single one is that of all
    total: int | None  # units wanted; unset while it is not known
    # Parameters that another object gives to every unit; unset while they are not known.
    given: Params | None = MappingProxyType({})
    has_files = False  # units get files that their parameters name
    unit: Callable[[int], Unit | None]  # as it is wanted now; None: it is no longer wanted
    # Units that W&B assigns: the engine requests them, and reports them here; unset without W&B.
    handed: AssignedRuns | None = None

    # Units build upon each other: a unit begins only when `ready` allows it.
    in_order: ClassVar[bool] = False
    # Units work at the same time, or none does: those without a live run start in one pass.
    together: ClassVar[bool] = False
    # Units are compared by what `score` finds.
    compares: ClassVar[bool] = False
    # A unit keeps the index that its parameters had: the controller receives the indexes with runs.
    keeps_indexes: ClassVar[bool] = False

    @abstractmethod
    def __init__(
        self,
        spec: Any,
        allocated: Mapping[str, int],
        pins: Pins = NO_PINS,
    ) -> None:
        """allocated: params hash -> index of the units that have runs already, for kinds that set
        `keeps_indexes`. pins: the resolved names of the spec.
        """

    @staticmethod
    @abstractmethod
    def contents_of(spec: Any, pins: Pins) -> tuple[str, ...]:
        """`contents`, without the rest of a controller."""

    @abstractmethod
    def template(self, index: int) -> Template:
        """Returns the template of a wanted unit."""

    def template_now(self, history: History, index: int) -> Template:
        """Returns the template of the unit's present attempt; elastic nodes may be fewer than the
        maximum.
        """
        return self.template(index)

    def can_shrink(self, history: History, index: int) -> bool:
        """Returns true if an attempt with fewer nodes is possible."""
        return False

    @abstractmethod
    def next(self, history: History) -> Iterator[Unit]:
        """Units that never had an attempt and should start now, lazily, first to start first."""

    @abstractmethod
    def verdict(self, history: History) -> ObjectVerdict | None:
        """Returns the end of the whole object; None = not yet."""

    def indexes(self) -> Iterable[int]:
        """Returns the wanted units, as far as they are known, first to start first."""
        return range(self.total or 0)

    def called(self, index: int) -> str:
        """Returns the name of a unit, for users."""
        return f"task {index}"

    @property
    def first(self) -> int:
        """Returns the index of a unit whose template represents the others."""
        return 0

    def placement(self, template_hash: str) -> Placement:
        """Returns where the units of a template may run."""
        return self.policy.placement

    @property
    def candidates(self) -> tuple[str, ...]:
        """Returns the names of all providers where any unit may run, the best first."""
        return tuple(it.provider for it in self.policy.placement.candidates)

    def summary(self, history: History) -> Status:
        """Returns the status keys of this kind alone, such as a sweep's best trial.

        `cannotSucceed` gives, while units still run, the reason why the whole will fail under this
        spec.
        """
        return {}

    def content(self, index: int) -> Template:
        """Returns the template of a wanted unit without its parameters."""
        return self.template(index)

    @property
    def repeats(self) -> bool:
        """Returns true if units can have equal parameters and differ by their index alone."""
        return True

    def equal_before(self, index: int) -> int:
        """Counts the units before this one that have the same parameters."""
        return 0

    def ready(self, history: History, index: int) -> bool:
        """Returns true if this unit, which had attempts before, may start now."""
        return True

    def score(self, result: str | None, metrics: Mapping[str, float]) -> Score | None:
        """Returns the unit's value, or several, from its result (JSON object) or its last
        report.
        """
        return None

    @property
    def metric(self) -> str:
        """Returns the name of the value that it compares units by; "" where it does not."""
        return ""

    def wandb(self, name: str, index: int) -> WandbTrial | None:
        """Returns the settings for a unit's program that calls `wandb.init`; None: it gets no
        settings. name: of the object.
        """
        return None

    def checkpoint(self, history: History, index: int) -> CheckpointOrder | None:
        """Returns the checkpoint order for the next attempt of a unit; None: it has no
        checkpoints.
        """
        return None

    def progress(self, index: int) -> ProgressOrder | None:
        """Returns when an attempt of a unit counts as hung; None: never."""
        return None

    def groups(self, index: int) -> RunGroups | None:
        """Returns the groups that an attempt of a unit works with; None: it works alone."""
        return None

    def curves(self) -> MetricCurves | None:
        """Returns an empty record for the reports of units, where decisions need it;
        `History.curves` is it.
        """
        return None

    def recall(self, run: Run) -> None:  # noqa: B027
        """Records a stored attempt, before any question: for a kind whose units are defined by what
        their attempts were given, with `keeps_indexes`.
        """

    def asks(self, history: History) -> int | None:
        """Returns the unit whose parameters must be computed before it can begin, where that takes
        too long for a pass: the engine runs the `work` in the background, and returns the `answer`.
        """
        return None

    def work(self, history: History, index: int) -> Callable[[], Params | None]:
        """Returns a pure function of the present state: the parameters of a unit that `asks` names;
        None where there is no other unit.
        """
        raise NotImplementedError

    def answer(self, index: int, params: Params | None) -> None:  # noqa: B027
        """Takes the result of the work."""

    def keep(self, history: History, run: Run) -> KeepRunning | StopNow:
        """Decides if this live run should go on. A kind that ends a run permanently names the
        reason in `limits.final`.
        """
        return as_desired(self, run)


def describe_params_source(params_from: ParamsFrom | None, given: Params | None) -> Status:
    """Status of work whose parameters another object gives."""
    if params_from is None:
        return {}
    known = {} if given is None else {"params": dict(given)}
    return {"paramsFrom": {"sweep": params_from.sweep, **known}}


def as_desired(controller: KindController, run: Run) -> KeepRunning | StopNow:
    """Decides if a live run is still what the spec requests. The same for every kind."""
    unit = controller.unit(run.index)
    if unit is None:
        return StopNow("NoLongerWanted")
    if unit.params_hash != run.params_hash:
        return StopNow("Superseded")
    if unit.template_hash != run.template_hash and controller.policy.rollout is Rollout.REPLACE:
        return StopNow("Superseded")
    return KeepRunning()


def is_superseded(controller: KindController, run: Run) -> bool:
    """Returns True when an ended run's outcome does not count for the present spec.

    A success counts while its content is the desired one, or is accepted all the same. A refusal
    concerns its template alone, and failures of an older template do not count against the new one.
    An attempt that was put aside never counts, whatever its outcome.
    """
    unit = controller.unit(run.index)
    if unit is None or unit.params_hash != run.params_hash or _is_put_aside(run):
        return True
    if run.state is RunState.SUCCEEDED:
        return is_outdated(controller, run) and not _is_accepted(controller.policy, run)
    return unit.template_hash != run.template_hash


def is_outdated(controller: KindController, run: Run) -> bool:
    """Returns True for the success of a wanted unit with another content than the desired one. A
    success stored without its content is assumed to have the desired one.
    """
    unit = controller.unit(run.index)
    if unit is None or run.state is not RunState.SUCCEEDED or _is_put_aside(run):
        return False
    return unit.params_hash == run.params_hash and run.content not in ("", unit.content)


def _is_accepted(policy: RunPolicy, run: Run) -> bool:
    if policy.keep_outdated:
        return True
    ended_at_s = run.created_at_s if run.ended_at_s is None else run.ended_at_s
    if policy.kept_until_s is not None and ended_at_s <= policy.kept_until_s:
        return True
    at_s = policy.finishing_at_s
    return at_s is not None and run.created_at_s <= at_s <= ended_at_s


def _is_put_aside(run: Run) -> bool:
    """Returns true if a user asked for another attempt; a refused run that was forgotten has no
    template.
    """
    return run.put_aside or not run.template_hash


# Rows per batch; more are further batches. Each is a live run, some 10 KB of the controller.
BATCHED_PARALLELISM = 10_000


def policy_of(
    spec: WorkSpec,
    pins: Pins = NO_PINS,
    *,
    reuse: int = 1,
    grace_s: float = 0.0,
) -> RunPolicy:
    """Returns the shared part of a running kind's spec as plain data; reuse and grace_s where the
    kind needs more.
    """
    box = spec.sandbox.reuse
    template: Template | None = getattr(spec, "template", None)
    return RunPolicy(
        parallelism=_choose_parallelism(spec, template),
        suspend=spec.suspend,
        active_deadline_s=spec.active_deadline_seconds,
        ttl_s=spec.ttl_seconds_after_finished,
        reuse=None if box == "all" else max(box, reuse),
        sandbox_life_s=spec.sandbox.max_lifetime_seconds,
        task_s=template.timeout_seconds if template else None,
        rollout=Rollout(pins.rollout or spec.rollout),
        placement=placement_of(spec.placement),
        grace_s=max(template.termination_grace_period_seconds if template else 10.0, grace_s),
        keep_outdated=spec.on_change == "Keep",
        kept_until_s=pins.kept_until_s,
        finishing_at_s=pins.finishing_at_s,
    )


def _choose_parallelism(spec: WorkSpec, template: Template | None) -> int | None:
    """Rows that wait for a server's batch are in it together, or they would be many batches."""
    prompt = template.prompt if template is not None else None
    batched = prompt is not None and prompt.mode == "batch"
    if batched and spec.parallelism is None:
        return BATCHED_PARALLELISM
    return spec.parallelism


def placement_of(placement: blocks.PlacementSpec) -> Placement:
    """Returns the placement of a running kind's units as plain data."""
    spill = placement.spill_over
    return Placement(
        tuple(
            Candidate(it.provider, _per_s(it.max_price_per_hour, placement.max_price_per_hour))
            for it in placement.candidates
        ),
        cheapest=placement.any_of is not None,
        spill=SpillRule(spill.after_seconds, frozenset(spill.reasons)),
    )


def _per_s(*usd_per_hour: float | None) -> float | None:
    """Returns the first price that is set."""
    first = next((price for price in usd_per_hour if price is not None), None)
    if first is None:
        return None
    return first / HOUR_S


# After the user's own rules, which may differ: another attempt would end the same way.
_SAME_RESULT = FailureRule(
    "",
    FailureAction.FAIL_INDEX,
    reasons=frozenset({RESULT_INVALID, OUTPUTS_TOO_LARGE, ANSWER_FILTERED, COMMAND_NOT_FOUND}),
)


def _rule_of(rule: policies.FailurePolicyRule) -> FailureRule:
    return FailureRule(
        name=rule.name or "",
        action=FailureAction(rule.action),
        exit_codes=frozenset(rule.on_exit_codes.values) if rule.on_exit_codes else None,
        negated=bool(rule.on_exit_codes and rule.on_exit_codes.operator == "NotIn"),
        reasons=frozenset(rule.on_reasons),
    )


def limits_of(spec: WorkSpec, *, backoff_limit_per_index: int | None = None) -> RetryLimits:
    """Returns the retry limits of a running kind's spec as plain data."""
    rules = spec.failure_policy.rules if spec.failure_policy else ()
    backoff = spec.retry.backoff
    return RetryLimits(
        backoff_limit_per_index=(
            spec.backoff_limit_per_index
            if backoff_limit_per_index is None
            else backoff_limit_per_index
        ),
        max_infra_retries=spec.max_infra_retries,
        backoff_initial_s=backoff.initial_s,
        backoff_max_s=backoff.max_s,
        backoff_factor=backoff.factor,
        rules=(*(_rule_of(rule) for rule in rules), _SAME_RESULT),
        seed=spec.seed,
    )
