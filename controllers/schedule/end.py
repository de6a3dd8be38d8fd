"""The end of the whole: by its kind's verdict, its deadline, a refusal or its budget, or before all
units have ended; then its runs and idle sandboxes are ended. Pure.

The fields behind it are shared by all running kinds, so their meaning is here, once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import RunState
from fleetctl.controllers.planning.kind_controller import ObjectVerdict, RunPolicy
from fleetctl.controllers.planning.plan import Action, CloseSandbox, Phase, Plan, Stop
from fleetctl.controllers.schedule.desired import DesiredObject, ends_at_s
from fleetctl.specs.values.hints import HintedText
from fleetctl.specs.values.quantities import parse_indexes

if TYPE_CHECKING:
    from fleetctl.specs.blocks.common import WorkSpec
    from fleetctl.specs.blocks.policies import SuccessRule


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


def end_all(
    history: History,
    reason: str,
    policy: RunPolicy,
) -> tuple[Action, ...]:
    """Returns stops for every run and every idle sandbox."""
    return (*stop_all(history, reason, policy), *close_all(history, reason))


def stop_all(
    history: History,
    reason: str,
    policy: RunPolicy,
) -> list[Action]:
    return [
        Stop(run.name, reason, policy.grace_s)
        for run in history.live.values()
        if run.state is not RunState.STOPPING
    ]


def close_all(history: History, reason: str) -> list[Action]:
    return [CloseSandbox(box.name, reason) for box in history.sandboxes.values() if not box.busy]


def describe_stopping(history: History) -> tuple[str, ...]:
    """Returns a sentence about the runs that are being stopped, if there are any."""
    count = sum(1 for run in history.live.values() if run.state is RunState.STOPPING)
    runs = "run is" if count == 1 else "runs are"
    if count:
        return (f"{count} {runs} being stopped",)
    return ()


def stopping_because(history: History, desired: DesiredObject) -> tuple[HintedText, ...]:
    """Returns the same, and why they are not yet confirmed gone."""
    rules = tuple(map(HintedText, describe_stopping(history)))
    if not rules and not history.sandboxes:
        return ()
    why = [HintedText(it.message, it.hint) for it in desired.troubles.values()]
    why += [text for name, text in desired.held.items() if name in history.live]
    if rules and why:
        return (why[0].prefixed(f"{rules[0]}: "), *why[1:])
    return (*why, *rules)


def find_early_verdict(
    spec: WorkSpec,
    history: History,
    *,
    units: str,
) -> ObjectVerdict | None:
    """Returns the first verdict that matches, in the order of the Kubernetes Job controller's
    checks.

    units: the kind's word for them, in the plural.
    """
    done = len(history.succeeded)
    failed = len(history.failed)
    if history.failed_job is not None:
        run = history.failed_job
        text = f"{units.removesuffix('s')} {run.index} failed with {run.reason}"
        return ObjectVerdict(False, "FailureRule", text)
    limit = spec.max_failed_indexes
    if limit is not None and failed > limit:
        text = f"{failed} {units} failed, more than maxFailedIndexes {limit}"
        return ObjectVerdict(False, "MaxFailedIndexesExceeded", text)
    limit = spec.backoff_limit
    if limit is not None and history.failures > limit:
        text = f"{history.failures} failures, more than backoffLimit {limit}"
        return ObjectVerdict(False, "BackoffLimitExceeded", text)
    # Kubernetes successPolicy: any rule that holds is enough.
    if spec.success_policy and any(
        _meets_rule(rule, history) for rule in spec.success_policy.rules
    ):
        text = f"{done} {units} succeeded, enough for successPolicy"
        return ObjectVerdict(True, "SuccessPolicy", text)
    return None


def _meets_rule(rule: SuccessRule, history: History) -> bool:
    if rule.succeeded_indexes is None:
        count = len(history.succeeded)
    else:
        spans = parse_indexes(rule.succeeded_indexes)
        count = sum(history.succeeded.count(span.start, span.stop) for span in spans)
        if rule.succeeded_count is None and count < sum(map(len, spans)):
            return False
    return rule.succeeded_count is None or count >= rule.succeeded_count
