"""Serves the tools over the Model Context Protocol, on stdin and stdout until the client ends;
`mcp_http.py` serves the same ones over HTTP.

A refusal for work or data that would be lost is put to the person at the client, as an input
request of the protocol; only the accepted one is sent again with `yes`. A client that has no way to
ask gets the refusal. Called by `fleetctl mcp`.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
from fleetctl.agents.mcp_waits import CreatedTask, WaitTasks
from fleetctl.agents.tools import (
    AgentApi,
    ApiReply,
    ApiRequest,
    ApiTool,
    BoundApi,
    build_tools,
    open_api,
)
from fleetctl.common.author import find_agent, parse_agent
from fleetctl.common.errors import FleetctlError, NotFound, Refused
from fleetctl.common.version import VERSION
from fleetctl.server.callers import EDITOR, VIEWER, Caller
from fleetctl.server.guard import error_document
from fleetctl.server.route_table import API
from fleetctl.server.waits import TIMED_OUT
from fleetctl.specs.values.namespaces import split_key
from fleetctl.stores.waits import WaitStore
from fleetctl.views.kinds import kind_of

NAME = "fleetctl"
TOKEN = "mcp"  # noqa: S105 - the column TOKEN of the audit, where a token has its id
CONSENT = "consent"
CONSENT_S = 600.0  # for a person to answer
QUESTIONS_MAX = 1000  # a client may leave its questions open
KEY_BYTES = 32
WAIT = "wait"
SPENDS = ("resume", "retry")
INSTRUCTIONS = """\
fleetctl runs AI batch work from manifests: BatchJob, Sweep, TrainingRun and others. Write a
manifest, call `plan` with its text, read its findings and cost, then `apply`. `get` lists a kind,
`describe` shows one object and says why it does not move, `logs` and `results` show its tasks.
`wait` returns when objects have ended, and never ends them: use it instead of polling.
A refusal has `errors` and a `hint`; do what the hint says. Work or data that would be lost needs
the consent of a person, which no argument of a tool gives."""

ToolContext = Any  # ServerRequestContext, whose parameters the protocol's library chooses
FindCaller = Callable[[ToolContext], Caller]


def serve_agent(home: Path, limits: AgentLimits) -> int:
    """Serves until stdin ends."""
    anyio.run(_serve_tools, home, limits)
    return 0


async def _serve_tools(home: Path, limits: AgentLimits) -> None:
    role = VIEWER if limits.read_only else EDITOR
    us = Caller(getpass.getuser(), role, limits.namespace, token=TOKEN)

    def find_us(context: ToolContext) -> Caller:
        agent = name_agent(context.session.client_params) or find_agent(os.environ) or TOKEN
        return replace(us, agent=agent)

    async with open_api(home) as api, stdio_server() as (incoming, outgoing):
        server = AgentServer(api, limits, find_us, WaitStore(home)).make_server()
        await server.run(incoming, outgoing, server.create_initialization_options())


class AgentAccount:
    """The sum that a user's agents have left."""

    def __init__(self, limits: AgentLimits) -> None:
        self.ledger = SpendLedger(limits.max_cost_usd)
        # One change at a time: two could each find the same sum left.
        self.changes = anyio.Lock()

    @property
    def bounded(self) -> bool:
        return self.ledger.bounded


