"""Records an adopted sandbox as a run, in one transaction: of the object that it was made for, of
one that the user names, or of a new one that has no other work.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions
from fleetctl.apply.write.commit import find_object
from fleetctl.apply.write.store_changes import store_changes
from fleetctl.common.errors import Refused, UsageError
from fleetctl.controllers.model import ADOPTED, Resource, Run, RunState
from fleetctl.controllers.schedule.starts import AdoptionMatch, AdoptionRefused, match_adoption
from fleetctl.manifest import Document, load_manifests
from fleetctl.providers.contract.orphans import SHARED, Orphan, mark_of
from fleetctl.specs.builtin import runs_here
from fleetctl.specs.kinds.registry import KINDS, find_kind
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.specs.values.namespaces import split_key
from fleetctl.stores.base import EventRow, Store
from fleetctl.tracking.load import work_of
from fleetctl.tracking.track import ResourceWork

if TYPE_CHECKING:
    from fleetctl.engine.capacity.price_book import PriceBook
    from fleetctl.engine.shared.engine_state import EngineState


NAME_CHARS_MAX = 63
MADE_MAX = 1000  # objects made for orphans with the same name, before an error is reported

# The program of an object that is made for orphans, should a user make it start work: the work of
# its sandboxes is unknown here.
_UNKNOWN_WORK = (
    "echo 'this object was made to adopt a sandbox; apply the manifest of its work to run it again'"
    " >&2; exit 1"
)


def enrol_orphan(
    state: EngineState,
    market: PriceBook,
    resource: Resource,
    taken: AdoptionMatch,
    orphan: Orphan,
) -> None:
    """Records it as a start whose reply was lost: the provider is asked by its id, and a run that
    never began there begins now. Above the object's parallelism no run may begin, so there it is
    recorded as begun.
    """
    work = work_of(resource, state.store.runs)
    template = work.controller.template(taken.unit.index)
    price = market.price(orphan.provider, template, resource.namespace)
    unit = taken.unit
    run = replace(
        _make_run(
            state,
            orphan,
            resource.uid,
            unit.index,
            taken.attempt,
        ),
        template_hash=unit.template_hash,
        params=canonical_json(dict(unit.params)),
        params_hash=unit.params_hash,
        content=unit.content,
        usd_per_s=price,
    )
    limit = work.controller.policy.parallelism
    at_capacity = limit is not None and len(work.history.live) >= limit
    _record_run(state, resource, [run, *([_make_running(run)] if at_capacity else [])], orphan)


def enrol_ended(
    state: EngineState,
    resource: Resource,
    index: int,
    attempt: int,
    orphan: Orphan,
) -> None:
    """Records a sandbox that has ended, with work that is no longer desired: its attempt exists, so
    that no run ever begins under its name again.
    """
    store = state.store
    now_s = state.clock.now_s()
    intended = _make_run(
        state,
        orphan,
        resource.uid,
        index,
        attempt,
    )
    ended = replace(
        intended,
        state=RunState.STOPPED,
        reason="Restored",
        ended_at_s=now_s,
    )
    message = f"sandbox {orphan.handle} at {orphan.provider} began after the backup, and was ended"
    with store.transaction():
        store.runs.begin([intended])
        store.runs.advance(ended)
        again = replace(resource, generation=resource.generation + 1)
        store.resources.put(again, expected_version=resource.version)
        store.events.record(
            [
                EventRow(
                    resource.uid,
                    now_s,
                    "Warning",
                    "Restored",
                    message,
                )
            ]
        )


def enrol_sheltered(
    state: EngineState,
    market: PriceBook,
    orphan: Orphan,
    uid: str,
) -> Resource:
    """Records a run that has begun, for its program is unknown: it is sent no task."""
    resource = make_orphan_object(state.store, orphan, uid, state.clock.now_s())
    controller = work_of(resource, state.store.runs).controller
    unit = controller.unit(0)
    template = controller.template(0)
    assert unit is not None
    # The price of an undescribed machine is unknown, unless all machines are free.
    price = market.price(orphan.provider, template, resource.namespace)
    run = replace(
        _make_run(
            state,
            orphan,
            uid,
            0,
            1,
        ),
        template_hash=unit.template_hash,
        params=canonical_json(dict(unit.params)),
        params_hash=unit.params_hash,
        content=unit.content,
        usd_per_s=0.0 if price == 0.0 else None,
    )
    _record_run(state, resource, [run, _make_running(run)], orphan)
    return resource


def _record_run(
    state: EngineState,
    resource: Resource,
    states: Sequence[Run],
    orphan: Orphan,
) -> None:
    """Records the intended run, then its states; schedules a pass of its object."""
    store = state.store
    now_s = state.clock.now_s()
    first, *later = states
    what = f"{KINDS[resource.kind].unit} {first.index} attempt {first.attempt}"
    message = f"sandbox {orphan.handle} at {orphan.provider} adopted as {what}"
    with store.transaction():
        store.runs.begin([first])
        for run in later:
            store.runs.advance(run)
        again = replace(resource, generation=resource.generation + 1)
        store.resources.put(again, expected_version=resource.version)
        store.events.record(
            [
                EventRow(
                    resource.uid,
                    now_s,
                    "Normal",
                    "Adopted",
                    message,
                )
            ]
        )


def _make_run(
    state: EngineState,
    orphan: Orphan,
    uid: str,
    index: int,
    attempt: int,
) -> Run:
    return Run(
        name=orphan.run,
        uid=uid,
        index=index,
        attempt=attempt,
        state=RunState.STARTING,
        provider=orphan.provider,
        sandbox=orphan.run,
        template_hash="",
        params="{}",
        params_hash="",
        created_at_s=orphan.created_at_s or state.clock.now_s(),
        handle=orphan.handle,
        placed=ADOPTED,
    )


def _make_running(run: Run) -> Run:
    return replace(run, state=RunState.RUNNING, started_at_s=run.created_at_s)


def make_orphan_object(
    store: Store,
    orphan: Orphan,
    uid: str,
    now_s: float,
) -> Resource:
    """Stores the object at once. It starts no work by itself."""
    text = json.dumps(_build_document(store, orphan))
    document = Document(
        path="adopted",
        text=text,
        dir="/",
    )
    (change,) = propose_changes(
        store, load_manifests([document]), ApplyOptions(unjudged=True), now_s
    )
    made = replace(change.after, uid=uid)
    store_changes(store, [replace(change, after=made)], now_s)
    resource = store.resources.get(made.kind, made.name, made.namespace)
    assert resource is not None
    return resource


def _build_document(store: Store, orphan: Orphan) -> dict[str, object]:
    _, name, namespace = split_key(orphan.job)
    task: dict[str, object] = {"run": orphan.run}
    if orphan.job:
        task["of"] = orphan.job
    if index_of(orphan) is not None:
        task["index"] = index_of(orphan)
    return {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "BatchJob",
        "metadata": {
            "name": _free_name(store, f"adopted-{name or orphan.run}", namespace),
            "namespace": namespace,
        },
        "spec": {
            "tasks": {"items": [task]},
            "parallelism": 0,  # it starts no work: its one sandbox is its only run
            "maxInfraRetries": 0,
            "cache": {"policy": "Never"},
            "placement": {"provider": orphan.provider},
            "template": {"script": _UNKNOWN_WORK},
        },
    }


def _free_name(
    store: Store,
    wanted: str,
    namespace: str,
) -> str:
    for number in range(1, MADE_MAX + 1):
        end = f"-{number}" if number > 1 else ""
        name = wanted[: NAME_CHARS_MAX - len(end)].rstrip("-") + end
        if store.resources.get("BatchJob", name, namespace) is None:
            return name
    raise Refused(f"there are {MADE_MAX:,} objects named `{wanted}`", hint="delete some")


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
