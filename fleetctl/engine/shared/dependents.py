"""Indexes the objects to look at when an object changes: the objects in memory that wait for it, by
its name, if it exists or not. A change costs as much as the number of its dependents.
"""

from __future__ import annotations

import json

from fleetctl.controllers.depends.edges import DependencyEdge, edges_in
from fleetctl.controllers.model import Resource

Key = tuple[str, str, str]  # kind, name, namespace

_SAID = ('"dependsOn"', '"fromResults"', '"paramsFrom"', '"priorTrials"')


def key_of(resource: Resource) -> Key:
    return resource.kind, resource.name, resource.namespace


class Dependents:
    """Filled as objects are read; can be lost, and is then filled again."""

    def __init__(self) -> None:
        self._on: dict[Key, set[str]] = {}
        self._of: dict[str, tuple[int, frozenset[Key]]] = {}  # uid -> generation, what it needs

    def hold(self, resource: Resource) -> None:
        """Adds a loaded object: from now on it is woken by the objects that its present spec
        names.
        """
        known = self._of.get(resource.uid)
        if known is not None and known[0] == resource.generation:
            return
        self.let_go(resource.uid)
        keys = frozenset((it.kind, it.name, resource.namespace) for it in _list_edges(resource))
        if keys:
            self._of[resource.uid] = resource.generation, keys
        for key in keys:
            self._on.setdefault(key, set()).add(resource.uid)

    def let_go(self, uid: str) -> None:
        """Removes an object from the index. Idempotent."""
        for key in self._of.pop(uid, (0, frozenset[Key]()))[1]:
            self._on[key].discard(uid)
            if not self._on[key]:
                del self._on[key]

    def of(self, key: Key) -> list[str]:
        """Returns the uids of the dependents, in a fixed order."""
        return sorted(self._on.get(key, ()))

    def forget(self) -> None:
        self._on.clear()
        self._of.clear()


def _list_edges(resource: Resource) -> list[DependencyEdge]:
    """Returns the edges of a spec; for most specs a look at the text shows that it has no edges."""
    if any(it in resource.spec for it in _SAID):
        return edges_in(json.loads(resource.spec))
    return []