class AgentServer:
    """The tools of agents, the sum that each user has left, and the questions that are open.

    find_caller: returns the user of a request, with a role and one namespace.
    """

    def __init__(
        self,
        api: AgentApi,
        limits: AgentLimits,
        find_caller: FindCaller,
        waits: WaitStore,
    ) -> None:
        self._api = api
        self._limits = limits
        self._find_caller = find_caller
        self._accounts: dict[str, AgentAccount] = {}
        self._questions: OrderedDict[str, None] = OrderedDict()
        self._tools = build_tools(api.document)
        self._waits = WaitTasks(api, waits, find_caller, show_reply)

    def make_server(self) -> Server[Any]:
        server: Server[Any] = Server(
            NAME,
            version=VERSION,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
        )
        # Here a tool may also return a task, which the parameter `on_call_tool` has no type for.
        server.add_request_handler("tools/call", types.CallToolRequestParams, self._call_tool)
        self._waits.add_to(server)
        security = RequestStateSecurity(
            keys=[secrets.token_bytes(KEY_BYTES)],
            ttl=CONSENT_S,
            bind_principal=lambda context: self._find_caller(context).token,
        )
        server.middleware.append(RequestStateBoundary(security, default_audience=NAME))
        return server

    async def _list_tools(self, context: ToolContext, params: Any) -> types.ListToolsResult:
        del params
        changes = self._find_caller(context).may(EDITOR)
        shown = [it for it in self._tools.values() if it.reads or changes]
        return types.ListToolsResult(tools=[describe_tool(it) for it in shown])

    async def _call_tool(
        self,
        context: ToolContext,
        params: types.CallToolRequestParams,
    ) -> types.CallToolResult | types.InputRequiredResult | CreatedTask:
        arguments = params.arguments or {}
        try:
            api = self._api.bind(self._find_caller(context))
            tool = self._find_tool(params.name, api.caller)
            tool.check_arguments(arguments)
            request = tool.build_request(arguments)
            if tool.name == WAIT:
                return await self._waits.call(context, api, request)
            if tool.reads:
                return show_reply(await api.send(request))
            reply = await self._change(api, tool, request)
            if not reply.losses:
                return show_reply(reply)
            question = await self._ask_person(context, params, reply)
            if isinstance(question, types.InputRequiredResult):
                return question
            if not question:
                return show_reply(_without_consent(reply))
            return show_reply(await self._change(api, tool, _with_consent(request)))
        except FleetctlError as error:
            found = error_document(error)
            return show_reply(ApiReply(error.exit_code, found))

    def _find_tool(self, name: str, caller: Caller) -> ApiTool:
        """Returns a tool. Raises NotFound, Refused and HttpError."""
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
        caller.require(tool.role)
        return tool

    async def _change(self, api: BoundApi, tool: ApiTool, request: ApiRequest) -> ApiReply:
        """Sends a change that is within the limits. Raises Refused."""
        account = self._find_account(api.caller)
        async with account.changes:
            cost_usd: float | None = 0.0
            if tool.name == "apply":
                planned = await _plan(api, request.body or {}, by_limits=account.bounded)
                if planned.code:
                    return planned
                plan = planned.body["plan"]
                refuse_kinds(changed_keys(plan), bounded=account.bounded)
                cost_usd = highest_cost(plan)
            else:
                assert request.body is not None
                bounds = account.bounded and tool.name in SPENDS
                refuse_kinds(map(str, request.body["keys"]), bounded=bounds)
                if bounds:
                    cost_usd = await _cost_again(api, request.body["keys"])
            account.ledger.take(cost_usd)
            reply = await api.send(request)
            if reply.code:
                account.ledger.give_back(cost_usd)
            return reply

    def _find_account(self, caller: Caller) -> AgentAccount:
        """Returns the account of a user: another token, or another name of the agent, is no
        second sum."""
        return self._accounts.setdefault(caller.user, AgentAccount(self._limits))

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
        if params.request_state is not None and params.request_state in self._questions:
            del self._questions[params.request_state]
            return _is_accepted((params.input_responses or {}).get(CONSENT))
        state = secrets.token_hex(16)
        self._questions[state] = None
        if len(self._questions) > QUESTIONS_MAX:
            self._questions.popitem(last=False)
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


def name_agent(client: types.InitializeRequestParams | None) -> str:
    """Returns the name of the program that calls, as it names itself; empty for none."""
    return parse_agent(client.client_info.name) if client is not None else ""


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
        # A wait whose time is over has not failed: a model that reads so tries to fix the work.
        is_error=reply.code not in (0, TIMED_OUT),
    )


async def _plan(api: BoundApi, body: Mapping[str, Any], *, by_limits: bool) -> ApiReply:
    """Returns the plan of a body of `apply`. by_limits: past runs bound nothing: a program may take
    longer with the next data."""
    whole = {**body, "byLimits": by_limits}
    return await api.send(ApiRequest("POST", f"{API}/plan", {}, whole))


async def _cost_again(api: BoundApi, keys: Sequence[object]) -> float | None:
    """Returns the most that objects cost from their beginning to their end, in USD; None where
    nothing bounds it. Raises Refused where one cannot be read."""
    sum_usd = 0.0
    for key in keys:
        word, name, _ = split_key(str(key))
        path = f"{API}/{kind_of(word).plural}/{name}"
        found = _must_succeed(await api.send(ApiRequest("GET", path, {}, None)))
        planned = await _plan(api, {"manifest": manifest_again(found)}, by_limits=True)
        high_usd = highest_cost(_must_succeed(planned)["plan"])
        if high_usd is None:
            return None
        sum_usd += high_usd
    return sum_usd


def _must_succeed(reply: ApiReply) -> Mapping[str, Any]:
    if reply.code:
        errors = reply.body.get("errors") or ["its cost cannot be estimated"]
        raise Refused(str(errors[0]), hint=str(reply.body.get("hint") or ""))
    return reply.body


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
