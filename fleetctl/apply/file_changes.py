"""Describes the change of the files that tasks are made of, by their names. Pure; called by
change.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetctl.specs.values.changes import UNSET, FieldChange
from fleetctl.tracking.source_state import names_text

_AT = ("tasks", "files")
Path = tuple[str, ...]


def split_files(spec: Mapping[str, Any]) -> tuple[dict[str, Any], dict[Path, dict[str, Any]]]:
    """Returns (the spec without lists of files, those lists by their path): the spec's own, and
    those of the objects that it makes.
    """
    rest = dict(spec)
    found = {}
    for within in ((), ("template", "spec")):
        holder = rest
        for key in (*within, _AT[0]):
            inner = holder.get(key)
            if not isinstance(inner, Mapping):
                break
            holder[key] = holder = dict(inner)
        else:
            if isinstance(holder.get(_AT[1]), Mapping):
                found[(*within, *_AT)] = holder.pop(_AT[1])
    return rest, found


def list_file_changes(
    before: Mapping[Path, Mapping[str, Any]], after: Mapping[Path, Mapping[str, Any]]
) -> Iterator[FieldChange]:
    """Yields a change for each list that differs."""
    for path in dict.fromkeys((*before, *after)):
        old = before.get(path)
        new = after.get(path)
        if old == new:
            continue
        name = ".".join(path)
        if old is None or new is None:
            count = len(new.get("found") or ()) if new is not None else 0
            text = "no longer its tasks" if new is None else _format_count(count)
            yield FieldChange(name, old or UNSET, new or UNSET, text)
            continue
        for key in ("chunk", "names", "volume", "glob"):
            was = old.get(key, UNSET)
            now = new.get(key, UNSET)
            if was != now:
                yield FieldChange(f"{name}.{key}", was, now)
        if text := describe_files(_list_contents(old), _list_contents(new)):
            yield FieldChange(name, old, new, text)


def describe_files(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Returns `1 added: d.txt; 1 removed: a.txt`; empty for no difference. before, after: contents
    by path.
    """
    added = dict.fromkeys(it for it in after if it not in before)
    removed = dict.fromkeys(it for it in before if it not in after)
    edited = [it for it in after if it in before and before[it] != after[it]]
    left: dict[str, list[str]] = {}
    for path in removed:
        left.setdefault(before[path], []).append(path)
    renamed = []
    for path in list(added):
        if old := left.get(after[path]):
            renamed.append(f"{old[0]} -> {path}")
            del removed[old.pop(0)], added[path]
    parts = {"added": [*added], "edited": edited, "renamed": renamed, "removed": [*removed]}
    told = (f"{len(it):,} {word}: {names_text(it)}" for word, it in parts.items() if it)
    return "; ".join(told)


def _list_contents(files: Mapping[str, Any]) -> dict[str, str]:
    prefix = "" if files["base"] == "." else f"{files['base'].rstrip('/')}/"
    found: Sequence[Mapping[str, Any]] = files.get("found") or ()
    return {f"{prefix}{it['path']}": _content_of(it) for it in found}


def _content_of(found: Mapping[str, Any]) -> str:
    """Returns a text that is equal for equal files. A file of a volume stands for its path as well,
    so that none of them is a renamed one.
    """
    known = found.get("sha256")
    if known is None and found.get("digest"):
        return f"{found['path']} {found['digest']}"
    if known is None:
        return f"{found['path']} {found['bytes']} {found.get('modified')}"
    return str(known)


def _format_count(number: int) -> str:
    return f"{number:,} file{'s'[: number != 1]}"
