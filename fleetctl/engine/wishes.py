"""What people wish, written to the store: apply, delete, suspend. Called by the socket server and
by tests.

Each call is one transaction; what it answers is durable when it returns (P1). Decides nothing about
runs.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controllers.model import Resource, RunState
from fleetctl.errors import NotFound, UsageError
from fleetctl.stores.base import EventRow, Store
from specs.common import Execution
from specs.function import FunctionSpec
from specs.kinds import dump_spec, parse_spec
from specs.scalars import Spec
from specs.volume import VolumeSpec

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

NAMED_BY = (
    "fleetctl.dev/named-by"  # annotation on a volume that was made because a template names it
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What apply did with one manifest: created | configured | unchanged, and a sentence or
    nothing.
    """

    key: str
    uid: str
    outcome: str
    message: str = ""


def apply(store: Store, manifests: Sequence[Manifest], now_s: float) -> list[Outcome]:
    """Make the store wish for these manifests, all or none.

    A volume that a template names and nobody declares is created with deletionPolicy Retain, as
    Modal's
    create_if_missing does, so that no data sits where `get volumes` does not show it.
    """
    outcomes: list[Outcome] = []
    events: list[EventRow] = []
    with store.transaction():
        declared = {manifest.name for manifest in manifests if manifest.kind == "Volume"}
        for manifest in manifests:
            outcomes += _ensure_volumes(store, manifest, declared, now_s)
            outcomes.append(_apply_one(store, manifest, now_s))
        for outcome in outcomes:
            if outcome.outcome != "unchanged":
                text = f"{outcome.key} {outcome.outcome}"
                events.append(EventRow(outcome.uid, now_s, "Normal", outcome.outcome.title(), text))
        store.events.record(events)
    return outcomes


def delete(store: Store, kind: str, name: str, now_s: float) -> str:
    """Wish it gone; the row stays until everything of it is confirmed gone. Returns the uid.

    Raises NotFound.
    """
    resource = find(store, kind, name)
    with store.transaction():
        store.resources.put(
            replace(resource, deleted_at_s=now_s), expected_version=resource.version
        )
        store.events.record(
            [EventRow(resource.uid, now_s, "Normal", "Deleted", "deletion asked for")]
        )
    return resource.uid


def suspend(store: Store, kind: str, name: str, now_s: float, *, wanted: bool = True) -> bool:
    """Set or clear spec.suspend; False when it was so already. Raises NotFound and UsageError."""
    resource = find(store, kind, name)
    spec = parse_spec(resource.kind, resource.spec)
    if not isinstance(spec, Execution):
        raise UsageError(f"a {kind} has nothing to suspend; it runs no work")
    if spec.suspend == wanted:
        return False
    changed = replace(
        resource,
        spec=dump_spec(spec.model_copy(update={"suspend": wanted})),
        generation=resource.generation + 1,
    )
    word = "Suspended" if wanted else "Resumed"
    said = f"{word.lower()} by a user"
    with store.transaction():
        store.resources.put(changed, expected_version=resource.version)
        store.events.record([EventRow(resource.uid, now_s, "Normal", word, said)])
    return True


def find(store: Store, kind: str, name: str) -> Resource:
    """The living resource of that name. Raises NotFound."""
    resource = store.resources.get(kind, name)
    if resource is None:
        raise NotFound(f"{kind.lower()}/{name} is not there", hint=f"fleetctl get {kind.lower()}s")
    return resource


def _apply_one(store: Store, manifest: Manifest, now_s: float) -> Outcome:
    spec = dump_spec(manifest.spec)
    known = store.resources.get(manifest.kind, manifest.name)
    key = f"{manifest.kind.lower()}/{manifest.name}"
    if known is None:
        made = _resource(manifest, spec, now_s)
        store.resources.put(made, expected_version=None)
        return Outcome(key, made.uid, "created", _size(manifest))
    labels, annotations = dict(manifest.metadata.labels), dict(manifest.metadata.annotations)
    same_spec = json.loads(known.spec) == json.loads(spec)
    if same_spec and known.labels == labels and known.annotations == annotations:
        if _was_refused(known):
            return _ask_again(store, known)
        return Outcome(key, known.uid, "unchanged")
    changed = replace(
        known,
        spec=spec,
        labels=labels,
        annotations=annotations,
        generation=known.generation + (not same_spec),
    )
    store.resources.put(changed, expected_version=known.version)
    return Outcome(key, known.uid, "configured", ", ".join(differences(known.spec, spec)))


def _was_refused(resource: Resource) -> bool:
    status = json.loads(resource.status or "{}")
    current = status.get("observedGeneration") == resource.generation
    return bool(current and status.get("phase") == "Failed" and status.get("reason") == "Refused")


def _ask_again(store: Store, refused: Resource) -> Outcome:
    """The machine may have what it lacked; applying the same file again says that it should try."""
    for run, _ in list(store.runs.of(refused.uid)):
        if run.state is RunState.REFUSED:
            # Of no template any more, it says nothing of the present wish; what it said stays.
            passed = replace(run, template_hash="")
            store.runs.advance(passed, from_states=frozenset({RunState.REFUSED}))
    again = replace(refused, generation=refused.generation + 1)
    store.resources.put(again, expected_version=refused.version)
    return Outcome(refused.key, refused.uid, "configured", "it was refused; trying again")


def _resource(manifest: Manifest, spec: str, now_s: float) -> Resource:
    return Resource(
        uid=secrets.token_hex(8),
        kind=manifest.kind,
        name=manifest.name,
        generation=1,
        version=0,
        spec=spec,
        status="",
        labels=dict(manifest.metadata.labels),
        annotations=dict(manifest.metadata.annotations),
        created_at_s=now_s,
    )


def _ensure_volumes(
    store: Store, manifest: Manifest, declared: set[str], now_s: float
) -> Iterable[Outcome]:
    spec = manifest.spec
    names_volumes = spec if isinstance(spec, FunctionSpec) else getattr(spec, "template", None)
    for mount in names_volumes.volumes if names_volumes is not None else ():
        if mount.name in declared or store.resources.get("Volume", mount.name) is not None:
            continue
        provider = _provider(spec)
        made = Resource(
            uid=secrets.token_hex(8),
            kind="Volume",
            name=mount.name,
            generation=1,
            version=0,
            spec=dump_spec(VolumeSpec(provider=provider)),
            status="",
            labels={},
            annotations={NAMED_BY: f"{manifest.kind.lower()}/{manifest.name}"},
            created_at_s=now_s,
        )
        store.resources.put(made, expected_version=None)
        yield Outcome(f"volume/{mount.name}", made.uid, "created", f"named by {manifest.name}")


def _provider(spec: Spec) -> str:
    """Where the volumes belong that it names."""
    if isinstance(spec, FunctionSpec):
        return spec.provider
    assert isinstance(spec, Execution)
    return spec.placement.candidates[0].provider


def _size(manifest: Manifest) -> str:
    count = getattr(manifest.spec, "count", None)
    if manifest.kind == "BatchJob" and count is not None:
        total = count()
        return f"{total:,} task" + ("s" if total != 1 else "")
    return ""


def differences(before: str, after: str) -> list[str]:
    """`parallelism 8 -> 16` for short values, the field's name for long ones; a few."""
    old, new = json.loads(before), json.loads(after)
    out = []
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            shown = f"{json.dumps(old.get(name))} -> {json.dumps(new.get(name))}"
            out.append(f"{name} {shown}" if len(shown) <= 40 else name)
    return out[:6]
