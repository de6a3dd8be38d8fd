"""Makes the tools of an agent from the OpenAPI document, so that they cannot differ from the API,
and calls that API in this process, as a user with one role in one namespace.

A row of AGENT_TOOLS names an operation of the document; description, arguments and role come from
there. Arguments that are not an agent's to give (LEFT_OUT) are no part of a tool, which refuses
every argument that it does not have.

A call passes the checks of `fleetctl serve`: the server checks the role, and the controller, which
knows the request as this user's, checks what would really change. No port is opened.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2
import jsonschema

from fleetctl.common.author import AGENT_HEADER
from fleetctl.common.errors import UsageError
from fleetctl.server.app import make_app
from fleetctl.server.callers import VIEWER, Caller, CallerCheck, ListenAddress, PeerUser

# `yes`, `override`, `takeOver` and `allowMissing` are consent, which is a person's; `env` would put
# values of secrets into a model's text; the namespace is the server's own; `uids` are of a wait
# that began before. The rest is of streams and pages.
LEFT_OUT = frozenset(
    ("namespace", "yes", "override", "takeOver", "allowMissing", "env", "documents", "uids")
)
STREAMS = frozenset(("watch", "since", "follow", "wide", "name"))
TEXT_BYTES = 64 * 1024  # of a log, where the call gives no limit: what a model reads at once
MESSAGE_CHARACTERS = 300

HOST = "127.0.0.1"
CALL_S = 600.0  # of a call; an apply may look at repositories and images first


class AgentTool(NamedTuple):
    """A tool and its operation. destructive: it may stop work, or remove what is stored.
    idempotent: the same call again changes nothing more."""

    name: str
    operation: str
    destructive: bool = False
    idempotent: bool = True


AGENT_TOOLS = (
    AgentTool("plan", "post_plan"),
    AgentTool("apply", "post_apply", destructive=True),
    AgentTool("get", "get_plural"),
    AgentTool("describe", "get_plural_name"),
    AgentTool("tasks", "get_plural_name_tasks"),
    AgentTool("results", "get_plural_name_results"),
    AgentTool("events", "get_plural_name_events"),
    AgentTool("logs", "get_plural_name_logs"),
    AgentTool("wait", "post_wait"),
    AgentTool("suspend", "post_suspend", destructive=True),
    AgentTool("resume", "post_resume"),
    AgentTool("retry", "post_retry", destructive=True, idempotent=False),
    AgentTool("delete", "post_delete", destructive=True),
)


class ApiRequest(NamedTuple):
    """A request of HTTP. body: None for none."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ApiTool:
    """A tool with its operation found. schema: the JSON Schema of its arguments. places: for each
    argument `path`, `query` or `body`."""

    row: AgentTool
    description: str
    method: str
    path: str
    role: str
    schema: Mapping[str, Any]
    places: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def reads(self) -> bool:
        return self.role == VIEWER

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Raises UsageError, with all that is wrong."""
        found = jsonschema.Draft202012Validator(self.schema).iter_errors(dict(arguments))
        problems = [_describe_problem(it) for it in found]
        if problems:
            names = ", ".join(f"`{name}`" for name in self.places)
            raise UsageError(
                "\nerror: ".join(f"{self.name}: {text}" for text in problems),
                hint=f"the arguments of `{self.name}` are {names}",
            )

    def build_request(self, arguments: Mapping[str, Any]) -> ApiRequest:
        """Returns the request of checked arguments."""
        path = self.path
        query: dict[str, str] = {}
        body: dict[str, Any] = {}
        for name, value in arguments.items():
            place = self.places[name]
            if place == "path":
                path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
            elif place == "query":
                query[name] = value if isinstance(value, str) else json.dumps(value)
            else:
                body[name] = value
        if self.name == "logs":
            query.setdefault("limit", str(TEXT_BYTES))
        return ApiRequest(self.method, path, query, body if self.method == "POST" else None)


def build_tools(document: Mapping[str, Any]) -> dict[str, ApiTool]:
    """Returns the tools of an OpenAPI document, by name."""
    operations = dict(_list_operations(document))
    return {row.name: _build_tool(row, *operations[row.operation]) for row in AGENT_TOOLS}


def _list_operations(
    document: Mapping[str, Any],
) -> Iterator[tuple[str, tuple[str, str, Mapping[str, Any]]]]:
    """Yields (operation id, (method, path, operation))."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield operation["operationId"], (method.upper(), path, operation)


