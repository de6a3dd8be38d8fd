"""The schema of each resource in each version, whole, as writing and merging need it."""

from __future__ import annotations

from typing import Any

from tests.emulators.kubernetes.schema.nodes import META, OBJECT, Node, builtin
from tests.emulators.kubernetes.store.resources import Resource

_META_REF: Node = {"$ref": f"#/$defs/{META}"}
_STRING: Node = {"type": "string"}


class Schemas:
    """Of CRDs they are made once for each version of a definition."""

    def __init__(self) -> None:
        self._custom: dict[tuple[str, str, str, str], Node] = {}

    def of(self, resource: Resource, version: str) -> Node:
        if resource.definition is None:
            return builtin(resource.group, version, resource.kind) or OBJECT
        metadata = resource.definition["metadata"]
        key = (resource.plural, resource.group, version, metadata["resourceVersion"])
        found = self._custom.get(key)
        if found is None:
            found = self._custom[key] = _whole(raw_schema(resource, version))
        return found


def version_of(resource: Resource, version: str) -> dict[str, Any]:
    """What a CRD says of one of its versions."""
    assert resource.definition is not None
    return next(it for it in resource.definition["spec"]["versions"] if it["name"] == version)


def raw_schema(resource: Resource, version: str) -> Node:
    found: Node = (version_of(resource, version).get("schema") or {}).get("openAPIV3Schema") or {}
    return found


def _whole(node: Node) -> Node:
    """With the fields that every object has."""
    own = {"apiVersion": _STRING, "kind": _STRING, "metadata": _META_REF}
    return {**node, "type": "object", "properties": {**node.get("properties", {}), **own}}
