"""The decisions of a pass: actions, each with its reason, and the status to write; checked before
they are carried out, for a broken promise is a bug of ours.

A plan is data and explains itself, also when it has no action. Where the check finds a broken
promise, the engine drops the plan, reports it and leaves the object as it is, rather than act on a
wrong decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleetctl.controllers.budget import BudgetDenial
from fleetctl.controllers.history.history import History
from fleetctl.controllers.queues.queue_state import QueuedObject


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SKIPPED = "Skipped"  # a dependency did not come out as required; no unit ran
    READY = "Ready"  # a volume, a function or a secret that can be used
    DELETING = "Deleting"


TERMINAL_PHASES = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.SKIPPED})


class Rollout(StrEnum):
    REPLACE = "Replace"
    FINISH_RUNNING = "FinishRunning"


@dataclass(frozen=True, slots=True)
class Start:
    """Begins attempt `attempt` of unit `index`: in the open sandbox `sandbox`, or in a new one when
    it is None.
    """

    index: int
    attempt: int
    params: Mapping[str, object]
    params_hash: str
    template_hash: str
    provider: str
    reusable: bool
    sandbox: str | None
    reason: str
    placed: str = ""  # why it starts at this provider; empty where there is no choice
    spilled: bool = False  # a better provider has no capacity
    usd: float | None = None  # set aside for it: its worst case
    queued: str = ""  # its usage of its queue


@dataclass(frozen=True, slots=True)
class Reuse:
    """Record unit `index` as succeeded with the result that the store knows under `key`."""

    index: int
    attempt: int
    params: Mapping[str, object]
    params_hash: str
    template_hash: str
    key: tuple[str, str]
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End a live run. `reason` and `message` become the run's once it is confirmed gone."""

    run: str
    reason: str
    grace_s: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class CloseSandbox:
    """End an idle sandbox."""

    sandbox: str
    reason: str


@dataclass(frozen=True, slots=True)
class EnsureVolume:
    name: str
    provider: str
    reason: str


@dataclass(frozen=True, slots=True)
class RemoveVolume:
    name: str
    provider: str
    reason: str


@dataclass(frozen=True, slots=True)
class EnsureFunction:
    name: str
    provider: str
    reason: str


@dataclass(frozen=True, slots=True)
class RemoveFunction:
    name: str
    provider: str
    reason: str


@dataclass(frozen=True, slots=True)
class FreeScratch:
    """Free what runs left at their providers. With keep_logs False also the logs."""

    uid: str
    keep_logs: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove the resource's row: all that it owned is confirmed gone."""

    uid: str
    reason: str


AssetAction = EnsureVolume | RemoveVolume | EnsureFunction | RemoveFunction | FreeScratch
Action = Start | Reuse | Stop | CloseSandbox | AssetAction | Drop


@dataclass(frozen=True, slots=True)
class Shortage:
    """The known shortage of a provider without capacity for an object: how many of its sandboxes
    fit, and when one more is tried. In memory alone; a restart learns it again.
    """

    slots: int
    probe_at_s: float
    why: str  # the same words for every task, so that they are stored once


@dataclass(frozen=True, slots=True)
class Plan:
    """actions: in the order to carry out; wake_at_s: when the pass must be made again at the
    latest. final: the object has finished, and its status stays as it was written then. hint: what
    users can do about the message, or about the first thing that it waits for.
    """

    actions: tuple[Action, ...]
    phase: Phase
    reason: str
    message: str = ""
    waiting_on: tuple[str, ...] = ()
    wake_at_s: float | None = None
    final: bool = False
    active: bool = False  # something runs or starts
    at_capacity: tuple[str, ...] = ()  # providers where something would start if there were room
    # Shortages that this pass found.
    shortages: Mapping[str, Shortage] = field(default_factory=dict)
    denied: BudgetDenial | None = None  # something would start if there were money
    queued: QueuedObject | None = None  # something would start if its queue let it
    extra: Mapping[str, object] = field(
        default_factory=dict
    )  # kind-specific status, such as a best trial
    hint: str = ""


def lint_plan(
    plan: Plan,
    history: History,
    *,
    parallelism: int | None,
) -> list[str]:
    """Returns sentences about violated promises; empty when the plan is sound. parallelism None =
    no limit.
    """
    starts = [action for action in plan.actions if isinstance(action, Start)]
    return [
        *_check_starts(starts, history, parallelism),
        *_check_units(plan, history),
        *_check_stops(plan, history),
        *_check_drops(plan, history),
    ]


def _check_starts(
    starts: list[Start],
    history: History,
    parallelism: int | None,
) -> Iterator[str]:
    new = sum(1 for start in starts if start.sandbox is None)
    idle = sum(1 for box in history.sandboxes.values() if not box.busy)
    live = len(history.live)
    if parallelism is not None and new and live + idle + new > parallelism:
        yield f"{live} live, {idle} idle and {new} new exceed parallelism {parallelism}"
    if parallelism is not None and starts and live + len(starts) > parallelism:
        yield f"{live} live and {len(starts)} starts exceed parallelism {parallelism}"
    for start in starts:
        if start.sandbox is not None and start.sandbox not in history.sandboxes:
            yield f"index {start.index} would use the unknown sandbox {start.sandbox}"


def _check_units(plan: Plan, history: History) -> Iterator[str]:
    """Checks that a unit that begins, or takes a result over, is not under way and not done."""
    begun = [action for action in plan.actions if isinstance(action, Start | Reuse)]
    for index, count in Counter(it.index for it in begun).items():
        if count > 1:
            yield f"index {index} would start {count} times"
    for it in begun:
        if it.index in history.live_by_index:
            yield f"index {it.index} is live and would start again"
        if it.index in history.pruned:
            yield f"index {it.index} was ended for good and would start again"
        if it.index in history.succeeded:
            yield f"index {it.index} succeeded and would start again"
        if it.attempt != history.next_attempt(it.index):
            yield f"index {it.index} would reuse attempt {it.attempt}"


def _check_stops(plan: Plan, history: History) -> Iterator[str]:
    for action in plan.actions:
        if isinstance(action, Stop) and action.run not in history.live:
            yield f"{action.run} is not live and would be stopped"
        if isinstance(action, CloseSandbox) and action.sandbox not in history.sandboxes:
            yield f"sandbox {action.sandbox} is not ours and would be closed"


def _check_drops(plan: Plan, history: History) -> Iterator[str]:
    drops = any(isinstance(action, Drop) for action in plan.actions)
    if drops and (history.live or history.sandboxes):
        yield "the object would be dropped while runs of it are live"
