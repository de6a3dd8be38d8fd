"""What a pod and its Job say of themselves. Pure: reads dicts as the API server tells them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.manifests.jobs import KUEUE_QUEUE, MAIN, PREPARE
from fleetctl.providers.kubernetes.manifests.labels import JOB_INDEX
from fleetctl.providers.remote.sandboxes.fates import Cause, Fate

# Reasons of a whole pod's status: its node went, or took its place back.
_TAKEN = frozenset({"Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated"})
_UNHEARD = frozenset({"DeletionByTaintManager", "DeletionByPodGC"})
# A container that waits for one of these does not begin by waiting.
PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
NEVER = frozenset({"InvalidImageName", "ErrImageNeverPull", "CreateContainerError"})
LATER = frozenset({"CreateContainerConfigError"})  # such as a Secret that is not there yet
UNSCHEDULABLE = "Unschedulable"
SECRET_MISSING = "SecretMissing"  # noqa: S105 - a reason
TOLD = frozenset({UNSCHEDULABLE, SECRET_MISSING})  # what an object's status says as its reason
_NO_SECRET = re.compile(r'secret "(?P<name>[^"]+)" not found')


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a pod does not run yet. reason: `Queued` where nothing is wrong; the service's own word
    where something may be.
    """

    reason: str
    message: str
    hint: str = ""


def name_of(found: Object) -> str:
    return str((found.get("metadata") or {}).get("name") or "")


def uid_of(found: Object) -> str:
    return str((found.get("metadata") or {}).get("uid") or "")


def nodes_of(job: Object) -> int:
    """How many pods work as one attempt; 1 of a Job whose pods have no numbers."""
    spec = job.get("spec") or {}
    return int(spec.get("completions") or 1) if spec.get("completionMode") == "Indexed" else 1


def node_of(pod: Object) -> int:
    """Which of several nodes it is; 0 of a pod that has no number."""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return int(labels.get(JOB_INDEX) or 0)


def queue_of(job: Object) -> str:
    """Kueue's queue that is to admit it and has not; or empty."""
    if not (job.get("spec") or {}).get("suspend"):
        return ""
    return str(((job.get("metadata") or {}).get("labels") or {}).get(KUEUE_QUEUE) or "")


def is_placed(pod: Object) -> bool:
    """Whether it holds a place on a node."""
    return bool((pod.get("spec") or {}).get("nodeName")) and not is_over(pod)


def is_leaving(found: Object) -> bool:
    """Somebody has asked for its end."""
    return bool((found.get("metadata") or {}).get("deletionTimestamp"))


def is_over(pod: Object) -> bool:
    return str((pod.get("status") or {}).get("phase")) in ("Succeeded", "Failed")


def is_ready(pod: Object) -> bool:
    """Its container runs, so that commands can be run in it."""
    state = _container(pod, MAIN).get("state") or {}
    return "running" in state and not is_over(pod) and not is_leaving(pod)


def began_at_s(pod: Object) -> float | None:
    """When its node took it, from which its life counts; None before."""
    told = (pod.get("status") or {}).get("startTime")
    return None if not told else datetime.fromisoformat(str(told)).timestamp()


def failed_condition(job: Object) -> Object | None:
    """The condition that tells that a Job has failed, and why."""
    return _condition(job, "Failed") or _condition(job, "FailureTarget")


def wait_of_all(job: Object, pods: Sequence[Object], told: str) -> Wait:
    """Why not all of a Job's pods run yet. told: what Kueue says of it, or ""."""
    nodes, behind = nodes_of(job), [pod for pod in pods if not is_ready(pod)]
    wait = wait_of(job, behind[0] if behind else None)
    # What keeps one from running for good goes before what passes by itself.
    for other in (wait_of(job, pod) for pod in behind[1:]):
        wait = other if wait.reason == "Queued" else wait
    message = f"{wait.message}: {told}" if told and queue_of(job) else wait.message
    if nodes > 1 and pods:
        ready = len(pods) - len(behind)
        message = f"{ready} of {nodes} nodes run; {message}"
    return Wait(wait.reason, message, wait.hint)


