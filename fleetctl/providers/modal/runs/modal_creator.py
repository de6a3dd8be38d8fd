"""Makes sandboxes at Modal: named and tagged in the request, one for each run even after repeated
requests; creates that wait for a GPU queue here.

A sandbox with a GPU is not made before there is one: until then its create waits here, in the
background, and `make` reports it. Not every pending create waits for a GPU: one that the rate limit
holds back, or that is queued behind creates that proceed, may get its GPU at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.providers.contract.base import Notify, RunRequest
from fleetctl.providers.modal.connection.modal_connection import ModalSettings
from fleetctl.providers.modal.connection.modal_errors import (
    classify_error,
    error_words,
    sdk_errors,
    unknown_error,
)
from fleetctl.providers.modal.runs import modal_driver, modal_machines, modal_streams
from fleetctl.providers.modal.runs.modal_sandboxes import GPU_TAG, GUEST_TAG, NO_GPU, ModalSandboxes
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.pending_creates import PendingCreate, PendingCreates
from fleetctl.providers.remote.service_calls import TokenBucket
from fleetctl.specs.blocks.resources import Gpu, Network

if TYPE_CHECKING:
    import modal


log = logging.getLogger("fleetctl.providers")

QUEUED_S = 22 * 60.0  # the SDK itself gives up after 21 minutes
QUEUED_AGAIN_S = 60.0  # waiting callers are notified at once when it is through; this is the net
LIFE_SLACK_S = 900.0  # for a sandbox to begin, to clone, to commit and to be ended

PATIENCE_S = 3.0  # a GPU that is free is there by then


@dataclass(frozen=True, slots=True)
class ModalParts:
    """The parts of a create that are looked up or built first."""

    app: modal.App
    client: modal.Client
    image: modal.Image
    volumes: dict[str | PathLike[Any], Any]
    secrets: list[modal.Secret]


class ModalCreator:
    """Makes the sandboxes of runs. parts: finds an order's image and other parts; may raise Refused
    and Unavailable. stale: called when Modal does not know a part any more.
    """

    def __init__(
        self,
        sandboxes: ModalSandboxes,
        parts: Callable[[RunRequest], Awaitable[ModalParts]],
        settings: ModalSettings,
        *,
        stale: Callable[[RunRequest], None],
        store_id: str,
        notify: Notify,
    ) -> None:
        self._sandboxes = sandboxes
        self._parts = parts
        self._stale = stale
        self._settings = settings
        self._store_id = store_id
        self._bucket = TokenBucket(settings.creates_per_s, settings.creates_burst)
        self._at_once = asyncio.Semaphore(max(1, int(settings.starts_at_once)))
        self._gpus = GpuQueue(int(settings.queued_max))
        # Those that are closed are taken back by the SDK.
        self.makings = PendingCreates(notify, give_up_s=settings.call_s)

    async def make(self, request: RunRequest) -> str:
        """The handle of the run's sandbox. Raises Unavailable with the reason Queued while it waits
        for a GPU; then `notify` is called when it is time to ask again.
        """
        making = self.makings.get(request.run) or self._begin(request)
        gpu = request.template.resources.gpu
        patience = None if gpu is None else self._gpus.wait_told(request.run)
        handle = await self.makings.handle(making, patience=patience)
        if handle is None:
            assert gpu is not None
            raise _queue_wait(gpu, making.since_s)
        return handle

    def _begin(self, request: RunRequest) -> PendingCreate:
        if request.template.resources.gpu is not None:
            modal_machines.gpu_name(
                request.template.resources.gpu
            )  # refused at once, not from the background
        return self.makings.begin(request.run, self._make(request))

    async def _make(self, request: RunRequest) -> str:
        if request.template.resources.gpu is not None:
            return await self._create(request, deadline_s=QUEUED_S)
        async with self._at_once:
            return await self._create(request, deadline_s=2 * self._settings.call_s)

    async def _create(self, request: RunRequest, *, deadline_s: float) -> str:
        """Makes exactly one sandbox, whatever became of earlier requests under the same name."""
        parts = await self._parts(request)
        await self._bucket.take()
        blocks = request.template.resources.gpu is not None
        async with self._gpus.place(request.run) if blocks else nullcontext():
            return await self._request_sandbox(request, parts, deadline_s=deadline_s)

    async def _request_sandbox(
        self,
        request: RunRequest,
        parts: ModalParts,
        *,
        deadline_s: float,
    ) -> str:
        from modal import exception as sdk

        carried = sandbox_names.sandbox_tags(request, self._store_id, time.time())
        carried[GUEST_TAG] = modal_streams.guest_for(request.template)
        if request.template.resources.gpu is None and _takes_older_backend():
            carried[GPU_TAG] = NO_GPU
        what = f"the sandbox of run `{request.run}` cannot be made"
        try:
            async with asyncio.timeout(deadline_s):
                sandbox = await self._request(request, parts, carried)
        except sdk.AlreadyExistsError as error:
            return await self._adopt(request, error, what)
        except sdk_errors() as error:
            if isinstance(error, sdk.NotFoundError):
                self._stale(request)
            return await self._resolve_create(request, parts.client, error, what)
        return self._sandboxes.made(sandbox, carried, parts.client)

    async def _resolve_create(
        self,
        request: RunRequest,
        client: modal.Client,
        error: Exception,
        what: str,
    ) -> str:
        """Returns the sandbox of a create that ended with an error.

        Modal makes a sandbox with a GPU first and asks for its machine after: an error of such a
        create does not show whether a sandbox was made. So it is looked up by its name, and where
        even that is refused the start is not over: it goes on under the same name.
        """
        certain_error = classify_error(error, what)
        if certain_error is None:
            log.info(
                "create without an answer", extra={"run": request.run, "error": error_words(error)}
            )
            return await self._adopt(request, error, what)
        self._slow_down(certain_error)
        self._sandboxes.heed(certain_error, client)
        if request.template.resources.gpu is None:
            raise certain_error from error
        try:
            handle = await self._sandboxes.find(request.run)
            if handle is not None and _has_no_capacity(certain_error):
                # the SDK gave it up, and its request may not have arrived
                await self._sandboxes.end(handle)
                handle = None
        except Unavailable as unheard:
            raise _create_unresolved(certain_error, unheard) from error
        if handle is None:
            raise certain_error from error
        return await self._scheduled(handle, what)

    async def _request(
        self,
        request: RunRequest,
        parts: ModalParts,
        carried: dict[str, str],
    ) -> modal.Sandbox:
        import modal

        machine = modal_machines.choose_machine(request.template.sandbox_resources)
        life_s = self.life_s(request)
        return await modal.Sandbox.create.aio(
            *(("sleep", str(life_s)) if request.session else modal_streams.idle_command()),
            app=parts.app,
            client=parts.client,
            name=sandbox_names.sandbox_name(request.run),
            tags=carried,
            image=parts.image,
            secrets=parts.secrets,
            volumes=parts.volumes,
            timeout=life_s,
            cpu=machine.cpu,
            memory=machine.memory,
            gpu=machine.gpu,
            **_network_params(request.template.network),
        )

    def life_s(self, request: RunRequest) -> int:
        """Modal ends the sandbox then, whatever becomes of us."""
        template = request.template
        cap_s = self._settings.lifetime_s
        if request.session is not None:
            return modal_driver.life_s(request, cap_s=cap_s)
        if template.timeout_seconds is None or request.reusable:
            return int(cap_s)
        task_s = template.timeout_seconds + template.termination_grace_period_seconds
        return int(min(cap_s, math.ceil(task_s + LIFE_SLACK_S)))

    async def _adopt(
        self,
        request: RunRequest,
        error: Exception,
        what: str,
    ) -> str:
        """Returns the sandbox that an earlier request made. Raises Unavailable when there is no
        sandbox, and TimeoutError when no reply gave a reason: the request may still arrive, so its
        outcome is not known.
        """
        try:
            handle = await self._sandboxes.find(request.run)
        except Unavailable as unheard:
            unheard.perhaps_made = True
            raise
        if handle is None and isinstance(error, TimeoutError):
            raise TimeoutError(f"no sandbox of run `{request.run}` is seen yet") from error
        if handle is None:
            translated = unknown_error(error, what)
            raise _create_unresolved(translated, translated) from error
        if request.template.resources.gpu is not None:
            return await self._scheduled(handle, f"run `{request.run}` cannot have its machine")
        return handle

    async def _scheduled(self, handle: str, what: str) -> str:
        """Returns once the sandbox, which was made before, has its machine."""
        async with asyncio.timeout(QUEUED_S):
            try:
                await self._sandboxes.scheduled(handle)
            except TimeoutError:
                raise
            except sdk_errors() as error:
                certain_error = classify_error(error, what)
                if not isinstance(certain_error, Unavailable):
                    certain_error = unknown_error(error, what)
                raise _create_unresolved(certain_error, certain_error) from error
        return handle

    def _slow_down(self, error: FleetctlError) -> None:
        if isinstance(error, Unavailable) and error.reason == "RateLimited":
            self._bucket.hold(error.retry_after_s)


def _network_params(network: Network | None) -> dict[str, Any]:
    if network is None:
        return {}
    if not network.allow:
        return {"block_network": True}
    lists = {
        "outbound_cidr_allowlist": network.blocks,
        "outbound_domain_allowlist": network.hosts,
    }
    return {name: entries for name, entries in lists.items() if entries}


def _takes_older_backend() -> bool:
    """The SDK's own setting; see its configuration."""
    return os.environ.get("MODAL_SANDBOX_V2", "1").lower() in ("", "0", "false")


