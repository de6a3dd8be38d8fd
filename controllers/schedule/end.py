"""The end of the whole: by its kind's verdict, its deadline, a refusal or its budget. Pure; a rule
of controllers/reconcile.py.
"""

from __future__ import annotations

from dataclasses import replace

from fleetctl.controllers.history.history import History
from fleetctl.controllers.planning.kind_controller import ObjectVerdict
from fleetctl.controllers.planning.plan import Phase, Plan
from fleetctl.controllers.schedule.desired import DesiredObject, ends_at_s
from fleetctl.controllers.schedule.stops import close_all, describe_stopping, end_all


def plan_end(
    desired: DesiredObject,
    history: History,
    now_s: float,
) -> Plan | None:
    """Returns None while it goes on."""
    verdict = _find_verdict(desired, history, now_s)
    if verdict is None:
        return None
    phase = Phase.SKIPPED if verdict.skipped else Phase.FAILED
    phase = Phase.SUCCEEDED if verdict.succeeded else phase
    summary = {**desired.controller.summary(history), **_over_budget_status(desired)}
    if history.live or history.sandboxes:
        policy = desired.controller.policy
        wake_at_s = ends_at_s(desired, now_s) if verdict.waits_for_live else None
        actions = (
            close_all(history, verdict.reason)
            if verdict.waits_for_live
            else end_all(history, verdict.reason, policy)
        )
        rest = "waiting for" if verdict.waits_for_live else "stopping"
        text = f"{verdict.message}; {rest} what still runs"
        waiting = describe_stopping(history)
        return Plan(
            tuple(actions),
            Phase.RUNNING,
            "Finishing",
            text,
            waiting,
            wake_at_s,
            extra=summary,
            hint=verdict.hint,
        )
    if desired.counting:
        text = f"{verdict.message}; {desired.counting}"
        return Plan(
            (),
            Phase.RUNNING,
            "Finishing",
            text,
            extra=summary,
            hint=verdict.hint,
        )
    if desired.counts_later:
        verdict = replace(verdict, message=f"{verdict.message}; {desired.counts_later}")
    ttl_s = desired.controller.policy.ttl_s
    wake_at_s = None if ttl_s is None else now_s + ttl_s
    return Plan(
        (),
        phase,
        verdict.reason,
        verdict.message,
        wake_at_s=wake_at_s,
        extra=summary,
        hint=verdict.hint,
    )


def _find_verdict(
    desired: DesiredObject,
    history: History,
    now_s: float,
) -> ObjectVerdict | None:
    if history.refused is not None:
        refused = history.refused
        return ObjectVerdict(False, "Refused", refused.message, hint=refused.hint)
    policy = desired.controller.policy
    deadline_s = ends_at_s(desired, now_s)
    late = deadline_s is not None and now_s >= deadline_s
    # An outcome reached in time stays, also when the first look comes after the deadline.
    verdict = desired.controller.verdict(history)
    if verdict is None and _over_budget_status(desired):
        return ObjectVerdict(False, "BudgetExceeded", desired.prior.over_budget)
    if verdict is None and desired.lacking is not None and desired.lacking.for_good:
        lacking = desired.lacking
        return ObjectVerdict(
            False, lacking.reason, lacking.message, skipped=lacking.skips, hint=lacking.hint
        )
    if verdict is None and late:
        text = f"activeDeadlineSeconds {policy.active_deadline_s:g} has passed"
        return ObjectVerdict(False, "DeadlineExceeded", text)
    if verdict is not None and (late or policy.suspend):
        return replace(verdict, waits_for_live=False)
    return verdict


def _over_budget_status(desired: DesiredObject) -> dict[str, object]:
    """Returns true if a budget ended the object: money that its own stopped runs free does not
    revive it.
    """
    text = desired.prior.over_budget if desired.prior.generation == desired.generation else ""
    if text:
        return {"overBudget": text}
    return {}
