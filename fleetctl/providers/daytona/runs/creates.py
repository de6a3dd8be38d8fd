"""Makes sandboxes at Daytona: named and labelled in the request, one for each run however often it
is asked for, paced, and with our own deadline for each state.

Called by provider.py. What takes long, such as a machine with a GPU, goes on in the background, and
`make` says so.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.providers.contract.base import Notify, RunRequest
from fleetctl.providers.daytona.connection.errors import (
    OF_NOBODY,
    certain,
    is_conflict,
    is_of_the_sdk,
    words,
)
from fleetctl.providers.daytona.connection.settings import Settings
from fleetctl.providers.daytona.connection.throttles import RATE_LIMITED
from fleetctl.providers.daytona.runs import endings
from fleetctl.providers.daytona.runs.endings import ENDS_LABEL, state_of
from fleetctl.providers.daytona.runs.sandboxes import GUEST_LABEL, DaytonaSandboxes
from fleetctl.providers.daytona.runs.streams import Guest
from fleetctl.providers.remote.connection.asking import ASK_AGAIN_S
from fleetctl.providers.remote.connection.token_bucket import Bucket
from fleetctl.providers.remote.sandboxes import names
from fleetctl.providers.remote.sandboxes.creates import Making, Makings

if TYPE_CHECKING:
    import daytona

log = logging.getLogger("fleetctl.providers")

PATIENCE_S = 20.0  # what is free is there by then
WAITS_AGAIN_S = 60.0  # who waits is told at once when it is through; this is the net
LIFE_SLACK_S = 900.0  # for a sandbox to begin, to clone and to be ended
LOOK_S = 15.0  # between two looks at a sandbox that is not started yet
FAILED_AFTER_S = 10.0
# Daytona's own time limits for states, after which it says `error`; we wait a little longer.
STATES_S = {
    "starting": 5 * 60.0,
    "creating": 15 * 60.0,
    "pulling_snapshot": 30 * 60.0,
    "pending_build": 60 * 60.0,
    "building_snapshot": 60 * 60.0,
}
OTHERS_S = 5 * 60.0
SLACK_S = 30.0
# Answers that any question may get, also one about a sandbox that was made.
_AT_ANY_QUESTION = ("KeyRefused", "AccessDenied", "UnknownAnswer")


@dataclass(frozen=True, slots=True)
class Parts:
    """What a create needs that is looked up or built first."""

    client: daytona.AsyncDaytona
    snapshot: str
    volumes: list[daytona.VolumeMount]


class Creating:
    """parts: finds what an order's sandbox is made of; finish: puts into it what must be there
    before anything begins. Both may raise Refused and Unavailable. stale: called when Daytona does
    not know some of the parts any more.
    """

    def __init__(
        self,
        sandboxes: DaytonaSandboxes,
        settings: Settings,
        *,
        parts: Callable[[RunRequest], Awaitable[Parts]],
        finish: Callable[[RunRequest, daytona.AsyncSandbox], Awaitable[None]],
        stale: Callable[[RunRequest], None],
        store_id: str,
        notify: Notify,
    ) -> None:
        self._sandboxes = sandboxes
        self._settings = settings
        self._parts, self._finish, self._stale = parts, finish, stale
        self._store_id = store_id
        self._bucket = Bucket(settings.creates_per_s, settings.creates_burst)
        self.makings = Makings(notify, give_up_s=settings.call_s)

    async def make(self, request: RunRequest) -> str:
        """The handle of the run's sandbox. Raises Unavailable with the reason Queued while it waits
        for a machine; then `notify` tells when to ask again.
        """
        making = self.makings.get(request.run) or self._begin(request)
        handle = await self.makings.handle(making, patience=asyncio.sleep(PATIENCE_S))
        if handle is None:
            raise _waiting(request, making.since_s)
        return handle

    def _begin(self, request: RunRequest) -> Making:
        if len(self.makings) >= self._settings.making_max:
            raise Unavailable(
                f"{len(self.makings)} sandboxes are being made already",
                reason="Queued",
                retry_after_s=WAITS_AGAIN_S,
            )
        return self.makings.begin(request.run, self._make(request))

    async def _make(self, request: RunRequest) -> str:
        """Exactly one sandbox, whatever became of earlier requests under the same name."""
        parts = await self._parts(request)
        await self._bucket.take()
        params = self._params(request, parts)
        sandbox = await self._started(request, parts.client.create(params, timeout=0))
        with _perhaps_made():
            await self._finish(request, sandbox)
        return self._sandboxes.keep(sandbox)

    async def _started(
        self, order: RunRequest, request: Coroutine[Any, Any, daytona.AsyncSandbox]
    ) -> daytona.AsyncSandbox:
        what = f"the sandbox of run `{order.run}` cannot be made"
        try:
            return await self._watched(order, request)
        except FleetctlError:
            raise
        except Exception as error:
            if not is_of_the_sdk(error):
                raise
            translated = None if is_conflict(error) else self._told(order, error, what)
            if translated is not None:
                raise translated from error
            log.info("create without an answer", extra={"run": order.run, "error": words(error)})
            failed = error
        with _perhaps_made():
            return await self._adopted(order, failed)

    async def _adopted(self, request: RunRequest, failed: Exception) -> daytona.AsyncSandbox:
        """What an earlier request made. Raises Unavailable when nothing is there: the request may
        still arrive, but nothing begins in what it makes before this is asked for again.
        """
        sandbox = await self._sandboxes.named(request.run)
        if sandbox is None:
            raise Unavailable(
                f"the sandbox of run `{request.run}` cannot be made: {words(failed)}",
                retry_after_s=ASK_AGAIN_S,
            ) from failed
        state = state_of(sandbox)
        if endings.is_over(state):
            why = sandbox.error_reason or f"it is {state}"
            await self._sandboxes.end(sandbox.id)
            raise Unavailable(
                f"the sandbox of run `{request.run}` failed before anything began: {why}",
                reason="SandboxFailed",
                retry_after_s=FAILED_AFTER_S,
            )
        if state != "started":
            return await self._started(request, _wait(sandbox))
        return sandbox

    async def _watched(
        self, order: RunRequest, request: Coroutine[Any, Any, daytona.AsyncSandbox]
    ) -> daytona.AsyncSandbox:
        """The request's answer, or what it made; unless that stays in one state for too long."""
        asking = asyncio.ensure_future(request)
        try:
            # Most are there before the first look is due.
            await asyncio.wait({asking}, timeout=LOOK_S)
            state = "" if asking.done() else await self._outlasted(order, asking)
            if asking.done():
                return asking.result()
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking})
        with _perhaps_made():
            sandbox = await self._sandboxes.named(order.run)
            if sandbox is not None and state_of(sandbox) == "started":
                return sandbox  # the answer is late or lost, and is not needed
            if sandbox is not None:
                await self._sandboxes.end(sandbox.id)
        raise Unavailable(
            f"the sandbox of run `{order.run}` was stuck in `{state}`, and was deleted",
            reason="SandboxStuck",
            retry_after_s=FAILED_AFTER_S,
        )

    async def _outlasted(
        self, request: RunRequest, asking: asyncio.Future[daytona.AsyncSandbox]
    ) -> str:
        """A state that lasts too long, or is all that is waited for, while there is no answer."""
        watching = asyncio.ensure_future(self._stuck(request))
        either: tuple[asyncio.Future[Any], ...] = (asking, watching)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return watching.result() if watching.done() else ""
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    async def _stuck(self, request: RunRequest) -> str:
        """Returns a state that lasts too long, or is all that is waited for. Looks rarely: who
        waits is told by events.
        """
        loop = asyncio.get_running_loop()
        seen, since_s = "", loop.time()
        while True:
            state = await self._state_now(request)
            if state == "started":
                return state
            if state and state != seen:
                seen, since_s = state, loop.time()
            elif state and loop.time() - since_s > self._patience_s(request, state):
                return state
            await asyncio.sleep(LOOK_S)

    async def _state_now(self, request: RunRequest) -> str:
        """Empty when nothing is known."""
        try:
            sandbox = await self._sandboxes.named(request.run)
        except FleetctlError:
            return ""
        return "unanswered" if sandbox is None else state_of(sandbox)

    def _patience_s(self, request: RunRequest, state: str) -> float:
        if state == "creating" and request.template.resources.gpu is not None:
            return self._settings.queue_s + SLACK_S  # in line for a machine
        return patience_s(state)

    def _told(self, request: RunRequest, error: Exception, what: str) -> FleetctlError | None:
        """What an error says for sure; None when there may be a sandbox."""
        from daytona import DaytonaQueueTimeoutError, DaytonaSpotEvictedError

        if isinstance(error, DaytonaQueueTimeoutError | DaytonaSpotEvictedError):
            return Unavailable(f"{what}: {words(error)}", reason="Queued", retry_after_s=1.0)
        certain_error = certain(error, what)
        if isinstance(certain_error, Unavailable) and certain_error.reason == RATE_LIMITED:
            self._bucket.hold(certain_error.retry_after_s)
        elif isinstance(certain_error, Unavailable) and not (
            certain_error.account or certain_error.reason in OF_NOBODY
        ):
            self._stale(request)
        if isinstance(certain_error, Unavailable) and certain_error.reason in _AT_ANY_QUESTION:
            # Of a create that was taken, a look may have been answered so.
            certain_error.perhaps_made = True
        return certain_error

    def _params(self, request: RunRequest, parts: Parts) -> daytona.CreateSandboxFromSnapshotParams:
        import daytona

        now_s, life_s = time.time(), self._life_s(request)
        guest = Guest.of_template(request.template)
        labels = names.tags(request, self._store_id, now_s)
        labels |= {GUEST_LABEL: guest.label, ENDS_LABEL: str(int(now_s + life_s))}
        gpu = request.template.resources.gpu is not None
        return daytona.CreateSandboxFromSnapshotParams(
            name=self._sandboxes.name_of(request.run),
            language="python",
            snapshot=parts.snapshot,
            labels=labels,
            volumes=parts.volumes,
            # Only calls count as activity, so a task that works alone would be stopped; the TTL is
            # what ends a sandbox that everybody has forgotten.
            auto_stop_interval=0,
            ttl_minutes=math.ceil(life_s / 60),
            # Stopped is destroyed: nothing that we stop is worth its disk.
            ephemeral=True,
            queue_timeout=max(1, int(self._settings.queue_s / 60)) if gpu else None,
        )

    def _life_s(self, request: RunRequest) -> float:
        """Daytona ends the sandbox then, whatever becomes of us: never before the task's own limit.

        It counts from the create, so what waits in line for a GPU gets that time, too.
        """
        template, usual_s = request.template, self._settings.lifetime_s
        line_s = 0.0 if template.resources.gpu is None else self._settings.queue_s
        if template.timeout_seconds is None:
            return usual_s + line_s
        task_s = template.timeout_seconds + template.termination_grace_period_seconds
        whole_s = task_s + LIFE_SLACK_S
        return (max(usual_s, whole_s) if request.reusable else whole_s) + line_s


def patience_s(state: str) -> float:
    """How long a sandbox may stay in a state: longer than Daytona lets it."""
    return STATES_S.get(state, OTHERS_S) + SLACK_S


async def _wait(sandbox: daytona.AsyncSandbox) -> daytona.AsyncSandbox:
    await sandbox.wait_for_sandbox_start(timeout=0)
    return sandbox


@contextmanager
def _perhaps_made() -> Iterator[None]:
    """Reasons such as RateLimited say that a create was not accepted: here, one may have been."""
    try:
        yield
    except Unavailable as error:
        error.perhaps_made = True
        raise


def _waiting(request: RunRequest, since_s: float) -> Unavailable:
    since = time.strftime("%H:%M:%S", time.gmtime(since_s))
    gpu = request.template.resources.gpu
    what = "a machine" if gpu is None else f"{gpu.name}:{gpu.count}"
    return Unavailable(
        f"waiting for {what} at Daytona since {since} UTC",
        reason="Queued",
        retry_after_s=WAITS_AGAIN_S,
        hint="" if gpu is None else "another GPU or a fall-back provider may be free sooner",
    )
