"""A client of the tasks extension: the official client has the hooks of extensions, and no tasks.

The shapes are those of `io.modelcontextprotocol/tasks` at revision 2026-07-28.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import anyio
import mcp_types as types
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession

EXTENSION = "io.modelcontextprotocol/tasks"
ENDED = ("completed", "cancelled", "failed")


class Task(types.Result):
    """A task, as it is created and as it is polled."""

    task_id: str
    status: Literal["working", "input_required", "completed", "cancelled", "failed"]
    status_message: str
    created_at: str
    last_updated_at: str
    ttl_ms: int
    poll_interval_ms: int


class CreatedTask(Task):
    result_type: Literal["task"]


class PolledTask(Task):
    result_type: Literal["complete"]
    result: types.CallToolResult | None = None


class TaskParams(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class GetTask(types.Request[TaskParams, Literal["tasks/get"]]):
    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams


class CancelTask(types.Request[TaskParams, Literal["tasks/cancel"]]):
    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams


class UpdateTask(types.Request[TaskParams, Literal["tasks/update"]]):
    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/update"] = "tasks/update"
    params: TaskParams


class Acknowledged(types.Result):
    result_type: Literal["complete"]


class TasksExtension(ClientExtension):
    """Polls each task to its end, so that `call_tool` returns what it would without tasks."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.polled: list[PolledTask] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=CreatedTask, resolve=self._resolve),)

    async def _resolve(self, made: CreatedTask, context: ClaimContext) -> types.CallToolResult:
        while True:
            await anyio.sleep(0.1)
            found = await get_task(context.session, made.task_id)
            self.polled.append(found)
            if found.status in ENDED:
                assert found.result is not None, found
                return found.result


async def begin(client: Client, tool: str, arguments: dict[str, Any]) -> CreatedTask:
    """Returns the task that a call made."""
    found = await client.session.call_tool(
        tool, arguments, allow_claimed=True, allow_input_required=True
    )
    assert isinstance(found, CreatedTask), found
    return found


async def get_task(session: ClientSession, task_id: str) -> PolledTask:
    return await session.send_request(GetTask(params=TaskParams(task_id=task_id)), PolledTask)


async def cancel_task(session: ClientSession, task_id: str) -> None:
    await session.send_request(CancelTask(params=TaskParams(task_id=task_id)), Acknowledged)


async def update_task(session: ClientSession, task_id: str) -> None:
    params = TaskParams(task_id=task_id, input_responses={"none": {"action": "accept"}})
    await session.send_request(UpdateTask(params=params), Acknowledged)
