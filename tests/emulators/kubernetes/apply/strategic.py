"""Patches other than server-side apply: merge patch, and the strategic one of built-in kinds."""

from __future__ import annotations

from typing import Any

from tests.emulators.kubernetes.schema.nodes import Node, child, item
from tests.emulators.kubernetes.store.errors import ApiError
from tests.emulators.kubernetes.store.objects import clone

UNKNOWN: Node = {}


def merge_patch(value: Any, patch: Any) -> Any:
    """RFC 7396: a new value."""
    if not isinstance(patch, dict):
        return clone(patch)
    found = dict(value) if isinstance(value, dict) else {}
    for name, one in patch.items():
        if one is None:
            found.pop(name, None)
        else:
            found[name] = merge_patch(found.get(name), one)
    return found


def json_patch(value: Any, operations: Any) -> Any:
    """RFC 6902. Raises ApiError 422 as the server does, also for a failed test."""
    import jsonpatch

    try:
        return jsonpatch.apply_patch(clone(value), operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise ApiError(422, message) from error


def strategic_patch(value: Any, patch: Any, node: Node) -> Any:
    """By the merge keys of the schema, with the directives that kubectl writes."""
    if not isinstance(patch, dict):
        return clone(patch)
    directive = patch.get("$patch")
    if directive == "replace":
        return clone({k: v for k, v in patch.items() if k != "$patch"})
    if directive == "delete":
        return {}
    found = dict(value) if isinstance(value, dict) else {}
    retained = patch.get("$retainKeys")
    if retained is not None:
        found = {k: v for k, v in found.items() if k in retained}
    for name, one in patch.items():
        if name.startswith("$"):
            continue
        below = child(node, name) or UNKNOWN
        if one is None:
            found.pop(name, None)
        elif isinstance(one, list):
            order = patch.get(f"$setElementOrder/{name}")
            found[name] = _list(found.get(name) or [], one, _marked(node, name, below), order)
        elif isinstance(one, dict):
            found[name] = strategic_patch(found.get(name), one, below)
        else:
            found[name] = one
    for name, gone in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.split("/", 1)[1]
            found[field] = [it for it in found.get(field) or () if it not in gone]
        elif name.startswith("$setElementOrder/"):
            field = name.split("/", 1)[1]
            if field not in patch and isinstance(found.get(field), list):
                below = _marked(node, field, child(node, field) or UNKNOWN)
                found[field] = _ordered(found[field], gone, below)
    return found


def _marked(node: Node, name: str, below: Node) -> Node:
    """With the markers that stand at the field itself."""
    return {**below, **node.get("properties", {}).get(name, {}), **below}


def _list(value: list[Any], patch: list[Any], node: Node, order: list[Any] | None) -> list[Any]:
    strategy = node.get("x-kubernetes-patch-strategy", "")
    key = node.get("x-kubernetes-patch-merge-key")
    if any(isinstance(it, dict) and it.get("$patch") == "replace" for it in patch):
        return [clone(it) for it in patch if it.get("$patch") != "replace"]
    if "merge" not in strategy.split(","):
        return clone(patch)  # type: ignore[no-any-return]
    if key is None:
        merged = [*value, *(it for it in patch if it not in value)]
        return _ordered(merged, order, node) if order is not None else merged
    found = {it.get(key): it for it in value}
    for one in patch:
        if one.get("$patch") == "delete":
            found.pop(one.get(key), None)
        elif one.get(key) in found:
            found[one[key]] = strategic_patch(found[one[key]], one, item(node))
        else:
            found[one.get(key)] = strategic_patch({}, one, item(node))
    merged = list(found.values())
    return _ordered(merged, order, node) if order is not None else merged


def _ordered(value: list[Any], order: list[Any], node: Node) -> list[Any]:
    """Items that the order names, as it has them; the others where they were, behind those."""
    key = node.get("x-kubernetes-patch-merge-key")

    def told(one: Any) -> Any:
        return one.get(key) if isinstance(one, dict) else one

    places = {told(it): number for number, it in enumerate(order)}
    return sorted(value, key=lambda it: places.get(told(it), len(places)))
