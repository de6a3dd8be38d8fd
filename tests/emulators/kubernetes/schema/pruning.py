"""Fields that a schema does not know are dropped, and those that it has a default for are set."""

from __future__ import annotations

from typing import Any

from tests.emulators.kubernetes.schema.nodes import (
    META,
    Node,
    child,
    definitions,
    item,
    keeps_unknown,
    resolved,
    type_of,
)
from tests.emulators.kubernetes.store.objects import clone


def prune(stored: dict[str, Any], node: Node, *, custom: bool) -> list[str]:
    """Changes the object; returns the paths of what it dropped."""
    dropped: list[str] = []
    kept = {}
    if custom:
        # A CRD's schema says nothing about these, or may only narrow them.
        kept = {it: stored.pop(it) for it in ("apiVersion", "kind", "metadata") if it in stored}
        if isinstance(kept.get("metadata"), dict):
            _prune(kept["metadata"], definitions()[META], "metadata", dropped, custom=False)
    _prune(stored, resolved(node), "", dropped, custom=custom)
    if custom:
        rest = dict(stored)
        stored.clear()
        stored.update(kept | rest)
    return dropped


def _prune(value: Any, node: Node, path: str, dropped: list[str], *, custom: bool) -> None:
    if isinstance(value, dict):
        if node.get("x-kubernetes-embedded-resource"):
            return
        loose = keeps_unknown(node, custom=custom) or type_of(node) not in ("object", "")
        for name in list(value):
            below = child(node, name)
            where = f"{path}.{name}" if path else name
            if below is not None:
                _prune(value[name], below, where, dropped, custom=custom)
            elif not loose:
                del value[name]
                dropped.append(where)
    elif isinstance(value, list) and "items" in node:
        below = item(node)
        for number, one in enumerate(value):
            _prune(one, below, f"{path}[{number}]", dropped, custom=custom)


def set_defaults(value: Any, node: Node) -> None:
    """Changes `value`. A null where the schema allows none gives way to the default."""
    if isinstance(value, dict):
        for name, raw in node.get("properties", {}).items():
            below = resolved(raw)
            if "default" in below and (
                name not in value or (value[name] is None and not below.get("nullable"))
            ):
                value[name] = clone(below["default"])
            if isinstance(value.get(name), dict | list):
                set_defaults(value[name], below)
        more = node.get("additionalProperties")
        if isinstance(more, dict):
            below = resolved(more)
            for name, one in value.items():
                if name not in node.get("properties", {}) and isinstance(one, dict | list):
                    set_defaults(one, below)
    elif isinstance(value, list) and "items" in node:
        below = item(node)
        for one in value:
            if isinstance(one, dict | list):
                set_defaults(one, below)
