"""The OpenAPI documents, made from the schemas that objects are checked against."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import Any

from tests.emulators.kubernetes.api.call import Call
from tests.emulators.kubernetes.api.discovery import subresources_of
from tests.emulators.kubernetes.api.writes.schemas import raw_schema
from tests.emulators.kubernetes.schema.nodes import META, Node, definition_name, definitions
from tests.emulators.kubernetes.store.errors import ApiError, no_such_path
from tests.emulators.kubernetes.store.objects import dumps
from tests.emulators.kubernetes.store.resources import Resource, Resources

JSON = "application/json"
INFO = {"title": "Kubernetes", "version": "v1.36.2"}
_QUERIES = ("dryRun", "fieldManager", "fieldValidation", "force")


def answer(call: Call, resources: Resources) -> tuple[int, bytes, str]:
    """(status, body, content type) of /openapi/... Raises ApiError."""
    rest = call.parts[1:]
    if rest == ("v2",):
        if "protobuf" in call.accept and JSON not in call.accept:
            raise ApiError(406, "only the following media types are accepted: application/json")
        return 200, _second(resources), JSON
    if rest == ("v3",):
        return 200, dumps({"paths": _paths(resources)}), JSON
    if rest[:2] == ("v3", "api") and len(rest) == 3:
        return 200, _third(resources, "", rest[2]), JSON
    if rest[:2] == ("v3", "apis") and len(rest) == 4:
        return 200, _third(resources, rest[2], rest[3]), JSON
    raise no_such_path()


def _paths(resources: Resources) -> dict[str, Any]:
    found = {}
    for group, versions in resources.groups().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            digest = hashlib.sha256(_third(resources, group, version)).hexdigest()[:32].upper()
            found[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return found


def _third(resources: Resources, group: str, version: str) -> bytes:
    found = resources.of_version(group, version)
    if not found:
        raise no_such_path()
    # What is built in never changes; of CRDs the definition's version tells.
    told = tuple(
        (it, it.definition["metadata"]["resourceVersion"] if it.definition else "") for it in found
    )
    return _document(told, version, "#/components/schemas/")


@functools.lru_cache(maxsize=64)
def _document(told: tuple[tuple[Resource, str], ...], version: str, prefix: str) -> bytes:
    schemas: dict[str, Node] = {}
    paths: dict[str, Any] = {}
    for resource, _ in told:
        name = _add(schemas, resource, version, prefix)
        paths |= _operations(resource, version, {"$ref": prefix + name})
    if prefix.startswith("#/components"):
        parts: dict[str, Any] = {"openapi": "3.0.0", "components": {"schemas": schemas}}
    else:
        parts = {"swagger": "2.0", "definitions": schemas}
    return dumps({**parts, "info": INFO, "paths": paths})


def _second(resources: Resources) -> bytes:
    whole: dict[str, Any] = {"swagger": "2.0", "info": INFO, "paths": {}, "definitions": {}}
    for group, versions in resources.groups().items():
        for version in versions:
            told = tuple(
                (it, it.definition["metadata"]["resourceVersion"] if it.definition else "")
                for it in resources.of_version(group, version)
            )
            one = json.loads(_document(told, version, "#/definitions/"))
            whole["paths"] |= one["paths"]
            whole["definitions"] |= one["definitions"]
    return dumps(whole)


def _add(schemas: dict[str, Node], resource: Resource, version: str, prefix: str) -> str:
    """The schema of a resource and all that it refers to; returns its name."""
    if resource.definition is None:
        name = definition_name(resource.group, version, resource.kind) or META
        _add_definition(schemas, name, prefix)
        return name
    reverse = ".".join(reversed(resource.group.split(".")))
    name = f"{reverse}.{version}.{resource.kind}"
    node = dict(raw_schema(resource, version))
    _add_definition(schemas, META, prefix)
    own = {
        "apiVersion": {"type": "string", "description": "APIVersion defines the versioned schema"},
        "kind": {"type": "string", "description": "Kind is the REST resource this represents"},
        "metadata": {"allOf": [{"$ref": prefix + META}], "default": {}},
    }
    node["properties"] = {
        **own,
        **{k: v for k, v in node.get("properties", {}).items() if k not in own},
    }
    group_kind = {"group": resource.group, "kind": resource.kind, "version": version}
    schemas[name] = {**node, "type": "object", "x-kubernetes-group-version-kind": [group_kind]}
    return name


def _add_definition(schemas: dict[str, Node], name: str, prefix: str) -> None:
    if name in schemas:
        return
    schemas[name] = {}
    schemas[name] = _translated(definitions()[name], schemas, prefix)


def _translated(node: Any, schemas: dict[str, Node], prefix: str) -> Any:
    if isinstance(node, list):
        return [_translated(it, schemas, prefix) for it in node]
    if not isinstance(node, dict):
        return node
    found: Node = {}
    for key, value in node.items():
        if key == "$ref" and isinstance(value, str):
            name = value.rsplit("/", 1)[-1]
            _add_definition(schemas, name, prefix)
            found[key] = prefix + name
        elif key == "type" and isinstance(value, list):
            found[key] = next((it for it in value if it != "null"), "object")
        elif key == "oneOf" and "properties" not in node and "type" not in node:
            # Quantities and what is a number or a string, as the server's own document has them.
            found["type"] = "string"
        elif key == "properties":
            found[key] = {k: _translated(v, schemas, prefix) for k, v in value.items()}
        else:
            found[key] = _translated(value, schemas, prefix)
    return found


def _operations(resource: Resource, version: str, reference: Node) -> dict[str, Any]:
    """As far as clients look: which kinds a path takes, and which options."""
    base = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
    if resource.namespaced:
        base += "/namespaces/{namespace}"
    kind = {"group": resource.group, "kind": resource.kind, "version": version}
    content = {"content": {JSON: {"schema": reference}}}
    answers = {"200": {"description": "OK", **content}}
    queries = [
        {"name": it, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for it in _QUERIES
    ]

    def operation(action: str, *, changes: bool) -> dict[str, Any]:
        return {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
            "parameters": queries if changes else [],
            "responses": answers,
        }

    one = {
        "get": operation("get", changes=False),
        "put": operation("put", changes=True),
        "patch": operation("patch", changes=True),
        "delete": operation("delete", changes=False),
    }
    many = {"get": operation("list", changes=False), "post": operation("post", changes=True)}
    place = f"{base}/{resource.plural}"
    found = {place: many, f"{place}/{{name}}": one}
    for name in subresources_of(resource, version):
        if name in ("status", "scale"):
            found[f"{place}/{{name}}/{name}"] = one
    return found
