"""Which fields of an object people set by hand, and which the file said though they are defaults.

Kept as one note on the object, so that an apply can leave alone what its file never had, as
kubectl's last-applied annotation does. A field is a path of keys from `spec`, `labels` or
`annotations`; a list is one value. Written by the apply and by edits; pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.specs.values.hashing import canonical_json
from fleetctl.tracking.annotations import APPLYSET, FIELDS, NOTES

if TYPE_CHECKING:
    from fleetctl.controllers.model import Resource

FieldPath = tuple[str, ...]
Document = Mapping[str, Any]
_APPLYSET_PATH = ("labels", APPLYSET)


class FieldNote(NamedTuple):
    """hand: fields that somebody set and no file had. filed: fields that the file says and the
    stored object does not show, for they are defaults or somebody took them away.
    """

    hand: tuple[FieldPath, ...] = ()
    filed: tuple[FieldPath, ...] = ()

    def text(self) -> str:
        """JSON; empty where there is nothing to note."""
        found = {name: sorted(paths) for name, paths in self._asdict().items() if paths}
        return canonical_json(found) if found else ""


def field_note(annotations: Mapping[str, str]) -> FieldNote:
    """Reads the note of an object; an empty one where there is none."""
    found = json.loads(annotations.get(FIELDS) or "{}")
    hand, filed = (tuple(tuple(path) for path in found.get(name, ())) for name in ("hand", "filed"))
    return FieldNote(hand, filed)


def noted_fields(annotations: Mapping[str, str], note: FieldNote) -> dict[str, str]:
    """Returns the annotations with this note instead of another."""
    others = {key: text for key, text in annotations.items() if key != FIELDS}
    return {**others, FIELDS: note.text()} if note.text() else others


def document_of(resource: Resource) -> dict[str, Any]:
    """Returns all that people may say of an object."""
    written = {key: text for key, text in resource.annotations.items() if key not in NOTES}
    return {
        "spec": json.loads(resource.spec), "labels": dict(resource.labels), "annotations": written
    }  # fmt: skip


def note_of_edit(before: Resource, after: Resource) -> FieldNote:
    """Returns the note of an object after an edit by hand: a field that appears is set by hand,
    unless it is the file's; one that goes is the file's still, or nobody's.
    """
    note, old, new = field_note(before.annotations), document_of(before), document_of(after)
    kept = [path for path in note.hand if value_at(new, path) is not None]
    fresh = [
        path
        for path in _leaves(new)
        if not covers(old, path) and not owns(note.filed, path) and path != _APPLYSET_PATH
    ]
    gone = [path for path in _leaves(old) if not covers(new, path) and path not in note.hand]
    return FieldNote(
        tuple(dict.fromkeys([*kept, *fresh])), tuple(dict.fromkeys([*note.filed, *gone]))
    )


def as_filed(resource: Resource) -> dict[str, Any]:
    """Returns the document of an object without the fields that people set by hand."""
    document = document_of(resource)
    for path in field_note(resource.annotations).hand:
        _take_away(document, path)
    return document


def covers(document: Document, path: FieldPath) -> bool:
    """Whether the document says something at this path, or a value without keys above it."""
    inner: Any = document
    for key in path:
        if not isinstance(inner, dict):
            return True
        if key not in inner:
            return False
        inner = inner[key]
    return True


def owns(paths: Sequence[FieldPath], path: FieldPath) -> bool:
    """Whether one of the paths is this one or leads to it."""
    return any(path[: len(it)] == it for it in paths)


def value_at(document: Document, path: FieldPath) -> Any:
    """None where there is nothing."""
    inner: Any = document
    for key in path:
        if not isinstance(inner, dict) or key not in inner:
            return None
        inner = inner[key]
    return inner


def shown(paths: Sequence[FieldPath]) -> str:
    """`suspend, labels.team`, as people name fields."""
    return ", ".join(".".join(path).removeprefix("spec.") for path in sorted(paths))


def _leaves(value: object, path: FieldPath = ()) -> Iterator[FieldPath]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif len(path) > 1:
        yield path


def _take_away(document: dict[str, Any], path: FieldPath) -> None:
    """Also the blocks that hold nothing else."""
    holder = value_at(document, path[:-1])
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
        if not holder and len(path) > 2:
            _take_away(document, path[:-1])
