"""Runs whose template asks for a function: deployed, called, followed, stopped; one request finds
whether the calls of a function wait for a machine.

A start has two phases: the first makes sure that the function is deployed; the second spawns the
call, whose id is the handle. A run whose call is spawned twice begins once (latches.py). One
request about the machines covers all calls of a function, and is sent only while a caller waits for
the result.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.controllers.model import Observation
from fleetctl.guest.nodes.gang import is_node_name
from fleetctl.providers.contract.base import (
    FunctionAsset,
    LogChunk,
    Notify,
    RunRef,
    RunRequest,
    ServerAddress,
)
from fleetctl.providers.contract.terms import OutputLimits, outputs_order
from fleetctl.providers.modal.assets import modal_images
from fleetctl.providers.modal.connection.modal_connection import ModalConnection, ModalSettings
from fleetctl.providers.modal.connection.modal_errors import (
    classify_error,
    error_words,
    is_not_found,
    retryable_call,
    sdk_errors,
)
from fleetctl.providers.modal.functions.call_records import (
    CallHandle,
    CallNodes,
    CallRecords,
    parse_handle,
)
from fleetctl.providers.modal.functions.deployments import (
    Deployments,
    FunctionDeployment,
    FunctionParts,
    fleet_name,
    life_s,
    slack_s,
)
from fleetctl.providers.modal.functions.function_calls import FunctionCalls
from fleetctl.providers.modal.functions.latches import Latches
from fleetctl.providers.modal.runs import modal_machines
from fleetctl.providers.paths import checked_name, jobs_dir, make_private, provider_dir
from fleetctl.providers.remote.runs.follower import FollowPace
from fleetctl.providers.remote.runs.guest_order import SandboxContext, guest_order, work_s
from fleetctl.providers.remote.runs.remote_runs import STOP_SLACK_S, RemoteRuns
from fleetctl.providers.remote.service_calls import TokenBucket
from fleetctl.providers.sources.pinning import pin_commit
from fleetctl.specs.blocks.nodes import procs_of
from fleetctl.specs.blocks.resources import Gpu

if TYPE_CHECKING:
    import modal

    from fleetctl.providers.modal.functions.deployments import Deployed
    from fleetctl.specs.blocks.template import Template


log = logging.getLogger("fleetctl.providers")

LOG_RETURNED_BYTES = 4 * 1024 * 1024  # of a run's output: its first quarter and its end
# The call returns them, in one piece that the container and this machine hold in memory.
OUTPUTS_RETURNED = OutputLimits(
    file_bytes_max=32 << 20,
    bytes_max=32 << 20,
    files_max=2_000,
)
WORKER_LINGER_S = 86_400.0  # a worker that waits for tasks ends with its container
CALL = "*"  # stands for the call's id, which only the call itself knows in time
GANG_LOOK_S = 2.0  # between two looks of a node at the others
STOP_WAITS_S = 30.0  # for a spawn under way, so that its call is known

FRESH_S = 5.0  # an answer is fresh for this time
PATIENCE_S = 3.0  # a machine that is free is there by then
LOOK_S = 10.0  # between two questions while calls wait
CALL_S = 30.0
QUEUED_AGAIN_S = 60.0  # waiting callers are notified at once when it is through; this is the net


class FunctionRuns:
    """Runs in functions' containers. parts: finds the parts of a function; may raise Refused and
    Unavailable.
    """

    def __init__(
        self,
        home: Path,
        store_id: str,
        connection: ModalConnection,
        settings: ModalSettings,
        *,
        parts: Callable[[FunctionDeployment], Awaitable[FunctionParts]],
        stale: Callable[[Template], None],
        notify: Notify,
        pace: FollowPace,
        provider: str,
    ) -> None:
        self._job_dirs = jobs_dir(home, provider)
        self._fleet = fleet_name(store_id)
        self._settings = settings
        self._deployments = Deployments(
            provider_dir(home, provider),
            store_id,
            connection,
            parts,
            stale=stale,
        )
        self._latches = Latches(connection, store_id)
        self._records = CallRecords(home, provider)
        self._line = FunctionQueue(notify)
        self._notify = notify
        self._nodes = CallNodes(self._follow_node)
        self._bucket = TokenBucket(settings.spawns_per_s, settings.spawns_burst)
        self._spawning: dict[str, asyncio.Task[CallHandle]] = {}
        self._runs = RemoteRuns(
            home,
            provider,
            FunctionCalls(
                connection, self._latches, wait_s=settings.call_wait_s, nodes=self._nodes
            ),
            notify=self._notify_run,
            pace=pace,
            stop_slack_s=STOP_SLACK_S + settings.look_s,
        )

    def has(self, ref: RunRef) -> bool:
        """Returns whether the run is ours, and no sandbox's."""
        return parse_handle(ref.handle) is not None or bool(self._records.call(ref.uid, ref.run))

    async def start(self, request: RunRequest) -> str:
        """Calls the function for a run, once; returns the handle of the call. Raises Refused and
        Unavailable, and TimeoutError when the call may have been made.
        """
        handle = self._known(request.uid, request.run, request.handle)
        if handle is None and not request.handle:
            make_private(self._job(request.uid))  # from now on Modal may hold something of ours
            app, _ = await self._deployments.ready(await self._choose_deployment(request))
            await self._latches.ensure(request.uid)
            return str(
                CallHandle(
                    "fn",
                    app,
                    self._fleet,
                    request.uid,
                    request.run,
                )
            )
        if handle is None:
            handle = await self._spawned(request)
        await self._runs.follow(request.uid, request.run, str(handle))
        gpu = request.template.resources.gpu
        if gpu is not None and not self._runs.is_over(request.run):
            app, function = await self._deployments.ready(await self._choose_deployment(request))
            await self._line.pass_or_wait(app, function, request.run, gpu)
        return str(handle)

    async def observe(self, refs: Sequence[RunRef]) -> list[Observation]:
        return await self._runs.observe([self._with_call(ref) for ref in refs])

    async def stop(self, ref: RunRef, *, grace_s: float) -> None:
        self._line.leave(ref.run)
        spawning = self._spawning.get(ref.run)
        if spawning is not None:
            await asyncio.wait({spawning}, timeout=STOP_WAITS_S)
        ref = self._with_call(ref)
        handle = parse_handle(ref.handle)
        if handle is not None and handle.fleet == self._fleet:
            self._runs.stop(ref, ref.handle, grace_s=grace_s)

    def logs(
        self,
        ref: RunRef,
        *,
        offset: int,
        follow: bool,
    ) -> AsyncIterator[LogChunk]:
        return self._runs.logs(self._with_call(ref), offset=offset, follow=follow)

    # -- what is deployed --------------------------------------------------------------------------

    async def ensure(self, asset: FunctionAsset) -> ServerAddress | None:
        user = f"function-{asset.order.name}"
        wanted = FunctionDeployment(
            template=asset.template,
            function=asset.order,
            secrets=dict(asset.secrets),
            secret_refs=asset.secret_refs,
            user=user,
            job=make_private(self._job(user)),
            commit=await pin_commit(asset.template, self._job(user)),
            server=asset.server,
        )
        app, function = await self._deployments.ready(wanted)
        await self._deployments.release(user, but=app)
        if asset.server is None:
            return None
        url = await function.get_web_url.aio()
        if not url:
            raise Unavailable(f"Modal gives no URL of `{asset.order.name}`", retry_after_s=5.0)
        return ServerAddress(url.rstrip("/"), self._deployments.server_key(app))

    async def containers(self, name: str) -> int:
        return await self._deployments.containers(f"function-{name}")

    async def remove(self, name: str) -> None:
        await self._deployments.release(f"function-{name}")

    async def remove_scratch(self, uid: str, *, keep_logs: bool) -> None:
        """Removes a resource's runs at Modal. Its files are the caller's."""
        if not self._job(uid).exists():
            return
        if not keep_logs:
            await self._runs.forget_all_of(uid)
        if self._records.runs(uid) or self._deployments.wants(f"job-{uid}"):
            await self._latches.remove(uid)
            await self._deployments.release(f"job-{uid}")
        self._records.forget(uid)

    async def collect(self) -> None:
        await self._deployments.collect()

    @property
    def busy(self) -> bool:
        """Returns whether a spawn, or the end of a call, is under way."""
        return bool(self._spawning) or self._runs.busy

    async def close(self) -> None:
        for task in list(self._spawning.values()):
            task.cancel()
        await self._line.close()
        await self._runs.close()

    # -- helpers -----------------------------------------------------------------------------------

    def _known(
        self,
        uid: str,
        run: str,
        handle: str,
    ) -> CallHandle | None:
        """The call that the run is known to have."""
        given = parse_handle(handle)
        if given is not None and given.called:
            return given
        call = self._records.call(uid, run)
        if call:
            return CallHandle(
                "fc",
                call,
                self._fleet,
                uid,
                run,
            )
        begun = parse_handle(self._runs.handle_of(uid, run)) if uid else None
        if begun is not None and begun.called:
            return begun
        return None

    async def _follow_node(self, node: CallHandle) -> None:
        await self._runs.follow(node.uid, node.files, str(node))

    def _notify_run(self, run: str) -> None:
        """Notifies about a run; events of a node are sent with its run."""
        if not is_node_name(run):
            self._notify(run)

    def _with_call(self, ref: RunRef) -> RunRef:
        known = self._known(ref.uid, ref.run, ref.handle)
        if known is None:
            return ref
        return replace(ref, handle=str(known))

    async def _choose_deployment(self, request: RunRequest) -> FunctionDeployment:
        assert request.function is not None
        template = request.template
        name = request.function.name
        # The code that a Function names is taken once for all its jobs, as its containers are.
        place = self._job(f"function-{name}" if name else request.uid)
        shared = template.source is not None and template.source.path is not None
        return FunctionDeployment(
            template=template,
            function=request.function,
            secrets=dict(request.secrets),
            secret_refs=request.secret_refs,
            user=f"job-{request.uid}",
            job=place if shared else self._job(request.uid),
            commit=await pin_commit(template, place),
        )

    async def _spawned(self, request: RunRequest) -> CallHandle:
        """Spawns the call of a run, one spawn at a time; a waiting caller may be cancelled."""
        task = self._spawning.get(request.run)
        if task is None:
            task = self._spawning[request.run] = asyncio.ensure_future(self._spawn(request))
            task.add_done_callback(lambda done: self._spawn_ended(request.run, done))
        return await asyncio.shield(task)

    def _spawn_ended(self, run: str, done: asyncio.Task[CallHandle]) -> None:
        self._spawning.pop(run, None)
        if not done.cancelled():
            done.exception()  # a waiting caller gets it

    async def _spawn(self, request: RunRequest) -> CallHandle:
        wanted = await self._choose_deployment(request)
        text = await self._text(request, wanted)
        app, function = await self._deployments.ready(wanted)
        await self._bucket.take()
        what = f"run `{request.run}` cannot be called"
        try:
            async with asyncio.timeout(2 * self._settings.call_s):
                call: modal.FunctionCall[bytes] = await function.spawn.aio(text)
        except sdk_errors() as error:
            if is_not_found(error):
                self._deployments.forget(app)
            certain_error = classify_error(error, what)
            if certain_error is not None:
                raise certain_error from error
            log.info(
                "spawn without answer", extra={"run": request.run, "error": error_words(error)}
            )
            raise TimeoutError(what) from error
        self._records.write(request.uid, request.run, call.object_id)
        return CallHandle(
            "fc",
            call.object_id,
            self._fleet,
            request.uid,
            request.run,
        )

    async def _text(self, request: RunRequest, wanted: FunctionDeployment) -> str:
        """Returns the order for the body; see fleetctl_body.py."""
        setup, directory = modal_images.setup_commands(request.template, wanted.commit)
        grace_s = request.template.termination_grace_period_seconds
        left_s = work_s(life_s(wanted), leave_s=slack_s(wanted), grace_s=grace_s)
        gpu = request.template.resources.gpu
        # The body commits volumes itself; see fleetctl_volumes.py.
        place = SandboxContext(
            handle="",
            setup=setup,
            source=directory,
            syncs=False,
            left_s=left_s,
        )
        fields = {
            **guest_order(request, place),
            "handle": str(
                CallHandle(
                    "fc",
                    CALL,
                    self._fleet,
                    request.uid,
                    request.run,
                )
            ),
            "uid": request.uid,
            "latch": await self._latches.ensure(request.uid),
            "mounts": [
                {"name": one.name, "path": one.mount_path, "writable": not one.read_only}
                for one in request.template.volumes
            ],
            "nodes": modal_machines.cluster_size(request.template),
            "procs": procs_of(request.template),
            "look_s": self._settings.look_s,
            "gang_look_s": min(GANG_LOOK_S, self._settings.look_s),
            "keep_s": self._settings.keep_s,
            "patience_s": self._settings.patience_s,
            "log_bytes_max": LOG_RETURNED_BYTES,
            "outputs": outputs_order(request.template, OUTPUTS_RETURNED),
            "linger_s": WORKER_LINGER_S if request.reusable else 0.0,
            # Modal does not report which GPU of a list it gave, and the container's driver does.
            "asks_gpus": gpu is not None and bool(gpu.otherwise),
        }
        return json.dumps(fields, separators=(",", ":"))

    def _job(self, uid: str) -> Path:
        return self._job_dirs / checked_name(uid)


