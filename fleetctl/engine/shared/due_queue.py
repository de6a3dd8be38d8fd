"""Chooses the objects to look at: a queue of keys with due times, and the index of objects in
memory that wait for a changed one.

An event names the key to look at, never the change, and repeats are one entry. Waking the objects
that wait for a changed one costs as much as there are such objects.
"""

from __future__ import annotations

import heapq
import json
from itertools import islice

from fleetctl.controllers.depends.edges import DependencyEdge, edges_in
from fleetctl.controllers.model import Resource

Key = tuple[str, str, str]  # kind, name, namespace

_SAID = ('"dependsOn"', '"fromResults"', '"paramsFrom"', '"priorTrials"')


class DueQueue:
    """Each key is in it once at most, under its earliest due time. FIFO among those due, so that
    keys which are always busy cannot keep others from their turn.
    """

    __slots__ = ("_due_at_s", "_heap", "_ready")

    def __init__(self) -> None:
        self._ready: dict[str, None] = {}  # due now, in the order in which they became so
        self._due_at_s: dict[str, float] = {}  # due later
        self._heap: list[tuple[float, str]] = []  # of _due_at_s, and leftovers

    def __len__(self) -> int:
        return len(self._ready) + len(self._due_at_s)

    def __contains__(self, key: str) -> bool:
        return key in self._ready or key in self._due_at_s

    def add(self, key: str, due_at_s: float = 0.0) -> None:
        """Schedules a look at `key` at due_at_s at the latest; 0.0 = at once."""
        if key in self._ready:
            return
        if due_at_s <= 0.0:
            self._due_at_s.pop(key, None)
            self._ready[key] = None
            return
        known = self._due_at_s.get(key)
        if known is None or due_at_s < known:
            self._due_at_s[key] = due_at_s
            heapq.heappush(self._heap, (due_at_s, key))

    def take(self, now_s: float, *, keys_max: int) -> list[str]:
        """Returns the due keys, the longest due first; they are no longer in the queue."""
        while (due_at_s := self._next()) is not None and due_at_s <= now_s:
            _, key = heapq.heappop(self._heap)
            del self._due_at_s[key]
            self._ready[key] = None
        taken = list(islice(self._ready, keys_max))
        for key in taken:
            del self._ready[key]
        return taken

    def discard(self, key: str) -> None:
        self._ready.pop(key, None)
        self._due_at_s.pop(key, None)

    def next_due_at_s(self) -> float | None:
        """Returns 0.0 when a key is due already; None when the queue is empty."""
        if self._ready:
            return 0.0
        return self._next()

    def _next(self) -> float | None:
        # An entry whose time was brought forward, or whose key is gone, is a leftover.
        while self._heap and self._due_at_s.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._heap:
            return self._heap[0][0]
        return None


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
