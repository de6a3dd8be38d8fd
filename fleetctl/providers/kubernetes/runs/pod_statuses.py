"""Reads the statuses of a pod and its Job, as the API server returns them, and formats and parses
their handle in a run's record. Pure.

`NAMESPACE:JOB/POD` is a run with a single pod. A run with several is `NAMESPACE:JOB/POD/nodes=N`,
with the pod of node 0; the others are followed under `…/node=K`, which no record ever holds.
Records of earlier versions name no namespace.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.manifests.jobs import KUEUE_QUEUE, MAIN, PREPARE
from fleetctl.providers.kubernetes.manifests.labels import JOB_INDEX
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, Fate

# Reasons of a whole pod's status: its node went, or evicted it.
_TAKEN = frozenset({"Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated"})
_UNHEARD = frozenset({"DeletionByTaintManager", "DeletionByPodGC"})
# A container that waits for one of these does not begin by waiting.
PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
NEVER = frozenset({"InvalidImageName", "ErrImageNeverPull", "CreateContainerError"})
LATER = frozenset({"CreateContainerConfigError"})  # such as a Secret that is not there yet
KILLED = 137  # 128 + SIGKILL: left by a container's memory limit
UNSCHEDULABLE = "Unschedulable"
SECRET_MISSING = "SecretMissing"  # noqa: S105 - a reason
ADMISSION = "AdmissionRefused"
# shown as the reason in an object's status
TOLD = frozenset({UNSCHEDULABLE, SECRET_MISSING, ADMISSION})
_NO_SECRET = re.compile(r'secret "(?P<name>[^"]+)" not found')

_NODES = "nodes="
_NODE = "node="


@dataclass(frozen=True, slots=True)
class PodWait:
    """The reason why a pod does not run yet. reason: `Queued` where all is well; the service's own
    word where there may be a fault.
    """

    reason: str
    message: str
    hint: str = ""


def name_of(found: Object) -> str:
    return str((found.get("metadata") or {}).get("name") or "")


def namespace_of(found: Object) -> str:
    return str((found.get("metadata") or {}).get("namespace") or "")


def uid_of(found: Object) -> str:
    return str((found.get("metadata") or {}).get("uid") or "")


def nodes_of(job: Object) -> int:
    """Returns how many pods work as one attempt; 1 for a Job whose pods have no numbers."""
    spec = job.get("spec") or {}
    if spec.get("completionMode") == "Indexed":
        return int(spec.get("completions") or 1)
    return 1


def node_of(pod: Object) -> int:
    """Returns the rank of a pod's node; 0 for a pod without a number."""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return int(labels.get(JOB_INDEX) or 0)


def queue_of(job: Object) -> str:
    """Kueue's queue that is to admit it and has not; or empty."""
    if not (job.get("spec") or {}).get("suspend"):
        return ""
    return str(((job.get("metadata") or {}).get("labels") or {}).get(KUEUE_QUEUE) or "")


def is_placed(pod: Object) -> bool:
    """Returns whether it is bound to a node."""
    return bool((pod.get("spec") or {}).get("nodeName")) and not is_over(pod)


def is_leaving(found: Object) -> bool:
    """Somebody has asked for its end."""
    return bool((found.get("metadata") or {}).get("deletionTimestamp"))


def is_over(pod: Object) -> bool:
    return str((pod.get("status") or {}).get("phase")) in ("Succeeded", "Failed")


def is_ready(pod: Object) -> bool:
    """Returns whether its container runs, so that commands can be run in it."""
    state = _container_status(pod, MAIN).get("state") or {}
    return "running" in state and not is_over(pod) and not is_leaving(pod)


def began_at_s(pod: Object) -> float | None:
    """Returns when a node accepted the pod, the begin of its lifetime; None before."""
    told = (pod.get("status") or {}).get("startTime")
    if not told:
        return None
    return datetime.fromisoformat(str(told)).timestamp()


def failed_condition(job: Object) -> Object | None:
    """Returns the condition that shows that a Job has failed, and why."""
    return _find_condition(job, "Failed") or _find_condition(job, "FailureTarget")