def wait_of(job: Object, pod: Object | None) -> Wait:
    """Why a Job has no running pod yet."""
    if (job.get("spec") or {}).get("suspend"):
        queue = queue_of(job)
        if queue:
            return Wait("Queued", f"waits for admission in Kueue's queue `{queue}`")
        return Wait("Queued", "its Job is suspended", "kubectl patch it, if nobody else will")
    if pod is None:
        return Wait("Queued", "waiting for the Job controller to make its pod")
    scheduled = _condition(pod, "PodScheduled", "False")
    if scheduled is not None:
        reason = str(scheduled.get("reason") or UNSCHEDULABLE)
        message = str(scheduled.get("message") or "no node takes it yet")
        return Wait(reason if reason == UNSCHEDULABLE else "Queued", message)
    for name in (PREPARE, MAIN):
        waiting = (_container(pod, name).get("state") or {}).get("waiting") or {}
        reason = str(waiting.get("reason") or "")
        message = str(waiting.get("message") or reason)
        if (absent := _NO_SECRET.search(message)) is not None:
            return _secret_missing(pod, absent["name"])
        if reason in PULL | NEVER | LATER:
            return Wait(reason, message)
    if "running" in (_container(pod, PREPARE).get("state") or {}):
        return Wait("Queued", "installing its packages")
    node = (pod.get("spec") or {}).get("nodeName")
    return Wait("Queued", f"its pod begins on node `{node}`" if node else "waiting for a node")


def _secret_missing(pod: Object, name: str) -> Wait:
    """Its kubelet looks again by itself."""
    namespace = str((pod.get("metadata") or {}).get("namespace") or "default")
    return Wait(
        SECRET_MISSING,
        f"namespace `{namespace}` has no Secret `{name}`, which `fromProvider` names",
        f"kubectl create secret generic {name} -n {namespace} --from-literal=VARIABLE=...",
    )


def unprepared(pod: Object) -> bool:
    """Whether its packages could not be installed, and so nothing of it began."""
    ended = (_container(pod, PREPARE).get("state") or {}).get("terminated") or {}
    return bool(ended.get("exitCode"))


def stranded_on(pod: Object) -> str:
    """The node that a pod was given up with, while nobody can say what became of it; or empty."""
    if is_over(pod) or not is_leaving(pod):
        return ""
    disrupted = _condition(pod, "DisruptionTarget") or {}
    lost = disrupted.get("reason") in _UNHEARD or (pod.get("status") or {}).get("reason") in _TAKEN
    return str((pod.get("spec") or {}).get("nodeName") or "a node") if lost else ""


def fate_of(pod: Object, *, ours: bool) -> Fate:
    """Of a pod that is over, or was taken away. The first that holds; what we asked for first."""
    if ours:
        return Fate(Cause.STOPPED)
    status = pod.get("status") or {}
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    ended: Any = (_container(pod, MAIN).get("state") or {}).get("terminated") or {}
    disrupted = _condition(pod, "DisruptionTarget")
    if ended.get("reason") == "OOMKilled":
        return Fate(Cause.OUT_OF_MEMORY)
    if disrupted is not None:
        told = (disrupted.get("reason"), disrupted.get("message"))
        return Fate(Cause.PREEMPTED, ": ".join(str(text) for text in told if text))
    if reason in _TAKEN:
        return Fate(Cause.PREEMPTED, f"{reason}: {message}" if message else reason)
    if reason == "DeadlineExceeded":
        return Fate(Cause.TIMEOUT)
    if unprepared(pod):
        return Fate(Cause.FAILED, "its packages could not be installed")
    if status.get("phase") == "Failed":
        how = f"exit code {ended['exitCode']}" if "exitCode" in ended else reason
        words = message or str(ended.get("message") or "")
        return Fate(Cause.FAILED, ", ".join(text for text in (how, words) if text))
    return Fate(Cause.LOST)


def was_taken(pod: Object) -> bool:
    """Whether a pod that is gone told before that its node would go, or needs its place."""
    return is_over(pod) or _condition(pod, "DisruptionTarget") is not None


def fate_of_job(condition: Object) -> Fate:
    """Of a pod that nobody has seen the end of."""
    reason, message = str(condition.get("reason") or ""), str(condition.get("message") or "")
    if reason == "DeadlineExceeded":
        return Fate(Cause.TIMEOUT)
    if reason == "PodFailurePolicy":  # its only rule is about disruptions
        return Fate(Cause.PREEMPTED, message)
    return Fate(Cause.LOST, message)


def _condition(found: Object, sort: str, status: str = "True") -> Object | None:
    for condition in (found.get("status") or {}).get("conditions") or ():
        if condition.get("type") == sort and condition.get("status") == status:
            return dict(condition)
    return None


def _container(pod: Object, name: str) -> Object:
    status = pod.get("status") or {}
    listed = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    return next((dict(one) for one in listed if one.get("name") == name), {})
