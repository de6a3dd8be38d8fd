"""Tracks which objects a Source keeps, and which were changed by hand. In memory, built from the
store at first use; receives every object that is written.
"""

from __future__ import annotations

from fleetctl.controllers.model import Resource
from fleetctl.stores.base import ResourceStore
from fleetctl.tracking.kept_by import kept_by
from fleetctl.tracking.ownership import has_drifted


class SourceMembers:
    def __init__(self, resources: ResourceStore) -> None:
        self._resources = resources
        self._loaded = False
        self._source_of: dict[str, str] = {}  # by uid
        self._uids: dict[str, set[str]] = {}  # by source
        self._keys: dict[str, str] = {}  # by uid
        self._how: dict[str, str] = {}  # uid -> how it differs, for changed objects
        self._deleted: set[str] = set()  # uids of objects that are being deleted

    def note_object(self, row: Resource) -> str:
        """Takes a written object. Returns the key of the Source that keeps it, or kept it until
        now; empty for an object without a Source.
        """
        note = kept_by(row.annotations)
        before = self._source_of.get(row.uid, "")
        source = note.source if note is not None else ""
        if not self._loaded:
            return source
        if before and before != source:
            self._let_go(row.uid)
        if note is not None:
            self._source_of[row.uid], self._keys[row.uid] = source, row.key
            self._uids.setdefault(source, set()).add(row.uid)
            self._how.pop(row.uid, None)
            if row.deleted_at_s is not None:
                self._how[row.uid] = f"{row.key} was deleted"
                self._deleted.add(row.uid)
            elif has_drifted(row, note):
                self._how[row.uid] = f"{row.key} was changed by hand"
        return source or before

    def forget(self) -> None:
        """Drops the cache: the store may differ from the received writes."""
        self._loaded = False
        self._source_of.clear()
        self._uids.clear()
        self._keys.clear()
        self._how.clear()
        self._deleted.clear()

    def settled(self, source: str) -> None:
        """Drops the deleted objects of a Source: each is restored by now, or no longer wanted."""
        self._load()
        for uid in self._uids.get(source, set()) & self._deleted:
            self._let_go(uid)

    def living(self, source: str) -> int:
        self._load()
        return len(self._uids.get(source, set()) - self._deleted)

    def changed(self, source: str) -> list[str]:
        """Returns a sentence for each object that differs, in order; one that was deleted and
        restored does not.
        """
        self._load()
        uids = self._uids.get(source, set())
        there = {self._keys[it] for it in uids - self._deleted}
        doubtful = uids & self._how.keys()
        gone = {it for it in doubtful & self._deleted if self._keys[it] in there}
        return sorted(self._how[it] for it in doubtful - gone)

    def rows(self, source: str) -> list[Resource]:
        """Returns the rows by uid, also of objects that are being deleted."""
        self._load()
        found = []
        for uid in sorted(self._uids.get(source, ())):
            row = self._resources.of(uid)
            if row is None:
                self._let_go(uid)
            else:
                found.append(row)
        return found

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            for row in self._resources.list():
                self.note_object(row)

    def _let_go(self, uid: str) -> None:
        self._uids.get(self._source_of.pop(uid, ""), set()).discard(uid)
        self._keys.pop(uid, None)
        self._how.pop(uid, None)
        self._deleted.discard(uid)
