"""Writes the desired state to the store: apply, delete, suspend, and edits without a file, of
fields by name, labels, annotations or a whole spec.

Each call is one transaction; its result is durable when it returns (P1). An edit makes the same
spec as an apply of the file with the new values, so that the change is checked, shown and
consented to in the same way. Decides nothing about runs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fleetctl.apply.ownership import let_go
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions, Request
from fleetctl.apply.write.store_changes import store_changes
from fleetctl.common.errors import Conflict, NotFound, UsageError
from fleetctl.controllers.model import Resource
from fleetctl.manifest import Manifest
from fleetctl.manifest.checks.spec_parts import list_images
from fleetctl.manifest.findings import list_findings
from fleetctl.manifest.plain_scalars import resolve_scalar
from fleetctl.manifest.problems import path_text
from fleetctl.specs.blocks.common import Metadata, WorkSpec
from fleetctl.specs.kinds.queue import QueueSpec
from fleetctl.specs.kinds.registry import KINDS, dump_spec, parse_spec
from fleetctl.specs.kinds.schedule import ScheduleSpec
from fleetctl.specs.kinds.source import SourceSpec
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, object_key
from fleetctl.specs.values.scalars import Spec
from fleetctl.stores.base import EventRow, Store
from fleetctl.tracking.annotations import APPROVED, NOTES, ORIGIN, RECONCILE
from fleetctl.tracking.by_hand import note_fields, note_of_edit
from fleetctl.tracking.kept_by import HELD
from fleetctl.tracking.manifest_sources import source_of
from fleetctl.tracking.source_state import read_in

FIELDS_MAX = 20

Read = TypeVar("Read", bound=BaseModel)
_STEP = re.compile(r"(?P<name>[^\[\]]+)(?P<numbers>(\[\d{1,9}\])*)")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """The effect of apply on one manifest: created | configured | unchanged | pruned, and a
    sentence, or none.
    """

    key: str
    uid: str
    outcome: str
    message: str = ""


def apply_manifests(
    store: Store,
    manifests: Sequence[Manifest],
    now_s: float,
    options: ApplyOptions | None = None,
) -> list[ApplyOutcome]:
    """Stores these manifests, all or none, whatever it costs running work."""
    changes = propose_changes(store, manifests, options or ApplyOptions(), now_s)
    store_changes(store, changes, now_s)
    return [ApplyOutcome(it.key, it.after.uid, it.outcome, it.message) for it in changes]


def delete_object(
    store: Store,
    kind: str,
    name: str,
    now_s: float,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    orphans: bool = False,
) -> str:
    """Marks one object as deleted; see delete_objects. Returns its uid. Raises NotFound."""
    (uid,) = delete_objects(store, [(kind, name, namespace)], now_s, orphans=orphans)
    return uid


def delete_objects(
    store: Store,
    keys: Sequence[tuple[str, str, str]],
    now_s: float,
    *,
    orphans: bool = False,
) -> list[str]:
    """Marks objects as deleted, all or none; each row stays until every part is confirmed gone.
    Returns their uids. keys: (kind, name, namespace). orphans: objects that a schedule made or a
    Source managed stay, and have no owner from now on.

    Raises NotFound.
    """
    uids = []
    with store.transaction():
        for kind, name, namespace in keys:
            resource = find_object(store, kind, name, namespace)
            if orphans:
                let_go(store, resource)
            store.resources.put(
                replace(resource, deleted_at_s=now_s), expected_version=resource.version
            )
            # A user who deletes it and applies it again wants it to run.
            store.cache.forget(resource.uid)
            store.events.record(
                [
                    EventRow(
                        resource.uid,
                        now_s,
                        "Normal",
                        "Deleted",
                        "deletion asked for",
                    )
                ]
            )
            uids.append(resource.uid)
    return uids


def suspend_object(
    store: Store,
    kind: str,
    name: str,
    now_s: float,
    *,
    wanted: bool = True,
    namespace: str = DEFAULT_NAMESPACE,
) -> bool:
    """Sets or clears spec.suspend; False when it was so already. Raises NotFound and UsageError."""
    resource = find_object(store, kind, name, namespace)
    if is_suspended(resource) == wanted:
        return False
    spec = parse_spec(resource.kind, resource.spec)
    changed = replace(
        resource,
        spec=dump_spec(spec.model_copy(update={"suspend": wanted})),
        generation=resource.generation + 1,
    )
    notes = note_fields(changed.annotations, note_of_edit(resource, changed))
    changed = replace(changed, annotations=notes)
    word = "Suspended" if wanted else "Resumed"
    message = f"{word.lower()} by a user"
    with store.transaction():
        store.resources.put(changed, expected_version=resource.version)
        store.events.record(
            [
                EventRow(
                    resource.uid,
                    now_s,
                    "Normal",
                    word,
                    message,
                )
            ]
        )
    return True


def is_suspended(resource: Resource) -> bool:
    """Returns spec.suspend. Raises UsageError for a kind that has none."""
    spec = parse_spec(resource.kind, resource.spec)
    if not isinstance(spec, WorkSpec | ScheduleSpec | SourceSpec | QueueSpec):
        raise UsageError(f"a {resource.kind} has nothing to suspend; it runs no work")
    return spec.suspend


def request_reconcile(
    store: Store,
    name: str,
    request: str,
    *,
    approved: bool,
    seen: str = "",
    namespace: str = DEFAULT_NAMESPACE,
) -> Resource:
    """Asks a Source to read its repository now. request: a name that its status shows once that is
    done. approved: losses of the commit are allowed. seen: the approved commit; without it the one
    that waits for consent now, or else the one that is found. Raises NotFound.
    """
    source = find_object(store, "Source", name, namespace)
    notes = {key: it for key, it in source.annotations.items() if key != APPROVED}
    notes[RECONCILE] = request
    if approved:
        status = json.loads(source.status or "{}")
        held = status.get("attemptedRevision") if status.get("reason") == HELD else ""
        notes[APPROVED] = f"{request} {seen or held}".rstrip()
    with store.transaction():
        return store.resources.put(
            replace(source, annotations=notes), expected_version=source.version
        )


def find_object(
    store: Store,
    kind: str,
    name: str,
    namespace: str = DEFAULT_NAMESPACE,
) -> Resource:
    """Returns the living resource with that name. Raises NotFound."""
    resource = store.resources.get(kind, name, namespace)
    if resource is None:
        key = object_key(kind, name, namespace)
        flag = key.removeprefix(f"{kind.lower()}/{name}")
        raise NotFound(f"{key} is not there", hint=f"fleetctl get {kind.lower()}s{flag}")
    return resource


@dataclass(frozen=True, slots=True)
class ObjectEdits:
    """The edits. fields: each `path=value`. spec: a whole one instead of the stored one. labels,
    annotations: None removes one. generation: that of the object which the user saw; 0 = any.
    """

    fields: tuple[str, ...] = ()
    spec: Mapping[str, Any] | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    generation: int = 0


def edits_in(request: Request) -> ObjectEdits:
    """Reads the edits of a request. Raises UsageError."""
    fields = request.get("fields")
    spec = request.get("spec")
    generation = request.get("generation")
    return ObjectEdits(
        tuple(str(one) for one in fields) if isinstance(fields, list) else (),
        spec if isinstance(spec, dict) else None,
        _words_in(request, "labels"),
        _words_in(request, "annotations"),
        generation if isinstance(generation, int) else 0,
    )


def _words_in(request: Request, name: str) -> dict[str, str | None]:
    value = request.get(name)
    found = value if isinstance(value, dict) else {}
    return {str(key): None if text is None else str(text) for key, text in found.items()}


def manifest_with(
    store: Store,
    kind: str,
    name: str,
    edits: ObjectEdits,
    *,
    namespace: str = DEFAULT_NAMESPACE,
) -> Manifest:
    """Returns the stored object as a manifest, edited.

    Raises NotFound, Conflict when it is not the object that the user saw, and UsageError for edits
    that make no valid object.
    """
    resource = find_object(store, kind, name, namespace)
    if edits.generation not in (0, resource.generation):
        raise Conflict(
            f"{resource.key} changed after you read it", hint="look at it again, and edit that"
        )
    if len(edits.fields) > FIELDS_MAX:
        raise UsageError(f"at most {FIELDS_MAX} fields are set at once, not {len(edits.fields)}")
    data: dict[str, Any] = dict(edits.spec or json.loads(resource.spec))
    labels = dict(edits.labels)
    annotations = dict(edits.annotations)
    for change in edits.fields:
        path, equals, text = change.partition("=")
        if not equals or not path:
            raise UsageError(
                f"`{change}` is not FIELD=VALUE",
                hint="for instance `parallelism=8` or `budget.maxCost=25`",
            )
        words = {"labels": labels, "annotations": annotations}
        block, dot, key = path.removeprefix("metadata.").partition(".")
        if dot and block in words:
            words[block][key] = None if text == "null" else text
        else:
            put_value(data, parse_field_path(path.removeprefix("spec.")), value_of(path, text))
    spec = _validate_model(KINDS[kind].spec.model_of(data), data, "spec", resource.key)
    if any(image.requirements is not None for _, image in list_images(spec)):
        raise UsageError(
            "`image.requirements` is read when a manifest is applied",
            hint="apply a manifest that has it, or set `image.pip`",
        )
    written = {key: text for key, text in resource.annotations.items() if key not in NOTES}
    about = {
        "name": name,
        "namespace": namespace,
        "labels": _merge_edits(resource.labels, labels),
        "annotations": _merge_edits(written, annotations),
    }
    metadata = _validate_model(Metadata, about, "metadata", resource.key)
    origin = _resolve_origin(spec, parse_spec(kind, resource.spec), resource.annotations)
    read = read_in(resource.annotations)
    return Manifest(kind, name, metadata, spec, resource.key, 0, origin=origin, read=read)


def keeps_source(store: Store, draft: Manifest) -> bool:
    """Returns true where an edit leaves the source alone: then its runs continue with the copy, or
    the commit, of the last apply. A user who changes a label has not looked at the source.
    """
    resource = find_object(store, draft.kind, draft.name, draft.namespace)
    return source_of(draft.spec) == source_of(parse_spec(draft.kind, resource.spec))


def _resolve_origin(
    spec: Spec,
    before: Spec,
    annotations: Mapping[str, str],
) -> str:
    """Returns the directory that `source.path` of an edited spec is relative to: that of the old
    one, beside the applied file.
    """
    source = source_of(spec)
    old = source_of(before)
    known = annotations.get(ORIGIN, "")
    if source is None or source.path is None:
        return ""
    if old is None or old.path is None or not known:
        return source.path
    if source.path == old.path:
        return known
    if Path(old.path).is_absolute():
        return source.path
    ups = os.path.relpath(os.curdir, os.path.normpath(old.path))
    return os.path.normpath(os.path.join(known, ups, source.path))


def _merge_edits(before: Mapping[str, str], edits: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**before, **edits}
    return {key: text for key, text in merged.items() if text is not None}


def _validate_model(
    model: type[Read],
    data: Mapping[str, Any],
    where: str,
    key: str,
) -> Read:
    try:
        return model.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        wrong = next(list_findings(error, model, data, (where,)))
        message = f"{key}: {path_text(wrong.subject)}{wrong.what}"
        raise UsageError(message, hint=wrong.fix) from error


def value_of(path: str, text: str) -> object:
    """Reads a value as YAML reads a plain text; lists and mappings are written as JSON."""
    try:
        return json.loads(text) if text[:1] in ("[", "{", '"') else resolve_scalar(text)
    except ValueError as error:
        raise UsageError(f"the value of `{path}` cannot be read: {error}") from error


def parse_field_path(path: str) -> list[str | int]:
    """Splits `search.parameters.lr.values[0]` into names and numbers. Raises UsageError."""
    found: list[str | int] = []
    for part in path.split("."):
        match = _STEP.fullmatch(part)
        if match is None:
            raise UsageError(
                f"`{path}` is not the path of a field",
                hint="for instance `budget.maxCost` or `tasks.items[0].lr`",
            )
        found.append(match["name"])
        found += [int(number) for number in _NUMBER.findall(match["numbers"])]
    return found


def put_value(
    data: dict[str, Any],
    path: Sequence[str | int],
    value: object,
) -> None:
    """Sets a value. null removes the field, so that its default is back; an entry of a list is
    replaced."""
    inner: Any = data
    for at, step in enumerate(path):
        last = at == len(path) - 1
        if isinstance(step, int):
            if not isinstance(inner, list) or step >= len(inner):
                many = f"{len(inner)} entries" if isinstance(inner, list) else "no entries"
                raise UsageError(f"`{_format_path(path[:at])}` has {many}, so there is no [{step}]")
            if last:
                inner[step] = value
        elif isinstance(inner, list):
            raise UsageError(
                f"`{_format_path(path[:at])}` is a list, which has no `{step}`",
                hint=f"write its first entry as `{_format_path(path[:at])}[0]`",
            )
        elif not isinstance(inner, dict):
            raise UsageError(
                f"`{_format_path(path)}` leads through `{_format_path(path[:at])}`, which "
                f"holds no fields",
                hint="change the file and apply it",
            )
        elif last and value is None:
            inner.pop(step, None)
        elif last:
            inner[step] = value
        else:
            inner.setdefault(step, {})
        if not last:
            inner = inner[step]


def _format_path(path: Sequence[str | int]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")