def _build_tool(
    row: AgentTool,
    method: str,
    path: str,
    operation: Mapping[str, Any],
) -> ApiTool:
    properties: dict[str, Any] = {}
    places: dict[str, str] = {}
    required: list[str] = []
    for it in operation["parameters"]:
        name, place = it["name"], it["in"]
        if place == "query" and (name in LEFT_OUT or name in STREAMS):
            continue
        text = {"description": it["description"]} if "description" in it else {}
        properties[name] = {**it["schema"], **text}
        places[name] = place
        if it.get("required"):
            required.append(name)
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = body.get("schema", {"properties": {}})
    for name, one in schema["properties"].items():
        if name not in LEFT_OUT:
            properties[name] = one
            places[name] = "body"
    required += schema.get("required", ())
    if "manifest" in properties:
        required.append("manifest")  # its alternative is left out
    return ApiTool(
        row=row,
        description=operation["summary"],
        method=method,
        path=path,
        role=operation["x-role"],
        schema={
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        },
        places=places,
    )


def _describe_problem(error: jsonschema.ValidationError) -> str:
    where = ".".join(str(part) for part in error.absolute_path)
    text = error.message[:MESSAGE_CHARACTERS]
    return f"`{where}`: {text}" if where else text


class ApiReply(NamedTuple):
    """A reply of the API. code: the exit code of the same verb."""

    code: int
    body: Mapping[str, Any]

    @property
    def losses(self) -> list[str]:
        """Returns the sentences on what would be lost, where the refusal waits for consent."""
        found = self.body.get("losses")
        return [str(it) for it in found] if self.code and isinstance(found, list) else []


class BoundCallers(CallerCheck):
    """A check that knows the caller in whose name BoundApi sends a request."""

    async def find(
        self,
        headers: Mapping[str, str],
        cookies: Mapping[str, str],
        *,
        peer: PeerUser | None,
        address: str,
        now_s: float,
    ) -> Caller:
        """Returns the caller; a request cannot name another."""
        del headers, cookies, peer, address, now_s
        return _caller.get()


# The transport runs the application within the call of `send`, so each call sees its own value.
_caller: ContextVar[Caller] = ContextVar("fleetctl_agent_caller")


@dataclass(frozen=True, slots=True)
class BoundApi:
    """The API as one user has it. AgentApi.bind makes it."""

    client: httpx2.AsyncClient
    caller: Caller

    async def send(self, request: ApiRequest) -> ApiReply:
        """Returns the reply to a request; texts have the form {text, nextOffset, ended}."""
        bound = _caller.set(self.caller)
        try:
            response = await self.client.request(
                request.method,
                request.path,
                params=dict(request.query),
                json=None if request.body is None else dict(request.body),
                headers={AGENT_HEADER: self.caller.agent},
            )
        finally:
            _caller.reset(bound)
        if response.headers.get("content-type", "").startswith("application/json"):
            return _read_document(response)
        following = response.headers.get("x-next-offset", "")
        text = {
            "text": response.content.decode("utf-8", "replace"),
            "nextOffset": int(following) if following.isdigit() else None,
            "ended": response.headers.get("x-ended") == "true",
        }
        return ApiReply(0 if response.status_code == 200 else 1, text)


class AgentApi:
    """The API of one state directory in this process. `open_api` makes it."""

    def __init__(self, client: httpx2.AsyncClient, document: Mapping[str, Any]) -> None:
        self._client = client
        self.document = document

    def bind(self, caller: Caller) -> BoundApi:
        """Returns the API as a caller has it; many callers may use it at once."""
        return BoundApi(self._client, caller)


@contextlib.asynccontextmanager
async def open_api(home: Path) -> AsyncIterator[AgentApi]:
    """Yields the API over a state directory."""
    listens = ListenAddress(HOST, 0)
    app = make_app(home, listens)
    app.state.callers = BoundCallers(app.state.parts.access, listens)
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(
            transport=transport, base_url=f"http://{HOST}", timeout=CALL_S
        ) as client,
    ):
        yield AgentApi(client, app.state.openapi())


def _read_document(response: httpx2.Response) -> ApiReply:
    body = json.loads(response.content)
    assert isinstance(body, dict)
    code = body.get("code")
    if not isinstance(code, int):
        code = 0 if response.status_code == 200 else 1
    return ApiReply(code, body)
