"""Bodies of requests, decoded and checked field by field."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.emulators.kubernetes.api.call import Call
from tests.emulators.kubernetes.api.writes import protobuf
from tests.emulators.kubernetes.schema import nodes
from tests.emulators.kubernetes.schema.nodes import Node, child, item, resolved, type_of
from tests.emulators.kubernetes.schema.pruning import prune
from tests.emulators.kubernetes.store.errors import ApiError
from tests.emulators.kubernetes.store.resources import Resource

Object = dict[str, Any]
BODY_BYTES_MAX = 3 * 1024 * 1024
JSON, YAML = "application/json", "application/yaml"
_TYPES = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}
_GO = {"integer": "int32", "boolean": "bool", "string": "string", "number": "float64"}


def parsed(call: Call) -> Any:
    """JSON, or YAML where that is said. Raises ApiError 400."""
    if "protobuf" in call.content_type:
        return protobuf.decoded(call.body)
    try:
        if "yaml" in call.content_type and not call.body.lstrip().startswith(b"{"):
            from tests.emulators.kubernetes.api.writes.old_yaml import read_yaml

            return read_yaml(call.body)
        return json.loads(call.body)
    except ValueError as error:
        raise ApiError(400, f"error decoding request body: {error}") from error


def checked(
    call: Call, body: Any, node: Node, *, resource: Resource, expected_kind: str = ""
) -> Object:
    """An object of that resource, without what its schema does not know.

    Raises ApiError 400 for another kind, for fields of other types and, when the call asks for
    `fieldValidation=Strict`, for unknown fields, of which others are warned.
    """
    kind = expected_kind or resource.kind
    if not isinstance(body, dict):
        raise ApiError(400, "couldn't get version/kind; json parse error")
    api_version = resource.api_version(call.version)
    given = (body.get("apiVersion", api_version), body.get("kind", kind))
    if resource.definition is not None and not (body.get("kind") and body.get("apiVersion")):
        raise ApiError(400, "Object 'Kind' is missing in the request body")
    if given != (api_version, kind):
        raise ApiError(
            400,
            f"the API version in the data ({given[0]}) does not match the expected API version"
            f" ({api_version})"
            if given[0] != api_version
            else f'{given[1]} in version "{call.version}" cannot be handled as a {kind}',
        )
    body = {"kind": kind, "apiVersion": api_version, **body}
    if not isinstance(body.setdefault("metadata", {}), dict):
        raise ApiError(
            400, "json: cannot unmarshal into Go struct field .metadata of type ObjectMeta"
        )
    custom = resource.definition is not None
    if not custom:
        _type_check(body, resolved(node), "", kind, call.version)
    dropped = prune(body, node, custom=custom)
    if dropped:
        _tell(call, dropped, kind)
    if not custom:
        _without_nulls(body)
    return body


def _tell(call: Call, dropped: Iterable[str], kind: str) -> None:
    said = [f'unknown field "{it}"' for it in dropped]
    how = call.query.get("fieldValidation", "Warn")
    if how == "Strict":
        message = f'{kind} in version "{call.version}" cannot be handled as a {kind}'
        raise ApiError(400, f"{message}: strict decoding error: {', '.join(said)}")
    if how != "Ignore":
        call.warnings += said


def _without_nulls(value: Any) -> None:
    """What is null in a built-in kind is not there."""
    if isinstance(value, dict):
        for name in [k for k, v in value.items() if v is None]:
            del value[name]
        for one in value.values():
            _without_nulls(one)
    elif isinstance(value, list):
        for one in value:
            _without_nulls(one)


def _type_check(value: Any, node: Node, path: str, kind: str, version: str) -> None:
    """Decoding into the server's types, which says the first field that does not fit."""
    wanted = type_of(node)
    if value is None or not wanted or _loose(node):
        return
    if wanted == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        return
    fits = isinstance(value, _TYPES.get(wanted, object))
    if not fits or (isinstance(value, bool) and wanted == "integer"):
        names = {bool: "bool", int: "number", float: "number", str: "string", dict: "object"}
        found = names.get(type(value), "array")
        goal = _GO.get(wanted, "v1." + kind)
        raise ApiError(
            400,
            f'{kind} in version "{version}" cannot be handled as a {kind}: json: cannot unmarshal'
            f" {found} into Go struct field {kind}.{path} of type {goal}",
        )
    if wanted == "object":
        for name, one in value.items():
            below = child(node, name)
            if below is not None:
                where = f"{path}.{name}" if path else name
                _type_check(one, below, where, kind, version)
    elif wanted == "array":
        below = item(node)
        for one in value:
            _type_check(one, below, path, kind, version)


def _loose(node: Node) -> bool:
    """Quantities, and what may be a number or a string."""
    if node.get("x-kubernetes-int-or-string") or node.get("format") == "int-or-string":
        return True
    return bool(node is nodes.definitions().get(_QUANTITY) or "oneOf" in node)


_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
