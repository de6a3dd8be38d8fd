"""The form of a route: the one description that its handler, its check of the role, and the OpenAPI
document come from.

`app.py` lists them all.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.finding import Severity
from fleetctl.common.version import VERSION
from fleetctl.server.callers import VIEWER, Caller
from fleetctl.server.response_types import build_schema, find_reply_type
from fleetctl.specs.kinds.registry import KINDS, Kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from starlette.requests import Request

    from fleetctl.server.api_metrics import ServerMetrics
    from fleetctl.server.change_feed import ChangeFeed, ReaderPool
    from fleetctl.stores.access import AccessStore


API = "/api/v1"
JSON_SORT = "application/json"
PAGE_DEFAULT, PAGE_MAX = 100, 1000
Json = Mapping[str, Any]

_PART = re.compile(r"{(\w+)}")
_ERRORS = {
    "400": "The request is wrong (code 2).",
    "401": "A token is missing, or does not hold.",
    "403": "The role or the origin does not allow this.",
    "404": "There is no such object (code 4).",
    "408": "The body did not arrive in time.",
    "409": "Refused (code 3), or changed meanwhile (code 5).",
    "413": "The body is too large.",
    "415": "The body is of another type than this document names.",
    "421": "The request is for another host.",
    "429": "Too many requests.",
    "500": "A fault of the server or the controller (code 1).",
    "503": "The controller, or another service that the server needs, is unavailable now.",
}


class QueryParameter(NamedTuple):
    """A parameter behind the `?`. sort: a type of JSON Schema."""

    name: str
    description: str
    sort: str = "string"


class ApiRoute(NamedTuple):
    """A route. role: at least this one is needed; namespaces are the handler's own to check, for
    they are in the path, the query or the body. body: the JSON Schema of the request. sort: the
    media type of the answer, body_sort: that
    of the request."""

    method: str
    path: str  # below API, unless it begins with a slash
    handler: Callable[[ApiCall], Awaitable[Any]]
    summary: str
    role: str | None = VIEWER  # None: for everybody, also without a token
    parameters: tuple[QueryParameter, ...] = ()
    body: Json | None = None
    body_sort: str = JSON_SORT
    sort: str = JSON_SORT
    reply: object = None  # the type of a reply that the handler returns as a finished response

    @property
    def whole_path(self) -> str:
        return self.path if self.path.startswith("/") else f"{API}/{self.path}"


@dataclass(frozen=True, slots=True)
class ServerParts:
    """The collaborators of the handlers."""

    home: Path
    access: AccessStore
    readers: ReaderPool
    feed: ChangeFeed
    metrics: ServerMetrics
    webhook_secret: bytes  # empty: no webhooks are taken


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request whose sender is known."""

    request: Request
    caller: Caller
    parts: ServerParts

    def text(self, name: str) -> str:
        return self.request.query_params.get(name, "")

    def flag(self, name: str) -> bool:
        return self.text(name).lower() in ("1", "true", "yes")

    def number(
        self,
        name: str,
        default: int,
        *,
        most: int,
    ) -> int:
        """Returns a parameter that counts. Raises UsageError."""
        text = self.text(name) or str(default)
        if not text.isascii() or not text.isdigit() or int(text) > most:
            raise UsageError(f"`{name}` is `{text[:40]}`; it must be a number from 0 to {most}")
        return int(text)

    @property
    def kind(self) -> Kind:
        """Returns the kind in the path. Raises NotFound."""
        word = self.request.path_params["plural"]
        found = next((it for it in KINDS.values() if it.plural == word), None)
        if found is None:
            raise NotFound(
                f"there is no kind `{word}`",
                hint=f"the kinds are {', '.join(it.plural for it in KINDS.values())}",
            )
        return found

    @property
    def name(self) -> str:
        return str(self.request.path_params["name"])

    @property
    def namespace(self) -> str:
        """Returns the namespace of an object's request: the one given, else the caller's own."""
        given = self.text("namespace")
        own = "" if self.caller.namespace == "*" else self.caller.namespace
        return given or own or DEFAULT_NAMESPACE

    @property
    def last_event(self) -> str:
        """Returns where a stream goes on: the header of browsers, or `since` in the query."""
        return self.request.headers.get("last-event-id", "") or self.text("since")


Answer = "Response | Json"


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
            "200": {"description": "Done.", "content": _describe_content(route)},
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


def _describe_content(route: ApiRoute) -> dict[str, Any]:
    """Returns the forms of a good answer by their media type."""
    if route.sort == JSON_SORT:
        form = route.reply or find_reply_type(route.handler)
        assert form is not None, f"{route.path}: its reply has no type"
        schema = build_schema(form)
    else:
        schema = {"type": "string"} if route.sort.startswith("text/") else {}
    found: dict[str, Any] = {route.sort: {"schema": schema} if schema else {}}
    if any(it.name in ("watch", "follow") for it in route.parameters):
        found["text/event-stream"] = {"schema": {"type": "string"}}
    return found


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
