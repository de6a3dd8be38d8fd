"""`apply --prune`: which objects of an apply set are no longer desired, and the guard before it.

Called by propose.py, after every file was read: where one cannot be, nothing is pruned.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fleetctl.common.errors import Refused
from fleetctl.controllers.model import Resource
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.stores.base import Stored
from fleetctl.tracking.annotations import APPLYSET, SCHEDULED_BY
from fleetctl.tracking.kept_by import kept_by

# A checkout that is empty by mistake must not empty the fleet; one that lost a single object may.
SHARE_MAX = 0.5
ALWAYS_ALLOWED = 1


@dataclass(frozen=True, slots=True)
class Pruning:
    """How much may go at once: a number of objects, or a share of the set; neither = the guard.
    said: how a person says another number.
    """

    most: int | None = None
    share: float | None = None
    said: str = "--max-prune {}"

    def allowed(self, members: int) -> int:
        if self.most is not None:
            return self.most
        if self.share is not None:
            return int(members * self.share)
        return max(ALWAYS_ALLOWED, int(members * SHARE_MAX))


def pruned(
    stored: Stored,
    applyset: str,
    kept: Collection[str],
    pruning: Pruning,
    namespaces: Collection[str] | None = (DEFAULT_NAMESPACE,),
) -> list[Resource]:
    """Objects of the set in these namespaces that no manifest names, what was made last first:
    users before what they use. kept: the keys that manifests name. namespaces: None = all.

    Raises Refused when more would go than the guard lets.
    """
    members = [
        it
        for it in stored.resources.list()
        if it.deleted_at_s is None
        and it.labels.get(APPLYSET) == applyset
        and (namespaces is None or it.namespace in namespaces)
    ]
    doomed = [it for it in reversed(members) if it.key not in kept]
    allowed = pruning.allowed(len(members))
    if len(doomed) > allowed:
        raise Refused(
            f"{len(doomed)} of the {len(members)} objects of apply set `{applyset}` are no longer "
            f"in the files, and at most {allowed} may be pruned: {_names(doomed)}",
            hint=f"{pruning.said.format(len(doomed))} lets them go; nothing was changed",
        )
    return doomed


def going_with(stored: Stored, owner: Resource) -> list[Resource]:
    """What a schedule made, and what a Source keeps that prunes: they go with it, the last first,
    and so does what goes with them.
    """
    found: dict[str, Resource] = {}
    left = [owner]
    while left and any(KINDS[it.kind].starts for it in left):
        owners = {it.uid for it in left}
        keepers = {it.key for it in left if _prunes(it)}
        left = [
            it
            for it in stored.resources.list()
            if it.deleted_at_s is None
            and it.uid not in found
            and it.uid != owner.uid
            and (it.annotations.get(SCHEDULED_BY) in owners or _keeper(it) in keepers)
        ]
        found |= {it.uid: it for it in left}
    return [*reversed(found.values())]


def _prunes(row: Resource) -> bool:
    return row.kind == "Source" and json.loads(row.spec).get("prune") is True


def _keeper(row: Resource) -> str:
    note = kept_by(row.annotations)
    return "" if note is None else note.source


def _names(doomed: Sequence[Resource]) -> str:
    shown = ", ".join(it.key for it in doomed[:5])
    return shown if len(doomed) <= 5 else f"{shown} and {len(doomed) - 5} more"
