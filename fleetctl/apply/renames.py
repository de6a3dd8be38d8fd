"""Finds objects that an apply renames: it would prune the old name, and the same object goes on
under the new one, with its attempts, results and logs, also those that run. Called by propose.py.

An object counts as renamed where some of its work counts for the new manifest; otherwise one object
is created and the other one is pruned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.apply.change import CONFIGURED, Change
from fleetctl.common.errors import FleetctlError
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Resource
from fleetctl.controllers.reuse.impact import Impact
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.changes import FieldChange
from fleetctl.tracking.annotations import SCHEDULED_BY, pins_of

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

TRIED_MAX = 20  # candidates for one manifest; each is read with all its attempts


class Leaving:
    """The objects that the apply would prune. impact: returns the impact on an object whose name
    alone changes. taken: uid -> old key of the objects that continue under a new name.
    """

    def __init__(
        self, rows: Iterable[Resource], impact: Callable[[Resource], Impact | None]
    ) -> None:
        self._impact = impact
        self._rows = {
            it.uid: it for it in rows if KINDS[it.kind].runs and SCHEDULED_BY not in it.annotations
        }
        self.taken: dict[str, str] = {}

    def renamed(
        self,
        fresh: Change,
        manifest: Manifest,
        make: Callable[[Resource], Change],
    ) -> Change | None:
        """Returns the change of the object that the manifest renames; None for a new one. fresh:
        the change that creates a new one. make: the change of an object that already had the new
        name.
        """
        best = None
        worth = 0
        for row in self._alike(fresh, manifest):
            try:
                change = make(replace(row, name=manifest.name))
            except FleetctlError:
                continue  # such as a W&B sweep with another search, which it can never become
            if change.impact is None:
                change = replace(change, impact=self._impact(change.after))
            found = change.impact
            counts = 0 if found is None else found.kept + len(found.going_on)
            if counts > worth:
                best = (row, change)
                worth = counts
        if best is None:
            return None
        row, change = best
        del self._rows[row.uid]
        self.taken[row.uid] = row.key
        name = FieldChange("metadata.name", row.name, manifest.name)
        return replace(
            change,
            outcome=CONFIGURED,
            before=row,
            fields=(name, *change.fields),
        )

    def _alike(self, fresh: Change, manifest: Manifest) -> Iterator[Resource]:
        """Yields objects of equal content, at least in one stage; those with the very spec
        first."""
        kind = CONTROLLERS.get(manifest.kind)
        if kind is None or not self._rows:
            return
        contents = set(kind.contents_of(manifest.spec, pins_of(fresh.after.annotations)))
        place = (manifest.kind, manifest.namespace)
        alike = [
            it
            for it in self._rows.values()
            if (it.kind, it.namespace) == place
            and not contents.isdisjoint(json.loads(it.status or "{}").get("contents") or ())
        ]
        alike.sort(key=lambda it: it.spec != fresh.after.spec)
        yield from alike[:TRIED_MAX]
