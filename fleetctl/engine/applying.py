"""What applying manifests changes, found out before anything is stored, and the storing of it.

`propose` reads alone, so a dry run and a plan ask it too; `commit` writes what was proposed. Called
by the socket server and by `plan`, `diff` and dry runs. What a person must allow first is in
consent.py; which objects go with `--prune` is in pruning.py.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from controllers.history import History
from controllers.impact import Impact, impact
from controllers.kinds import CONTROLLERS
from controllers.model import Resource, RunState
from fleetctl.engine.caching import contents_of, lookup
from fleetctl.engine.notes import NOTES, REVISION
from fleetctl.engine.pruning import APPLYSET, Pruning, pruned
from fleetctl.engine.track import Track, load, track_of
from fleetctl.errors import Conflict
from fleetctl.providers.sources.revision import of_source
from fleetctl.stores.base import EventRow, Store, Stored
from specs.changes import FieldChange, field_changes, same
from specs.common import Execution
from specs.function import FunctionSpec
from specs.kinds import KINDS, dump_spec
from specs.namespaces import DEFAULT_NAMESPACE
from specs.provider import ProviderSpec
from specs.scalars import Spec
from specs.volume import VolumeSpec

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

NAMED_BY = (
    "fleetctl.dev/named-by"  # annotation on a volume that was made because a template names it
)
CREATED, CONFIGURED, UNCHANGED, PRUNED = "created", "configured", "unchanged", "pruned"
FIELDS_SHOWN_MAX = 6


@dataclass(frozen=True, slots=True)
class Order:
    """What a person said beside the files. rollout: FinishRunning or empty, for this apply."""

    rollout: str = ""
    applyset: str = ""
    take_over: bool = False  # also what belongs to another apply set
    pruning: Pruning | None = None
    # provider -> what an object runs there at once that names no parallelism
    parallelism: Mapping[str, int] = field(default_factory=dict)
    revisions: Mapping[str, str] = field(default_factory=dict)  # key -> of its source.path
    namespace: str = DEFAULT_NAMESPACE  # where documents go that name none


@dataclass(frozen=True, slots=True)
class Change:
    """One object before and after. impact is None where no work hangs on the change."""

    outcome: str
    before: Resource | None
    after: Resource
    fields: tuple[FieldChange, ...] = ()
    impact: Impact | None = None
    note: str = ""
    asked_again: bool = False  # it was refused before, and is tried anew

    @property
    def key(self) -> str:
        return self.after.key

    @property
    def message(self) -> str:
        """A sentence for people, or nothing."""
        shown = [field.short for field in self.fields[:FIELDS_SHOWN_MAX]]
        if len(self.fields) > FIELDS_SHOWN_MAX:
            shown.append(f"and {len(self.fields) - FIELDS_SHOWN_MAX} more")
        told = [", ".join(shown), self.note, self._counts()]
        return "; ".join(text for text in told if text)

    def _counts(self) -> str:
        found = self.impact
        if found is None:
            return ""
        if self.outcome == CREATED:
            return _all_new(found, self.after.kind)
        if self.outcome == PRUNED:
            live = len(found.going_on) + len(found.replaced) + len(found.cancelled)
            return f"{live:,} stopped" if live else ""
        said = [f"{found.kept:,} kept"] if found.kept else []
        said += [f"{found.cached:,} cached"] if found.cached else []
        if found.going_on:
            said.append(f"{len(found.going_on):,} running on")
        fresh = None if found.to_run is None else found.to_run - len(found.replaced)
        if fresh:
            said.append(f"{fresh:,} to run")
        if found.replaced:
            said.append(f"{len(found.replaced):,} replaced")
        if found.cancelled:
            said.append(f"{len(found.cancelled):,} cancelled")
        return ", ".join(said)


def propose(
    stored: Stored, manifests: Sequence[Manifest], order: Order, now_s: float
) -> list[Change]:
    """What each manifest changes, in their order, then what is pruned.

    A volume that a template names and nobody declares is created with deletionPolicy Retain, as
    Modal's create_if_missing does, so that no data sits where `get volumes` does not show it.
    """
    changes: list[Change] = []
    volumes = {(it.name, it.namespace) for it in manifests if it.kind == "Volume"}
    for manifest in manifests:
        for volume in _named_volumes(stored, manifest, volumes, now_s):
            volumes.add((volume.name, volume.namespace))
            changes.append(Change(CREATED, None, volume, note=f"named by {manifest.name}"))
        changes.append(_proposed(stored, manifest, order, now_s))
    if order.pruning is not None:
        kept = {manifest.key for manifest in manifests}
        within = {order.namespace, *(it.namespace for it in manifests if KINDS[it.kind].namespaced)}
        for doomed in pruned(stored, order.applyset, kept, order.pruning, within):
            gone = replace(doomed, deleted_at_s=now_s)
            # As the pass of a deleted object reads it: one that nobody can read goes too.
            changes.append(Change(PRUNED, doomed, gone, impact=_impact(stored, gone, order)))
    return changes


def commit(store: Store, changes: Sequence[Change], now_s: float) -> None:
    """Store what was proposed, all or none. Raises Conflict when an object changed in between."""
    with store.transaction():
        for change in changes:
            if change.outcome == UNCHANGED:
                continue
            if change.asked_again:
                _forget_refusals(store, change.after)
            version = change.before.version if change.before is not None else None
            store.resources.put(change.after, expected_version=version)
        store.events.record(
            [
                EventRow(it.after.uid, now_s, "Normal", it.outcome.title(), _said(it))
                for it in changes
                if it.outcome != UNCHANGED
            ]
        )


def _refuse_another_type(known: Resource, spec: ProviderSpec) -> None:
    """What runs at one sort of provider cannot be looked after by another."""
    before = json.loads(known.spec).get("type")
    if before != spec.type and {before, spec.type} != {None, known.name}:
        raise Conflict(
            f"{known.key} is of type `{before}`, which never changes",
            hint=f"give the `{spec.type}` another name, or delete {known.key} first",
        )


def _said(change: Change) -> str:
    return f"{change.key} {change.outcome}"


def _proposed(stored: Stored, manifest: Manifest, order: Order, now_s: float) -> Change:
    known = stored.resources.get(manifest.kind, manifest.name, manifest.namespace)
    wish = _wish(manifest, order, known, now_s)
    if known is None:
        return Change(CREATED, None, wish, impact=_fresh_impact(stored, manifest, wish, order))
    if isinstance(manifest.spec, ProviderSpec):
        _refuse_another_type(known, manifest.spec)
    same_spec = same(json.loads(known.spec), json.loads(wish.spec))
    same_words = known.labels == wish.labels and known.annotations == wish.annotations
    if same_spec and same_words:
        if _was_refused(known):
            again = replace(known, generation=known.generation + 1)
            note = "it was refused; trying again"
            return Change(CONFIGURED, known, again, note=note, asked_again=True)
        return Change(UNCHANGED, known, known)
    after = replace(
        known,
        spec=known.spec if same_spec else wish.spec,
        labels=wish.labels,
        annotations=wish.annotations,
        generation=known.generation + (not same_spec),
    )
    affected = None if same_spec else _impact(stored, after, order)
    return Change(CONFIGURED, known, after, tuple(differences(known, after)), affected)


def differences(before: Resource, after: Resource) -> list[FieldChange]:
    """What differs between two states of one object, as a person wrote it."""
    return [
        *field_changes(json.loads(before.spec), json.loads(after.spec)),
        *field_changes(before.labels, after.labels, "labels"),
        *field_changes(_written(before), _written(after), "annotations"),
    ]


def _written(resource: Resource) -> dict[str, str]:
    """The annotations that a person wrote."""
    return {key: text for key, text in resource.annotations.items() if key not in NOTES}


def _wish(manifest: Manifest, order: Order, known: Resource | None, now_s: float) -> Resource:
    spec = manifest.spec
    if order.rollout and isinstance(spec, Execution):
        spec = spec.model_copy(update={"rollout": order.rollout})
    return Resource(
        uid=secrets.token_hex(8),
        kind=manifest.kind,
        name=manifest.name,
        generation=1,
        version=0,
        spec=dump_spec(spec),
        status="",
        labels=_labels(manifest, order, known),
        annotations=_annotations(manifest, order, known),
        created_at_s=now_s,
        namespace=manifest.namespace,
    )


def _annotations(manifest: Manifest, order: Order, known: Resource | None) -> dict[str, str]:
    """The manifest's own, and what we noted on the object ourselves."""
    before = known.annotations if known is not None else {}
    noted = {key: before[key] for key in NOTES if key in before}
    # Runs of the same template go on with the copy of its source that was taken for it.
    if known is None or not _same_template(known.spec, manifest):
        noted.pop(REVISION, "")
        if revision := order.revisions.get(manifest.key):
            noted[REVISION] = revision
    return {**manifest.metadata.annotations, **noted}


