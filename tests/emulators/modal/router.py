"""The task command router: processes in a running sandbox, their streams, and its files.

A second server, as in the real service, where it runs on the worker; reached with a token of its
own for each task.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from grpclib import GRPCError, Status
from modal_proto import task_command_router_pb2 as tcr_pb2

from .execs import Desired, Exec
from .sandboxes import Sandbox
from .state import World
from .streams import Output
from .volume_open import OpenFilesError

START_S_MAX = 300.0
PIPE = tcr_pb2.TASK_EXEC_STDOUT_CONFIG_PIPE


class Router:
    def __init__(self, world: World, values_of: Callable[..., dict[str, str]]) -> None:
        self.world, self.values_of = world, values_of

    # -- processes ----------------------------------------------------------------------------

    async def TaskExecStart(
        self, request: tcr_pb2.TaskExecStartRequest
    ) -> tcr_pb2.TaskExecStartResponse:
        """Its id is the client's: the same id is the same process, started once."""
        sandbox = await self._running(request.task_id)
        if request.exec_id not in sandbox.execs:
            process = Exec(request.exec_id, self._desired(sandbox, request))
            sandbox.execs[request.exec_id] = process
            sandbox.active_at_s = time.time()
            assert sandbox.box is not None
            await process.start(sandbox.box)
        return tcr_pb2.TaskExecStartResponse()

    def _desired(self, sandbox: Sandbox, request: tcr_pb2.TaskExecStartRequest) -> Desired:
        secrets = self.values_of(request.secret_ids, request.secret_sources)
        pty = request.pty_info
        return Desired(
            argv=list(request.command_args),
            env={**secrets, **request.env},
            cwd=request.workdir or sandbox.definition.workdir or sandbox.image.workdir or "/root",
            timeout_s=request.timeout_secs or None,
            size=(pty.winsz_rows or 24, pty.winsz_cols or 80) if pty.enabled else None,
        )

    async def TaskExecWait(
        self, request: tcr_pb2.TaskExecWaitRequest
    ) -> tcr_pb2.TaskExecWaitResponse:
        process = self._exec(request)
        await process.wait()
        return tcr_pb2.TaskExecWaitResponse(**_status(process))

    async def TaskExecPoll(
        self, request: tcr_pb2.TaskExecPollRequest
    ) -> tcr_pb2.TaskExecPollResponse:
        process = self._exec(request)
        return tcr_pb2.TaskExecPollResponse(**_status(process))

    async def TaskExecStdioRead(
        self, request: tcr_pb2.TaskExecStdioReadRequest
    ) -> AsyncIterator[tcr_pb2.TaskExecStdioReadResponse]:
        process = self._exec(request, after_end=True)
        is_stdout = request.file_descriptor == tcr_pb2.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT
        output = process.stdout if is_stdout else process.stderr
        async for _offset, data in output.read(request.offset):
            yield tcr_pb2.TaskExecStdioReadResponse(data=data)

    async def TaskExecStdinWrite(
        self, request: tcr_pb2.TaskExecStdinWriteRequest
    ) -> tcr_pb2.TaskExecStdinWriteResponse:
        process = self._exec(request)
        await _write(process, request.offset, request.data, eof=request.eof)
        return tcr_pb2.TaskExecStdinWriteResponse()

    async def TaskExecStdinWriteStream(
        self, stream: Any
    ) -> tcr_pb2.TaskExecStdinWriteStreamResponse:
        """Start, pieces of data, End. Without an End stdin stays open for a resumed stream."""
        first = await stream.recv_message()
        if first is None or first.WhichOneof("payload") != "start":
            raise GRPCError(Status.INVALID_ARGUMENT, "the first message has to be a start")
        process, offset = self._exec(first.start), first.start.offset
        while (message := await stream.recv_message()) is not None:
            if message.WhichOneof("payload") == "end":
                await _write(process, offset, b"", eof=True)
                break
            await _write(process, offset, message.data, eof=False)
            offset += len(message.data)
        return tcr_pb2.TaskExecStdinWriteStreamResponse()

    async def TaskExecStdinStatus(
        self, request: tcr_pb2.TaskExecStdinStatusRequest
    ) -> tcr_pb2.TaskExecStdinStatusResponse:
        stdin = self._exec(request).stdin
        return tcr_pb2.TaskExecStdinStatusResponse(
            num_bytes_written=stdin.written, closed=stdin.closed
        )

    # -- the entrypoint of a V2 sandbox -------------------------------------------------------

    async def SandboxStdioReadV2(
        self, request: tcr_pb2.SandboxStdioReadV2Request
    ) -> AsyncIterator[tcr_pb2.SandboxStdioReadV2Response]:
        """Also after the end; from the first byte that is still kept."""
        sandbox = self._sandbox(request.task_id)
        await sandbox.running.wait()
        if sandbox.entry is None:
            await sandbox.ended.wait()
            return
        is_stdout = request.file_descriptor == tcr_pb2.SANDBOX_STDIO_FILE_DESCRIPTOR_STDOUT
        output: Output = sandbox.entry.stdout if is_stdout else sandbox.entry.stderr
        async for offset, data in output.read(request.offset):
            yield tcr_pb2.SandboxStdioReadV2Response(data=data, starting_offset=offset)

    async def SandboxStdinWriteV2(
        self, request: tcr_pb2.SandboxStdinWriteV2Request
    ) -> tcr_pb2.SandboxStdinWriteV2Response:
        sandbox = await self._running(request.task_id)
        if sandbox.entry is None:
            raise GRPCError(Status.FAILED_PRECONDITION, "the sandbox has no command to write to")
        sandbox.active_at_s = time.time()
        await _write(sandbox.entry, request.offset, request.data, eof=request.eof)
        return tcr_pb2.SandboxStdinWriteV2Response()

    # -- the sandbox as a whole ---------------------------------------------------------------

    async def SandboxWaitUntilReady(
        self, request: tcr_pb2.SandboxWaitUntilReadyTcrRequest
    ) -> tcr_pb2.SandboxWaitUntilReadyTcrResponse:
        sandbox = await self._running(request.task_id)
        deadline = time.monotonic() + (request.timeout or START_S_MAX)
        while not sandbox.ready_at_s:
            if not sandbox.live:
                raise GRPCError(Status.FAILED_PRECONDITION, "the sandbox has ended")
            if await self._probe(sandbox):
                sandbox.ready_at_s = time.time()
            elif time.monotonic() > deadline:
                raise GRPCError(Status.DEADLINE_EXCEEDED, "the sandbox is not ready")
            else:
                await asyncio.sleep((sandbox.definition.readiness_probe.interval_ms or 100) / 1000)
        return tcr_pb2.SandboxWaitUntilReadyTcrResponse(ready_at=sandbox.ready_at_s)

    async def _probe(self, sandbox: Sandbox) -> bool:
        probe = sandbox.definition.readiness_probe
        match probe.WhichOneof("probe_oneof"):
            case "tcp_port":
                with socket.socket() as link:
                    link.settimeout(0.2)
                    return link.connect_ex(("127.0.0.1", probe.tcp_port)) == 0
            case "exec_command":
                assert sandbox.box is not None
                desired = Desired(argv=list(probe.exec_command.argv), env={}, cwd="/")
                process = Exec("probe", desired)
                await process.start(sandbox.box)
                await process.wait()
                return process.code == 0
            case _:
                return True

    async def TaskReloadVolumes(
        self, request: tcr_pb2.TaskReloadVolumesRequest
    ) -> tcr_pb2.TaskReloadVolumesResponse:
        sandbox = await self._running(request.task_id)
        try:
            self.world.volumes.mounts.reload(sandbox.sandbox_id)
        except OpenFilesError as error:
            raise GRPCError(Status.FAILED_PRECONDITION, str(error)) from error
        return tcr_pb2.TaskReloadVolumesResponse()

    async def TaskSnapshotFilesystem(
        self, request: tcr_pb2.TaskSnapshotFilesystemRequest
    ) -> tcr_pb2.TaskSnapshotFilesystemResponse:
        """What the sandbox wrote over its image becomes a new image; volumes are no part of it."""
        sandbox = await self._running(request.task_id)
        assert sandbox.box is not None
        base = self.world.images.ready(sandbox.definition.image_id)
        image = self.world.images.snapshot(sandbox.box.root, base)
        return tcr_pb2.TaskSnapshotFilesystemResponse(image_id=image.image_id)

    # -- finding ------------------------------------------------------------------------------

    def _sandbox(self, task_id: str) -> Sandbox:
        sandbox = self.world.sandboxes.by_task.get(task_id)
        if sandbox is None:
            raise GRPCError(Status.NOT_FOUND, f"Task {task_id} not found")
        return sandbox

    async def _running(self, task_id: str) -> Sandbox:
        sandbox = self._sandbox(task_id)
        await asyncio.wait_for(sandbox.running.wait(), START_S_MAX)
        if not sandbox.live or sandbox.ending:
            raise GRPCError(Status.NOT_FOUND, f"Task {task_id} has ended")
        return sandbox

    def _exec(self, request: Any, *, after_end: bool = False) -> Exec:
        """The router forgets the processes of a sandbox with its end; what is being read is read
        to its end.
        """
        sandbox = self._sandbox(request.task_id)
        process = sandbox.execs.get(request.exec_id)
        if process is None or (not sandbox.live and not after_end):
            raise GRPCError(Status.NOT_FOUND, f"Exec {request.exec_id} not found")
        return process


def _status(process: Exec) -> dict[str, int]:
    """NOT_FOUND when its sandbox died under it: nobody knows how it would have ended."""
    if process.lost:
        raise GRPCError(Status.NOT_FOUND, f"Exec {process.exec_id} ended with its sandbox")
    if process.code is None:
        return {}
    return {"code": process.code} if process.code >= 0 else {"signal": -process.code}


async def _write(process: Exec, offset: int, data: bytes, *, eof: bool) -> None:
    try:
        await process.stdin.write(offset, data, eof=eof)
    except ValueError as error:
        raise GRPCError(Status.OUT_OF_RANGE, str(error)) from error
    except OSError as error:
        if process.code is None or process.code == -signal.SIGPIPE:
            raise GRPCError(Status.FAILED_PRECONDITION, "stdin is closed") from error
        raise GRPCError(Status.NOT_FOUND, "the process has ended") from error
