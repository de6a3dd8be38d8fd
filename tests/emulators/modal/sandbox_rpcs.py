"""The control-plane RPCs of sandboxes, of both backends.

V1 and V2 differ in their ids, in who gives access to the router, and in that a create of V2 answers
with everything at once while V1 is asked for its task until it has one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from . import ids
from .apps import check_name
from .calls import metadata
from .sandboxes import ENDED, QUEUED, Sandbox, SandboxStore, new_sandbox
from .state import App, World

WAIT_S_MAX = 60.0
JAVASCRIPT = str(api_pb2.CLIENT_TYPE_LIBMODAL_JS)


class Sandboxes:
    """Needs app_of and values_of of the other parts of the control plane."""

    world: World
    app_of: Callable[[str], App]
    values_of: Callable[..., dict[str, str]]

    # -- creating -----------------------------------------------------------------------------

    async def SandboxCreateV2(
        self, request: api_pb2.SandboxCreateV2Request
    ) -> api_pb2.SandboxCreateV2Response:
        if request.definition.resources.gpu_config.gpu_type:
            raise GRPCError(Status.INVALID_ARGUMENT, "GPUs are not supported by V2 Sandboxes")
        env = self.values_of(request.definition.secret_ids, request.secret_sources)
        sandbox = self._create(request, env, v2=True)
        return api_pb2.SandboxCreateV2Response(
            sandbox_id=sandbox.sandbox_id,
            task_id=sandbox.task_id,
            metadata=_handle(sandbox),
            command_router_access=self._access(sandbox),
        )

    async def SandboxCreate(
        self, request: api_pb2.SandboxCreateRequest
    ) -> api_pb2.SandboxCreateResponse:
        env = self.values_of(request.definition.secret_ids, [])
        sandbox = self._create(request, env, v2=False)
        return api_pb2.SandboxCreateResponse(
            sandbox_id=sandbox.sandbox_id, metadata=_handle(sandbox)
        )

    def _create(self, request: Any, env: dict[str, str], *, v2: bool) -> Sandbox:
        app, definition = self.app_of(request.app_id), request.definition
        if app.state == "stopped":
            raise GRPCError(Status.FAILED_PRECONDITION, f"App '{app.app_id}' is stopped")
        if definition.name:
            check_name(definition.name, "Sandbox")
        self.world.images.ready(definition.image_id)
        for mount_id in definition.mount_ids:
            self.world.uploads.tree(mount_id)
        for mount in definition.volume_mounts:
            self.world.volumes.get(mount.volume_id)
        at_s = self._store.next_instant()
        sandbox = new_sandbox(app, request, v2=v2, env=env, at_s=at_s)
        self._store.create(sandbox)
        return sandbox

    # -- looking ------------------------------------------------------------------------------

    async def SandboxWait(self, request: api_pb2.SandboxWaitRequest) -> api_pb2.SandboxWaitResponse:
        """Answers at the end or at the timeout, then without a status."""
        sandbox = self._store.get(request.sandbox_id)
        await _until(sandbox.ended, request.timeout)
        return api_pb2.SandboxWaitResponse(result=sandbox.result, metadata=_handle(sandbox))

    SandboxWaitV2 = SandboxWait

    async def SandboxGetTaskId(
        self, request: api_pb2.SandboxGetTaskIdRequest
    ) -> api_pb2.SandboxGetTaskIdResponse:
        """Empty while it is queued; the result alone when it ended before it had a machine."""
        sandbox = self._store.get(request.sandbox_id)
        await _until(sandbox.scheduled, request.timeout)
        if sandbox.state == QUEUED:
            return api_pb2.SandboxGetTaskIdResponse()
        if sandbox.state == ENDED:
            shown = sandbox.task_id if sandbox.started_at_s else None
            return api_pb2.SandboxGetTaskIdResponse(task_id=shown, task_result=sandbox.result)
        return api_pb2.SandboxGetTaskIdResponse(task_id=sandbox.task_id)

    SandboxGetTaskIdV2 = SandboxGetTaskId

    async def SandboxListV2(
        self, request: api_pb2.SandboxListRequest
    ) -> api_pb2.SandboxListResponse:
        return self._listed(request, self._store.by_id.values())

    async def SandboxList(self, request: api_pb2.SandboxListRequest) -> api_pb2.SandboxListResponse:
        return self._listed(request, (one for one in self._store.by_id.values() if not one.v2))

    def _listed(
        self, request: api_pb2.SandboxListRequest, sandboxes: Iterable[Sandbox]
    ) -> api_pb2.SandboxListResponse:
        """Newest first, before the timestamp, with all the tags; live ones, seen with some lag."""
        wanted = {tag.tag_name: tag.tag_value for tag in request.tags}
        seen_at_s = time.time() - self.world.settings.list_lag_s
        before_s = request.before_timestamp or float("inf")
        found = [
            sandbox
            for sandbox in sandboxes
            if request.app_id in ("", sandbox.app_id)
            and sandbox.created_at_s < before_s
            and wanted.items() <= sandbox.tags.items()
            and _visible(sandbox, seen_at_s, finished=request.include_finished)
        ]
        page = found[::-1][: self.world.settings.list_page]
        return api_pb2.SandboxListResponse(sandboxes=[_info(sandbox) for sandbox in page])

    async def SandboxGetFromNameV2(
        self, request: api_pb2.SandboxGetFromNameRequest
    ) -> api_pb2.SandboxGetFromNameResponse:
        return self._from_name(request, v2=True, ended=request.include_terminated)

    async def SandboxGetFromName(
        self, request: api_pb2.SandboxGetFromNameRequest
    ) -> api_pb2.SandboxGetFromNameResponse:
        """V1 forgets the name with the end."""
        return self._from_name(request, v2=False, ended=False)

    def _from_name(
        self, request: api_pb2.SandboxGetFromNameRequest, *, v2: bool, ended: bool
    ) -> api_pb2.SandboxGetFromNameResponse:
        app = self.world.app_named(request.app_name, request.environment_name)
        for sandbox in self._store.named(app.app_id, request.sandbox_name) if app else ():
            if sandbox.v2 == v2 and (sandbox.live or ended):
                return api_pb2.SandboxGetFromNameResponse(
                    sandbox_id=sandbox.sandbox_id, metadata=_handle(sandbox)
                )
        raise GRPCError(
            Status.NOT_FOUND,
            f"Sandbox with name '{request.sandbox_name}' not found in App '{request.app_name}'",
        )

    # -- changing -----------------------------------------------------------------------------

    async def SandboxTerminate(
        self, request: api_pb2.SandboxTerminateRequest
    ) -> api_pb2.SandboxTerminateResponse:
        sandbox = self._store.get(request.sandbox_id)
        existing = sandbox.result
        await self._store.terminate(sandbox)
        return api_pb2.SandboxTerminateResponse(existing_result=existing)

    SandboxTerminateV2 = SandboxTerminate

    async def SandboxTagsGet(
        self, request: api_pb2.SandboxTagsGetRequest
    ) -> api_pb2.SandboxTagsGetResponse:
        return api_pb2.SandboxTagsGetResponse(tags=_tags(self._store.get(request.sandbox_id)))

    SandboxTagsGetV2 = SandboxTagsGet

    async def SandboxTagsSet(self, request: api_pb2.SandboxTagsSetRequest) -> Empty:
        """Replaces the whole set."""
        sandbox = self._store.get(request.sandbox_id)
        sandbox.tags = {tag.tag_name: tag.tag_value for tag in request.tags}
        return Empty()

    SandboxTagsSetV2 = SandboxTagsSet

    async def SandboxStdinWrite(
        self, request: api_pb2.SandboxStdinWriteRequest
    ) -> api_pb2.SandboxStdinWriteResponse:
        """V1's stdin is numbered by writes, not bytes; one that was taken before is skipped."""
        sandbox = self._store.get(request.sandbox_id)
        await _until(sandbox.running, WAIT_S_MAX)
        entry = sandbox.entry
        if not sandbox.live or entry is None or entry.code is not None:
            raise GRPCError(Status.FAILED_PRECONDITION, "the sandbox has ended")
        taken = self._writes.setdefault(sandbox.sandbox_id, 0)
        if request.index > taken:
            self._writes[sandbox.sandbox_id] = request.index
            sandbox.active_at_s = time.time()
            try:
                await entry.stdin.write(entry.stdin.written, request.input, eof=request.eof)
            except OSError as error:
                raise GRPCError(Status.FAILED_PRECONDITION, "stdin is closed") from error
        return api_pb2.SandboxStdinWriteResponse()

    # -- the way to the router ----------------------------------------------------------------

    async def SandboxGetCommandRouterAccess(
        self, request: api_pb2.SandboxGetCommandRouterAccessRequest
    ) -> api_pb2.SandboxGetCommandRouterAccessResponse:
        if request.WhichOneof("target") == "task_id":
            sandbox = self._by_task(request.task_id)
        else:
            sandbox = self._store.get(request.sandbox_id)
        access = self._access_while_live(sandbox)
        return api_pb2.SandboxGetCommandRouterAccessResponse(url=access.url, jwt=access.jwt)

    async def TaskGetCommandRouterAccess(
        self, request: api_pb2.TaskGetCommandRouterAccessRequest
    ) -> api_pb2.TaskGetCommandRouterAccessResponse:
        access = self._access_while_live(self._by_task(request.task_id))
        return api_pb2.TaskGetCommandRouterAccessResponse(url=access.url, jwt=access.jwt)

    def _access_while_live(self, sandbox: Sandbox) -> api_pb2.CommandRouterAccess:
        """Output of V2 can be read after the end, so its router stays within reach."""
        if not sandbox.live and not sandbox.v2:
            raise GRPCError(Status.FAILED_PRECONDITION, "the sandbox has ended")
        return self._access(sandbox)

    def _access(self, sandbox: Sandbox) -> api_pb2.CommandRouterAccess:
        url = self.world.router_url
        if metadata.get({}).get("x-modal-client-type") == JAVASCRIPT:
            # That SDK insists on https here, and then speaks plain text to this machine.
            url = url.replace("http://", "https://")
        return api_pb2.CommandRouterAccess(url=url, jwt=ids.jwt(sandbox.task_id))

    async def SandboxGetTunnels(
        self, request: api_pb2.SandboxGetTunnelsRequest
    ) -> api_pb2.SandboxGetTunnelsResponse:
        """Boxes share the host's network, so a port of theirs is one of ours."""
        sandbox = self._store.get(request.sandbox_id)
        await _until(sandbox.running, request.timeout)
        tunnels = [
            api_pb2.TunnelData(
                host="127.0.0.1",
                port=spec.port,
                unencrypted_host="127.0.0.1" if spec.unencrypted else None,
                unencrypted_port=spec.port if spec.unencrypted else None,
                container_port=spec.port,
            )
            for spec in sandbox.definition.open_ports.ports
        ]
        return api_pb2.SandboxGetTunnelsResponse(tunnels=tunnels)

    SandboxGetTunnelsV2 = SandboxGetTunnels

    @property
    def _store(self) -> SandboxStore:
        return self.world.sandboxes

    @property
    def _writes(self) -> dict[str, int]:
        return self.world.stdin_writes

    def _by_task(self, task_id: str) -> Sandbox:
        sandbox = self._store.by_task.get(task_id)
        if sandbox is None:
            raise GRPCError(Status.NOT_FOUND, f"Task {task_id} not found")
        return sandbox


