"""Finds out whether an object still does the work that one's own apply asked for: two people may
apply to one name. Used by `apply --wait` and by the Python client's `wait`.
"""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.tracking.annotations import work_digest
from fleetctl.views.objects import View
from fleetctl.views.reading import Reading


class Overtaken:
    """A set of the uids of objects that do other work by now than an apply asked for.

    works: generation and digest of the work of each object, by key, as the reply to an apply has
    them.
    """

    def __init__(self, works: Mapping[str, object]) -> None:
        self._works = works
        self._uids: set[str] = set()

    def look(self, seen: View) -> None:
        """Compares an object as it is stored now with what was applied."""
        own, there = self._works.get(seen.key), seen.resource
        if not isinstance(own, list) or there.generation == own[0]:
            return
        if work_digest(there.kind, seen.spec(), there.annotations) != own[1]:
            self._uids.add(there.uid)

    def __contains__(self, uid: object) -> bool:
        return uid in self._uids


def describe_overtaking(seen: View, reading: Reading) -> str:
    """Returns a sentence on the change that made other work of it, as its event keeps it."""
    said = [it.line.message for it in reading.events(seen) if it.line.reason == "Configured"]
    change = said[-1].removeprefix(f"{seen.key} configured").removeprefix(": ") if said else ""
    return (
        f"{seen.key} does other work than was applied here, since generation"
        f" {seen.resource.generation}" + (f": {change}" if change else "")
    )
