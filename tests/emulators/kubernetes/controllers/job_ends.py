"""How a Job ends: limits, deadlines, policies of failure and of success."""

from __future__ import annotations

from typing import Any

from tests.emulators.kubernetes.controllers.job_state import JobState, indexes_in
from tests.emulators.kubernetes.store.times import now_text, seconds_of

Object = dict[str, Any]
LIMIT = "Job has reached the specified backoff limit"


def left_of_deadline_s(spec: Object, status: Object, now_s: float) -> float | None:
    """None without a deadline, and while the Job is suspended."""
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is None or "startTime" not in status or spec["suspend"]:
        return None
    return float(seconds_of(status["startTime"]) + deadline - now_s)


def verdict(
    spec: Object, state: JobState, *, left_s: float | None, active: list[Object]
) -> Object | None:
    """The condition that says how it ends; None when it goes on. active: pods."""
    if left_s is not None and left_s <= 0:
        why = "Job was active longer than specified deadline"
        return made_condition("FailureTarget", "DeadlineExceeded", why)
    restarts = _restarts(active) if spec["template"]["spec"]["restartPolicy"] == "OnFailure" else 0
    if state.failed > spec["backoffLimit"] or restarts > spec["backoffLimit"]:
        return made_condition("FailureTarget", "BackoffLimitExceeded", LIMIT)
    most = spec.get("maxFailedIndexes")
    if most is not None and len(state.failed_indexes) > most:
        why = "Job has exceeded the specified maximal number of failed indexes"
        return made_condition("FailureTarget", "MaxFailedIndexesExceeded", why)
    total = spec.get("completions")
    if spec["completionMode"] == "Indexed" and total is not None:
        if rule := _success_rule(spec, state):
            return made_condition("SuccessCriteriaMet", "SuccessPolicy", rule)
        if len(state.completed) + len(state.failed_indexes) >= total and state.failed_indexes:
            return made_condition("FailureTarget", "FailedIndexes", "Job has failed indexes")
    done = state.succeeded >= total if total is not None else state.succeeded and not active
    if done:
        why = "Reached expected number of succeeded pods"
        return made_condition("SuccessCriteriaMet", "CompletionsReached", why)
    return None


def policy_action(policy: Object, pod: Object, containers: list[Object]) -> tuple[str, str]:
    """(action, why) of the first rule that a failed pod meets; ("", "") when none does."""
    metadata, status = pod["metadata"], pod.get("status", {})
    name = f"{metadata['namespace']}/{metadata['name']}"
    for number, rule in enumerate(policy.get("rules") or ()):
        codes = rule.get("onExitCodes")
        for one in status.get("containerStatuses") or ():
            done = one.get("state", {}).get("terminated")
            if not codes or not done or not done["exitCode"]:
                continue
            if codes.get("containerName") not in (None, one["name"]):
                continue
            if (done["exitCode"] in codes["values"]) == (codes["operator"] == "In"):
                why = (
                    f"Container {one['name']} for pod {name} failed with exit code"
                    f" {done['exitCode']} matching {rule['action']} rule at index {number}"
                )
                return rule["action"], why
        for pattern in rule.get("onPodConditions") or ():
            for held in status.get("conditions") or ():
                if (held["type"], held["status"]) == (pattern["type"], pattern["status"]):
                    why = (
                        f"Pod {name} has condition {held['type']} matching {rule['action']} rule at"
                        f" index {number}"
                    )
                    return rule["action"], why
    return "", ""


def _restarts(pods: list[Object]) -> int:
    return sum(
        one.get("restartCount", 0)
        for pod in pods
        for one in pod.get("status", {}).get("containerStatuses") or ()
    )


def made_condition(kind: str, reason: str, message: str) -> Object:
    now = now_text()
    one = {"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now}
    return {**one, "reason": reason, "message": message}


def _success_rule(spec: Object, state: JobState) -> str:
    """Which rule of the success policy is met, as a sentence; "" for none."""
    for number, rule in enumerate((spec.get("successPolicy") or {}).get("rules") or ()):
        done = state.completed
        if rule.get("succeededIndexes"):
            wanted = indexes_in(rule["succeededIndexes"])
            done = done & wanted
            enough = rule.get("succeededCount") or len(wanted)
        else:
            enough = rule.get("succeededCount") or spec["completions"]
        if len(done) >= enough:
            return f"Matched rules at index {number}"
    return ""
