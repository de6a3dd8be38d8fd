"""Serves the tool `wait`: as a task of the protocol's extension to a client that declares it, else
as a call with an end that reports its progress.

A task is a row of stores/waits.py, and its state is read from the objects whenever its client polls
it, with the rights that the client has then. Nothing runs between two polls, so a task outlives
this server, and one that is cancelled takes nothing from the work. Called by mcp_server.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fleetctl.agents.tools import AgentApi, ApiReply, ApiRequest, BoundApi
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.common.text import format_timestamp
from fleetctl.server.callers import Caller
from fleetctl.server.route_table import API
from fleetctl.server.waits import GOAL, TIMED_OUT, WAIT_S
from fleetctl.stores.waits import (
    CANCELLED,
    COMPLETED,
    OWN_WORKING_MAX,
    TTL_S,
    WORKING,
    WaitRow,
    WaitStore,
)

EXTENSION = "io.modelcontextprotocol/tasks"
GET, UPDATE, CANCEL = "tasks/get", "tasks/update", "tasks/cancel"
SLICE_S = 2.0  # of a wait within one call; progress is reported between two
# A young wait is polled often, an old one seldom: a tenth of its age is no delay that matters.
POLL_S_MIN, POLL_S_MAX = 1.0, 15.0
POLLS_OF_AGE = 10.0

ToolContext = Any  # ServerRequestContext, whose parameters the protocol's library chooses


class CreatedTask(types.Result):
    """A result that names a task instead of what was requested."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    status_message: str
    created_at: str
    last_updated_at: str
    ttl_ms: int
    poll_interval_ms: int


