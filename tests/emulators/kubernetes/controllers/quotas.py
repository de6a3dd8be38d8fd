"""ResourceQuotas: what the pods of a namespace may ask for together, and how many things it has."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.emulators.kubernetes.api.writes.writing import Writer
from tests.emulators.kubernetes.controllers.working import Queue
from tests.emulators.kubernetes.schema.quantities import quantity
from tests.emulators.kubernetes.store.errors import forbidden, qualified
from tests.emulators.kubernetes.store.objects import Event
from tests.emulators.kubernetes.store.resources import Resource

Object = dict[str, Any]
Where = tuple[str, str]
QUOTAS, PODS = ("", "resourcequotas"), ("", "pods")
PLAIN = {"cpu": "requests.cpu", "memory": "requests.memory"}
MUST = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


class Quotas:
    """Scopes are not looked at."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._quotas = writer.resources.get(*QUOTAS)
        self.queue: Queue[Where] = Queue(self._reconcile)
        writer.store.listeners.append(self._on_event)
        writer.admission.append(self._admit)

    def _on_event(self, event: Event) -> None:
        if event.key == QUOTAS or self._of(event.entry.place[0]):
            for one in self._of(event.entry.place[0]):
                self.queue.add((event.entry.place[0], one["metadata"]["name"]))

    def _of(self, namespace: str) -> list[Object]:
        shelf = self._writer.store.shelf(QUOTAS)
        return [it.object for it in shelf.entries.values() if it.place[0] == namespace]

    def _admit(self, resource: Resource, body: Object) -> None:
        """Raises ApiError 403 for what is more than a quota has left."""
        metadata = body["metadata"]
        for quota in self._of(metadata.get("namespace", "")) if resource.namespaced else ():
            hard = quota["spec"].get("hard") or {}
            asked = _asked(resource, body)
            wanted = {k: v for k, v in asked.items() if k in hard and v}
            name = quota["metadata"]["name"]
            if resource.key == PODS:
                missing = [it for it in hard if PLAIN.get(it, it) in MUST and not asked.get(it)]
                if missing:
                    names = ",".join(it["name"] for it in body["spec"]["containers"])
                    told = "; ".join(f"{it} for: {names}" for it in sorted(missing))
                    why = f"failed quota: {name}: must specify {told}"
                    raise forbidden(resource.plural, resource.group, metadata["name"], why)
            used = self._used(metadata["namespace"], hard)
            over = [k for k, v in wanted.items() if used[k] + v > quantity(hard[k]) + 1e-9]
            if over:
                parts = {
                    "requested": {k: _shown(wanted[k]) for k in over},
                    "used": {k: _shown(used[k]) for k in over},
                    "limited": {k: hard[k] for k in over},
                }
                told = ", ".join(
                    f"{what}: {','.join(f'{k}={v}' for k, v in sorted(values.items()))}"
                    for what, values in parts.items()
                )
                why = f"exceeded quota: {name}, {told}"
                raise forbidden(resource.plural, resource.group, metadata["name"], why)

    def _used(self, namespace: str, hard: Object) -> Counter[str]:
        used: Counter[str] = Counter()
        for key, shelf in self._writer.store.shelves():
            resource = self._writer.resources.find_key(key)
            if resource is None or not (
                key == PODS or f"count/{qualified(key[1], key[0])}" in hard
            ):
                continue
            for entry in shelf.entries.values():
                phase = entry.object.get("status", {}).get("phase")
                if entry.place[0] == namespace and phase not in ("Succeeded", "Failed"):
                    used.update(_asked(resource, entry.object))
        return used

    def _reconcile(self, where: Where) -> None:
        entry = self._writer.store.get(QUOTAS, *where)
        if entry is None:
            return
        hard = entry.object["spec"].get("hard") or {}
        used = self._used(where[0], hard)
        status = {"hard": hard, "used": {k: _shown(used[k]) for k in hard}}
        self._writer.change(self._quotas, *where, lambda one: one.update(status=status))


def _asked(resource: Resource, body: Object) -> Counter[str]:
    found: Counter[str] = Counter({f"count/{qualified(resource.plural, resource.group)}": 1})
    if resource.key != PODS:
        return found
    found["pods"] = 1
    for one in body["spec"].get("containers", ()):
        for kind, sizes in one.get("resources", {}).items():
            for name, text in sizes.items() if isinstance(sizes, dict) else ():
                found[f"{kind}.{name}"] += quantity(text)  # type: ignore[assignment]
                if kind == "requests" and name in PLAIN:
                    found[name] += quantity(text)  # type: ignore[assignment]
    return found


def _shown(value: float) -> str:
    """Whole numbers, else thousandths."""
    return str(int(value)) if float(value).is_integer() else f"{round(value * 1000)}m"
