"""What is stored: objects that never change, a history of them, and who watches it.

Stands for etcd and the watch cache: one count of resourceVersions for all, a bounded history of
each resource from which watches resume, and older states of which lists can be served.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from tests.emulators.kubernetes.store.errors import expired
from tests.emulators.kubernetes.store.resources import Key

EVENTS_MAX = 50_000  # kept of each resource; the real server keeps five minutes of them
Object = dict[str, Any]
Place = tuple[str, str]  # (namespace, name)


def dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class Entry:
    """One version of an object. Nobody may change `object`."""

    __slots__ = ("_raw", "_tail", "labels", "object", "rv")

    def __init__(self, stored: Object, rv: int) -> None:
        self.object, self.rv = stored, rv
        self.labels: dict[str, str] = stored["metadata"].get("labels") or {}
        self._raw, self._tail = b"", 0

    @property
    def raw(self) -> bytes:
        if not self._raw:
            kind, api_version = self.object["kind"], self.object["apiVersion"]
            head = dumps({"kind": kind, "apiVersion": api_version})
            rest = {k: v for k, v in self.object.items() if k not in ("kind", "apiVersion")}
            self._tail = len(head)
            self._raw = head[:-1] + b"," + dumps(rest)[1:]
        return self._raw

    @property
    def untyped(self) -> bytes:
        """Without kind and apiVersion, as items of built-in lists are."""
        raw = self.raw
        return b"{" + raw[self._tail :]

    @property
    def place(self) -> Place:
        metadata = self.object["metadata"]
        return metadata.get("namespace", ""), metadata["name"]


class Event:
    """A change: `old` is what was before it, `entry` what is after it, or was last.

    kind: ADDED, MODIFIED or DELETED.
    """

    __slots__ = ("entry", "key", "kind", "old", "rv")

    def __init__(self, key: Key, kind: str, entry: Entry, old: Entry | None) -> None:
        self.key, self.kind, self.entry, self.old, self.rv = key, kind, entry, old, entry.rv


class Shelf:
    """The objects of one resource."""

    def __init__(self) -> None:
        self.entries: dict[Place, Entry] = {}
        self.history: deque[Event] = deque()
        self.horizon = 0  # changes up to this resourceVersion are forgotten
        self.watchers: set[Callable[[Event], None]] = set()
        self._sorted: list[Entry] | None = None

    def ordered(self) -> list[Entry]:
        """By namespace and name. Not to be changed."""
        if self._sorted is None:
            self._sorted = [self.entries[it] for it in sorted(self.entries)]
        return self._sorted

    def record(self, event: Event) -> None:
        self._sorted = None
        if event.kind == "DELETED":
            self.entries.pop(event.entry.place, None)
        else:
            self.entries[event.entry.place] = event.entry
        self.history.append(event)
        while len(self.history) > EVENTS_MAX:
            self.horizon = self.history.popleft().rv
        for watcher in tuple(self.watchers):
            watcher(event)

    def at(self, rv: int) -> list[Entry]:
        """As it was at a resourceVersion. Raises ApiError 410 when that is forgotten."""
        if rv < self.horizon:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result."
                " You can start a new list without the continue parameter, or use the continue"
                " token in this response to retrieve the remainder of the results."
            )
        if not self.history or self.history[-1].rv <= rv:
            return self.ordered()
        past = dict(self.entries)
        for event in reversed(self.history):
            if event.rv <= rv:
                break
            if event.old is None:
                past.pop(event.entry.place, None)
            else:
                past[event.entry.place] = event.old
        return [past[it] for it in sorted(past)]

    def since(self, rv: int) -> list[Event]:
        """The changes after it. Raises ApiError 410 when some of them are forgotten."""
        if rv < self.horizon:
            raise expired(f"too old resource version: {rv} ({self.horizon})")
        found = []
        for event in reversed(self.history):
            if event.rv <= rv:
                break
            found.append(event)
        return found[::-1]


class Store:
    """All writes are whole between two awaits, so that whoever reads sees one state."""

    def __init__(self) -> None:
        self.rv = 1
        self._shelves: dict[Key, Shelf] = {}
        self.listeners: list[Callable[[Event], None]] = []  # controllers; told after watchers

    def shelf(self, key: Key) -> Shelf:
        found = self._shelves.get(key)
        if found is None:
            found = self._shelves[key] = Shelf()
        return found

    def shelves(self) -> Iterator[tuple[Key, Shelf]]:
        yield from list(self._shelves.items())

    def get(self, key: Key, namespace: str, name: str) -> Entry | None:
        return self.shelf(key).entries.get((namespace, name))

    def put(self, key: Key, stored: Object) -> Entry:
        """Create or replace; `stored` gets its resourceVersion and becomes the store's."""
        self.rv += 1
        stored["metadata"]["resourceVersion"] = str(self.rv)
        entry = Entry(stored, self.rv)
        old = self.shelf(key).entries.get(entry.place)
        self._tell(Event(key, "MODIFIED" if old else "ADDED", entry, old))
        return entry

    def past(self, key: Key, changes: int) -> int:
        """The resourceVersion before so many changes of a resource, as far as it is remembered."""
        shelf = self.shelf(key)
        if not shelf.history:
            return self.rv
        first = shelf.history[max(len(shelf.history) - changes, 0)]
        return max(first.rv - 1, shelf.horizon)

    def remove(self, key: Key, entry: Entry) -> Entry:
        """Returns its last state, which has the resourceVersion of the removal."""
        self.rv += 1
        metadata = {**entry.object["metadata"], "resourceVersion": str(self.rv)}
        last = Entry({**entry.object, "metadata": metadata}, self.rv)
        self._tell(Event(key, "DELETED", last, entry))
        return last

    def drop(self, key: Key) -> None:
        """Forget a resource whose definition is gone, with all that watch it."""
        self._shelves.pop(key, None)

    def compact(self) -> None:
        """Forget all history, as etcd's compaction does every five minutes."""
        for shelf in self._shelves.values():
            shelf.history.clear()
            shelf.horizon = self.rv

    def _tell(self, event: Event) -> None:
        self.shelf(event.key).record(event)
        for listener in self.listeners:
            listener(event)


def clone(value: Any) -> Any:
    """A copy of JSON, which is free to be changed."""
    if isinstance(value, dict):
        return {k: clone(v) if isinstance(v, dict | list) else v for k, v in value.items()}
    if isinstance(value, list):
        return [clone(it) if isinstance(it, dict | list) else it for it in value]
    return value
