"""A file and what people changed by hand since, merged by kubectl's rule: what the file says goes,
what it said before and says no more is unset, and what it never had is left alone.

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
from fleetctl.stores.base import Stored
from fleetctl.tracking.by_hand import (
    Document,
    FieldPath,
    covers,
    document_of,
    field_note,
    owns,
    value_at,
)

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


def with_hand_fields(stored: Stored, manifests: Sequence[Manifest]) -> list[Manifest]:
    """Returns the manifests with the fields that people set by hand on their objects and the files
    do not have. Merging what is merged already begins anew from the file.
    """
    return [_merged(stored, it.filed or it) for it in manifests]


def spoken_defaults(spec: Spec) -> tuple[FieldPath, ...]:
    """Returns the fields that a file says with their default; a stored spec leaves them out."""
    return tuple(_defaults(spec, ("spec",)))


def _merged(stored: Stored, manifest: Manifest) -> Manifest:
    known = stored.resources.get(manifest.kind, manifest.name, manifest.namespace)
    hand = field_note(known.annotations).hand if known is not None else ()
    if known is None or not hand:
        return manifest
    said, filed = spoken_defaults(manifest.spec), _filed(manifest)
    live = document_of(known)
    absent = [path for path in hand if not covers(filed, path) and not owns(said, path)]
    absent = [path for path in absent if value_at(live, path) is not None]
    # A field that does not go with what the file says now gives way to the file.
    for paths in (absent, _fitting(manifest, filed, live, absent)):
        found = _checked(manifest, filed, live, paths)
        if found is not None:
            metadata, spec = found
            return replace(
                manifest, metadata=metadata, spec=spec, by_hand=tuple(paths), filed=manifest
            )
    return manifest


def _filed(manifest: Manifest) -> dict[str, Any]:
    return {
        "spec": json.loads(dump_spec(manifest.spec)),
        "labels": manifest.metadata.labels,
        "annotations": manifest.metadata.annotations,
    }


def _fitting(
    manifest: Manifest, filed: Document, live: Document, paths: Sequence[FieldPath]
) -> Sequence[FieldPath]:
    """Those that the file can have beside its own, taken one after the other."""
    found: list[FieldPath] = []
    for path in paths:
        if _checked(manifest, filed, live, [*found, path]) is not None:
            found.append(path)
    return found


def _checked(
    manifest: Manifest, filed: Document, live: Document, paths: Sequence[FieldPath]
) -> tuple[Metadata, Spec] | None:
    """The manifest with these fields of the live object; None where no such object can be."""
    document = deepcopy(dict(filed))
    for path in paths:
        _put(document, path, value_at(live, path))
    about = manifest.metadata.model_dump(by_alias=True) | {
        "labels": document["labels"],
        "annotations": document["annotations"],
    }
    try:
        metadata = Metadata.model_validate(about, by_alias=True, by_name=False)
        spec = KINDS[manifest.kind].spec.model_validate(
            document["spec"], by_alias=True, by_name=False
        )
    except ValidationError:
        return None
    return metadata, spec


def _put(document: dict[str, Any], path: FieldPath, value: Any) -> None:
    inner = document
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    inner[path[-1]] = value


def _defaults(value: object, path: FieldPath) -> Iterator[FieldPath]:
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            if name not in value.model_fields_set:
                continue
            at, inner = (*path, field.alias or name), getattr(value, name)
            if isinstance(inner, BaseModel | dict):
                yield from _defaults(inner, at)
            elif inner == field.get_default(call_default_factory=True):
                yield at
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _defaults(inner, (*path, str(key)))
