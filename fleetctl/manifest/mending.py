"""A second look at a document that has unknown fields: each stands where it was meant, or is left
out, so that faults inside and beside it are reported in the same round. Pure; called by loader.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleetctl.manifest.findings import Finding
from fleetctl.manifest.problems import Path

ROUNDS_MAX = 3  # a field that was meant may hold others
_MEANT = re.compile(r"did you mean `([\w.\[\]]+)`\?")
_PART = re.compile(r"\w+")


@dataclass(slots=True)
class Mended:
    """A document without its unknown fields. data: without the unknown fields of `found`. moved:
    (current path of a value, its written path), paths below `prefix`.
    """

    data: Any
    moved: list[tuple[Path, Path]] = field(default_factory=list)
    changed: bool = False


def mend_document(
    data: Any,
    found: Iterable[Finding],
    prefix: Path,
) -> Mended:
    """Returns `data`, which stands at `prefix`, without its unknown fields."""
    made = Mended(data)
    for finding in found:
        if not finding.at_key or finding.path[: len(prefix)] != prefix:
            continue
        *above, name = finding.path[len(prefix) :]
        made.data, value = _remove_at(made.data, (*above, name))
        made.changed = True
        meant = _MEANT.fullmatch(finding.hint)
        if meant is None or value is _NOTHING:
            continue
        parts = (int(it) if it.isdigit() else it for it in _PART.findall(meant[1]))
        place: Path = (*above, *parts)
        changed = _insert_at(made.data, place, value)
        if changed is not None:
            made.data = changed
            made.moved.append((place, (*above, name)))
    return made


def new_findings(
    found: Iterable[Finding],
    moved: Sequence[tuple[Path, Path]],
    known: Sequence[Finding],
    document: Any,
) -> Iterator[Finding]:
    """Yields the findings that are new, by the paths that are written in the document.

    moved: as in Mended, from the top. An unknown field itself, and its block, get no further
    findings: another name may have been meant.
    """
    unknown = {it.path for it in known if it.at_key}
    doubtful = unknown | {path[:-1] for path in unknown}
    seen = {(it.subject, it.problem) for it in known}
    for finding in found:
        it = replace(
            finding,
            path=_written_at(finding.path, moved),
            subject=_written_at(finding.subject, moved),
        )
        if it.path in doubtful and not it.at_key and it.path == it.subject:
            continue
        if not _is_there(document, it.path):
            # The block exists since a field was moved into it: its missing fields are reported at
            # that field.
            apart = (now for now, _ in moved if now[: len(finding.path)] == finding.path)
            place = next(apart, None)
            if place is None:
                continue
            it = replace(finding, path=_written_at(place, moved), at_key=True)
        if (it.subject, it.problem) not in seen:
            seen.add((it.subject, it.problem))
            yield it


_NOTHING = object()


def _is_there(data: Any, path: Path) -> bool:
    return not path or _remove_at(data, path)[1] is not _NOTHING


def _written_at(path: Path, moved: Sequence[tuple[Path, Path]]) -> Path:
    for now, before in reversed(moved):
        if path[: len(now)] == now:
            path = (*before, *path[len(now) :])
    return path


def _remove_at(data: Any, path: Path) -> tuple[Any, Any]:
    """Returns (a copy without the value at the path, that value); containers beside the way are
    shared.
    """
    name, *rest = path
    if not isinstance(data, dict | list):
        return data, _NOTHING
    try:
        inner = data[name]  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        return data, _NOTHING
    copy: Any = data.copy()
    if rest:
        copy[name], value = _remove_at(inner, tuple(rest))
    else:
        value = copy.pop(name)
    return copy, value


def _insert_at(
    data: Any,
    path: Path,
    value: Any,
) -> Any:
    """Returns a copy with a value at a path that is free; None for a path in use."""
    name, *rest = path
    if not isinstance(data, dict | list):
        return None
    copy: Any = data.copy()
    if not rest:
        if not isinstance(copy, dict) or name in copy:
            return None
        copy[name] = value
        return copy
    try:
        inner = copy[name]
    except (KeyError, IndexError, TypeError):
        inner = [] if isinstance(rest[0], int) else {}
        if isinstance(copy, list):
            copy.append(inner)
    changed = _insert_at(inner, tuple(rest), value)
    if changed is None:
        return None
    copy[name] = changed
    return copy
