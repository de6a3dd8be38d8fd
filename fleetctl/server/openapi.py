"""Makes the OpenAPI document from the table of routes. Called by its route and by the reference
page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from fleetctl.common.finding import Severity
from fleetctl.common.version import VERSION
from fleetctl.server.route_table import ApiRoute
from fleetctl.specs.kinds.registry import KINDS

_PART = re.compile(r"{(\w+)}")
_ERRORS = {
    "400": "The request is wrong (code 2).",
    "401": "A token is missing, or does not hold.",
    "403": "The role or the origin does not allow this.",
    "404": "There is no such object (code 4).",
    "409": "Refused (code 3), or changed meanwhile (code 5).",
    "429": "Too many requests.",
}


def build_openapi(routes: Iterable[ApiRoute]) -> dict[str, Any]:
    """Returns the document, of OpenAPI 3.1."""
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.whole_path, {})[route.method.lower()] = _describe_operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fleetctl",
            "version": VERSION,
            "description": "The API of `fleetctl serve`. Lists are filtered, sorted and counted in"
            " the server. Every body has `code`, the exit code of the same verb.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _error_schema()},
        },
    }


def _describe_operation(route: ApiRoute) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": {
            "200": {"description": "Done.", "content": {route.sort: {}}},
            **{
                code: {"description": words, "content": {"application/json": _ERROR_BODY}}
                for code, words in _ERRORS.items()
            },
        },
    }
    if route.role is None:
        made["security"] = []
    else:
        made["security"] = [{"token": []}]
        made["x-role"] = route.role
    if route.body is not None:
        made["requestBody"] = {
            "required": True,
            "content": {route.body_sort: {"schema": route.body}},
        }
    return made


_ERROR_BODY = {"schema": {"$ref": "#/components/schemas/Error"}}


def operation_id(route: ApiRoute) -> str:
    words = re.findall(r"\w+", route.path)
    return "_".join((route.method.lower(), *words))


def _path_parameters(route: ApiRoute) -> Iterator[dict[str, Any]]:
    for name in _PART.findall(route.path):
        schema: dict[str, Any] = {"type": "string"}
        if name == "plural":
            schema["enum"] = [it.plural for it in KINDS.values()]
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(route: ApiRoute) -> Iterator[dict[str, Any]]:
    for it in route.parameters:
        yield {
            "name": it.name,
            "in": "query",
            "description": it.description,
            "schema": {"type": it.sort},
        }


def _error_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["ok", "code", "errors"],
        "properties": {
            "ok": {"const": False},
            "code": {"type": "integer", "description": "The exit code of the command line."},
            "errors": {"type": "array", "items": {"type": "string"}},
            "hint": {"type": "string"},
            "losses": {"type": "array", "items": {"type": "string"}},
            "findings": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "file": {"type": "string"},
                        "line": {"type": "integer"},
                        "column": {"type": "integer"},
                        "message": {"type": "string"},
                        "hint": {"type": "string"},
                        "severity": {"enum": list(Severity)},
                    },
                },
            },
        },
    }
