"""The status of a pod, made from its containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.emulators.kubernetes.store.times import now_text

if TYPE_CHECKING:
    from tests.emulators.kubernetes.nodes.containers import Container

Object = dict[str, Any]
ORDER = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


class PodStatus:
    """What the kubelet knows; `written` puts it over the status that is stored."""

    def __init__(self, pod: Object, pod_ip: str) -> None:
        self._spec = pod["spec"]
        self._pod_ip = pod_ip
        self.containers: dict[str, Container] = {}
        self.waits: dict[str, tuple[str, str]] = {}
        self.phase, self.reason, self.message = "Pending", "", ""
        self.initialised = not self._spec.get("initContainers")
        self._disruption: Object | None = None
        self.silent = False  # the node is gone

    def waiting(self, name: str, reason: str, message: str) -> None:
        self.waits[name] = reason, message

    def reason_of(self, name: str) -> str:
        """Why a container has not begun."""
        if name in self.waits:
            return self.waits[name][0]
        return "ContainerCreating" if self.initialised else "PodInitializing"

    def disrupted(self, reason: str, message: str) -> None:
        self._disruption = {"reason": reason, "message": message}

    def written(self, before: Object, host_ip: str) -> Object:
        found = dict(before)
        over = self.phase in ("Succeeded", "Failed")
        if not over:
            started = any(it["name"] in self.containers for it in self._spec["containers"])
            self.phase = "Running" if started else "Pending"
        found["phase"] = self.phase
        found.setdefault("startTime", now_text())
        found["hostIP"], found["hostIPs"] = host_ip, [{"ip": host_ip}]
        if self.containers:
            found["podIP"], found["podIPs"] = self._pod_ip, [{"ip": self._pod_ip}]
        for name, value in (("reason", self.reason), ("message", self.message)):
            if value:
                found[name] = value
        for kind, field in (
            ("initContainers", "initContainerStatuses"),
            ("containers", "containerStatuses"),
        ):
            if self._spec.get(kind):
                found[field] = [self._one(it, kind) for it in self._spec[kind]]
        ready = all(it["ready"] for it in found["containerStatuses"]) and not over
        found["conditions"] = self._conditions(before, ready=ready, over=over)
        return found

    def _one(self, spec: Object, kind: str) -> Object:
        container = self.containers.get(spec["name"])
        state: Object
        if spec["name"] in self.waits:
            reason, message = self.waits[spec["name"]]
            state = {"waiting": {"reason": reason, "message": message}}
        elif container is None:
            waits_for_init = kind == "initContainers" or not self.initialised
            reason = "PodInitializing" if waits_for_init else "ContainerCreating"
            state = {"waiting": {"reason": reason}}
        else:
            state = container.state()
        running = "running" in state
        one: Object = {
            "name": spec["name"],
            "state": state,
            "lastState": {},
            "ready": (running and container is not None and container.ready)
            or (kind == "initContainers" and _succeeded(state)),
            "restartCount": container.restarts if container else 0,
            "image": spec["image"],
            "imageID": f"{spec['image']}@sha256:emulated" if container else "",
            "started": running and container is not None and container.started,
        }
        if container is not None:
            one["containerID"] = container.id
            if spec["name"] in self.waits:
                one["lastState"] = container.state()
        return one

    def _conditions(self, before: Object, *, ready: bool, over: bool) -> list[Object]:
        old = {it["type"]: it for it in before.get("conditions") or ()}
        done = {"reason": "PodCompleted"} if over and self.phase == "Succeeded" else {}
        ended = done or ({"reason": "PodFailed"} if over else {})
        unready = ended or {"reason": "ContainersNotReady", "message": self._unready()}
        wanted: dict[str, tuple[bool, Object]] = {
            "PodReadyToStartContainers": (bool(self.containers) and not over, {}),
            "Initialized": (
                self.initialised,
                done if self.initialised else {"reason": "ContainersNotInitialized"},
            ),
            "Ready": (ready, {} if ready else unready),
            "ContainersReady": (ready, {} if ready else unready),
            "PodScheduled": (True, {}),
        }
        if self._disruption is not None:
            wanted["DisruptionTarget"] = (True, self._disruption)
        found = [it for kind, it in old.items() if kind not in wanted]
        for kind, (holds, more) in wanted.items():
            known = old.get(kind, {})
            status = str(holds)
            same = known.get("status") == status
            one = {
                "type": kind,
                "status": status,
                "lastProbeTime": None,
                "lastTransitionTime": known["lastTransitionTime"] if same else now_text(),
            }
            found.append({**one, **more})
        return found

    def _unready(self) -> str:
        names = [
            it["name"]
            for it in self._spec["containers"]
            if (held := self.containers.get(it["name"])) is None
            or held.code is not None
            or not held.ready
        ]
        return f"containers with unready status: [{' '.join(names)}]"


def _succeeded(state: Object) -> bool:
    return "terminated" in state and state["terminated"]["exitCode"] == 0
