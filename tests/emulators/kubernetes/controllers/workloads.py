"""Deployments and ReplicaSets: as many pods as are wanted, of the newest template."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests.emulators.kubernetes.api.writes.deleting import Deletion, delete
from tests.emulators.kubernetes.api.writes.writing import Writer
from tests.emulators.kubernetes.controllers.working import (
    Queue,
    Recorder,
    controller_of,
    owned_by,
)
from tests.emulators.kubernetes.schema.names import suffix
from tests.emulators.kubernetes.store.objects import Entry, Event, clone
from tests.emulators.kubernetes.store.resources import Key
from tests.emulators.kubernetes.store.times import now_text

Object = dict[str, Any]
Where = tuple[Key, str, str]
DEPLOYMENTS, SETS, PODS = ("apps", "deployments"), ("apps", "replicasets"), ("", "pods")
HASH = "pod-template-hash"


class Workloads:
    """A change of template replaces all pods at once: no rolling, no history, no probes."""

    def __init__(self, writer: Writer, recorder: Recorder) -> None:
        self._writer, self._recorder = writer, recorder
        self._pods = writer.resources.get(*PODS)
        self.queue: Queue[Where] = Queue(self._reconcile)
        writer.store.listeners.append(self._on_event)

    def _on_event(self, event: Event) -> None:
        if event.key in (DEPLOYMENTS, SETS):
            self.queue.add((event.key, *event.entry.place))
        if event.key in (SETS, PODS):
            owner = controller_of(event.entry.object)
            kinds = {"Deployment": DEPLOYMENTS, "ReplicaSet": SETS}
            if owner is not None and owner["kind"] in kinds:
                self.queue.add((kinds[owner["kind"]], event.entry.place[0], owner["name"]))

    def _reconcile(self, where: Where) -> None:
        entry = self._writer.store.get(*where)
        if entry is None or entry.object["metadata"].get("deletionTimestamp"):
            return
        if where[0] == DEPLOYMENTS:
            self._deploy(entry)
        else:
            self._replicate(entry)

    def _deploy(self, entry: Entry) -> None:
        deployment, resource = entry.object, self._writer.resources.get(*SETS)
        spec, metadata = deployment["spec"], deployment["metadata"]
        told = hashlib.sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()
        name = f"{metadata['name']}-{told[:10]}"
        found = self._writer.store.get(SETS, metadata["namespace"], name)
        if found is None:
            self._writer.create(resource, _replica_set(deployment, name, told[:10]))
            return
        for one in self._owned(SETS, metadata["uid"], metadata["namespace"]):
            wanted = spec["replicas"] if one is found else 0
            if one.object["spec"]["replicas"] != wanted:
                self._set_replicas(one, wanted)
        status = found.object.get("status") or {}
        ready = status.get("readyReplicas", 0)
        self._status(
            entry,
            {
                "replicas": status.get("replicas", 0),
                "updatedReplicas": status.get("replicas", 0),
                "readyReplicas": ready,
                "availableReplicas": ready,
                "unavailableReplicas": max(spec["replicas"] - ready, 0),
            },
            conditions=_conditions(deployment, ready >= spec["replicas"], name),
        )

    def _set_replicas(self, entry: Entry, wanted: int) -> None:
        def change(one: Object) -> None:
            one["spec"] = {**one["spec"], "replicas": wanted}
            one["metadata"]["generation"] = one["metadata"].get("generation", 1) + 1

        self._writer.change(self._writer.resources.get(*SETS), *entry.place, change)

    def _replicate(self, entry: Entry) -> None:
        one, metadata = entry.object, entry.object["metadata"]
        every = self._owned(PODS, metadata["uid"], metadata["namespace"])
        pods = [it for it in every if not it.object["metadata"].get("deletionTimestamp")]
        for ended in [it for it in pods if _phase(it) in ("Failed", "Succeeded")]:
            pods.remove(ended)
        wanted = one["spec"]["replicas"]
        for _ in range(wanted - len(pods)):
            made = self._writer.create(self._pods, _pod(one))
            name = made.object["metadata"]["name"]
            self._tell(one, "SuccessfulCreate", f"Created pod: {name}")
        for pod in pods[wanted:]:
            delete(self._writer, self._pods, pod, Deletion())
            name = pod.object["metadata"]["name"]
            self._tell(one, "SuccessfulDelete", f"Deleted pod: {name}")
        ready = sum(_is_ready(it) for it in pods[:wanted])
        counts = {
            "replicas": min(len(pods), wanted),
            "fullyLabeledReplicas": min(len(pods), wanted),
            "readyReplicas": ready,
            "availableReplicas": ready,
        }
        self._status(entry, counts)

    def _owned(self, key: Key, uid: str, namespace: str) -> list[Entry]:
        found = []
        for one in self._writer.store.shelf(key).ordered():
            owner = controller_of(one.object) if one.place[0] == namespace else None
            if owner is not None and owner["uid"] == uid:
                found.append(one)
        return found

    def _status(
        self, entry: Entry, counts: dict[str, int], *, conditions: list[Object] | None = None
    ) -> None:
        status: Object = {k: v for k, v in counts.items() if v or k == "replicas"}
        status["observedGeneration"] = entry.object["metadata"].get("generation", 1)
        if conditions is not None:
            status["conditions"] = conditions
        key = DEPLOYMENTS if entry.object["kind"] == "Deployment" else SETS
        resource = self._writer.resources.get(*key)
        self._writer.change(resource, *entry.place, lambda one: one.update(status=status))

    def _tell(self, about: Object, reason: str, message: str) -> None:
        self._recorder.tell(about, reason, message, source="replicaset-controller")


def _replica_set(deployment: Object, name: str, told: str) -> Object:
    spec = clone(deployment["spec"])
    template = spec["template"]
    labels = template["metadata"]["labels"] = {
        **(template["metadata"].get("labels") or {}),
        HASH: told,
    }
    selector = spec["selector"]
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: told}
    metadata = {
        "name": name,
        "namespace": deployment["metadata"]["namespace"],
        "labels": dict(labels),
        "ownerReferences": [owned_by(deployment)],
    }
    body = {"replicas": spec["replicas"], "selector": selector, "template": template}
    return {"metadata": metadata, "spec": body}


def _pod(one: Object) -> Object:
    template = clone(one["spec"]["template"])
    name = one["metadata"]["name"]
    metadata = {
        **(template.get("metadata") or {}),
        "name": f"{name[:57]}-{suffix()}",
        "generateName": f"{name}-",
        "namespace": one["metadata"]["namespace"],
        "ownerReferences": [owned_by(one)],
    }
    return {"metadata": metadata, "spec": template["spec"]}


def _phase(entry: Entry) -> str:
    return str(entry.object.get("status", {}).get("phase"))


def _is_ready(entry: Entry) -> bool:
    conditions = entry.object.get("status", {}).get("conditions") or ()
    return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)


def _conditions(deployment: Object, available: bool, name: str) -> list[Object]:
    old = {it["type"]: it for it in (deployment.get("status") or {}).get("conditions") or ()}
    progress = "has successfully progressed" if available else "is progressing"
    told = {
        "Available": (
            str(available),
            "MinimumReplicasAvailable" if available else "MinimumReplicasUnavailable",
            f"Deployment {'has' if available else 'does not have'} minimum availability.",
        ),
        "Progressing": (
            "True",
            "NewReplicaSetAvailable" if available else "ReplicaSetUpdated",
            f'ReplicaSet "{name}" {progress}.',
        ),
    }
    found = []
    for kind, (status, reason, message) in told.items():
        known = old.get(kind, {})
        same = known.get("status") == status and known.get("reason") == reason
        when = known["lastTransitionTime"] if same else now_text()
        one = {"type": kind, "status": status, "reason": reason, "message": message}
        found.append({**one, "lastUpdateTime": when, "lastTransitionTime": when})
    return found
