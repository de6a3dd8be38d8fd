"""Finds the objects that a stored spec names beside those that it depends on: its queue, its
volumes, the endpoints that it calls. Pure; called by views for the graph of objects.

A kind or a field that names objects is a row of NAMED_IN; no code knows either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

EACH = "*"  # each entry of a list

# (path in the stored spec, kind of the object with that name)
NAMED_IN: tuple[tuple[str, str], ...] = (
    ("queue", "Queue"),
    ("template.volumes.*.name", "Volume"),
    ("template.secrets.*", "Secret"),
    ("template.function", "Function"),
    ("template.endpoints.*", "Endpoint"),
    ("template.prompt.endpoint", "Endpoint"),
    ("stages.*.volumes.*.name", "Volume"),
    ("stages.*.secrets.*", "Secret"),
    # Of kinds whose program is at the top.
    ("volumes.*.name", "Volume"),
    ("secrets.*", "Secret"),
    ("servers.*.function", "Function"),
    ("apiKey.secret", "Secret"),
    ("git.secret", "Secret"),
    ("notify.*.webhook.secret", "Secret"),
    ("notify.*.slack.secret", "Secret"),
    ("notify.*.email.secret", "Secret"),
    ("notify.*.commitStatus.secret", "Secret"),
)
_PATHS = tuple((tuple(path.split(".")), kind) for path, kind in NAMED_IN)


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """field: the path of the naming field, without the marks of lists: `template.volumes.name`."""

    kind: str
    name: str
    field: str


def references_in(document: Mapping[str, object]) -> list[ObjectReference]:
    """Returns the references of a stored spec, each object once, in the order of NAMED_IN."""
    found: dict[tuple[str, str], ObjectReference] = {}
    for path, kind in _PATHS:
        for name in _walk_path(document, path):
            field = ".".join(part for part in path if part != EACH)
            found.setdefault((kind, name), ObjectReference(kind, name, field))
    return list(found.values())


def _walk_path(value: object, path: Sequence[str]) -> Iterator[str]:
    """Yields the texts at a path; a part of another form than the path expects has none."""
    if not path:
        if isinstance(value, str):
            yield value
        return
    part, rest = path[0], path[1:]
    if part == EACH:
        for inner in value if isinstance(value, list) else ():
            yield from _walk_path(inner, rest)
    elif isinstance(value, dict) and part in value:
        yield from _walk_path(value[part], rest)