def _has_no_capacity(error: FleetctlError) -> bool:
    return isinstance(error, Unavailable) and error.reason == "NoCapacity"


def _create_unresolved(error: FleetctlError, unheard: FleetctlError) -> Unavailable:
    """The sandbox may be there, and is taken or ended under its name."""
    asked = error if isinstance(error, Unavailable) else unheard
    assert isinstance(asked, Unavailable)
    asked.perhaps_made = True
    return asked


def _queue_wait(gpu: Gpu, since_s: float) -> Unavailable:
    since = time.strftime("%H:%M:%S", time.gmtime(since_s))
    return Unavailable(
        f"waiting for {gpu.name}:{gpu.count} since {since} UTC; Modal has none free",
        reason="Queued",
        retry_after_s=QUEUED_AGAIN_S,
        hint="another GPU or a fall-back provider may be free sooner",
    )


class GpuQueue:
    """A queue of creates that may block. places: how many creates may block at once. patience_s:
    seconds; None is PATIENCE_S.
    """

    def __init__(self, places: int, *, patience_s: float | None = None) -> None:
        self._count = max(1, places)
        self._places = asyncio.Semaphore(self._count)
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._blocked: set[str] = set()  # at Modal for longer than a free GPU takes
        self._in_line: set[str] = set()
        self._more_wait = asyncio.Event()

    @asynccontextmanager
    async def place(self, run: str) -> AsyncIterator[None]:
        """Holds a slot in which a create may block at Modal. First come, first served."""
        self._in_line.add(run)
        self._wake_waiters()
        try:
            await self._places.acquire()
        finally:
            self._in_line.discard(run)
        timer = asyncio.get_running_loop().call_later(self._patience_s, self._block, run)
        try:
            yield
        finally:
            timer.cancel()
            self._blocked.discard(run)
            self._places.release()

    async def wait_told(self, run: str) -> None:
        """Returns once it is known that the run's create waits for a GPU; it may never return."""
        while not self._waits(run):
            await self._more_wait.wait()

    def _waits(self, run: str) -> bool:
        return run in self._blocked or (run in self._in_line and len(self._blocked) >= self._count)

    def _block(self, run: str) -> None:
        self._blocked.add(run)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        changed, self._more_wait = self._more_wait, asyncio.Event()
        changed.set()
