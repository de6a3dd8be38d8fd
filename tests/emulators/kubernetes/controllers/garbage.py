"""What goes when its owner goes: background, foreground and orphaning deletion; namespaces."""

from __future__ import annotations

from typing import Any

from tests.emulators.kubernetes.api.writes.deleting import FOREGROUND, ORPHAN, Deletion, delete
from tests.emulators.kubernetes.api.writes.writing import NAMESPACES, Writer
from tests.emulators.kubernetes.controllers.working import Queue
from tests.emulators.kubernetes.store.objects import Entry, Event
from tests.emulators.kubernetes.store.resources import Key, Resource

Object = dict[str, Any]
Where = tuple[Key, str, str]  # (resource, namespace, name)
PROTECTION = "kubernetes.io/pvc-protection"


class Garbage:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._owners: dict[str, Where] = {}  # by uid, of all that lives
        self._dependents: dict[str, set[Where]] = {}  # by uid of an owner
        self.queue: Queue[Where] = Queue(self._reconcile)
        writer.store.listeners.append(self._on_event)

    def _on_event(self, event: Event) -> None:
        stored = event.entry.object
        metadata = stored["metadata"]
        where = (event.key, *event.entry.place)
        before = event.old.object["metadata"].get("ownerReferences") if event.old else None
        now = metadata.get("ownerReferences") if event.kind != "DELETED" else None
        if before != now:
            for one in before or ():
                self._dependents.get(one["uid"], set()).discard(where)
            for one in now or ():
                self._dependents.setdefault(one["uid"], set()).add(where)
            if now:
                self.queue.add(where)
        if event.kind == "DELETED":
            self._owners.pop(metadata["uid"], None)
            for dependent in self._dependents.pop(metadata["uid"], ()):
                self.queue.add(dependent)
            for one in before or ():
                if one["uid"] in self._owners:
                    self.queue.add(self._owners[one["uid"]])
            if event.key != NAMESPACES and metadata.get("namespace"):
                self._namespace(metadata["namespace"])
        else:
            self._owners[metadata["uid"]] = where
            if metadata.get("deletionTimestamp"):
                self.queue.add(where)

    def _namespace(self, name: str) -> None:
        entry = self._writer.store.get(NAMESPACES, "", name)
        if entry is not None and entry.object["metadata"].get("deletionTimestamp"):
            self.queue.add((NAMESPACES, "", name))

    def _reconcile(self, where: Where) -> None:
        key, namespace, name = where
        resources = self._writer.resources
        entry = self._writer.store.get(key, namespace, name)
        if entry is None:
            return
        resource = resources.get(*key)
        metadata = entry.object["metadata"]
        if metadata.get("deletionTimestamp"):
            finalizers = metadata.get("finalizers") or ()
            if key == NAMESPACES:
                self._end_namespace(resource, entry)
            elif ORPHAN in finalizers:
                self._orphan(resource, entry)
            elif FOREGROUND in finalizers:
                self._foreground(resource, entry)
            elif PROTECTION in finalizers and not self._used(entry):
                self._release(resource, entry, PROTECTION)
            return
        owners = metadata.get("ownerReferences") or ()
        if not owners:
            return
        alive = [it for it in owners if self._lives(it, namespace)]
        if not alive:
            delete(self._writer, resource, entry, Deletion("Background", uid=metadata["uid"]))
        elif len(alive) < len(owners):
            self._writer.change(
                resource, namespace, name, lambda one: one["metadata"].update(ownerReferences=alive)
            )

    def _lives(self, owner: Object, namespace: str) -> bool:
        where = self._owners.get(owner["uid"])
        # An owner of another namespace is none.
        return where is not None and where[1] in ("", namespace)

    def _dependents_of(self, entry: Entry) -> list[tuple[Resource, Entry, Object]]:
        uid, found = entry.object["metadata"]["uid"], []
        for key, namespace, name in self._dependents.get(uid, ()):
            one = self._writer.store.get(key, namespace, name)
            if one is not None:
                references = one.object["metadata"].get("ownerReferences") or ()
                reference = next(it for it in references if it["uid"] == uid)
                found.append((self._writer.resources.get(*key), one, reference))
        return found

    def _orphan(self, resource: Resource, entry: Entry) -> None:
        uid = entry.object["metadata"]["uid"]
        for below, one, _ in self._dependents_of(entry):
            self._writer.change(below, *one.place, lambda stored: _disown(stored, uid))
        self._release(resource, entry, ORPHAN)

    def _foreground(self, resource: Resource, entry: Entry) -> None:
        blocking = False
        for below, one, reference in self._dependents_of(entry):
            blocking = blocking or bool(reference.get("blockOwnerDeletion"))
            if not one.object["metadata"].get("deletionTimestamp"):
                delete(self._writer, below, one, Deletion("Foreground"))
        if not any(it[2].get("blockOwnerDeletion") for it in self._dependents_of(entry)):
            self._release(resource, entry, FOREGROUND)

    def _release(self, resource: Resource, entry: Entry, finalizer: str) -> None:
        def change(stored: Object) -> None:
            kept = [it for it in stored["metadata"].get("finalizers", ()) if it != finalizer]
            stored["metadata"]["finalizers"] = kept
            if not kept:
                del stored["metadata"]["finalizers"]

        self._writer.change(resource, *entry.place, change)

    def _used(self, claim: Entry) -> bool:
        """Returns whether a pod that has not ended mounts the claim."""
        namespace, name = claim.place
        for pod in self._writer.store.shelf(("", "pods")).ordered():
            if pod.place[0] != namespace:
                continue
            if pod.object.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                continue
            for volume in pod.object["spec"].get("volumes", ()):
                if volume.get("persistentVolumeClaim", {}).get("claimName") == name:
                    self.queue.add_after((("", "persistentvolumeclaims"), namespace, name), 0.2)
                    return True
        return False

    def _end_namespace(self, resource: Resource, entry: Entry) -> None:
        name = entry.object["metadata"]["name"]
        left = 0
        for key, shelf in self._writer.store.shelves():
            for one in shelf.ordered():
                if one.place[0] != name:
                    continue
                left += 1
                if not one.object["metadata"].get("deletionTimestamp"):
                    _, gone = delete(
                        self._writer, self._writer.resources.get(*key), one, Deletion()
                    )
                    left -= gone
        if not left:
            self._writer.change(resource, "", name, lambda one: one.update(spec={"finalizers": []}))


def _disown(stored: Object, uid: str) -> None:
    kept = [it for it in stored["metadata"].get("ownerReferences") or () if it["uid"] != uid]
    stored["metadata"]["ownerReferences"] = kept
    if not kept:
        del stored["metadata"]["ownerReferences"]