class TaskParams(types.RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class UpdateParams(TaskParams):
    """The parameters of `tasks/update`."""

    input_responses: dict[str, Any]


class WaitTasks:
    """The waits of all clients of a server.

    find_caller: returns the user of a request; show_reply: returns a reply as the tools do.
    """

    def __init__(
        self,
        api: AgentApi,
        store: WaitStore,
        find_caller: Callable[[ToolContext], Caller],
        show_reply: Callable[[ApiReply], types.CallToolResult],
    ) -> None:
        self._api = api
        self._store = store
        self._find_caller = find_caller
        self._show_reply = show_reply

    def add_to(self, server: Server[Any]) -> None:
        """Adds the extension's methods, and its name to what the server can do."""
        server.extensions[EXTENSION] = {}
        server.add_request_handler(GET, TaskParams, self._get)
        server.add_request_handler(UPDATE, UpdateParams, self._update)
        server.add_request_handler(CANCEL, TaskParams, self._cancel)

    async def call(
        self,
        context: ToolContext,
        api: BoundApi,
        request: ApiRequest,
    ) -> types.CallToolResult | CreatedTask:
        """Returns the reply, or a task where the goal is not decided now and the client can take
        one. Raises Refused and StoreError."""
        if not declares_tasks(context):
            return self._show_reply(await _wait_bounded(context, api, request))
        reply = await api.send(_with_body(request, timeoutSeconds=0))
        if reply.code != TIMED_OUT:
            return self._show_reply(reply)
        return await self._create(api, request.body or {}, reply)

    async def _create(
        self,
        api: BoundApi,
        body: Mapping[str, Any],
        reply: ApiReply,
    ) -> CreatedTask:
        now_s = SystemClock().now_s()
        wait_s = body.get("timeoutSeconds")
        until_s = None if wait_s is None else now_s + float(wait_s)
        stored = _pin_objects(api, body, reply)
        message = str(reply.body["message"])
        owner = _name_owner(api.caller)

        def add() -> tuple[WaitRow, str] | None:
            return self._store.add(owner, stored, message, now_s=now_s, until_s=until_s)

        made = await anyio.to_thread.run_sync(add)
        if made is None and await self._settle(api, owner, now_s):
            made = await anyio.to_thread.run_sync(add)
        if made is None:
            raise Refused(
                f"{OWN_WORKING_MAX} waits of this user have not ended, which is the most",
                hint=f"end one with `{CANCEL}`, or give one `wait` all the keys",
            )
        row, handle = made
        return CreatedTask.model_validate(_describe_task(row, handle, now_s), by_name=False)

    async def _settle(self, api: BoundApi, owner: str, now_s: float) -> bool:
        """Ends the waits of an owner whose goals are decided, though nobody polled them; returns
        whether there were any."""
        rows = await anyio.to_thread.run_sync(self._store.list_working, owner, now_s)
        ended = [(await self._refresh(api, row, now_s)).state != WORKING for row in rows]
        return any(ended)

    async def _get(self, context: ToolContext, params: TaskParams) -> dict[str, Any]:
        """Returns a task as its objects are now, with the reply once it has ended."""
        row, api = await self._find(context, params)
        now_s = SystemClock().now_s()
        try:
            row = await self._refresh(api, row, now_s)
        except FleetctlError as error:
            raise _as_protocol_error(error) from error
        found = _describe_task(row, params.task_id, now_s)
        if row.reply is not None:
            result = self._show_reply(ApiReply(int(row.reply["code"]), row.reply))
            found["result"] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return found

    async def _refresh(self, api: BoundApi, row: WaitRow, now_s: float) -> WaitRow:
        """Returns a wait with its state of now, which is stored. Raises Refused where the caller
        may not see the objects any more, and StoreError."""
        if row.state != WORKING:
            return row
        reply = await api.send(
            ApiRequest("POST", f"{API}/wait", {}, {**row.request, "timeoutSeconds": 0})
        )
        if "items" not in reply.body:
            errors = reply.body.get("errors") or ["the objects cannot be read now"]
            raise Refused(str(errors[0]), hint=str(reply.body.get("hint") or ""))
        over = reply.code != TIMED_OUT or (row.until_s is not None and row.until_s <= now_s)
        message = str(reply.body["message"])
        if not over and message == row.message:
            return row
        return await anyio.to_thread.run_sync(
            lambda: self._store.change(
                row,
                COMPLETED if over else WORKING,
                message,
                reply.body if over else None,
                now_s=now_s,
            )
        )

    async def _update(self, context: ToolContext, params: UpdateParams) -> dict[str, Any]:
        """Takes answers; a wait never asks, and answers to no question are to be ignored."""
        await self._find(context, params)
        return {}

    async def _cancel(self, context: ToolContext, params: TaskParams) -> dict[str, Any]:
        """Ends the waiting alone."""
        row, _ = await self._find(context, params)
        names = ", ".join(row.request["keys"])
        message = f"the waiting was cancelled; the work of {names} goes on, `suspend` stops it"
        now_s = SystemClock().now_s()
        try:
            await anyio.to_thread.run_sync(
                lambda: self._store.change(row, CANCELLED, message, None, now_s=now_s)
            )
        except FleetctlError as error:
            raise _as_protocol_error(error) from error
        return {}

    async def _find(self, context: ToolContext, params: TaskParams) -> tuple[WaitRow, BoundApi]:
        """Returns a task of the caller. Raises MCPError."""
        _require_extension(context)
        _check_name_header(context, params.task_id)
        caller = self._find_caller(context)
        owner = _name_owner(caller)
        try:
            row = await anyio.to_thread.run_sync(self._store.find, params.task_id, owner)
        except FleetctlError as error:
            raise _as_protocol_error(error) from error
        if row is None:
            _refuse_id("there is no such task of this user and token")
        if row.expires_at_s <= SystemClock().now_s():
            _refuse_id(f"the task has expired, {TTL_S / 86_400:g} days after it began")
        return row, self._api.bind(caller)


def declares_tasks(context: ToolContext) -> bool:
    """Returns whether the client of a request can take a task; it says so in each request."""
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return False
    capabilities: types.ClientCapabilities | None = context.session.client_capabilities
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


def _require_extension(context: ToolContext) -> None:
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(code=types.METHOD_NOT_FOUND, message="Method not found", data=context.method)
    if not declares_tasks(context):
        needed = types.ClientCapabilities(extensions={EXTENSION: {}})
        data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message=f"the request does not declare the extension `{EXTENSION}`",
            data=data.model_dump(by_alias=True, mode="json", exclude_none=True),
        )


