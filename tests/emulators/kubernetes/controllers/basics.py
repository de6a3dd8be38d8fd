"""What every namespace and every claim gets: accounts, the root certificate, volumes."""

from __future__ import annotations

import uuid
from typing import Any

from tests.emulators.kubernetes.api.writes.deleting import Deletion, delete
from tests.emulators.kubernetes.api.writes.writing import NAMESPACES, Writer
from tests.emulators.kubernetes.controllers.working import Queue, Recorder
from tests.emulators.kubernetes.store.errors import ApiError
from tests.emulators.kubernetes.store.objects import Event
from tests.emulators.kubernetes.store.resources import Resource

Object = dict[str, Any]
CLAIMS, VOLUMES = ("", "persistentvolumeclaims"), ("", "persistentvolumes")
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
PROVISIONER = "emulator.example.com/directories"
FIRST_PRIORITY = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class Basics:
    """authority: the certificate in PEM, as text. A claim of a class whose provisioner is not ours
    stays pending, as where nobody provisions it.
    """

    def __init__(self, writer: Writer, recorder: Recorder, authority: str) -> None:
        self._writer, self._recorder, self._authority = writer, recorder, authority
        get = writer.resources.get
        self._accounts, self._configs = get("", "serviceaccounts"), get("", "configmaps")
        self._claims, self._volumes = get(*CLAIMS), get(*VOLUMES)
        self.namespaces: Queue[str] = Queue(self._furnish)
        self.queue: Queue[tuple[str, str]] = Queue(self._bind)
        writer.store.listeners.append(self._on_event)
        writer.admission.append(self._admit)

    def _on_event(self, event: Event) -> None:
        if event.key == NAMESPACES and event.kind == "ADDED":
            self.namespaces.add(event.entry.place[1])
        elif event.key == ("", "serviceaccounts") and event.kind == "DELETED":
            self.namespaces.add(event.entry.place[0])
        elif event.key == CLAIMS:
            if event.kind == "DELETED":
                self._reclaim(event.entry.object)
            else:
                self.queue.add(event.entry.place)

    def _furnish(self, namespace: str) -> None:
        entry = self._writer.store.get(NAMESPACES, "", namespace)
        if entry is None or entry.object["metadata"].get("deletionTimestamp"):
            return
        wanted: tuple[tuple[Resource, Object], ...] = (
            (self._accounts, {"metadata": {"name": "default"}}),
            (
                self._configs,
                {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": self._authority}},
            ),
        )
        for resource, body in wanted:
            name = body["metadata"]["name"]
            if self._writer.store.get(resource.key, namespace, name) is None:
                body["metadata"]["namespace"] = namespace
                self._writer.create(resource, body)

    def _admit(self, resource: Resource, body: Object) -> None:
        """Admission: priorities, runtimes, storage classes, service accounts, cluster IPs."""
        if resource.key == ("", "pods"):
            self._priority(body)
            self._runtime(body)
        elif resource.key == CLAIMS and "storageClassName" not in body["spec"]:
            for one in self._writer.store.shelf(("storage.k8s.io", "storageclasses")).ordered():
                if (one.object["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true":
                    body["spec"]["storageClassName"] = one.object["metadata"]["name"]
        elif resource.key == ("", "services") and body["spec"].get("clusterIP") is None:
            body["spec"]["clusterIP"] = f"127.96.{uuid.uuid4().int % 250}.{uuid.uuid4().int % 250}"
            body["spec"]["clusterIPs"] = [body["spec"]["clusterIP"]]

    def _priority(self, pod: Object) -> None:
        spec, metadata = pod["spec"], pod["metadata"]
        account = spec["serviceAccountName"]
        namespace = metadata["namespace"]
        if self._writer.store.get(("", "serviceaccounts"), namespace, account) is None:
            place = f"{namespace}/{account}"
            missing = f'serviceaccount "{account}" not found'
            why = f"error looking up service account {place}: {missing}"
            raise ApiError(403, f'pods "{metadata["name"]}" is forbidden: {why}')
        name, key = spec.get("priorityClassName"), ("scheduling.k8s.io", "priorityclasses")
        found = None
        if name:
            found = self._writer.store.get(key, "", name)
            if found is None:
                why = f"no PriorityClass with name {name} was found"
                raise ApiError(403, f'pods "{metadata["name"]}" is forbidden: {why}')
        else:
            every = self._writer.store.shelf(key).ordered()
            found = next((it for it in every if it.object.get("globalDefault")), None)
        if found is not None:
            spec["priorityClassName"] = found.object["metadata"]["name"]
            spec["preemptionPolicy"] = found.object.get("preemptionPolicy", "PreemptLowerPriority")
        spec["priority"] = found.object["value"] if found is not None else 0

    def _runtime(self, pod: Object) -> None:
        name = pod["spec"].get("runtimeClassName")
        key = ("node.k8s.io", "runtimeclasses")
        if name and self._writer.store.get(key, "", name) is None:
            why = f'pod rejected: RuntimeClass "{name}" not found'
            raise ApiError(403, f'pods "{pod["metadata"]["name"]}" is forbidden: {why}')

    def _bind(self, where: tuple[str, str]) -> None:
        entry = self._writer.store.get(CLAIMS, *where)
        if entry is None or entry.object.get("status", {}).get("phase") == "Bound":
            return
        claim = entry.object
        metadata, spec = claim["metadata"], claim["spec"]
        if metadata.get("deletionTimestamp"):
            return
        name = spec.get("storageClassName") or ""
        kind = self._writer.store.get(("storage.k8s.io", "storageclasses"), "", name)
        if kind is None or kind.object.get("provisioner") != PROVISIONER:
            why = (
                f'storageclass.storage.k8s.io "{name}" not found'
                if name and kind is None
                else ("no persistent volumes available for this claim and no storage class is set")
            )
            reason = "ProvisioningFailed" if name else "FailedBinding"
            self._tell(claim, reason, why, warning=bool(name))
            return
        volume = f"pvc-{metadata['uid']}"
        capacity = {"storage": spec["resources"]["requests"]["storage"]}
        self._make_volume(volume, claim, capacity)

        def change(one: Object) -> None:
            one["spec"] = {**one["spec"], "volumeName": volume}
            status = {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": capacity}
            one["status"] = status

        self._writer.change(self._claims, *where, change)
        self._tell(claim, "ProvisioningSucceeded", f"Successfully provisioned volume {volume}")

    def _make_volume(self, name: str, claim: Object, capacity: Object) -> None:
        metadata, spec = claim["metadata"], claim["spec"]
        reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "uid": metadata["uid"]}
        place = {"namespace": metadata["namespace"], "name": metadata["name"]}
        body = {
            "metadata": {"name": name},
            "spec": {
                "capacity": capacity,
                "accessModes": spec["accessModes"],
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": spec.get("storageClassName", ""),
                "volumeMode": spec["volumeMode"],
                "claimRef": {**reference, **place},
                "csi": {"driver": PROVISIONER, "volumeHandle": name},
            },
        }
        self._writer.create(self._volumes, body)
        self._writer.change(
            self._volumes, "", name, lambda one: one.update(status={"phase": "Bound"})
        )

    def _reclaim(self, claim: Object) -> None:
        volume = self._writer.store.get(VOLUMES, "", claim["spec"].get("volumeName", ""))
        if volume is not None:
            delete(self._writer, self._volumes, volume, Deletion())

    def _tell(self, claim: Object, reason: str, message: str, *, warning: bool = False) -> None:
        source = "persistentvolume-controller"
        self._recorder.tell(claim, reason, message, source=source, warning=warning)
