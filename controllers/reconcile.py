"""The pass: from a wish, its history and the time to a plan. Pure; the engine calls it and carries
the plan out.

Rules are tried in order and the first that applies decides (RULES). What is the same for all
running kinds
lives here: deletion, the end, suspend, deadline, parallelism, retries, sandboxes that are used
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from controllers.budget import WITH_A_HINT, Denied
from controllers.history import History
from controllers.kind import Controller, Keep, Policy, StopNow, Unit, Verdict, keep
from controllers.model import Run, RunState
from controllers.plan import (
    TERMINAL_PHASES,
    Action,
    CloseSandbox,
    Drop,
    FreeScratch,
    Phase,
    Plan,
    Reuse,
    Shortage,
    Start,
    Stop,
)
from controllers.seats import Seats, placed, spilled, spills_at_s
from controllers.starting import sort_sandboxes, start_of, wanted_now
from controllers.wish import Wish, deadline_at_s

# A pass that starts more than this at once would hold up the other objects; the next pass goes on
# at once.
STARTS_PER_PASS_MAX = 256
REUSES_PER_PASS_MAX = 1000  # rows alone: about 20 ms
WAITING_SHOWN_MAX = 5


Rule = Callable[[Wish, History, float], Plan | None]


def reconcile(wish: Wish, history: History, now_s: float) -> Plan:
    """One pass. Costs O(live + due + started now), whatever the number of tasks."""
    for rule in RULES:
        plan = rule(wish, history, now_s)
        if plan is not None:
            return plan
    raise AssertionError("the last rule always decides")


def _delete(wish: Wish, history: History, now_s: float) -> Plan | None:  # noqa: ARG001
    if not wish.deleted:
        return None
    policy = wish.controller.policy
    actions = [*_stop_all(history, "Deleted", policy), *_close_all(history, "Deleted")]
    if not history.live and not history.sandboxes:
        actions = [
            Drop(wish.uid, "deleted, and nothing of it is left")
            if wish.swept
            else FreeScratch(wish.uid, False, "deleted")
        ]
    return Plan(tuple(actions), Phase.DELETING, "Deleted", waiting_on=_stopping(history))


def _finished(wish: Wish, history: History, now_s: float) -> Plan | None:
    """Terminal is terminal until the spec changes (I9)."""
    prior, policy = wish.prior, wish.controller.policy
    if prior.phase not in TERMINAL_PHASES or prior.generation != wish.generation:
        return None
    over = partial(Plan, phase=prior.phase, reason="Finished", final=True)
    if history.live or history.sandboxes:
        return over((*_stop_all(history, "Finished", policy), *_close_all(history, "Finished")))
    if policy.ttl_s is None or prior.completed_at_s is None:
        return over((), message="it is over, and has no ttlSecondsAfterFinished")
    if prior.scratch_freed:
        return over((), message="it is over, and what its runs left behind is freed")
    free_at_s = prior.completed_at_s + policy.ttl_s
    if now_s < free_at_s:
        text = f"it is over; what its runs left behind is freed in {free_at_s - now_s:.0f} s"
        return over((), message=text, wake_at_s=free_at_s)
    return over((FreeScratch(wish.uid, True, "ttlSecondsAfterFinished has passed"),))


def _end(wish: Wish, history: History, now_s: float) -> Plan | None:
    """The whole is over: by its verdict, its deadline or a refusal."""
    verdict = _verdict(wish, history, now_s)
    if verdict is None:
        return None
    phase = Phase.SUCCEEDED if verdict.succeeded else Phase.FAILED
    summary = {**wish.controller.summary(history), **_kept(wish)}
    if history.live or history.sandboxes:
        policy = wish.controller.policy
        wake_at_s = _deadline_at_s(wish, now_s) if verdict.waits_for_live else None
        stops = [] if verdict.waits_for_live else _stop_all(history, verdict.reason, policy)
        actions = (*stops, *_close_all(history, verdict.reason))
        rest = "waiting for" if verdict.waits_for_live else "stopping"
        text = f"{verdict.message}; {rest} what still runs"
        waiting = _stopping(history)
        return Plan(actions, Phase.RUNNING, "Finishing", text, waiting, wake_at_s, extra=summary)
    ttl_s = wish.controller.policy.ttl_s
    wake_at_s = None if ttl_s is None else now_s + ttl_s
    return Plan((), phase, verdict.reason, verdict.message, wake_at_s=wake_at_s, extra=summary)


def _verdict(wish: Wish, history: History, now_s: float) -> Verdict | None:
    if history.refused is not None:
        return Verdict(False, "Refused", history.refused.message)
    policy = wish.controller.policy
    ends_at_s = _deadline_at_s(wish, now_s)
    late = ends_at_s is not None and now_s >= ends_at_s
    # What was reached in time stays reached, also when nobody looked until after the deadline.
    verdict = wish.controller.verdict(history)
    if verdict is None and _kept(wish):
        return Verdict(False, "BudgetExceeded", wish.prior.over_budget)
    if verdict is None and late:
        text = f"activeDeadlineSeconds {policy.active_deadline_s:g} has passed"
        return Verdict(False, "DeadlineExceeded", text)
    if verdict is not None and (late or policy.suspend):
        return replace(verdict, waits_for_live=False)
    return verdict


def _kept(wish: Wish) -> dict[str, object]:
    """The object was ended by a budget: room that its own stopped runs make does not revive it."""
    text = wish.prior.over_budget if wish.prior.generation == wish.generation else ""
    return {"overBudget": text} if text else {}


def _deadline_at_s(wish: Wish, now_s: float) -> float | None:
    return deadline_at_s(wish.controller.policy, wish.prior, wish.generation, now_s)


def _suspend(wish: Wish, history: History, now_s: float) -> Plan | None:  # noqa: ARG001
    policy = wish.controller.policy
    if not policy.suspend:
        return None
    actions = (*_stop_all(history, "Suspended", policy), *_close_all(history, "Suspended"))
    return Plan(
        actions,
        Phase.SUSPENDED,
        "Suspended",
        "spec.suspend is true",
        waiting_on=_stopping(history),
        extra=wish.controller.summary(history),
    )


def _reuse(wish: Wish, history: History, now_s: float) -> Plan | None:
    """Units that an equal one has done already are done; the next pass follows at once."""
    reuses: list[Action] = []
    for index, key in islice(wish.cached.items(), REUSES_PER_PASS_MAX):
        unit = wish.controller.unit(index)
        assert unit is not None, f"unit {index} is not wanted and was looked up"
        reuses.append(
            Reuse(
                index=index,
                attempt=history.next_attempt(index),
                params=unit.params,
                params_hash=unit.params_hash,
                template_hash=unit.template_hash,
                key=key,
                reason="its content has succeeded before",
            )
        )
    return _running(wish, history, tuple(reuses), now_s, now_s) if reuses else None


def _advance(wish: Wish, history: History, now_s: float) -> Plan | None:
    """Stop what should not go on, start what should, and say what is waited for."""
    controller, policy = wish.controller, wish.controller.policy
    places = [it.provider for it in policy.placement.candidates if it.provider in wish.providers]
    if not places:
        wanted = " or ".join(f"`{it.provider}`" for it in policy.placement.candidates)
        text = f"there is no provider {wanted}; hint: `kind: Provider` with that name declares one"
        return Plan((), Phase.PENDING, "NoProvider", text)
    parallelism = policy.parallelism
    if parallelism is None:
        parallelism = sum(wish.providers[name] for name in places)
    seats = Seats(wish, history, now_s)
    stops = tuple(unwanted(controller, history, parallelism))
    shortages: dict[str, Shortage] = {}
    if not stops:
        # What is stopped anyway needs no other place; the next pass looks at the rest.
        stops, shortages = spilled(seats, history, wish, now_s)
    closes, idle = sort_sandboxes(controller, history, seats)
    # A stopping run and an idle sandbox still hold their machine, so they count against
    # parallelism.
    held = len(history.live) + len(closes) + len(idle)
    starts: list[Start] = []
    full = False
    crowded: Unit | None = None
    denied: Denied | None = None
    for unit, reason in wanted_now(controller, history, now_s):
        full = len(starts) == STARTS_PER_PASS_MAX
        reuse = idle[-1] if idle else None
        if full or (reuse is None and held >= parallelism):
            break
        if len(history.live) + len(starts) >= parallelism:
            break
        where = seats.best(unit.template_hash)
        if wish.room.paused or (reuse is None and where is None):
            crowded = unit
            break
        provider = reuse.provider if reuse is not None else where.provider if where else ""
        paid = wish.purse.take(unit.index, provider)
        if isinstance(paid, Denied):
            denied = paid
            break
        start = start_of(unit, history, reuse, policy, reason)
        if reuse is not None:
            starts.append(replace(start, usd=paid.usd))
            idle.pop()
            continue
        assert where is not None
        judged = seats.judged(unit.template_hash)
        starts.append(
            replace(
                start,
                usd=paid.usd,
                provider=where.provider,
                placed=placed(judged),
                spilled=judged[0] is not where,
            )
        )
        seats.take(where)
        held += 1
    if not full and crowded is None:
        # Whatever could run now has its place; a unit that backs off gets a new sandbox later.
        closes += tuple(CloseSandbox(box.name, box.last.name, "no task to give it") for box in idle)
    wake_at_s = now_s if full else _wake_at_s(wish, history, now_s)
    plan = _running(wish, history, (*stops, *closes, *starts), wake_at_s, now_s)
    if shortages:
        plan = replace(plan, shortages=shortages)
    if denied is not None:
        return _denied(plan, wish, history, denied)
    return plan if crowded is None else _crowded(plan, wish, seats, crowded, now_s)


def _crowded(plan: Plan, wish: Wish, seats: Seats, unit: Unit, now_s: float) -> Plan:
    """The same plan, saying what keeps the rest from starting. The engine wakes it when there is
    room.
    """
    judged = seats.judged(unit.template_hash)
    full = seats.full(unit.template_hash)
    why = wish.room.paused or "; ".join(f"provider `{it.provider}`: {it.why}" for it in judged)
    times = (plan.wake_at_s, wish.room.until_s, *(seats.until_s(it.provider) for it in full))
    still = plan.reason == "InProgress" and not plan.active
    reason = "Crowded" if full or wish.room.paused else "NoPlace"
    return replace(
        plan,
        reason=reason if still else plan.reason,
        message=why if still else plan.message,
        waiting_on=(why, *plan.waiting_on),
        wake_at_s=min((it for it in times if it is not None and it >= now_s), default=None),
        crowded=tuple(it.provider for it in full if seats.shared(it.provider)),
    )


def _denied(plan: Plan, wish: Wish, history: History, denied: Denied) -> Plan:
    """The same plan, saying what money the rest waits for; or the end of it all, where its budget
    says so. The engine wakes it when money comes free.
    """
    text, _, _ = denied.message.partition(WITH_A_HINT)
    if denied.cancel:
        stops = (*_stop_all(history, "BudgetExceeded", wish.controller.policy),)
        extra = {**plan.extra, "overBudget": text}
        closes = _close_all(history, "BudgetExceeded")
        # The next pass finds it over (`_kept`) and ends it; this one starts nothing any more.
        return replace(
            plan,
            actions=(*stops, *closes),
            message=text,
            wake_at_s=0.0,
            extra=extra,
            denied=denied,
        )
    still = not plan.active and plan.reason in ("InProgress", "Waiting")
    wakes = [at_s for at_s in (plan.wake_at_s, denied.until_s) if at_s is not None]
    return replace(
        plan,
        reason=denied.reason if still else plan.reason,
        message=denied.message if still else plan.message,
        waiting_on=(text, *plan.waiting_on),
        wake_at_s=min(wakes, default=None),
        denied=denied,
    )


def unwanted(controller: Controller, history: History, parallelism: int) -> Iterator[Stop]:
    """Runs that the spec does not want now, then those above parallelism, the youngest first."""
    grace_s = controller.policy.grace_s
    going_on: list[Run] = []
    for run in history.live.values():
        if run.state is RunState.STOPPING:
            continue
        answer = keep(controller, run)
        match answer:
            case StopNow(reason=reason):
                yield Stop(run.name, reason, grace_s)
            case Keep():
                going_on.append(run)
    above = len(going_on) - parallelism
    if above > 0:
        going_on.sort(key=lambda run: (-run.created_at_s, -run.index))
        for run in going_on[:above]:
            yield Stop(run.name, "ScaledDown", grace_s)


def _running(
    wish: Wish, history: History, actions: tuple[Action, ...], wake_at_s: float | None, now_s: float
) -> Plan:
    waiting = tuple(_waiting(wish, history, now_s))
    moving = any(run.name not in wish.waits for run in history.live.values())
    moving = moving or any(isinstance(action, Start) for action in actions)
    begun = len(history.succeeded) + len(history.failed) > 0
    first = next(iter(wish.waits.values()), None)
    if first is not None and not moving:
        reason, message = first.reason, first.message
    elif waiting and not moving:
        reason, message = "Waiting", waiting[0]
    else:
        reason, message = "InProgress", ""
    ever = begun or wish.prior.phase is Phase.RUNNING
    ever = ever or any(run.state is not RunState.STARTING for run in history.live.values())
    phase = Phase.RUNNING if ever else Phase.PENDING
    summary = wish.controller.summary(history)
    return Plan(
        actions, phase, reason, message, waiting, wake_at_s, active=bool(moving), extra=summary
    )


def _waiting(wish: Wish, history: History, now_s: float) -> Iterator[str]:
    """Sentences: what is waited for, and why. A few; never one a task."""
    shown = 0
    for name, wait in wish.waits.items():
        run = history.live.get(name)
        if run is not None and shown < WAITING_SHOWN_MAX:
            shown += 1
            yield f"task {run.index}: {wait.message}"
    for due_s, index in history.waiting.backing_off(now_s):
        unit = history.unfinished.get(index)
        why = unit.last.reason if unit and unit.last else "a failure"
        yield f"task {index}: backing off for {due_s - now_s:.0f} s after {why}"
    if wish.controller.policy.parallelism == 0:
        yield "spec.parallelism is 0"
    yield from _stopping(history)[:1]


def _wake_at_s(wish: Wish, history: History, now_s: float) -> float | None:
    times = (
        history.waiting.next_due_at_s(now_s),
        _deadline_at_s(wish, now_s),
        spills_at_s(wish, now_s),
        # A wait whose time has come is being acted on; waking for it again would spin.
        min((it.retry_at_s for it in wish.waits.values() if it.retry_at_s > now_s), default=None),
    )
    return min((at_s for at_s in times if at_s is not None), default=None)


def _stop_all(history: History, reason: str, policy: Policy) -> list[Action]:
    return [
        Stop(run.name, reason, policy.grace_s)
        for run in history.live.values()
        if run.state is not RunState.STOPPING
    ]


def _close_all(history: History, reason: str) -> list[Action]:
    return [
        CloseSandbox(box.name, box.last.name, reason)
        for box in history.sandboxes.values()
        if not box.busy
    ]


def _stopping(history: History) -> tuple[str, ...]:
    count = sum(1 for run in history.live.values() if run.state is RunState.STOPPING)
    return (f"{count} runs are being stopped",) if count else ()


RULES: tuple[Rule, ...] = (
    _delete,  # a deleted object wants nothing but to be gone
    _finished,  # terminal is terminal until the spec changes
    _end,  # an object that is over starts nothing more, also when suspended
    _suspend,
    _reuse,  # before anything starts, so that no machine waits for what is known
    _advance,
)
