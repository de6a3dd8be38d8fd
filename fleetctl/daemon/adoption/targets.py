"""Where an orphan belongs: the object that it was made for, one that a person names, or one that is
to be made for it. Called by adopt.py; asks the store alone, and changes nothing.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.apply.write.commit import find
from fleetctl.common.errors import Refused, UsageError
from fleetctl.controllers.model import Resource
from fleetctl.controllers.schedule.adoption import NotTaken, Taking, taking
from fleetctl.providers.contract.orphans import SHARED, Orphan, mark_of
from fleetctl.specs.builtin import runs_here
from fleetctl.specs.kinds.registry import KINDS, find_kind
from fleetctl.specs.values.namespaces import split_key
from fleetctl.stores.base import Store
from fleetctl.tracking.load import work_of
from fleetctl.tracking.track import Work

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State


@dataclass(frozen=True, slots=True)
class Home:
    """Where an orphan goes. resource: None = an object is to be made."""

    resource: Resource | None
    taking: Taking | None


def home_of(state: State, orphan: Orphan, into: str) -> Home:
    """Raises Refused with the reason where it can be adopted nowhere."""
    if orphan.work == SHARED:
        raise Refused(
            "tasks take turns in it, and its tag tells of the first of them alone",
            hint=_or_else(orphan),
        )
    if orphan.provider not in state.providers:
        raise Refused(
            f"there is no provider `{orphan.provider}` here",
            hint="apply a `kind: Provider` of that name",
        )
    resource = named(state.store, into) if into else _own(state.store, orphan)
    if resource is None:
        return Home(None, None)
    work = work_of(resource, state.store.runs)
    found = _taken(work, orphan)
    if isinstance(found, NotTaken):
        if not into and not _same_work(work, orphan):
            return Home(None, None)
        raise Refused(f"{resource.key}: {found.why}", hint=_or_else(orphan))
    if not into and mark_of(found.unit) != orphan.work:
        return Home(None, None)
    return Home(resource, found)


def named(store: Store, key: str) -> Resource:
    """The object of this key, which must run work. Raises NotFound and UsageError."""
    word, name, namespace = split_key(key)
    kind = find_kind(word)
    if kind is None or not name or not kind.runs:
        raise UsageError(f"`{key}` names no object that runs work")
    return find(store, kind.name, name, namespace)


def uid_for(store: Store, orphan: Orphan) -> str:
    """That of its old object while nothing here has it: its files lie under it."""
    free = orphan.uid and store.resources.of(orphan.uid) is None
    return orphan.uid if free else secrets.token_hex(8)


def index_of(orphan: Orphan) -> int | None:
    """Of its unit, where its tag tells."""
    return int(orphan.index) if orphan.index.isdigit() else None


def _own(store: Store, orphan: Orphan) -> Resource | None:
    """The object that it was made for, or the one that has its name now."""
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


def _taken(work: Work, orphan: Orphan) -> Taking | NotTaken:
    what = KINDS[work.resource.kind].unit
    return taking(work.controller, work.history, index_of(orphan), what=what)


def _same_work(work: Work, orphan: Orphan) -> bool:
    """The object still asks for just what runs there."""
    index = index_of(orphan)
    unit = None if index is None else work.controller.unit(index)
    return unit is not None and mark_of(unit) == orphan.work


def _or_else(orphan: Orphan) -> str:
    name = orphan.run if runs_here(orphan.provider) else orphan.handle
    return f"`fleetctl orphans {name} --delete` ends it"
