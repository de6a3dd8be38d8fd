"""Which objects a Source keeps, and which of them somebody changed by hand. In memory, made of the
store when it is first asked for; told of every object that is written.
"""

from __future__ import annotations

from fleetctl.controllers.model import Resource
from fleetctl.stores.base import ResourceStore
from fleetctl.tracking.kept_by import kept_by
from fleetctl.tracking.ownership import drifted


class Members:
    def __init__(self, resources: ResourceStore) -> None:
        self._resources = resources
        self._loaded = False
        self._source_of: dict[str, str] = {}  # by uid
        self._uids: dict[str, set[str]] = {}  # by source
        self._keys: dict[str, str] = {}  # by uid
        self._how: dict[str, str] = {}  # uid -> how it differs, of those that do
        self._deleted: set[str] = set()  # uids of those that are on their way out

    def heard(self, row: Resource) -> str:
        """An object was written. The key of the Source that keeps it, or kept it until now; empty
        of an object of nobody.
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
            elif drifted(row, note):
                self._how[row.uid] = f"{row.key} was changed by hand"
        return source or before

    def forget(self) -> None:
        """The store may say something else than what was heard."""
        self._loaded = False
        self._source_of.clear()
        self._uids.clear()
        self._keys.clear()
        self._how.clear()
        self._deleted.clear()

    def settled(self, source: str) -> None:
        """All that was missing is there again, or wanted by nobody."""
        self._load()
        for uid in self._uids.get(source, set()) & self._deleted:
            self._let_go(uid)

    def living(self, source: str) -> int:
        self._load()
        return len(self._uids.get(source, set()) - self._deleted)

    def changed(self, source: str) -> list[str]:
        """A sentence for each that differs, in order; what was deleted and is anew does not."""
        self._load()
        uids = self._uids.get(source, set())
        there = {self._keys[it] for it in uids - self._deleted}
        doubtful = uids & self._how.keys()
        gone = {it for it in doubtful & self._deleted if self._keys[it] in there}
        return sorted(self._how[it] for it in doubtful - gone)

    def rows(self, source: str) -> list[Resource]:
        """Also those that are being deleted, by uid."""
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
                self.heard(row)

    def _let_go(self, uid: str) -> None:
        self._uids.get(self._source_of.pop(uid, ""), set()).discard(uid)
        self._keys.pop(uid, None)
        self._how.pop(uid, None)
        self._deleted.discard(uid)
