"""Finds an orphan's object: the one that it was made for, one that the user names, or one that is
to be made for it. Called by adopt.py; reads the store alone, and changes nothing.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.apply.write.commit import find_object
from fleetctl.common.errors import Refused, UsageError
from fleetctl.controllers.model import Resource
from fleetctl.controllers.schedule.adoption import AdoptionMatch, AdoptionRefused, match_adoption
from fleetctl.providers.contract.orphans import SHARED, Orphan, mark_of
from fleetctl.specs.builtin import runs_here
from fleetctl.specs.kinds.registry import KINDS, find_kind
from fleetctl.specs.values.namespaces import split_key
from fleetctl.stores.base import Store
from fleetctl.tracking.load import work_of
from fleetctl.tracking.track import ResourceWork

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState


@dataclass(frozen=True, slots=True)
class AdoptionTarget:
    """The target of an orphan. resource: None = an object is to be made."""

    resource: Resource | None
    taking: AdoptionMatch | None


def find_adoption_target(
    state: EngineState,
    orphan: Orphan,
    into: str,
) -> AdoptionTarget:
    """Returns the target. Raises Refused with the reason where no object fits."""
    if orphan.work == SHARED:
        raise Refused(
            "tasks take turns in it, and its tag names the first of them alone",
            hint=_or_else(orphan),
        )
    if orphan.provider not in state.providers:
        raise Refused(
            f"there is no provider `{orphan.provider}` here",
            hint="apply a `kind: Provider` of that name",
        )
    resource = find_named(state.store, into) if into else _find_own(state.store, orphan)
    if resource is None:
        return AdoptionTarget(None, None)
    work = work_of(resource, state.store.runs)
    found = _choose_unit(work, orphan)
    if isinstance(found, AdoptionRefused):
        if not into and not _same_work(work, orphan):
            return AdoptionTarget(None, None)
        raise Refused(f"{resource.key}: {found.why}", hint=_or_else(orphan))
    if not into and mark_of(found.unit) != orphan.work:
        return AdoptionTarget(None, None)
    return AdoptionTarget(resource, found)


def find_named(store: Store, key: str) -> Resource:
    """Returns the object of this key, which must run work. Raises NotFound and UsageError."""
    word, name, namespace = split_key(key)
    kind = find_kind(word)
    if kind is None or not name or not kind.runs:
        raise UsageError(f"`{key}` names no object that runs work")
    return find_object(store, kind.name, name, namespace)


def uid_for(store: Store, orphan: Orphan) -> str:
    """Returns the uid of its old object while no other object here has that uid: its files lie
    under it."""
    free = orphan.uid and store.resources.of(orphan.uid) is None
    if free:
        return orphan.uid
    return secrets.token_hex(8)


def index_of(orphan: Orphan) -> int | None:
    """Returns the index of its unit, where its tag has one."""
    if orphan.index.isdigit():
        return int(orphan.index)
    return None


def _find_own(store: Store, orphan: Orphan) -> Resource | None:
    """Returns the object that it was made for, or the one that has its name now."""
    same = store.resources.of(orphan.uid)
    if same is not None and same.deleted_at_s is not None:
        raise Refused(
            f"{same.key} is being deleted, and it goes with it",
            hint="`--into` makes it a run of another object",
        )
    if same is not None:
        return same
    word, name, namespace = split_key(orphan.job)
    kind = find_kind(word) if name else None
    if kind is None or not kind.runs:
        return None
    return store.resources.get(kind.name, name, namespace)


def _choose_unit(work: ResourceWork, orphan: Orphan) -> AdoptionMatch | AdoptionRefused:
    what = KINDS[work.resource.kind].unit
    return match_adoption(work.controller, work.history, index_of(orphan), what=what)


def _same_work(work: ResourceWork, orphan: Orphan) -> bool:
    """Returns true where the object still asks for the very work of the sandbox."""
    index = index_of(orphan)
    unit = None if index is None else work.controller.unit(index)
    return unit is not None and mark_of(unit) == orphan.work


def _or_else(orphan: Orphan) -> str:
    name = orphan.run if runs_here(orphan.provider) else orphan.handle
    return f"`fleetctl orphans {name} --delete` ends it"
