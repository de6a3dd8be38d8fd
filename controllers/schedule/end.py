"""The end of the whole: by its kind's verdict, its deadline, a refusal or its budget. Pure; a rule
of controllers/reconcile.py.
"""

from __future__ import annotations

from dataclasses import replace

from fleetctl.controllers.history.history import History
from fleetctl.controllers.kind import Verdict
from fleetctl.controllers.plan import Phase, Plan
from fleetctl.controllers.schedule.stops import close_all, end_all, stopping
from fleetctl.controllers.wish import Wish, ends_at_s


def end(wish: Wish, history: History, now_s: float) -> Plan | None:
    """None while it goes on."""
    verdict = _verdict(wish, history, now_s)
    if verdict is None:
        return None
    phase = Phase.SUCCEEDED if verdict.succeeded else Phase.FAILED
    summary = {**wish.controller.summary(history), **_kept(wish)}
    if history.live or history.sandboxes:
        policy = wish.controller.policy
        wake_at_s = ends_at_s(wish, now_s) if verdict.waits_for_live else None
        actions = (
            close_all(history, verdict.reason)
            if verdict.waits_for_live
            else end_all(history, verdict.reason, policy)
        )
        rest = "waiting for" if verdict.waits_for_live else "stopping"
        text = f"{verdict.message}; {rest} what still runs"
        waiting = stopping(history)
        return Plan(
            tuple(actions), Phase.RUNNING, "Finishing", text, waiting, wake_at_s, extra=summary
        )
    ttl_s = wish.controller.policy.ttl_s
    wake_at_s = None if ttl_s is None else now_s + ttl_s
    return Plan((), phase, verdict.reason, verdict.message, wake_at_s=wake_at_s, extra=summary)


def _verdict(wish: Wish, history: History, now_s: float) -> Verdict | None:
    if history.refused is not None:
        return Verdict(False, "Refused", history.refused.message)
    policy = wish.controller.policy
    deadline_s = ends_at_s(wish, now_s)
    late = deadline_s is not None and now_s >= deadline_s
    # What was reached in time stays reached, also when nobody looked until after the deadline.
    verdict = wish.controller.verdict(history)
    if verdict is None and _kept(wish):
        return Verdict(False, "BudgetExceeded", wish.prior.over_budget)
    if verdict is None and wish.lacking is not None and wish.lacking.for_good:
        return Verdict(False, wish.lacking.reason, wish.lacking.message)
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
