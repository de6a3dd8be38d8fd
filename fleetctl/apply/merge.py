"""Merges a file with later edits by hand, by kubectl's rule: fields of the file win, fields that
the file had and has no more are unset, and fields that it never had are left alone.

Called wherever manifests meet stored objects, before anything is looked up or proposed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS, dump_spec
from fleetctl.specs.values.scalars import Spec
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.by_hand import (
    Document,
    FieldPath,
    covers_path,
    document_of,
    field_note,
    owns_path,
    value_at,
)

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


def with_hand_fields(stored: ReadableStore, manifests: Sequence[Manifest]) -> list[Manifest]:
    """Returns the manifests with the fields that users set by hand on their objects and the files
    do not have. Merging a merged manifest starts again from the file.
    """
    return [_merge_hand_fields(stored, it.filed or it) for it in manifests]


def list_named_defaults(spec: Spec) -> tuple[FieldPath, ...]:
    """Returns the fields that a file names with their default; a stored spec leaves them out."""
    return tuple(_list_defaults(spec, ("spec",)))


def _merge_hand_fields(stored: ReadableStore, manifest: Manifest) -> Manifest:
    known = stored.resources.get(manifest.kind, manifest.name, manifest.namespace)
    hand = field_note(known.annotations).hand if known is not None else ()
    if known is None or not hand:
        return manifest
    said = list_named_defaults(manifest.spec)
    filed = _file_document(manifest)
    live = document_of(known)
    absent = [path for path in hand if not covers_path(filed, path) and not owns_path(said, path)]
    absent = [path for path in absent if value_at(live, path) is not None]
    # A field that does not go with the present file gives way to the file.
    for paths in (absent, _choose_fitting(manifest, filed, live, absent)):
        found = _parse_merged(manifest, filed, live, paths)
        if found is not None:
            metadata, spec = found
            return replace(
                manifest,
                metadata=metadata,
                spec=spec,
                by_hand=tuple(paths),
                filed=manifest,
            )
    return manifest


def _file_document(manifest: Manifest) -> dict[str, Any]:
    return {
        "spec": json.loads(dump_spec(manifest.spec)),
        "labels": manifest.metadata.labels,
        "annotations": manifest.metadata.annotations,
    }


def _choose_fitting(
    manifest: Manifest,
    filed: Document,
    live: Document,
    paths: Sequence[FieldPath],
) -> Sequence[FieldPath]:
    """Returns the paths that the file can have beside its own, tried one after the other."""
    found: list[FieldPath] = []
    for path in paths:
        if _parse_merged(manifest, filed, live, [*found, path]) is not None:
            found.append(path)
    return found


def _parse_merged(
    manifest: Manifest,
    filed: Document,
    live: Document,
    paths: Sequence[FieldPath],
) -> tuple[Metadata, Spec] | None:
    """Returns the manifest with these fields of the live object, or None where that is not a valid
    object."""
    document = deepcopy(dict(filed))
    for path in paths:
        _put_value(document, path, value_at(live, path))
    about = manifest.metadata.model_dump(by_alias=True) | {
        "labels": document["labels"],
        "annotations": document["annotations"],
    }
    try:
        metadata = Metadata.model_validate(about, by_alias=True, by_name=False)
        model = KINDS[manifest.kind].spec.model_of(document["spec"])
        spec = model.model_validate(document["spec"], by_alias=True, by_name=False)
    except ValidationError:
        return None
    return metadata, spec


def _put_value(
    document: dict[str, Any],
    path: FieldPath,
    value: Any,
) -> None:
    inner = document
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    inner[path[-1]] = value


def _list_defaults(value: object, path: FieldPath) -> Iterator[FieldPath]:
    if isinstance(value, BaseModel):
        given = value.model_fields_set
        for name, field in type(value).model_fields.items():
            if name not in given:
                continue
            at = (*path, field.alias or name)
            inner = getattr(value, name)
            if isinstance(inner, BaseModel | dict):
                yield from _list_defaults(inner, at)
            elif inner == field.get_default(call_default_factory=True):
                yield at
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _list_defaults(inner, (*path, str(key)))
