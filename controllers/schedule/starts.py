"""Starts units that are due, each in an idle sandbox or on a provider with capacity, and decides if
a unit may take over a sandbox without a record. Pure.

The sandbox lives already, so parallelism does not keep it out: it counts against it from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fleetctl.controllers.budget import SandboxTerms
from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.open_sandboxes import OpenSandbox
from fleetctl.controllers.planning.kind_controller import KindController, RunPolicy, Unit
from fleetctl.controllers.planning.plan import CloseSandbox, Start
from fleetctl.controllers.queues.queue_admission import TURN, QueueRefusal
from fleetctl.controllers.schedule.affordable import (
    PaidStart,
    QueuedStart,
    UnpaidStart,
    gives_way,
    paid_again,
    reserve_start,
)
from fleetctl.controllers.schedule.capacity import PassSlots, explain_placement
from fleetctl.controllers.schedule.desired import DesiredObject
from fleetctl.controllers.schedule.together import find_obstacle

# A pass that starts more than this at once would hold up the other objects; the next pass goes on
# at once.
STARTS_PER_PASS_MAX = 256


@dataclass(frozen=True, slots=True)
class StartSupply:
    """The supply that a pass has for the waiting units.

    idle: sandboxes that take another task, the best provider last. runs and sandboxes: how many
    more there may be.
    """

    slots: PassSlots
    idle: list[OpenSandbox]
    runs: int
    sandboxes: int


@dataclass(frozen=True, slots=True)
class PlannedStarts:
    """The starts of a pass, and why it stops there: the pass is full, or one unit found no
    capacity, no money, or is held by its queue. Without such a reason, every unit that may run now
    does.
    """

    starts: tuple[Start, ...]
    idle: tuple[OpenSandbox, ...]  # that no unit takes
    full: bool
    at_capacity: Unit | None
    unpaid: UnpaidStart | None
    queued: QueuedStart | None = None


def plan_starts(
    desired: DesiredObject,
    history: History,
    supply: StartSupply,
    now_s: float,
) -> PlannedStarts:
    """Starts units in order; a unit that cannot start keeps all behind it from starting. Units that
    work together all start, or none does.
    """
    wanted = iter(()) if desired.blocked else list_due_units(desired.controller, history, now_s)
    if not desired.controller.together:
        return _plan_in_order(desired, history, supply, now_s, wanted)
    due = tuple(wanted)
    obstacle = find_obstacle(desired, history, [unit for unit, _ in due], now_s)
    if obstacle is None:
        return _plan_in_order(desired, history, supply, now_s, iter(due))
    return PlannedStarts(
        (),
        tuple(supply.idle),
        full=False,
        at_capacity=obstacle.at_capacity,
        unpaid=obstacle.unpaid,
        queued=obstacle.queued,
    )


def _plan_in_order(
    desired: DesiredObject,
    history: History,
    supply: StartSupply,
    now_s: float,
    wanted: Iterator[tuple[Unit, str]],
) -> PlannedStarts:
    slots = supply.slots
    idle = list(supply.idle)
    made = 0
    starts: list[Start] = []
    full = False
    at_capacity: Unit | None = None
    unpaid: UnpaidStart | None = None
    queued: QueuedStart | None = None
    for unit, reason in wanted:
        full = len(starts) == STARTS_PER_PASS_MAX
        if full or len(starts) >= supply.runs or (not idle and made >= supply.sandboxes):
            break
        box = idle[-1] if idle else None
        last = box.last if box is not None else None
        if last and (why := gives_way(desired, last.queued, last.provider, last.usd_per_s)):
            queued = QueuedStart(QueueRefusal(TURN, why), ())
            break
        if desired.room.paused or (box is None and slots.best(unit.template_hash) is None):
            at_capacity = unit
            break
        paid = (
            reserve_start(slots, desired, unit, now_s, admitted=desired.controller.together)
            if box is None
            else paid_again(box.provider, desired, unit, now_s)
        )
        if isinstance(paid, UnpaidStart):
            unpaid = paid
            break
        if isinstance(paid, QueuedStart):
            queued = paid
            unpaid = paid.unpaid
            break
        start = start_of(
            unit,
            history,
            box,
            desired.controller,
            reason,
        )
        if isinstance(paid, PaidStart):
            start = _start_in_new_sandbox(start, paid, slots)
            made += 1
        else:
            start = replace(start, usd=paid.usd, queued=box.last.queued if box else "")
            idle.pop()
        starts.append(start)
    return PlannedStarts(tuple(starts), tuple(idle), full, at_capacity, unpaid, queued)


def _start_in_new_sandbox(
    start: Start,
    paid: PaidStart,
    slots: PassSlots,
) -> Start:
    """Takes a slot for the start, and sets its provider."""
    slots.take(paid.where)
    return replace(
        start,
        usd=paid.held.usd,
        queued=paid.queued,
        provider=paid.where.provider,
        placed=explain_placement(paid.judged),
        spilled=paid.judged[0].provider != paid.where.provider,
    )


def sort_sandboxes(
    desired: DesiredObject,
    history: History,
    slots: PassSlots,
    now_s: float,
) -> tuple[tuple[CloseSandbox, ...], list[OpenSandbox]]:
    """Returns the idle sandboxes: those to close, and those that can take another task, the best
    provider last.
    """
    controller = desired.controller
    closes: list[CloseSandbox] = []
    idle: list[OpenSandbox] = []
    reuse = controller.policy.reuse
    places = [it.provider for it in slots.judged(controller.template_hash) if it.fits]
    for box in history.sandboxes.values():
        if box.busy:
            continue
        fits = box.template_hash == controller.template_hash and box.provider in places
        if _is_old(box, controller.policy, desired.terms.get(box.provider, SandboxTerms()), now_s):
            closes.append(CloseSandbox(box.name, "too old for another task"))
        elif not box.closing and fits and (reuse is None or box.used < reuse):
            idle.append(box)
        else:
            closes.append(CloseSandbox(box.name, "used up or out of date"))
    idle.sort(key=lambda box: -places.index(box.provider))
    return tuple(closes), idle


def _is_old(
    box: OpenSandbox,
    policy: RunPolicy,
    terms: SandboxTerms,
    now_s: float,
) -> bool:
    """Returns true if its life has ended, or would end before a task's own time: no task is cut
    short by the age of its sandbox where a new one has time for it. A task without a limit gets
    half a life.
    """
    age_s = now_s - box.since_s
    if policy.sandbox_life_s is not None and age_s >= policy.sandbox_life_s:
        return True
    if terms.shared_s is None:
        return False
    task_s = terms.shared_s / 2 if policy.task_s is None else policy.task_s + policy.grace_s
    return age_s + task_s > terms.shared_s


def list_due_units(
    controller: KindController,
    history: History,
    now_s: float,
) -> Iterator[tuple[Unit, str]]:
    """Units to start now: those due for another attempt, then fresh ones. Units that work together
    wait for each other while none is live.
    """
    if controller.given is None:
        return
    if controller.together and not history.live and history.waiting.next_due_at_s(now_s):
        return
    for index in history.waiting.due(now_s):
        unit = controller.unit(index)
        if unit is not None and controller.ready(history, index):
            yield unit, "its next attempt is due"
    for unit in controller.next(history):
        yield unit, "it has not run yet"


def start_of(
    unit: Unit,
    history: History,
    reuse: OpenSandbox | None,
    kind: KindController,
    reason: str,
) -> Start:
    """Returns the unit's next attempt, in the open sandbox or, once a provider is chosen, in a new
    one.
    """
    used = reuse.used + 1 if reuse else 1
    policy = kind.policy
    chosen = len(kind.placement(unit.template_hash).candidates) > 1
    return Start(
        index=unit.index,
        attempt=history.next_attempt(unit.index),
        params=unit.params,
        params_hash=unit.params_hash,
        template_hash=unit.template_hash,
        provider=reuse.provider if reuse else "",
        reusable=policy.reuse is None or used < policy.reuse,
        sandbox=reuse.name if reuse else None,
        reason=reason,
        placed="its sandbox was free" if reuse and chosen else "",
    )


@dataclass(frozen=True, slots=True)
class AdoptionMatch:
    """The next attempt of this unit is what runs in the sandbox."""

    unit: Unit
    attempt: int


@dataclass(frozen=True, slots=True)
class AdoptionRefused:
    why: str  # a sentence without its subject, which is the sandbox


def match_adoption(
    controller: KindController,
    history: History,
    index: int | None,
    *,
    what: str,
) -> AdoptionMatch | AdoptionRefused:
    """Returns the unit that may take over an orphan, or why there is none. index: from its tag,
    None without a tag. what: `task`, `trial`, for users.
    """
    if index is None:
        return AdoptionRefused(f"its tag does not say which {what} it is")
    unit = controller.unit(index)
    if unit is None:
        return AdoptionRefused(f"there is no {what} {index} any more")
    rules = (
        (controller.policy.suspend, "the object is suspended, which would stop it at once"),
        (index in history.live_by_index, f"{what} {index} runs already, and never runs twice"),
        (index in history.succeeded, f"{what} {index} has succeeded already"),
        (index in history.pruned, f"{what} {index} was stopped early, and never begins again"),
    )
    why = next((why for holds, why in rules if holds), "")
    if why:
        return AdoptionRefused(why)
    return AdoptionMatch(unit, history.next_attempt(index))