def _same_template(spec: str, manifest: Manifest) -> bool:
    new = json.loads(dump_spec(manifest.spec))
    return bool(json.loads(spec).get("template") == new.get("template"))


def revisions_of(manifests: Sequence[Manifest]) -> dict[str, str]:
    """What the directories hold that the manifests name; may take a second, so ask in a thread."""
    found = {}
    for manifest in manifests:
        template = getattr(manifest.spec, "template", None)
        source = template.source if template is not None else None
        if source is not None and source.path is not None:
            found[manifest.key] = of_source(source)
    return found


def _labels(manifest: Manifest, order: Order, known: Resource | None) -> dict[str, str]:
    """The manifest's own; belonging to an apply set outlasts an apply that names none."""
    labels = dict(manifest.metadata.labels)
    owner = known.labels.get(APPLYSET) if known is not None else None
    if order.applyset:
        if owner not in (None, order.applyset) and not order.take_over:
            raise Conflict(
                f"{manifest.key} belongs to the apply set `{owner}`",
                hint="--take-over makes it part of this one",
            )
        labels[APPLYSET] = order.applyset
    elif owner is not None:
        labels[APPLYSET] = owner
    return labels


def _fresh_impact(
    stored: Stored, manifest: Manifest, wish: Resource, order: Order
) -> Impact | None:
    make = CONTROLLERS.get(manifest.kind)
    if make is None:
        return None
    controller = make(manifest.spec, {})
    history = History(controller.limits)
    return _found(stored, Track(wish, {}, manifest.spec, controller, history), order)