class FunctionQueue:
    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._moving: dict[str, tuple[float, bool]] = {}  # app -> when asked, what was answered
        self._waiting: dict[str, dict[str, float]] = {}  # app -> run -> since when
        self._watches: dict[str, asyncio.Task[None]] = {}

    async def pass_or_wait(
        self,
        app: str,
        function: Deployed,
        run: str,
        gpu: Gpu,
    ) -> None:
        """Returns once some container of the function works. Raises Unavailable with the reason
        Queued while there is none; `notify` is called when it is time to ask again.
        """
        deadline_s = time.monotonic() + PATIENCE_S
        while not await self._moves(app, function):
            if time.monotonic() >= deadline_s:
                since_s = self._wait(app, function, run)
                raise _queue_wait(gpu, since_s)
            await asyncio.sleep(min(1.0, PATIENCE_S))
        self._waiting.get(app, {}).pop(run, None)

    def leave(self, run: str) -> None:
        for waiting in self._waiting.values():
            waiting.pop(run, None)

    async def close(self) -> None:
        await cancel_tasks(self._watches.values())

    async def _moves(self, app: str, function: Deployed) -> bool:
        asked_at_s, moving = self._moving.get(app, (-FRESH_S, False))
        now_s = time.monotonic()
        if now_s - asked_at_s < (FRESH_S if moving else 0.5):
            return moving
        async with retryable_call("the function's containers cannot be counted", deadline_s=CALL_S):
            stats = await function.get_current_stats.aio()
        moving = stats.num_total_runners > 0 or stats.backlog == 0
        self._moving[app] = (now_s, moving)
        return moving

    def _wait(
        self,
        app: str,
        function: Deployed,
        run: str,
    ) -> float:
        since_s = self._waiting.setdefault(app, {}).setdefault(run, time.time())
        if app not in self._watches:
            task = self._watches[app] = asyncio.ensure_future(self._watch(app, function))
            task.add_done_callback(lambda _: self._watches.pop(app, None))
        return since_s

    async def _watch(self, app: str, function: Deployed) -> None:
        """Notifies all waiting callers when there is a container; ends when no caller waits any
        more.
        """
        while self._waiting.get(app):
            await asyncio.sleep(LOOK_S)
            try:
                moves = await self._moves(app, function)
            except (Refused, Unavailable):
                continue
            if moves:
                for run in list(self._waiting.pop(app, {})):
                    self._notify(run)
                return


def _queue_wait(gpu: Gpu, since_s: float) -> Unavailable:
    since = time.strftime("%H:%M:%S", time.gmtime(since_s))
    wanted = " or ".join(str(one) for one in gpu.choices)
    return Unavailable(
        f"waiting for {wanted} since {since} UTC; Modal has none free",
        reason="Queued",
        retry_after_s=QUEUED_AGAIN_S,
        hint="add another sort of GPU to the list",
    )