async def _until(event: asyncio.Event, timeout_s: float) -> None:
    """Returns at the event or after the timeout; 0 is at once."""
    if timeout_s <= 0 or event.is_set():
        return
    try:
        await asyncio.wait_for(event.wait(), min(timeout_s, WAIT_S_MAX))
    except TimeoutError:
        return


def _visible(sandbox: Sandbox, seen_at_s: float, *, finished: bool) -> bool:
    began = sandbox.created_at_s <= seen_at_s
    ended = not sandbox.live and sandbox.finished_at_s <= seen_at_s
    return began and (finished or not ended)


def _tags(sandbox: Sandbox) -> list[api_pb2.SandboxTag]:
    return [
        api_pb2.SandboxTag(tag_name=name, tag_value=value) for name, value in sandbox.tags.items()
    ]


def _handle(sandbox: Sandbox) -> api_pb2.SandboxHandleMetadata:
    return api_pb2.SandboxHandleMetadata(result=sandbox.result, app_id=sandbox.app_id)


def _info(sandbox: Sandbox) -> api_pb2.SandboxInfo:
    task = api_pb2.TaskInfo(
        id=sandbox.task_id,
        enqueued_at=sandbox.created_at_s,
        started_at=sandbox.started_at_s,
        finished_at=sandbox.finished_at_s,
        result=sandbox.result,
        gpu_config=sandbox.definition.resources.gpu_config,
        sandbox_id=sandbox.sandbox_id,
    )
    return api_pb2.SandboxInfo(
        id=sandbox.sandbox_id,
        created_at=sandbox.created_at_s,
        task_info=task,
        app_id=sandbox.app_id,
        tags=_tags(sandbox),
        name=sandbox.name,
        image_id=sandbox.definition.image_id,
        timeout_secs=sandbox.definition.timeout_secs,
        metadata=_handle(sandbox),
    )