def wait_of_all(
    job: Object,
    pods: Sequence[Object],
    told: str,
) -> PodWait:
    """Returns why not all of a Job's pods run yet. told: Kueue's reason, or ""."""
    nodes = nodes_of(job)
    behind = [pod for pod in pods if not is_ready(pod)]
    wait = wait_of(job, behind[0] if behind else None)
    # A reason that keeps a pod from running for good goes before one that passes by itself.
    for other in (wait_of(job, pod) for pod in behind[1:]):
        wait = other if wait.reason == "Queued" else wait
    message = f"{wait.message}: {told}" if told and queue_of(job) else wait.message
    if nodes > 1 and pods:
        ready = len(pods) - len(behind)
        message = f"{ready} of {nodes} nodes run; {message}"
    return PodWait(wait.reason, message, wait.hint)


def wait_for_peers(nodes: int) -> PodWait:
    """Returns why the work of several nodes, all of which run, has not begun."""
    if nodes == 1:
        return PodWait("Queued", "its pod runs")
    return PodWait("Queued", f"{nodes} of {nodes} nodes run; they look for node 0 by its name")


def wait_of(job: Object, pod: Object | None) -> PodWait:
    """Returns why a Job has no running pod yet."""
    if (job.get("spec") or {}).get("suspend"):
        queue = queue_of(job)
        if queue:
            return PodWait("Queued", f"waits for admission in Kueue's queue `{queue}`")
        return PodWait("Queued", "its Job is suspended", "resume it with `kubectl patch`")
    if pod is None:
        return PodWait("Queued", "waiting for the Job controller to make its pod")
    scheduled = _find_condition(pod, "PodScheduled", "False")
    if scheduled is not None:
        reason = str(scheduled.get("reason") or UNSCHEDULABLE)
        message = str(scheduled.get("message") or "no node takes it yet")
        return PodWait(reason if reason == UNSCHEDULABLE else "Queued", message)
    for name in (PREPARE, MAIN):
        waiting = (_container_status(pod, name).get("state") or {}).get("waiting") or {}
        reason = str(waiting.get("reason") or "")
        message = str(waiting.get("message") or reason)
        if (absent := _NO_SECRET.search(message)) is not None:
            return _secret_missing(pod, absent["name"])
        if reason in PULL | NEVER | LATER:
            return PodWait(reason, message)
    if "running" in (_container_status(pod, PREPARE).get("state") or {}):
        return PodWait("Queued", "installing its packages")
    node = (pod.get("spec") or {}).get("nodeName")
    return PodWait("Queued", f"its pod begins on node `{node}`" if node else "waiting for a node")


def _secret_missing(pod: Object, name: str) -> PodWait:
    """Returns the wait for a missing Secret; the kubelet looks again by itself."""
    namespace = str((pod.get("metadata") or {}).get("namespace") or "default")
    return PodWait(
        SECRET_MISSING,
        f"namespace `{namespace}` has no Secret `{name}`, which `fromProvider` names",
        f"kubectl create secret generic {name} -n {namespace} --from-literal=VARIABLE=...",
    )


