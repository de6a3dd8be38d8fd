"""Finds out if an object still does the work of the caller's own apply: two users may apply to one
name. Used by `apply --wait` and by the Python client's `wait`.
"""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.tracking.annotations import work_digest
from fleetctl.views.objects import View
from fleetctl.views.store_reading import StoreReading


class OvertakenObjects:
    """A set of the uids of objects that do other work by now than an apply asked for.

    works: generation and digest of the work of each object, by key, as the reply to an apply has
    them.
    """

    def __init__(self, works: Mapping[str, object]) -> None:
        self._works = works
        self._uids: set[str] = set()

    def look(self, seen: View) -> None:
        """Compares an object as it is stored now with the applied one."""
        own = self._works.get(seen.key)
        there = seen.resource
        if not isinstance(own, list) or there.generation == own[0]:
            return
        if work_digest(there.kind, seen.spec(), there.annotations) != own[1]:
            self._uids.add(there.uid)

    def __contains__(self, uid: object) -> bool:
        return uid in self._uids


def describe_overtaking(seen: View, reading: StoreReading) -> str:
    """Returns a sentence on the change that gave it other work, from its event."""
    said = [it.line.message for it in reading.events(seen) if it.line.reason == "Configured"]
    change = said[-1].removeprefix(f"{seen.key} configured").removeprefix(": ") if said else ""
    return (
        f"{seen.key} does other work than was applied here, since generation"
        f" {seen.resource.generation}" + (f": {change}" if change else "")
    )
