"""Reads on in a block that has mistakes: an unknown field stands where it was meant or is left out,
and a value that could not be read is marked, so that a check that comes to it stops there.

So an object with mistakes is checked as far as it is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.rules import UNREAD

T = TypeVar("T")

M = TypeVar("M", bound=BaseModel)
Moves = Sequence[tuple[Path, Path]]  # (current path, written path) of values that were moved

ROUNDS_MAX = 5  # a field that was meant may hold others, and a block may need what was left out
_MEANT = re.compile(r"did you mean `([\w.\[\]]+)`\?")
_PART = re.compile(r"\w+")


def without_values(model: M, paths: Iterable[Path]) -> M:
    """Returns a copy whose values at these paths, as a manifest has them, are marked."""
    copy = model.model_copy(deep=True)
    for path in paths:
        _mark_unread(copy, path)
    return copy


def _mark_unread(model: BaseModel, path: Path) -> None:
    fields = {info.alias or name: name for name, info in type(model).model_fields.items()}
    name = fields.get(str(path[0])) if path else None
    if name is None or model.__dict__[name] is UNREAD:
        return  # an unknown field, which no check reads
    value = model.__dict__[name]
    rest = path[1:]
    if rest and isinstance(value, tuple) and isinstance(rest[0], int) and rest[0] < len(value):
        value, rest = value[rest[0]], rest[1:]
    elif rest and name == "spec" and isinstance(value, dict):
        value = getattr(model, "work", None)  # the object that a Schedule makes
    if rest and isinstance(value, BaseModel):
        _mark_unread(value, rest)
    else:
        model.__dict__[name] = UNREAD


@dataclass(slots=True)
class Mended:
    """A document without its mistakes. data: without the unknown fields and the wrong values of
    `found`. moved: below `prefix`. unread: current paths of the values that were left out.
    """

    data: Any
    moved: list[tuple[Path, Path]] = field(default_factory=list)
    unread: list[Path] = field(default_factory=list)
    changed: bool = False


@dataclass(slots=True)
class BlockReading(Generic[M]):
    """A block as far as it can be read. model: None where too much of it is wrong. known: all
    findings. moved, unread: as in Mended, from the top of the document.
    """

    model: M | None
    known: list[Finding]
    moved: list[tuple[Path, Path]] = field(default_factory=list)
    unread: list[Path] = field(default_factory=list)

    def add(self, found: Iterable[Finding], document: Any) -> None:
        """Adds the findings that are new, and no mere consequences of known ones."""
        self.known += select_new_findings(found, self.moved, self.unread, self.known, document)


def read_on(
    document: Any,
    prefix: Path,
    known: Sequence[Finding],
    read: Callable[[Any, list[Finding]], M | None],
) -> BlockReading[M]:
    """Reads the block at `prefix`, of which `known` is wrong. read: validates a block by its model,
    and adds its findings to the list.
    """
    block = document
    for part in prefix:
        block = block[part]
    made = BlockReading[M](None, [*known])
    latest = [*known]
    for _ in range(ROUNDS_MAX):
        mended = mend_document(block, latest, prefix)
        if not mended.changed:
            break
        block = mended.data
        made.moved += [((*prefix, *now), (*prefix, *written)) for now, written in mended.moved]
        made.unread += [(*prefix, *path) for path in mended.unread]
        latest = []
        made.model = read(block, latest)
        made.add(latest, document)
        if made.model is not None:
            break
    return made


def mend_document(
    data: Any,
    found: Iterable[Finding],
    prefix: Path,
) -> Mended:
    """Returns `data`, which stands at `prefix`, without its unknown fields and wrong values."""
    made = Mended(data)
    for finding in found:
        if finding.where[: len(prefix)] != prefix:
            continue
        path = finding.where[len(prefix) :]
        while path and isinstance(path[-1], int) and not finding.at_key:
            path = path[:-1]  # a list without an entry would be another one
        if not path:
            continue
        made.data, value = _remove_at(made.data, path)
        if value is _NOTHING:
            continue
        made.changed = True
        if not finding.at_key:
            made.unread.append(path)
            continue
        meant = _MEANT.fullmatch(finding.fix)
        if meant is None:
            continue
        parts = (int(it) if it.isdigit() else it for it in _PART.findall(meant[1]))
        place: Path = (*path[:-1], *parts)
        changed = None if place in made.unread else _insert_at(made.data, place, value)
        if changed is not None:
            made.data = changed
            made.moved.append((place, path))
    return made


def select_new_findings(
    found: Iterable[Finding],
    moved: Moves,
    unread: Sequence[Path],
    known: Sequence[Finding],
    document: Any,
) -> Iterator[Finding]:
    """Yields the findings that are new, by the paths that are written in the document.

    moved, unread: as in Mended, from the top. An unknown field itself, and its block, get no
    further findings: another name may have been meant. Neither do the blocks around a value that
    was left out.
    """
    unknown = {it.where for it in known if it.at_key}
    doubtful = unknown | {path[:-1] for path in unknown}
    left_out = {path[:depth] for path in unread for depth in range(len(path) + 1)}
    seen = {(it.subject, it.what) for it in known}
    for finding in found:
        if finding.where in left_out and not finding.at_key:
            continue
        it = replace(
            finding,
            where=find_written_path(finding.where, moved),
            about=find_written_path(finding.subject, moved),
        )
        if it.where in doubtful and not it.at_key and it.where == it.subject:
            continue
        if not _is_there(document, it.where):
            # The block exists since a field was moved into it: its missing fields are reported at
            # that field.
            apart = (now for now, _ in moved if now[: len(finding.where)] == finding.where)
            place = next(apart, None)
            if place is None:
                continue
            it = replace(
                finding, where=find_written_path(place, moved), about=finding.subject, at_key=True
            )
        if (it.subject, it.what) not in seen:
            seen.add((it.subject, it.what))
            yield it


_NOTHING = object()


def _is_there(data: Any, path: Path) -> bool:
    return not path or _remove_at(data, path)[1] is not _NOTHING


def find_written_path(path: Path, moved: Moves) -> Path:
    """Returns the path that the author wrote for a value that was moved."""
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