def _check_name_header(context: ToolContext, task_id: str) -> None:
    """Raises MCPError where the header by which proxies route names another task."""
    if context.request is None:
        return
    given = context.request.headers.get(MCP_NAME_HEADER)
    if given is not None and decode_header_value(given) != task_id:
        raise MCPError(
            code=types.HEADER_MISMATCH, message="the header Mcp-Name does not name this `taskId`"
        )


def _refuse_id(message: str) -> NoReturn:
    text = f"{message}; call `wait` again, which does nothing to the work"
    raise MCPError(code=types.INVALID_PARAMS, message=text)


def _as_protocol_error(error: FleetctlError) -> MCPError:
    hint = f" ({error.hint})" if error.hint else ""
    return MCPError(code=types.INTERNAL_ERROR, message=f"{error}{hint}")


def _name_owner(caller: Caller) -> str:
    """Returns the owner of a task: neither another user nor another token sees it."""
    return json.dumps([caller.user, caller.token])


def _pin_objects(api: BoundApi, body: Mapping[str, Any], reply: ApiReply) -> dict[str, Any]:
    """Returns a body of `wait` that names these very objects, wherever it is sent from."""
    items = reply.body["items"]
    return {
        "for": body.get("for", GOAL),
        "keys": [it["key"] for it in items],
        "uids": {it["key"]: it["uid"] for it in items},
        "namespace": api.caller.namespace,
    }


def _with_body(request: ApiRequest, **fields: object) -> ApiRequest:
    return request._replace(body={**(request.body or {}), **fields})


def _describe_task(row: WaitRow, handle: str, now_s: float) -> dict[str, Any]:
    poll_s = min(max((now_s - row.created_at_s) / POLLS_OF_AGE, POLL_S_MIN), POLL_S_MAX)
    return {
        "taskId": handle,
        "status": row.state,
        "statusMessage": row.message,
        "createdAt": format_timestamp(row.created_at_s),
        "lastUpdatedAt": format_timestamp(row.updated_at_s),
        "ttlMs": round((row.expires_at_s - row.created_at_s) * 1000),
        "pollIntervalMs": round(poll_s * 1000),
    }


async def _wait_bounded(context: ToolContext, api: BoundApi, request: ApiRequest) -> ApiReply:
    """Returns the reply after the time of one call, and reports progress until then."""
    body = dict(request.body or {})
    deadline_s = time.monotonic() + float(body.get("timeoutSeconds", WAIT_S))
    progress = WaitProgressReports(context)
    while True:
        left_s = max(0.0, deadline_s - time.monotonic())
        slice_s = min(left_s, SLICE_S)
        reply = await api.send(_with_body(request, **{**body, "timeoutSeconds": slice_s}))
        if reply.code != TIMED_OUT or slice_s >= left_s:
            return reply
        await progress.report(reply.body)
        body = _pin_objects(api, body, reply)


class WaitProgressReports:
    """The progress of one call, for a client that asks for it."""

    def __init__(self, context: ToolContext) -> None:
        self._session = context.session
        self._message = ""
        self._value = -1.0

    async def report(self, body: Mapping[str, Any]) -> None:
        """Sends how far the objects are, where that has changed."""
        message = str(body["message"])
        if message == self._message:
            return
        self._message = message
        items = body["items"]
        done = float(sum(it.get("done", 0) for it in items))
        totals = [it.get("total") for it in items]
        # The protocol wants a greater number each time, also where only the reason is new.
        whole = int(self._value) + 1.0
        self._value = done if done > self._value else (self._value + whole) / 2
        total = float(sum(totals)) if all(it is not None for it in totals) else None
        await self._session.report_progress(self._value, total, message)
