"""The fields of an object that users set by hand beside those that its file has, and the objects of
a Source with the digest that shows such a change.

The fields are stored as one note on the object, so that an apply can leave fields alone that its
file never had, as kubectl's last-applied annotation does. A field is a path of keys from `spec`,
`labels` or `annotations`; a list is one value. The annotations that name the Source of an object
are in kept_by.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.specs.values.hashing import canonical_json
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.tracking.annotations import APPLYSET, FIELDS, NOTES

if TYPE_CHECKING:
    from fleetctl.controllers.model import Resource
    from fleetctl.tracking.kept_by import KeptBy


FieldPath = tuple[str, ...]
Document = Mapping[str, Any]
_APPLYSET_PATH = ("labels", APPLYSET)

# The prefix of Sources' apply sets; a user's own cannot have it.
SET_PREFIX = "source."
# A digest tells the values of a single field apart, and takes little room on each object.
FIELD_DIGEST_CHARS = 6
FIELDS_DIGESTED_MAX = 200
SET_CHARS_MAX = 63  # of a label's value
DIGEST_CHARS = 16


class FieldNote(NamedTuple):
    """The note. hand: fields that a user set and no file had. filed: fields in the file that the
    stored object does not show, for they are defaults or a user removed them.
    """

    hand: tuple[FieldPath, ...] = ()
    filed: tuple[FieldPath, ...] = ()

    def text(self) -> str:
        """Returns JSON; empty without fields."""
        found = {name: sorted(paths) for name, paths in self._asdict().items() if paths}
        if found:
            return canonical_json(found)
        return ""


def field_note(annotations: Mapping[str, str]) -> FieldNote:
    """Reads the note of an object; an empty one where there is none."""
    found = json.loads(annotations.get(FIELDS) or "{}")
    hand, filed = (tuple(tuple(path) for path in found.get(name, ())) for name in ("hand", "filed"))
    return FieldNote(hand, filed)


def note_fields(annotations: Mapping[str, str], note: FieldNote) -> dict[str, str]:
    """Returns the annotations with this note instead of another."""
    others = {key: text for key, text in annotations.items() if key != FIELDS}
    if note.text():
        return {**others, FIELDS: note.text()}
    return others


def document_of(resource: Resource) -> dict[str, Any]:
    """Returns all fields of an object that users may set."""
    written = {key: text for key, text in resource.annotations.items() if key not in NOTES}
    return {
        "spec": json.loads(resource.spec), "labels": dict(resource.labels), "annotations": written
    }  # fmt: skip


def note_of_edit(before: Resource, after: Resource) -> FieldNote:
    """Returns the note of an object after an edit by hand: a new field is set by hand, unless it is
    the file's; a removed one is the file's still, or of no owner.
    """
    note = field_note(before.annotations)
    old = document_of(before)
    new = document_of(after)
    kept = [path for path in note.hand if value_at(new, path) is not None]
    fresh = [
        path
        for path in _walk_leaves(new)
        if not covers_path(old, path) and not owns_path(note.filed, path) and path != _APPLYSET_PATH
    ]
    gone = [
        path for path in _walk_leaves(old) if not covers_path(new, path) and path not in note.hand
    ]
    return FieldNote(
        tuple(dict.fromkeys([*kept, *fresh])), tuple(dict.fromkeys([*note.filed, *gone]))
    )


def as_filed(resource: Resource) -> dict[str, Any]:
    """Returns the document of an object without the fields that users set by hand."""
    document = document_of(resource)
    for path in field_note(resource.annotations).hand:
        _remove_path(document, path)
    return document


def covers_path(document: Document, path: FieldPath) -> bool:
    """Returns true where the document has a value at this path, or one without keys above it."""
    inner: Any = document
    for key in path:
        if not isinstance(inner, dict):
            return True
        if key not in inner:
            return False
        inner = inner[key]
    return True


def owns_path(paths: Sequence[FieldPath], path: FieldPath) -> bool:
    """Returns true where one of the paths is this one or leads to it."""
    return any(path[: len(it)] == it for it in paths)


def value_at(document: Document, path: FieldPath) -> Any:
    """Returns the value; None for a missing one."""
    inner: Any = document
    for key in path:
        if not isinstance(inner, dict) or key not in inner:
            return None
        inner = inner[key]
    return inner


def format_paths(paths: Sequence[FieldPath]) -> str:
    """Returns `suspend, labels.team`, the names in messages."""
    return ", ".join(".".join(path).removeprefix("spec.") for path in sorted(paths))


def _walk_leaves(value: object, path: FieldPath = ()) -> Iterator[FieldPath]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _walk_leaves(inner, (*path, key))
    elif len(path) > 1:
        yield path


def _remove_path(document: dict[str, Any], path: FieldPath) -> None:
    """Removes a field, and blocks that hold no other."""
    holder = value_at(document, path[:-1])
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
        if not holder and len(path) > 2:
            _remove_path(document, path[:-1])


def set_name(name: str, namespace: str) -> str:
    """Returns the apply set of a Source. Names have no dot, so that no two Sources share one."""
    whole = SET_PREFIX + (name if namespace == DEFAULT_NAMESPACE else f"{namespace}.{name}")
    if len(whole) <= SET_CHARS_MAX:
        return whole
    return SET_PREFIX + "." + sha256(whole.encode()).hexdigest()[:32]


def digest_of(resource: Resource) -> str:
    """Returns a digest of all fields in the manifest; fields that it never had and a user set do
    not count."""
    if field_note(resource.annotations).hand:
        filed = as_filed(resource)
        spec, labels, written = (filed[part] for part in ("spec", "labels", "annotations"))
        spec = json.dumps(spec, separators=(",", ":"), allow_nan=False)
    else:
        spec = resource.spec
        labels = resource.labels
        written = {key: text for key, text in resource.annotations.items() if key not in NOTES}
    text = canonical_json([spec, labels, written])
    return sha256(text.encode()).hexdigest()[:DIGEST_CHARS]


def has_drifted(resource: Resource, note: KeptBy) -> bool:
    return digest_of(resource) != note.digest


def digest_fields(resource: Resource) -> dict[str, str]:
    """Returns a digest of each field in the manifest by its path; empty for an object with more
    than FIELDS_DIGESTED_MAX."""
    found = {format_paths([path]): value for path, value in _list_filed(resource)}
    if len(found) > FIELDS_DIGESTED_MAX:
        return {}
    return {path: _digest_value(value) for path, value in found.items()}


def list_drift(resource: Resource, note: KeptBy) -> list[tuple[str, object]]:
    """Returns (path, value now) of each field that differs from the manifest; None for one that is
    gone. Empty where the note has no fields."""
    if not note.fields:
        return []
    now = {format_paths([path]): value for path, value in _list_filed(resource)}
    changed = [
        (path, value)
        for path, value in now.items()
        if note.fields.get(path) != _digest_value(value)
    ]
    return [*changed, *((path, None) for path in note.fields if path not in now)]


def _list_filed(resource: Resource) -> Iterator[tuple[FieldPath, object]]:
    document = as_filed(resource)
    for path in _walk_leaves(document):
        yield path, value_at(document, path)


def _digest_value(value: object) -> str:
    return sha256(canonical_json(value).encode()).hexdigest()[:FIELD_DIGEST_CHARS]
