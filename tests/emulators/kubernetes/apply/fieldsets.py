"""Sets of fields, in the form in which objects carry them (FieldsV1): tries of plain dicts.

`f:name` is a field, `k:{...}` an item of a list by its keys, `v:...` an item of a set, `.` the
thing itself beside what is below it. An empty dict is a member; one that has children is none,
unless "." is among them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.emulators.kubernetes.schema.nodes import (
    Node,
    child,
    is_atomic,
    is_set,
    item,
    list_keys,
    type_of,
)

Trie = dict[str, Any]
UNKNOWN: Node = {}
# Of keys in lists of built-in kinds; the published schemas do not tell them.
KEY_DEFAULTS = {"protocol": "TCP"}


def fieldset(value: Any, node: Node) -> Trie:
    """All fields of a value."""
    if isinstance(value, dict) and value and not _whole(value, node):
        return {f"f:{k}": fieldset(v, child(node, k) or UNKNOWN) for k, v in value.items()}
    if isinstance(value, list) and value and not _whole(value, node):
        below = item(node)
        if is_set(node):
            return {f"v:{_json(it)}": {} for it in value}
        return {item_key(it, node): {".": {}, **fieldset(it, below)} for it in value}
    return {}


def _whole(value: Any, node: Node) -> bool:
    """Returns whether it is owned and replaced as one; of what no schema tells, only lists are."""
    if isinstance(value, list):
        return type_of(node) != "array" or is_atomic(node) or not (list_keys(node) or is_set(node))
    return bool(node.get("x-kubernetes-map-type") == "atomic")


def granular(value: Any, node: Node) -> bool:
    return isinstance(value, dict | list) and not _whole(value, node)


def item_key(one: Any, node: Node) -> str:
    """As a path segment: the keys of an item, with the defaults of those that it leaves out."""
    below = item(node)
    told = {}
    for key in list_keys(node):
        default = (child(below, key) or UNKNOWN).get("default", KEY_DEFAULTS.get(key))
        if key in one or default is not None:
            told[key] = one.get(key, default)
    return f"k:{_json(told)}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def changed(old: Any, new: Any, node: Node) -> tuple[Trie | None, Trie | None]:
    """(fields that were added or have another value, fields that are gone); None is nothing."""
    if old == new:
        return None, None
    if not (type(old) is type(new) and granular(old, node) and granular(new, node)):
        gone = difference(fieldset(old, node), fieldset(new, node)) if _both(old, new) else {}
        return fieldset(new, node), gone or None
    before, after = _children(old, node), _children(new, node)
    news: Trie = {}
    lost: Trie = {}
    for key, (value, below) in after.items():
        if key not in before:
            news[key] = _entry(key, value, below)
            continue
        added, gone_below = changed(before[key][0], value, below)
        if added is not None:
            news[key] = added
        if gone_below is not None:
            lost[key] = gone_below
    for key, (value, below) in before.items():
        if key not in after:
            lost[key] = _entry(key, value, below)
    return news or None, lost or None


def _both(old: Any, new: Any) -> bool:
    return isinstance(old, dict | list) and isinstance(new, dict | list)


def _entry(key: str, value: Any, below: Node) -> Trie:
    found = fieldset(value, below)
    return {".": {}, **found} if key.startswith("k:") else found


def _children(value: Any, node: Node) -> dict[str, tuple[Any, Node]]:
    if isinstance(value, dict):
        return {f"f:{k}": (v, child(node, k) or UNKNOWN) for k, v in value.items()}
    if is_set(node):
        return {f"v:{_json(it)}": (it, UNKNOWN) for it in value}
    return {item_key(it, node): (it, item(node)) for it in value}


def member(trie: Trie) -> bool:
    return not trie or "." in trie


def union(one: Trie, other: Trie) -> Trie:
    found = dict(one)
    for key, below in other.items():
        mine = found.get(key)
        if mine is None:
            found[key] = below
        elif mine != below:
            both = union(mine, below)
            if (
                both
                and key != "."
                and not (member(mine) and member(below))
                and not (mine and below)
            ):
                both = {".": {}, **both}
            found[key] = both
    return found


def difference(one: Trie, other: Trie) -> Trie:
    """The members of one that are not in the other."""
    found: Trie = {}
    for key, below in one.items():
        if key not in other:
            found[key] = below
            continue
        theirs = other[key]
        if not below:
            if theirs and "." not in theirs:
                found[key] = below
            continue
        rest = difference(below, theirs if theirs else {".": {}})
        if rest:
            found[key] = rest
    return found


def intersection(one: Trie, other: Trie) -> Trie:
    found: Trie = {}
    for key, below in one.items():
        if key not in other:
            continue
        theirs = other[key]
        if not below and not theirs:
            found[key] = {}
        elif not below or not theirs:
            if member(below) and member(theirs):
                found[key] = {}
        else:
            both = intersection(below, theirs)
            if both:
                found[key] = both
    return found


def leaves(trie: Trie, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all members."""
    if not trie:
        yield path
        return
    for key, below in trie.items():
        if key == ".":
            yield path
        else:
            yield from leaves(below, (*path, key))


def spelled(path: tuple[str, ...]) -> str:
    """As the server writes it in a conflict: .spec.containers[name="a"].image."""
    text = ""
    for key in path:
        kind, rest = key[:1], key[2:]
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            text += "[" + ",".join(f"{k}={_json(v)}" for k, v in json.loads(rest).items()) + "]"
        else:
            text += f"[={rest}]"
    return text
