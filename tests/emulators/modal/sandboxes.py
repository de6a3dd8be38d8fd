"""The sandboxes of both backends: what one is, and the rules of its life.

The RPCs are in sandbox_rpcs.py and router.py; this file never speaks a protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from grpclib import GRPCError, Status
from modal_proto import api_pb2

from tests.emulators.boxes import Box, BoxError

from . import ids
from .dockerfile import ImageConfig
from .driver import driver
from .execs import Desired, Exec
from .gpus import parse
from .places import Wanted, leave, make_box

if TYPE_CHECKING:
    from .state import World

Result = api_pb2.GenericResult
QUEUED, STARTING, RUNNING, ENDED = "queued", "starting", "running", "ended"
IDLE_CHECK_S = 0.25


@dataclass(slots=True)
class Sandbox:
    sandbox_id: str
    task_id: str
    app_id: str
    environment: str
    v2: bool
    definition: api_pb2.Sandbox
    env: dict[str, str]
    tags: dict[str, str]
    created_at_s: float
    state: str = QUEUED
    started_at_s: float = 0.0
    finished_at_s: float = 0.0
    active_at_s: float = 0.0  # the last exec or byte of stdin
    ready_at_s: float = 0.0
    result: Result | None = None
    image: ImageConfig = field(default_factory=ImageConfig)
    box: Box | None = None
    entry: Exec | None = None  # the entrypoint; None for a sandbox without a command
    execs: dict[str, Exec] = field(default_factory=dict)
    ending: str = ""  # what began its end
    scheduled: asyncio.Event = field(default_factory=asyncio.Event)
    running: asyncio.Event = field(default_factory=asyncio.Event)  # also set by the end
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def live(self) -> bool:
        return self.state != ENDED

    @property
    def gpu(self) -> str:
        config = self.definition.resources.gpu_config
        return f"{config.gpu_type}:{max(config.count, 1)}" if config.gpu_type else ""


class SandboxStore:
    """All sandboxes there ever were, oldest first."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.by_id: dict[str, Sandbox] = {}
        self.by_task: dict[str, Sandbox] = {}
        self.queue: list[Sandbox] = []
        self._by_name: dict[tuple[str, str], list[Sandbox]] = {}
        self._last_instant = 0.0
        world.gpus.on_freed.append(self.schedule)

    def next_instant(self) -> float:
        """Now, and later than any before: listings page by it."""
        self._last_instant = max(time.time(), self._last_instant + 1e-5)
        return self._last_instant

    def get(self, sandbox_id: str) -> Sandbox:
        sandbox = self.by_id.get(sandbox_id)
        if sandbox is None:
            raise GRPCError(Status.NOT_FOUND, f"Sandbox with ID {sandbox_id} not found")
        return sandbox

    def live(self, app_id: str = "") -> list[Sandbox]:
        return [one for one in self.by_id.values() if one.live and app_id in ("", one.app_id)]

    def named(self, app_id: str, name: str) -> Iterator[Sandbox]:
        """Those of that name, the newest first, ended or not."""
        if name:
            yield from reversed(self._by_name.get((app_id, name), []))

    def create(self, sandbox: Sandbox) -> None:
        """Raises ALREADY_EXISTS for a name that a live sandbox of the app has: the name is free
        again when that one has ended, not when somebody asked for its end.
        """
        if sandbox.gpu:
            parse(sandbox.gpu)
        if any(other.live for other in self.named(sandbox.app_id, sandbox.name)):
            raise GRPCError(
                Status.ALREADY_EXISTS,
                f"Sandbox with name '{sandbox.name}' already exists in this App",
            )
        self.by_id[sandbox.sandbox_id] = sandbox
        self.by_task[sandbox.task_id] = sandbox
        self._by_name.setdefault((sandbox.app_id, sandbox.name), []).append(sandbox)
        self.queue.append(sandbox)
        self.schedule()

    def schedule(self) -> None:
        """Start what there is a machine for, in the order of arrival for each type of GPU."""
        for sandbox in list(self.queue):
            if self.world.gpus.take(sandbox.gpu):
                self.queue.remove(sandbox)
                sandbox.state = STARTING
                sandbox.scheduled.set()
                sandbox.tasks.append(asyncio.create_task(self._start(sandbox)))

    async def terminate(self, sandbox: Sandbox) -> None:
        """Returns when it has ended, unless the settings delay that."""
        if not sandbox.live:
            return
        delay_s = self.world.settings.terminate_delay_s
        if delay_s and not sandbox.ending:
            sandbox.tasks.append(asyncio.create_task(self._later(delay_s, sandbox)))
            return
        await self.end(sandbox, Result(status=Result.GENERIC_STATUS_TERMINATED))

    async def preempt(self, sandbox: Sandbox, status: str = "INTERNAL_FAILURE") -> None:
        """Its machine is gone: nothing is committed, nothing says goodbye. What status the service
        gives then is a guess; the exit code is the default of the protocol, which is 0.
        """
        named = Result.GenericStatus.Value("GENERIC_STATUS_" + status)
        result = Result(status=named, exception="the worker was preempted")
        await self.end(sandbox, result, commits=False)

    async def kill(self, sandbox: Sandbox) -> None:
        """For want of memory."""
        result = Result(status=Result.GENERIC_STATUS_FAILURE, exitcode=137)
        await self.end(sandbox, result)

    async def end(self, sandbox: Sandbox, result: Result, *, commits: bool = True) -> None:
        """The one way to its end; the first who comes says why."""
        if sandbox.ending:
            await sandbox.ended.wait()
            return
        sandbox.ending = Result.GenericStatus.Name(result.status)
        held = sandbox.state != QUEUED
        if sandbox in self.queue:
            self.queue.remove(sandbox)
        if sandbox.box is not None:
            await sandbox.box.kill()
        leave(self.world, sandbox.sandbox_id, commits=commits)
        sandbox.result, sandbox.state = result, ENDED
        sandbox.finished_at_s = self.next_instant()
        for process in [*sandbox.execs.values(), *([sandbox.entry] if sandbox.entry else [])]:
            process.lose()
        for event in (sandbox.scheduled, sandbox.running, sandbox.ended):
            event.set()
        if held:
            self.world.gpus.release(sandbox.gpu)
        current = asyncio.current_task()
        for task in sandbox.tasks:
            if task is not current:
                task.cancel()
        sandbox.tasks.clear()

    async def _later(self, delay_s: float, sandbox: Sandbox) -> None:
        await asyncio.sleep(delay_s)
        await self.end(sandbox, Result(status=Result.GENERIC_STATUS_TERMINATED))

    async def _start(self, sandbox: Sandbox) -> None:
        """Runs as the sandbox's first task; its time counts from the start of the machine."""
        definition = sandbox.definition
        try:
            if self.world.settings.start_delay_s:
                await asyncio.sleep(self.world.settings.start_delay_s)
            sandbox.box, sandbox.image = make_box(self.world, self._wanted(sandbox))
            await sandbox.box.start()
            if sandbox.ending:
                await sandbox.box.kill()
                return
            await self._begin(sandbox, sandbox.box)
        except (BoxError, GRPCError) as error:
            failure = Result(status=Result.GENERIC_STATUS_INIT_FAILURE, exception=str(error))
            await self.end(sandbox, failure, commits=False)
            return
        sandbox.state = RUNNING
        sandbox.started_at_s = sandbox.active_at_s = time.time()
        sandbox.running.set()
        sandbox.tasks.append(asyncio.create_task(self._time_out(sandbox, definition.timeout_secs)))
        if definition.idle_timeout_secs:
            sandbox.tasks.append(
                asyncio.create_task(self._idle_out(sandbox, definition.idle_timeout_secs))
            )
        if sandbox.entry is not None:
            sandbox.tasks.append(asyncio.create_task(self._follow(sandbox, sandbox.entry)))

    async def _begin(self, sandbox: Sandbox, box: Box) -> None:
        definition, image = sandbox.definition, sandbox.image
        argv = [*image.entrypoint, *(definition.entrypoint_args or image.cmd)]
        if not argv:
            return
        pty = definition.pty_info
        desired = Desired(
            argv=argv,
            env={},
            cwd=definition.workdir or image.workdir or "/root",
            size=(pty.winsz_rows or 24, pty.winsz_cols or 80) if pty.enabled else None,
            keep_bytes=self.world.settings.stdio_keep_bytes if sandbox.v2 else None,
        )
        sandbox.entry = Exec("entrypoint", desired)
        await sandbox.entry.start(box)

    def _wanted(self, sandbox: Sandbox) -> Wanted:
        definition = sandbox.definition
        own = {
            "MODAL_IS_REMOTE": "1",
            "MODAL_SANDBOX_ID": sandbox.sandbox_id,
            "MODAL_TASK_ID": sandbox.task_id,
            "MODAL_IMAGE_ID": definition.image_id,
        }
        return Wanted(
            owner=sandbox.sandbox_id,
            directory=self.world.box_directory / sandbox.sandbox_id,
            image_id=definition.image_id,
            mount_ids=list(definition.mount_ids),
            volume_mounts=list(definition.volume_mounts),
            env={**own, **sandbox.env},
            files=driver(self.world.directory, sandbox.gpu),
        )

    async def _follow(self, sandbox: Sandbox, entry: Exec) -> None:
        await entry.wait()
        code = entry.code or 0
        status = Result.GENERIC_STATUS_FAILURE if code else Result.GENERIC_STATUS_SUCCESS
        await self.end(sandbox, Result(status=status, exitcode=code if code >= 0 else 128 - code))

    async def _time_out(self, sandbox: Sandbox, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)
        await self.end(sandbox, Result(status=Result.GENERIC_STATUS_TIMEOUT))

    async def _idle_out(self, sandbox: Sandbox, idle_s: float) -> None:
        """Execs and stdin are activity; the entrypoint's own work is not."""
        while True:
            now_s = time.time()
            execs = sandbox.execs.values()
            ends = [now_s if one.code is None else one.ended_at_s for one in execs]
            if now_s - max([sandbox.active_at_s, *ends]) >= idle_s:
                break
            await asyncio.sleep(min(IDLE_CHECK_S, idle_s))
        await self.end(sandbox, Result(status=Result.GENERIC_STATUS_IDLE_TIMEOUT))

    def truth(self) -> list[dict[str, Any]]:
        return [_told(sandbox) for sandbox in self.by_id.values()]


