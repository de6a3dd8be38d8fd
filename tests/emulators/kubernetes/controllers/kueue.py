"""A stand-in for Kueue: it holds a Workload for each suspended Job that names a queue, says why the
queue has no room, and unsuspends the Job once its queue admits. It counts no quota: tests say when.
"""

from __future__ import annotations

from typing import Any

from tests.emulators.kubernetes.api.writes.writing import Writer
from tests.emulators.kubernetes.controllers.job_ends import made_condition
from tests.emulators.kubernetes.controllers.working import Queue, owned_by
from tests.emulators.kubernetes.store.objects import Event

Object = dict[str, Any]
JOBS = ("batch", "jobs")
GROUP, PLURAL = "kueue.x-k8s.io", "workloads"
QUEUE_NAME, JOB_UID = f"{GROUP}/queue-name", f"{GROUP}/job-uid"
RETRY_S = 0.02  # until its own resource is there
FULL = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu"
_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION: Object = {
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"plural": PLURAL, "singular": "workload", "kind": "Workload"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": _ANY, "status": _ANY},
                    }
                },
            }
        ],
    },
}


class Kueue:
    """admitting: names of the queues that have room."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._jobs = writer.resources.get(*JOBS)
        self.admitting: set[str] = set()
        self.queue: Queue[tuple[str, str]] = Queue(self._reconcile)

    def begin(self) -> None:
        """As if it were installed now."""
        crds = self._writer.resources.get("apiextensions.k8s.io", "customresourcedefinitions")
        self._writer.create(crds, DEFINITION)
        self._writer.store.listeners.append(self._on_event)

    def admit(self, queue: str, *, on: bool) -> None:
        (self.admitting.add if on else self.admitting.discard)(queue)
        for entry in self._writer.store.shelf(JOBS).ordered():
            self.queue.add(entry.place)

    def _on_event(self, event: Event) -> None:
        if event.key == JOBS and event.kind != "DELETED":
            self.queue.add(event.entry.place)

    def _reconcile(self, where: tuple[str, str]) -> None:
        entry = self._writer.store.get(JOBS, *where)
        name = (entry.object["metadata"].get("labels") or {}).get(QUEUE_NAME) if entry else None
        if entry is None or name is None or not entry.object["spec"]["suspend"]:
            return
        workloads = self._writer.resources.find_key((GROUP, PLURAL))
        if workloads is None:
            self.queue.add_after(where, RETRY_S)
            return
        namespace, metadata = where[0], entry.object["metadata"]
        workload = f"job-{where[1]}"
        if self._writer.store.get((GROUP, PLURAL), namespace, workload) is None:
            labels = {JOB_UID: metadata["uid"]}
            about = {"name": workload, "namespace": namespace, "labels": labels}
            about["ownerReferences"] = [owned_by(entry.object)]
            self._writer.create(workloads, {"metadata": about, "spec": {"queueName": name}})
        admits = name in self.admitting
        told = made_condition("QuotaReserved", "Pending", FULL) | {"status": "False"}
        if admits:
            told = made_condition("QuotaReserved", "QuotaReserved", "Quota reserved")
        status = {"conditions": [told]}
        self._writer.change(workloads, namespace, workload, lambda one: one.update(status=status))
        if admits:
            self._writer.change(self._jobs, *where, _unsuspend)


def _unsuspend(job: Object) -> None:
    job["spec"] = {**job["spec"], "suspend": False}