def install_failed(pod: Object) -> str:
    """Returns the failed container before its work, so that no work of the pod began; or "".
    PREPARE installs its packages; others are of its `initContainers`.
    """
    for one in (pod.get("status") or {}).get("initContainerStatuses") or ():
        ended = (one.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode") and not _has_begun(pod):
            return str(one.get("name") or "")
    return ""


def _has_begun(pod: Object) -> bool:
    """Returns whether its main container ever ran: one beside it may fail after that."""
    main: Object = _container_status(pod, MAIN)
    states: list[Any] = [main.get("state") or {}, main.get("lastState") or {}]
    return any(
        "startedAt" in (it.get(name) or {}) for it in states for name in ("running", "terminated")
    )


def find_stranded_node(pod: Object) -> str:
    """Returns the node that a pod was given up with, while its fate is unknown; or ""."""
    if is_over(pod) or not is_leaving(pod):
        return ""
    disrupted = _find_condition(pod, "DisruptionTarget") or {}
    lost = disrupted.get("reason") in _UNHEARD or (pod.get("status") or {}).get("reason") in _TAKEN
    if lost:
        return str((pod.get("spec") or {}).get("nodeName") or "a node")
    return ""


def fate_of(pod: Object, *, ours: bool) -> Fate:
    """Returns the fate of a pod that has ended or was taken away: the first cause that holds, where
    an end that we requested comes first.
    """
    if ours:
        return Fate(Cause.STOPPED)
    status = pod.get("status") or {}
    reason = str(status.get("reason") or "")
    message = str(status.get("message") or "")
    ended: Any = (_container_status(pod, MAIN).get("state") or {}).get("terminated") or {}
    disrupted = _find_condition(pod, "DisruptionTarget")
    if ended.get("reason") == "OOMKilled":
        return _judge_memory(pod)
    if disrupted is not None:
        told = (disrupted.get("reason"), disrupted.get("message"))
        return Fate(Cause.PREEMPTED, ": ".join(str(text) for text in told if text))
    if reason in _TAKEN:
        return Fate(Cause.PREEMPTED, f"{reason}: {message}" if message else reason)
    if reason == "DeadlineExceeded":
        return Fate(Cause.TIMEOUT)
    if name := install_failed(pod):
        return Fate(Cause.FAILED, _explain_unprepared(name))
    if status.get("phase") == "Failed":
        how = f"exit code {ended['exitCode']}" if "exitCode" in ended else reason
        words = message or str(ended.get("message") or "")
        return Fate(Cause.FAILED, ", ".join(text for text in (how, words) if text))
    return Fate(Cause.LOST)


def _explain_unprepared(container: str) -> str:
    if container == PREPARE:
        return "its packages could not be installed"
    return f"its init container `{container}` failed"


def _judge_memory(pod: Object) -> Fate:
    """Returns the fate of a pod without memory: at its own limit it fails on any node; without a
    limit its node had too little.
    """
    containers = (pod.get("spec") or {}).get("containers") or ()
    main: Object = next((one for one in containers if one.get("name") == MAIN), {})
    limit = ((main.get("resources") or {}).get("limits") or {}).get("memory")
    if limit is None:
        return Fate(Cause.OUT_OF_MEMORY, "its node ran out of memory", exit_code=KILLED)
    detail = f"it may have {limit} bytes" if str(limit).isdecimal() else f"it may have {limit}"
    return Fate(Cause.OUT_OF_MEMORY, detail, own=True, exit_code=KILLED)


def was_preempted(pod: Object) -> bool:
    """Returns whether a pod that is gone reported before that its node would go, or needs its
    resources.
    """
    return is_over(pod) or _find_condition(pod, "DisruptionTarget") is not None


def fate_of_job(condition: Object) -> Fate:
    """Returns the fate of a pod whose end was not seen."""
    reason = str(condition.get("reason") or "")
    message = str(condition.get("message") or "")
    if reason == "DeadlineExceeded":
        return Fate(Cause.TIMEOUT)
    if reason == "PodFailurePolicy":  # its only rule is about disruptions
        return Fate(Cause.PREEMPTED, message)
    return Fate(Cause.LOST, message)


def _find_condition(
    found: Object,
    sort: str,
    status: str = "True",
) -> Object | None:
    for condition in (found.get("status") or {}).get("conditions") or ():
        if condition.get("type") == sort and condition.get("status") == status:
            return dict(condition)
    return None


def _container_status(pod: Object, name: str) -> Object:
    status = pod.get("status") or {}
    listed = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    return next((dict(one) for one in listed if one.get("name") == name), {})


@dataclass(frozen=True, slots=True)
class JobHandle:
    """The handle of a Job and a pod. pod: its name, or "" before there is a pod. nodes: number of
    nodes of the run; node: rank of this node. namespace: of the cluster; "" in records of earlier
    versions.
    """

    job: str
    pod: str
    nodes: int = 1
    node: int = 0
    namespace: str = ""

    def __str__(self) -> str:
        there = f"{self.namespace}:" if self.namespace else ""
        if self.node:
            return f"{there}{self.job}/{self.pod}/{_NODE}{self.node}"
        nodes = f"/{_NODES}{self.nodes}" if self.nodes > 1 else ""
        return f"{there}{self.job}/{self.pod}{nodes}"


def parse_handle(text: str) -> JobHandle:
    first, _, rest = text.partition("/")
    namespace, _, job = first.rpartition(":")
    pod, _, which = rest.partition("/")
    if which.startswith(_NODES):
        return JobHandle(job, pod, nodes=int(which.removeprefix(_NODES)), namespace=namespace)
    if which.startswith(_NODE):
        return JobHandle(job, pod, node=int(which.removeprefix(_NODE)), namespace=namespace)
    return JobHandle(job, pod, namespace=namespace)


def split_handle(text: str) -> tuple[str, str]:
    """Returns (name of the Job, name of its pod or "")."""
    found = parse_handle(text)
    return found.job, found.pod


def handle_of(job: Object, pod: Object | None) -> str:
    """Returns the handle of a run: the names of its Job and pod. pod: the one that there is, or
    that of node 0.
    """
    made = JobHandle(
        name_of(job),
        name_of(pod or {}),
        nodes=nodes_of(job),
        namespace=namespace_of(job),
    )
    return str(made)
