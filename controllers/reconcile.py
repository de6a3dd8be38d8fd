"""The pass: from a spec, its history and the time to a plan. Pure; the engine calls it and carries
the plan out.

Rules are tried in order and the first that applies decides (RULES). Decisions common to all running
kinds are made by them: deletion, the end, suspend, known results, and how it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

from fleetctl.controllers.history.history import History
from fleetctl.controllers.planning.plan import (
    TERMINAL_PHASES,
    Action,
    Drop,
    FreeScratch,
    Phase,
    Plan,
    Reuse,
)
from fleetctl.controllers.schedule.advance import build_running_plan, find_unwanted, plan_advance
from fleetctl.controllers.schedule.desired import DesiredObject
from fleetctl.controllers.schedule.end import describe_stopping, end_all, plan_end, stopping_because

REUSES_PER_PASS_MAX = 1000  # rows alone: about 20 ms

Rule = Callable[[DesiredObject, History, float], Plan | None]


def reconcile_object(
    desired: DesiredObject,
    history: History,
    now_s: float,
) -> Plan:
    """Runs one pass. Costs O(live + due + started now), independent of the number of tasks."""
    for rule in RULES:
        plan = rule(desired, history, now_s)
        if plan is not None:
            return plan
    raise AssertionError("the last rule always decides")


def _plan_deletion(desired: DesiredObject, history: History, now_s: float) -> Plan | None:
    if not desired.deleted:
        return None
    policy = desired.controller.policy
    actions = end_all(history, "Deleted", policy)
    if not history.live and not history.sandboxes:
        if not desired.swept:
            actions = (FreeScratch(desired.uid, False, "deleted"),)
        elif not desired.before_removal:
            actions = (Drop(desired.uid, "deleted, and nothing of it is left"),)
    stopping = stopping_because(history, desired)
    waiting = (*(it.text for it in stopping), *filter(None, (desired.before_removal,)))
    hint = next((it.hint for it in stopping if it.hint), "")
    return Plan(actions, Phase.DELETING, "Deleted", waiting_on=waiting, hint=hint)


def _plan_finished(
    desired: DesiredObject,
    history: History,
    now_s: float,
) -> Plan | None:
    """Keeps a terminal phase until the spec changes (I9)."""
    prior = desired.prior
    policy = desired.controller.policy
    if prior.phase not in TERMINAL_PHASES or prior.generation != desired.generation:
        return None
    over = partial(Plan, phase=prior.phase, reason="Finished", final=True)
    if history.live or history.sandboxes:
        return over(end_all(history, "Finished", policy))
    if prior.scratch_freed:
        return over((), message="it has ended, and what its runs left behind is freed")
    if desired.past_retention:
        return over((FreeScratch(desired.uid, True, desired.past_retention),))
    if policy.ttl_s is None or prior.completed_at_s is None:
        return over((), message="it has ended, and has no ttlSecondsAfterFinished")
    free_at_s = prior.completed_at_s + policy.ttl_s
    if now_s < free_at_s:
        text = f"it has ended; what its runs left behind is freed in {free_at_s - now_s:.0f} s"
        return over((), message=text, wake_at_s=free_at_s)
    return over((FreeScratch(desired.uid, True, "ttlSecondsAfterFinished has passed"),))


def _plan_suspension(desired: DesiredObject, history: History, now_s: float) -> Plan | None:
    policy = desired.controller.policy
    if not policy.suspend:
        return None
    # A sweep at W&B is made all the same, so that users see its link.
    awaited = desired.lacking if desired.controller.handed is not None else None
    return Plan(
        end_all(history, "Suspended", policy),
        Phase.SUSPENDED,
        "Suspended",
        "spec.suspend is true",
        waiting_on=(*(() if awaited is None else (awaited.message,)), *describe_stopping(history)),
        extra=desired.controller.summary(history),
        hint="" if awaited is None else awaited.hint,
    )


def _plan_reuse(
    desired: DesiredObject,
    history: History,
    now_s: float,
) -> Plan | None:
    """Units that an equal one has done already are done; the next pass follows at once. One whose
    older work is being stopped waits for that.
    """
    if desired.blocked:
        return None
    reuses: list[Action] = []
    live = history.live_by_index
    due = ((index, key) for index, key in desired.cached.items() if index not in live)
    for index, key in islice(due, REUSES_PER_PASS_MAX):
        unit = desired.controller.unit(index)
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
    if not reuses:
        return None
    # A unit that the spec no longer wants is stopped at once, also while results are taken over.
    stops = find_unwanted(desired.controller, history, len(history.live))
    return build_running_plan(
        desired,
        history,
        (*stops, *reuses),
        now_s,
        now_s,
    )


RULES: tuple[Rule, ...] = (
    _plan_deletion,  # a deleted object only has to be removed
    _plan_finished,  # terminal is terminal until the spec changes
    plan_end,  # a finished object starts no more units, also when suspended
    _plan_suspension,
    _plan_reuse,  # before anything starts, so that no machine waits for what is known
    plan_advance,
)
