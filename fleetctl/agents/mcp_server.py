"""Serves the tools over the Model Context Protocol, on stdin and stdout, until the client ends.

A refusal for work or data that would be lost is put to the person at the client, as an input
request of the protocol; only the accepted one is sent again with `yes`. A client that has no way to
ask gets the refusal. Called by `fleetctl mcp`.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fleetctl.agents.agent_limits import (
    AgentLimits,
    SpendLedger,
    changed_keys,
    highest_cost,
    manifest_again,
    refuse_kinds,
)
from fleetctl.agents.tools import ApiReply, ApiRequest, ApiTool, BoundApi, build_tools, open_api
from fleetctl.common.author import find_agent, parse_agent
from fleetctl.common.errors import FleetctlError, NotFound, Refused
from fleetctl.common.version import VERSION
from fleetctl.server.callers import EDITOR, VIEWER, Caller
from fleetctl.server.guard import error_document
from fleetctl.server.route_table import API
from fleetctl.specs.values.namespaces import split_key
from fleetctl.views.kinds import kind_of

NAME = "fleetctl"
TOKEN = "mcp"  # noqa: S105 - the column TOKEN of the audit, where a token has its id
CONSENT = "consent"
CONSENT_S = 600.0  # for a person to answer
SPENDS = ("resume", "retry")
INSTRUCTIONS = """\
fleetctl runs AI batch work from manifests: BatchJob, Sweep, TrainingRun and others. Write a
manifest, call `plan` with its text, read its findings and cost, then `apply`. `get` lists a kind,
`describe` shows one object and says why it does not move, `logs` and `results` show its tasks.
A refusal has `errors` and a `hint`; do what the hint says. Work or data that would be lost needs
the consent of a person, which no argument of a tool gives."""

ToolContext = Any  # ServerRequestContext, whose parameters the protocol's library chooses


def serve_agent(home: Path, limits: AgentLimits) -> int:
    """Serves until stdin ends."""
    anyio.run(_serve_tools, home, limits)
    return 0


async def _serve_tools(home: Path, limits: AgentLimits) -> None:
    role = VIEWER if limits.read_only else EDITOR
    caller = Caller(getpass.getuser(), role, limits.namespace, token=TOKEN)
    async with open_api(home, caller) as api, stdio_server() as (incoming, outgoing):
        server = AgentServer(api, limits).make_server()
        await server.run(incoming, outgoing, server.create_initialization_options())


class AgentServer:
    """The tools of one agent, the sum that it has left, and the questions that are open."""

    def __init__(self, api: BoundApi, limits: AgentLimits) -> None:
        self._api = api
        self._limits = limits
        self._ledger = SpendLedger(limits.max_cost_usd)
        # One change at a time: two could each find the same sum left.
        self._changes = anyio.Lock()
        self._questions: set[str] = set()
        self._tools = build_tools(api.document)

    def make_server(self) -> Server[Any]:
        server: Server[Any] = Server(
            NAME,
            version=VERSION,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        security = RequestStateSecurity.ephemeral(ttl=CONSENT_S)
        server.middleware.append(RequestStateBoundary(security, default_audience=NAME))
        return server

    async def _list_tools(self, context: ToolContext, params: Any) -> types.ListToolsResult:
        del context, params
        shown = [it for it in self._tools.values() if it.reads or not self._limits.read_only]
        return types.ListToolsResult(tools=[describe_tool(it) for it in shown])

    async def _call_tool(
        self,
        context: ToolContext,
        params: types.CallToolRequestParams,
    ) -> types.CallToolResult | types.InputRequiredResult:
        arguments = params.arguments or {}
        self._api.agent = _name_agent(context.session.client_params)
        try:
            tool = self._find_tool(params.name)
            tool.check_arguments(arguments)
            request = tool.build_request(arguments)
            if tool.reads:
                return show_reply(await self._api.send(request))
            reply = await self._change(tool, request)
            if not reply.losses:
                return show_reply(reply)
            question = await self._ask_person(context, params, reply)
            if isinstance(question, types.InputRequiredResult):
                return question
            if not question:
                return show_reply(_without_consent(reply))
            return show_reply(await self._change(tool, _with_consent(request)))
        except FleetctlError as error:
            found = error_document(error)
            return show_reply(ApiReply(error.exit_code, found))

    def _find_tool(self, name: str) -> ApiTool:
        """Returns a tool. Raises NotFound and Refused."""
        tool = self._tools.get(name)
        if tool is None:
            raise NotFound(
                f"there is no tool `{name[:60]}`", hint=f"the tools are {', '.join(self._tools)}"
            )
        if self._limits.read_only and not tool.reads:
            raise Refused(
                f"`{name}` changes something, and this server was started with --read-only",
                hint="ask the person who started it",
            )
        return tool

    async def _change(self, tool: ApiTool, request: ApiRequest) -> ApiReply:
        """Sends a change that is within the limits. Raises Refused."""
        async with self._changes:
            cost_usd: float | None = 0.0
            if tool.name == "apply":
                planned = await self._plan(request.body or {})
                if planned.code:
                    return planned
                plan = planned.body["plan"]
                refuse_kinds(changed_keys(plan), bounded=self._ledger.bounded)
                cost_usd = highest_cost(plan)
            else:
                assert request.body is not None
                refuse_kinds(map(str, request.body["keys"]), bounded=self._bounds(tool))
                if self._bounds(tool):
                    cost_usd = await self._cost_again(request.body["keys"])
            self._ledger.take(cost_usd)
            reply = await self._api.send(request)
            if reply.code:
                self._ledger.give_back(cost_usd)
            return reply

    async def _plan(self, body: Mapping[str, Any]) -> ApiReply:
        """Returns the plan of a body of `apply`. Past runs bound nothing: a program may take longer
        with the next data."""
        whole = {**body, "byLimits": self._ledger.bounded}
        return await self._api.send(ApiRequest("POST", f"{API}/plan", {}, whole))

    def _bounds(self, tool: ApiTool) -> bool:
        """Returns whether a verb on stored objects costs, and there is a limit."""
        return tool.name in SPENDS and self._ledger.bounded

    async def _cost_again(self, keys: Sequence[object]) -> float | None:
        """Returns the most that objects cost from their beginning to their end, in USD; None where
        nothing bounds it. Raises Refused where one cannot be read."""
        sum_usd = 0.0
        for key in keys:
            word, name, _ = split_key(str(key))
            path = f"{API}/{kind_of(word).plural}/{name}"
            found = _must_succeed(await self._api.send(ApiRequest("GET", path, {}, None)))
            planned = await self._plan({"manifest": manifest_again(found)})
            high_usd = highest_cost(_must_succeed(planned)["plan"])
            if high_usd is None:
                return None
            sum_usd += high_usd
        return sum_usd

    async def _ask_person(
        self,
        context: ToolContext,
        params: types.CallToolRequestParams,
        reply: ApiReply,
    ) -> types.InputRequiredResult | bool:
        """Returns whether the person at the client accepts the losses, or the request that asks.

        The state of a request is sealed, holds for these arguments alone, and is used once.
        """
        capabilities = context.session.client_capabilities
        if not _can_ask(capabilities):
            return False
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not modern:
            found = await context.session.elicit_form(_phrase_question(params, reply), FORM)
            return _is_accepted(found)
        if params.request_state in self._questions:
            self._questions.discard(params.request_state)
            return _is_accepted((params.input_responses or {}).get(CONSENT))
        state = secrets.token_hex(16)
        self._questions.add(state)
        question = types.ElicitRequest(
            params=types.ElicitRequestFormParams(
                message=_phrase_question(params, reply), requested_schema=FORM
            )
        )
        return types.InputRequiredResult(input_requests={CONSENT: question}, request_state=state)


FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"yes": {"type": "boolean", "title": "Do it all the same"}},
    "required": ["yes"],
}


def describe_tool(tool: ApiTool) -> types.Tool:
    """Returns a tool as the protocol lists it."""
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=dict(tool.schema),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.reads,
            destructive_hint=tool.row.destructive,
            idempotent_hint=tool.row.idempotent,
            open_world_hint=False,
        ),
    )


def show_reply(reply: ApiReply) -> types.CallToolResult:
    """Returns a reply as data, and as the same text for clients that read texts alone."""
    text = json.dumps(reply.body, ensure_ascii=False)
    return types.CallToolResult(
        content=[types.TextContent(text=text)],
        structured_content=dict(reply.body),
        is_error=reply.code != 0,
    )


def _must_succeed(reply: ApiReply) -> Mapping[str, Any]:
    if reply.code:
        errors = reply.body.get("errors") or ["its cost cannot be estimated"]
        raise Refused(str(errors[0]), hint=str(reply.body.get("hint") or ""))
    return reply.body


def _name_agent(client: types.InitializeRequestParams | None) -> str:
    """Returns the name of the program that calls: as it names itself, or by its variables."""
    named = parse_agent(client.client_info.name) if client is not None else ""
    return named or find_agent(os.environ) or TOKEN


def _can_ask(capabilities: types.ClientCapabilities | None) -> bool:
    """Returns whether the client can show a form; one that names no mode can."""
    found = capabilities.elicitation if capabilities is not None else None
    return found is not None and (found.form is not None or found.url is None)


def _is_accepted(answer: object) -> bool:
    return (
        isinstance(answer, types.ElicitResult)
        and answer.action == "accept"
        and (answer.content or {}).get("yes") is True
    )


def _phrase_question(params: types.CallToolRequestParams, reply: ApiReply) -> str:
    return "\n".join((f"The agent calls `{params.name}`:", *reply.losses, "Go on?"))


def _with_consent(request: ApiRequest) -> ApiRequest:
    return request._replace(body={**(request.body or {}), "yes": True})


def _without_consent(reply: ApiReply) -> ApiReply:
    """Returns the refusal with a hint to who may lift it: `yes` is no argument of a tool."""
    hint = "only a person may accept this: by the client's question, or with `fleetctl ... --yes`"
    return ApiReply(reply.code, {**reply.body, "needsConsent": True, "hint": hint})
