"""Custom resources come and go with their definitions."""

from __future__ import annotations

from typing import Any

from tests.emulators.kubernetes.api.writes.deleting import Deletion, delete
from tests.emulators.kubernetes.api.writes.writing import Writer
from tests.emulators.kubernetes.controllers.working import Queue
from tests.emulators.kubernetes.store.objects import Event
from tests.emulators.kubernetes.store.resources import Resource
from tests.emulators.kubernetes.store.times import now_text

Object = dict[str, Any]
CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


class Definitions:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._crds = writer.resources.get(*CRDS)
        self.queue: Queue[str] = Queue(self._reconcile)
        writer.store.listeners.append(self._on_event)

    def _on_event(self, event: Event) -> None:
        if event.key == CRDS:
            if event.kind == "DELETED":
                spec = event.entry.object["spec"]
                key = spec["group"], spec["names"]["plural"]
                self._writer.resources.drop(key)
                self._writer.store.drop(key)
            else:
                self.queue.add(event.entry.place[1])
        else:
            resource = self._writer.resources.find_key(event.key)
            definition = resource.definition if resource else None
            if event.kind == "DELETED" and definition is not None:
                self.queue.add(definition["metadata"]["name"])

    def _reconcile(self, name: str) -> None:
        entry = self._writer.store.get(CRDS, "", name)
        if entry is None:
            return
        definition = entry.object
        if definition["metadata"].get("deletionTimestamp"):
            self._end(definition)
            return
        self._writer.resources.add(resource_of(definition))
        if not definition.get("status", {}).get("conditions"):
            self._writer.change(self._crds, "", name, _establish)

    def _end(self, definition: Object) -> None:
        """Its objects go first, however long their finalizers take."""
        spec = definition["spec"]
        key = spec["group"], spec["names"]["plural"]
        left = 0
        for one in self._writer.store.shelf(key).ordered():
            left += 1
            if not one.object["metadata"].get("deletionTimestamp"):
                left -= delete(self._writer, self._writer.resources.get(*key), one, Deletion())[1]
        if not left:
            self._writer.change(self._crds, "", definition["metadata"]["name"], _let_go)


def resource_of(definition: Object) -> Resource:
    spec = definition["spec"]
    names = spec["names"]
    served = [it for it in spec["versions"] if it.get("served")]
    stored = next(it["name"] for it in spec["versions"] if it.get("storage"))
    versions = sorted((it["name"] for it in served), key=lambda it: it != stored)
    below = {name for it in served for name in it.get("subresources") or {}}
    return Resource(
        group=spec["group"],
        versions=tuple(versions),
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        singular=names.get("singular", names["kind"].lower()),
        short=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(sorted(below)),
        definition=definition,
    )


def _establish(definition: Object) -> None:
    now, spec = now_text(), definition["spec"]
    definition["metadata"]["finalizers"] = [FINALIZER]
    told = (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
    definition["status"] = {
        "conditions": [
            {
                "lastTransitionTime": now,
                "message": text,
                "reason": why,
                "status": "True",
                "type": kind,
            }
            for kind, why, text in told
        ],
        "acceptedNames": spec["names"],
        "storedVersions": [it["name"] for it in spec["versions"] if it.get("storage")],
    }


def _let_go(definition: Object) -> None:
    definition["metadata"].pop("finalizers", None)
