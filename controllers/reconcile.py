"""The pass: from a spec, its history and the time to a plan. Pure; the engine calls it and carries
the plan out.

Rules are tried in order and the first that applies decides (RULES). What is the same for all
running kinds is decided by them: deletion, the end, suspend, known results, and how it goes on.
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
from fleetctl.controllers.schedule.advance import advance, unwanted
from fleetctl.controllers.schedule.desired import Desired
from fleetctl.controllers.schedule.end import end
from fleetctl.controllers.schedule.progress import under_way
from fleetctl.controllers.schedule.stops import end_all, stopping, stopping_because

REUSES_PER_PASS_MAX = 1000  # rows alone: about 20 ms

Rule = Callable[[Desired, History, float], Plan | None]


def reconcile(desired: Desired, history: History, now_s: float) -> Plan:
    """One pass. Costs O(live + due + started now), whatever the number of tasks."""
    for rule in RULES:
        plan = rule(desired, history, now_s)
        if plan is not None:
            return plan
    raise AssertionError("the last rule always decides")


def _delete(desired: Desired, history: History, now_s: float) -> Plan | None:  # noqa: ARG001
    if not desired.deleted:
        return None
    policy = desired.controller.policy
    actions = end_all(history, "Deleted", policy)
    if not history.live and not history.sandboxes:
        if not desired.swept:
            actions = (FreeScratch(desired.uid, False, "deleted"),)
        elif not desired.before_removal:
            actions = (Drop(desired.uid, "deleted, and nothing of it is left"),)
    waiting = (*stopping_because(history, desired), *filter(None, (desired.before_removal,)))
    return Plan(actions, Phase.DELETING, "Deleted", waiting_on=waiting)


def _finished(desired: Desired, history: History, now_s: float) -> Plan | None:
    """Terminal is terminal until the spec changes (I9)."""
    prior, policy = desired.prior, desired.controller.policy
    if prior.phase not in TERMINAL_PHASES or prior.generation != desired.generation:
        return None
    over = partial(Plan, phase=prior.phase, reason="Finished", final=True)
    if history.live or history.sandboxes:
        return over(end_all(history, "Finished", policy))
    if prior.scratch_freed:
        return over((), message="it is over, and what its runs left behind is freed")
    if desired.past_retention:
        return over((FreeScratch(desired.uid, True, desired.past_retention),))
    if policy.ttl_s is None or prior.completed_at_s is None:
        return over((), message="it is over, and has no ttlSecondsAfterFinished")
    free_at_s = prior.completed_at_s + policy.ttl_s
    if now_s < free_at_s:
        text = f"it is over; what its runs left behind is freed in {free_at_s - now_s:.0f} s"
        return over((), message=text, wake_at_s=free_at_s)
    return over((FreeScratch(desired.uid, True, "ttlSecondsAfterFinished has passed"),))


def _suspend(desired: Desired, history: History, now_s: float) -> Plan | None:  # noqa: ARG001
    policy = desired.controller.policy
    if not policy.suspend:
        return None
    # A sweep at W&B is made all the same, so that people see where it is.
    awaited = desired.lacking if desired.controller.handed is not None else None
    return Plan(
        end_all(history, "Suspended", policy),
        Phase.SUSPENDED,
        "Suspended",
        "spec.suspend is true",
        waiting_on=(*(() if awaited is None else (awaited.message,)), *stopping(history)),
        extra=desired.controller.summary(history),
    )


def _reuse(desired: Desired, history: History, now_s: float) -> Plan | None:
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
    # What the spec no longer wants goes at once, also while results are taken over.
    stops = unwanted(desired.controller, history, len(history.live))
    return under_way(desired, history, (*stops, *reuses), now_s, now_s)


RULES: tuple[Rule, ...] = (
    _delete,  # a deleted object wants nothing but to be gone
    _finished,  # terminal is terminal until the spec changes
    end,  # an object that is over starts nothing more, also when suspended
    _suspend,
    _reuse,  # before anything starts, so that no machine waits for what is known
    advance,
)
