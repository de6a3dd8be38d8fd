"""What a table shows of each built-in kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.emulators.kubernetes.store.times import age, seconds_of

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """priority: 0 is always shown, 1 with `-o wide`."""

    name: str
    cell: Callable[[Object, float], Any]
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description or self.name,
            "priority": self.priority,
        }


def at(stored: Object, path: str, default: Any = None) -> Any:
    found: Any = stored
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return default if found is None else found


def field(name: str, path: str, default: Any = "", *, priority: int = 0) -> Column:
    return Column(name, lambda one, _now: at(one, path, default), priority=priority)


NAME = Column(
    "Name",
    lambda one, _now: one["metadata"]["name"],
    format="name",
    description="Name must be unique within a namespace.",
)
AGE = Column("Age", lambda one, now: age(one["metadata"]["creationTimestamp"], now))
CREATED = Column("Created At", lambda one, _now: one["metadata"]["creationTimestamp"], type="date")


def _pod_status(pod: Object, _now: float) -> str:
    status = pod.get("status", {})
    reason = status.get("reason") or status.get("phase", "")
    for one in status.get("initContainerStatuses", ()):
        state = one.get("state", {})
        ended = state.get("terminated")
        if ended is not None and ended["exitCode"] == 0:
            continue
        if ended is not None:
            reason = f"Init:{ended.get('reason') or 'ExitCode:' + str(ended['exitCode'])}"
        elif state.get("waiting", {}).get("reason", "PodInitializing") != "PodInitializing":
            reason = f"Init:{state['waiting']['reason']}"
        elif "initContainerStatuses" in status:
            done = sum(
                "terminated" in it.get("state", {}) for it in status["initContainerStatuses"]
            )
            reason = f"Init:{done}/{len(status['initContainerStatuses'])}"
        break
    else:
        for one in reversed(status.get("containerStatuses", ())):
            state = one.get("state", {})
            for kind in ("waiting", "terminated"):
                reason = state.get(kind, {}).get("reason") or reason
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating" if status.get("reason") != "NodeLost" else "Unknown"
    return str(reason)


def _pod_ready(pod: Object, _now: float) -> str:
    found = pod.get("status", {}).get("containerStatuses", ())
    return f"{sum(it.get('ready', False) for it in found)}/{len(pod['spec']['containers'])}"


def _restarts(pod: Object, _now: float) -> str:
    found = pod.get("status", {}).get("containerStatuses", ())
    return str(sum(it.get("restartCount", 0) for it in found))


def _job_status(job: Object, _now: float) -> str:
    held = {it["type"] for it in at(job, "status.conditions", ()) if it["status"] == "True"}
    if "Complete" in held:
        return "Complete"
    if "Failed" in held:
        return "Failed"
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for name in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if name in held:
            return name
    return "Running"


def _completions(job: Object, _now: float) -> str:
    done = at(job, "status.succeeded", 0)
    total = job["spec"].get("completions")
    if total is not None:
        return f"{done}/{total}"
    parallelism = job["spec"].get("parallelism", 1)
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(job: Object, now_s: float) -> str:
    began = at(job, "status.startTime")
    if began is None:
        return ""
    ended = at(job, "status.completionTime")
    return age(began, seconds_of(ended) if ended else now_s)


def _containers(path: str) -> tuple[Column, ...]:
    def names(what: str) -> Callable[[Object, float], str]:
        return lambda one, _now: ",".join(it.get(what, "") for it in at(one, path, ()))

    return (
        Column("Containers", names("name"), priority=1),
        Column("Images", names("image"), priority=1),
    )


def _selector(one: Object, _now: float) -> str:
    labels = at(one, "spec.selector.matchLabels", {})
    return ",".join(f"{k}={v}" for k, v in sorted(labels.items())) or "<none>"


def _node_status(node: Object, _now: float) -> str:
    ready = [it["status"] for it in at(node, "status.conditions", ()) if it["type"] == "Ready"]
    text = "Ready" if ready == ["True"] else "NotReady" if ready else "Unknown"
    return text + (",SchedulingDisabled" if at(node, "spec.unschedulable") else "")


def _ports(service: Object, _now: float) -> str:
    found = (f"{it['port']}/{it['protocol']}" for it in at(service, "spec.ports", ()))
    return ",".join(found) or "<none>"


def _role(binding: Object, _now: float) -> str:
    return f"{binding['roleRef']['kind']}/{binding['roleRef']['name']}"


def _event_age(event: Object, now_s: float) -> str:
    seen = event.get("lastTimestamp") or event.get("eventTime") or ""
    return age(seen, now_s) if seen else "<unknown>"


def _event_object(event: Object, _now: float) -> str:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _modes(claim: Object, _now: float) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX"}
    short["ReadWriteOncePod"] = "RWOP"
    return ",".join(short.get(it, it) for it in at(claim, "status.accessModes", ()))


def _data(one: Object, _now: float) -> int:
    return len(one.get("data") or {}) + len(one.get("binaryData") or {})


def _workload_ready(one: Object, _now: float) -> str:
    return f"{at(one, 'status.readyReplicas', 0)}/{at(one, 'spec.replicas', 0)}"


WORKLOAD = (NAME, Column("Ready", _workload_ready))
BUILTIN: dict[tuple[str, str], tuple[Column, ...]] = {
    ("", ""): (NAME, AGE),
    ("", "pods"): (
        NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _restarts),
        AGE,
        field("IP", "status.podIP", "<none>", priority=1),
        field("Node", "spec.nodeName", "<none>", priority=1),
        field("Nominated Node", "status.nominatedNodeName", "<none>", priority=1),
        field("Readiness Gates", "spec.readinessGates", "<none>", priority=1),
    ),
    ("", "namespaces"): (NAME, field("Status", "status.phase"), AGE),
    ("", "nodes"): (
        NAME,
        Column("Status", _node_status),
        Column("Roles", lambda _one, _now: "<none>"),
        AGE,
        field("Version", "status.nodeInfo.kubeletVersion"),
    ),
    ("", "secrets"): (NAME, field("Type", "type"), Column("Data", _data, type="integer"), AGE),
    ("", "configmaps"): (NAME, Column("Data", _data, type="integer"), AGE),
    ("", "persistentvolumeclaims"): (
        NAME,
        field("Status", "status.phase"),
        field("Volume", "spec.volumeName"),
        field("Capacity", "status.capacity.storage"),
        Column("Access Modes", _modes),
        field("StorageClass", "spec.storageClassName"),
        field("VolumeAttributesClass", "spec.volumeAttributesClassName", "<unset>"),
        AGE,
        field("VolumeMode", "spec.volumeMode", priority=1),
    ),
    ("", "services"): (
        NAME,
        field("Type", "spec.type"),
        field("Cluster-IP", "spec.clusterIP", "<none>"),
        Column("External-IP", lambda _one, _now: "<none>"),
        Column("Port(s)", _ports),
        AGE,
        Column("Selector", _selector, priority=1),
    ),
    ("", "events"): (
        Column("Last Seen", _event_age),
        field("Type", "type"),
        field("Reason", "reason"),
        Column("Object", _event_object),
        field("Message", "message"),
        Column("Name", lambda one, _now: one["metadata"]["name"], priority=1),
    ),
    ("batch", "jobs"): (
        NAME,
        Column("Status", _job_status),
        Column("Completions", _completions),
        Column("Duration", _job_duration),
        AGE,
        *_containers("spec.template.spec.containers"),
        Column("Selector", _selector, priority=1),
    ),
    ("apps", "deployments"): (
        *WORKLOAD,
        Column("Up-to-date", lambda one, _now: at(one, "status.updatedReplicas", 0)),
        Column("Available", lambda one, _now: at(one, "status.availableReplicas", 0)),
        AGE,
        *_containers("spec.template.spec.containers"),
        Column("Selector", _selector, priority=1),
    ),
    ("apps", "replicasets"): (
        NAME,
        Column("Desired", lambda one, _now: at(one, "spec.replicas", 0), type="integer"),
        Column("Current", lambda one, _now: at(one, "status.replicas", 0), type="integer"),
        Column("Ready", lambda one, _now: at(one, "status.readyReplicas", 0), type="integer"),
        AGE,
    ),
    ("apps", "statefulsets"): (*WORKLOAD, AGE),
    ("coordination.k8s.io", "leases"): (NAME, field("Holder", "spec.holderIdentity"), AGE),
    ("rbac.authorization.k8s.io", "roles"): (NAME, CREATED),
    ("rbac.authorization.k8s.io", "clusterroles"): (NAME, CREATED),
    ("rbac.authorization.k8s.io", "rolebindings"): (NAME, Column("Role", _role), AGE),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): (NAME, Column("Role", _role), AGE),
    ("apiextensions.k8s.io", "customresourcedefinitions"): (NAME, CREATED),
    ("scheduling.k8s.io", "priorityclasses"): (
        NAME,
        field("Value", "value"),
        field("Global-Default", "globalDefault", False),
        AGE,
        field("PreemptionPolicy", "preemptionPolicy", "PreemptLowerPriority"),
    ),
}