def _impact(stored: Stored, wish: Resource, order: Order) -> Impact | None:
    """What the next pass does to the work of `wish`; read as the pass reads it."""
    if not KINDS[wish.kind].runs:
        return None
    track = track_of(wish)
    load(track, stored.runs)
    return _found(stored, track, order)


def _found(stored: Stored, track: Track, order: Order) -> Impact | None:
    if track.controller is None or track.history is None:
        return None
    contents = contents_of(stored, track)
    cached = lookup(contents, track.history)[0] if contents is not None else {}
    places = [it.provider for it in track.controller.policy.placement.candidates]
    known = [order.parallelism[name] for name in places if name in order.parallelism]
    at_once = sum(known) if known else None
    return impact(track.controller, track.history, cached=len(cached), parallelism=at_once)


def _was_refused(resource: Resource) -> bool:
    status = json.loads(resource.status or "{}")
    current = status.get("observedGeneration") == resource.generation
    return bool(current and status.get("phase") == "Failed" and status.get("reason") == "Refused")


def _forget_refusals(store: Store, refused: Resource) -> None:
    """The machine may have what it lacked; applying the same file again says that it should try."""
    for run, _ in list(store.runs.of(refused.uid)):
        if run.state is RunState.REFUSED:
            # Of no template any more, it says nothing of the present wish; what it said stays.
            passed = replace(run, template_hash="")
            store.runs.advance(passed, from_states=frozenset({RunState.REFUSED}))


def _named_volumes(
    stored: Stored, manifest: Manifest, known: set[tuple[str, str]], now_s: float
) -> Iterator[Resource]:
    spec = manifest.spec
    names_volumes = spec if isinstance(spec, FunctionSpec) else getattr(spec, "template", None)
    namespace = manifest.namespace
    for mount in names_volumes.volumes if names_volumes is not None else ():
        there = stored.resources.get("Volume", mount.name, namespace) is not None
        if there or (mount.name, namespace) in known:
            continue
        yield Resource(
            uid=secrets.token_hex(8),
            kind="Volume",
            name=mount.name,
            generation=1,
            version=0,
            spec=dump_spec(VolumeSpec(provider=_provider(spec))),
            status="",
            labels={},
            annotations={NAMED_BY: manifest.key},
            created_at_s=now_s,
            namespace=namespace,
        )


def _provider(spec: Spec) -> str:
    """Where the volumes belong that it names."""
    if isinstance(spec, FunctionSpec):
        return spec.provider
    assert isinstance(spec, Execution)
    return spec.placement.candidates[0].provider


def _units(count: int, kind: str) -> str:
    unit = KINDS[kind].unit
    return f"{count:,} {unit}" + ("s" if count != 1 else "")


def _all_new(found: Impact, kind: str) -> str:
    """`500 tasks: 412 cached, 88 to run`; nothing while nobody knows how many there are."""
    if found.total is None:
        return ""
    said = _units(found.total, kind)
    return (
        f"{said}: {found.cached:,} cached, {found.to_run or 0:,} to run" if found.cached else said
    )


def outcomes_of(changes: Sequence[Change]) -> list[Mapping[str, str]]:
    """One entry an object, as a reply tells it."""
    return [{"key": it.key, "outcome": it.outcome, "message": it.message} for it in changes]
