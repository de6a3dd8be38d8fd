"""Schemas as plain JSON: one way to walk those of built-in kinds and those of CRDs.

Of built-in kinds they come from the package kubernetes-validate, which has the server's own
OpenAPI document, with the markers that merging needs.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from pathlib import Path
from typing import Any

Node = dict[str, Any]
SERVER = "v1.36.0"  # the newest that people run, and the one that the reference was measured on
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
OBJECT: Node = {"type": "object"}


@functools.cache
def definitions() -> dict[str, Node]:
    """By the names of the OpenAPI document."""
    # Not imported, which would take longer than to read it: its data alone are of use here.
    found = importlib.util.find_spec("kubernetes_validate")
    assert found is not None and found.origin is not None
    path = Path(found.origin).parent / f"kubernetes-json-schema/{SERVER}-local/_definitions.json"
    told: dict[str, Node] = json.loads(path.read_bytes())["$defs"]
    return told


@functools.cache
def _names() -> dict[tuple[str, str, str], str]:
    return {
        (it["group"], it["version"], it["kind"]): name
        for name, node in definitions().items()
        for it in node.get("x-kubernetes-group-version-kind", ())
        if not name.endswith(("DeleteOptions", "WatchEvent"))
    }


def definition_name(group: str, version: str, kind: str) -> str | None:
    return _names().get((group, version, kind))


def builtin(group: str, version: str, kind: str) -> Node | None:
    name = definition_name(group, version, kind)
    return definitions()[name] if name else None


def resolved(node: Node) -> Node:
    """What a $ref points to."""
    ref = node.get("$ref")
    if ref is None and len(node.get("allOf", ())) == 1:
        ref = node["allOf"][0].get("$ref")
    if ref is None:
        return node
    # Markers of the place where it is used stay.
    target = definitions()[ref.rsplit("/", 1)[-1]]
    marks = {k: v for k, v in node.items() if k.startswith("x-") or k == "default"}
    return {**target, **marks} if marks else target


def type_of(node: Node) -> str:
    """object, array, string, integer, number, boolean; "" for anything."""
    found = node.get("type", "")
    if isinstance(found, list):
        found = next((it for it in found if it != "null"), "")
    if not found and "properties" in node:
        return "object"
    return str(found)


def child(node: Node, name: str) -> Node | None:
    """The schema of a field or of a map's value; None when it is unknown."""
    found = node.get("properties", {}).get(name)
    if found is None:
        more = node.get("additionalProperties")
        if isinstance(more, dict):
            found = more
    return resolved(found) if found is not None else None


def item(node: Node) -> Node:
    return resolved(node.get("items", {}))


def keeps_unknown(node: Node, *, custom: bool) -> bool:
    """Returns whether fields that the schema does not name are kept. custom: of a CRD."""
    if node.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in node:
        return True
    return not custom and "properties" not in node


def list_keys(node: Node) -> tuple[str, ...]:
    """By which items of a list are told apart when it is merged; () when they are not."""
    if node.get("x-kubernetes-list-type") == "map":
        return tuple(node.get("x-kubernetes-list-map-keys", ()))
    return ()


def is_set(node: Node) -> bool:
    return bool(node.get("x-kubernetes-list-type") == "set")


def is_atomic(node: Node) -> bool:
    """Returns whether it is replaced as a whole when it is merged by managers of fields."""
    kind = type_of(node)
    if kind == "array":
        return node.get("x-kubernetes-list-type", "atomic") == "atomic"
    if node.get("x-kubernetes-map-type") == "atomic":
        return True
    return kind not in ("object", "")
