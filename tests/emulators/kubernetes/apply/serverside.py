"""Server-side apply: a configuration is merged into an object, field by field, with owners."""

from __future__ import annotations

import json
from typing import Any

from tests.emulators.kubernetes.apply.fieldsets import (
    UNKNOWN,
    Trie,
    changed,
    difference,
    granular,
    intersection,
    item_key,
    leaves,
    spelled,
    union,
)
from tests.emulators.kubernetes.apply.managed import Object, Owner, Owners, own, read, write
from tests.emulators.kubernetes.schema.nodes import Node, child, is_set, item
from tests.emulators.kubernetes.store.errors import ApiError
from tests.emulators.kubernetes.store.objects import clone


def apply(
    live: Object | None, config: Object, owner: Owner, *, node: Node, force: bool, now: str
) -> Object:
    """The object as it is after it, with its owners. Raises ApiError 409 for a field that another
    owner set to something else, unless `force`d.
    """
    wanted = own(config, node)
    if live is None:
        found = clone(config)
        write(found, {owner: wanted}, {owner: now})
        return found
    owners, times = read(live)
    merged = merge(live, config, node)
    news = intersection(wanted, changed(live, merged, node)[0] or {})
    conflicts = _conflicts(news, owners, owner)
    if conflicts and not force:
        raise _conflict_error(conflicts)
    for other, fields in conflicts.items():
        owners[other] = difference(owners[other], fields)
    others: Trie = {}
    for other, fields in owners.items():
        if other != owner:
            others = union(others, fields)
    gone = difference(difference(owners.get(owner, {}), wanted), others)
    if gone:
        _remove(merged, gone, node)
    if owners.get(owner) != wanted or _differs(live, merged):
        times[owner] = now
    owners[owner] = wanted
    write(merged, owners, times)
    return merged


def _differs(live: Object, merged: Object) -> bool:
    return any(live.get(it) != merged.get(it) for it in {*live, *merged} - {"metadata"})


def _conflicts(news: Trie, owners: Owners, owner: Owner) -> dict[Owner, Trie]:
    """news: the fields that it sets to something else than they are. By whose they are."""
    found = {}
    for other, fields in owners.items():
        both = intersection(news, fields) if other != owner and news else {}
        if both:
            found[other] = both
    return found


def _conflict_error(conflicts: dict[Owner, Trie]) -> ApiError:
    causes, lines = [], []
    for owner, fields in conflicts.items():
        via = f' with subresource "{owner.subresource}"' if owner.subresource else ""
        said = f'conflict with "{owner.manager}"{via} using {owner.version}'
        paths = [spelled(it) for it in leaves(fields)]
        causes += [{"reason": "FieldManagerConflict", "message": said, "field": it} for it in paths]
        lines.append((said, paths))
    count = len(causes)
    if count == 1:
        text = f"{lines[0][0]}: {lines[0][1][0]}"
    else:
        text = "\n".join(
            said.replace("conflict ", "conflicts ", 1)
            + ":\n"
            + "\n".join(f"- {it}" for it in paths)
            for said, paths in lines
        )
    plural = "" if count == 1 else "s"
    message = f"Apply failed with {count} conflict{plural}: {text}"
    return ApiError(409, message, details={"causes": causes})


def merge(live: Any, config: Any, node: Node) -> Any:
    """A new value; lists by their keys, in the order of `live`."""
    if isinstance(live, dict) and isinstance(config, dict) and granular(live, node):
        found = dict(live)
        for name, value in config.items():
            below = child(node, name) or UNKNOWN
            found[name] = merge(live[name], value, below) if name in live else clone(value)
        return found
    if isinstance(live, list) and isinstance(config, list) and granular(live, node):
        if is_set(node):
            return [*live, *(it for it in config if it not in live)]
        below = item(node)
        told = {item_key(it, node): it for it in config}
        found_items = [
            merge(it, told.pop(key), below) if (key := item_key(it, node)) in told else it
            for it in live
        ]
        return found_items + [clone(it) for it in told.values()]
    return clone(config)


def _remove(value: Any, gone: Trie, node: Node) -> None:
    """Changes containers in place, but for those below, which it replaces before it does."""
    if isinstance(value, dict):
        for key, below in gone.items():
            name = key[2:]
            if key == "." or name not in value:
                continue
            if not below:
                del value[name]
                continue
            value[name] = _copied(value[name])
            _remove(value[name], below, child(node, name) or UNKNOWN)
            if value[name] in ({}, []):
                del value[name]
    elif isinstance(value, list):
        kept = []
        for one in value:
            below = gone.get(f"v:{_plain(one)}") if is_set(node) else gone.get(item_key(one, node))
            if below is None:
                kept.append(one)
            elif below and "." not in below:
                one = _copied(one)
                _remove(one, below, item(node))
                kept.append(one)
        value[:] = kept


def _plain(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _copied(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else list(value)