def new_sandbox(app: Any, request: Any, *, v2: bool, env: dict[str, str], at_s: float) -> Sandbox:
    return Sandbox(
        sandbox_id=ids.v2_sandbox_id() if v2 else ids.base62_id("sb"),
        task_id=ids.task_id(v2=v2),
        app_id=app.app_id,
        environment=app.environment,
        v2=v2,
        definition=request.definition,
        env=env,
        tags={tag.tag_name: tag.tag_value for tag in request.tags},
        created_at_s=at_s,
    )


def _network(definition: api_pb2.Sandbox) -> dict[str, Any] | None:
    """Returns the restrictions of a sandbox's network; None without any."""
    access = definition.network_access
    allowed = [*access.allowed_cidrs, *access.allowed_domains]
    blocked = access.network_access_type == api_pb2.NetworkAccess.NetworkAccessType.BLOCKED
    return {"allowed": allowed} if allowed or blocked or definition.block_network else None


def _told(sandbox: Sandbox) -> dict[str, Any]:
    box = sandbox.box
    return {
        "sandbox_id": sandbox.sandbox_id,
        "task_id": sandbox.task_id,
        "app_id": sandbox.app_id,
        "backend": "v2" if sandbox.v2 else "v1",
        "name": sandbox.name,
        "tags": dict(sandbox.tags),
        "state": sandbox.state,
        "live": sandbox.live,
        "ending": sandbox.ending,
        "exitcode": sandbox.result.exitcode if sandbox.result else None,
        "gpu": sandbox.gpu,
        "created_at_s": sandbox.created_at_s,
        "started_at_s": sandbox.started_at_s,
        "finished_at_s": sandbox.finished_at_s,
        "timeout_s": sandbox.definition.timeout_secs,
        "idle_timeout_s": sandbox.definition.idle_timeout_secs,
        "command": list(sandbox.definition.entrypoint_args),
        "network": _network(sandbox.definition),
        "pid": box.pid if box and box.alive else 0,
        "pids": [process.pid for process in box.processes.values()] if box else [],
        "exec_count": len(sandbox.execs),
        "execs": [
            {
                "exec_id": one.exec_id,
                "argv": list(one.desired.argv),
                "code": one.code,
                "timed_out": one.timed_out,
            }
            for one in sandbox.execs.values()
        ],
        "root": str(box.root) if box else "",
    }
