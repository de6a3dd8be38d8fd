"""Makes sandboxes at Daytona: named and labelled in the request, one for each run even after
repeated requests, paced, and with our own deadline for each state.

Called by daytona_provider.py. A slow create, such as one of a machine with a GPU, goes on in the
background, and `make` reports it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.providers.contract.base import Notify, RunRequest
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_connection import DaytonaSettings
from fleetctl.providers.daytona.connection.daytona_errors import (
    OF_NOBODY,
    RATE_LIMITED,
    classify_error,
    error_words,
    is_conflict,
    sdk_errors,
)
from fleetctl.providers.daytona.runs import daytona_driver, daytona_endings
from fleetctl.providers.daytona.runs.daytona_endings import ENDS_LABEL, state_of
from fleetctl.providers.daytona.runs.daytona_sandboxes import GUEST_LABEL, DaytonaSandboxes
from fleetctl.providers.daytona.runs.daytona_streams import Guest
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.pending_creates import PendingCreate, PendingCreates
from fleetctl.providers.remote.service_calls import RETRY_AFTER_S, TokenBucket
from fleetctl.specs.blocks.resources import Network

log = logging.getLogger("fleetctl.providers")

PATIENCE_S = 20.0  # a free machine is there by then
WAITS_AGAIN_S = 60.0  # waiting callers are notified at once when it is through; this is the net
LIFE_SLACK_S = 900.0  # for a sandbox to begin, to clone and to be ended
LOOK_S = 15.0  # between two looks at a sandbox that is not started yet
FAILED_AFTER_S = 10.0
# Daytona's own time limits for states, after which it reports `error`; we wait a little longer.
STATES_S = {
    "starting": 5 * 60.0,
    "creating": 15 * 60.0,
    "pulling_snapshot": 30 * 60.0,
    "pending_build": 60 * 60.0,
    "building_snapshot": 60 * 60.0,
}
OTHERS_S = 5 * 60.0
SLACK_S = 30.0
# For a create without an answer while no sandbox has its name: Daytona writes a sandbox down before
# it answers, within a second or two. A repeated create makes no second one beside a late first.
UNANSWERED_S = 30.0
UNANSWERED = "unanswered"
# Answers that any question may get, also one about a sandbox that was made.
_AT_ANY_QUESTION = ("KeyRefused", "AccessDenied", "UnknownAnswer")


@dataclass(frozen=True, slots=True)
class DaytonaParts:
    """The parts of a create that are looked up or built first. snapshot: "" where a session's
    program names its own, or none.
    """

    client: sdk.AsyncDaytona
    snapshot: str
    volumes: list[sdk.VolumeMount]


class DaytonaCreator:
    """Makes the sandboxes of runs. parts: finds the parts of an order's sandbox; finish: puts into
    it what must be there before anything begins. Both may raise Refused and Unavailable. stale:
    called when Daytona does not know some of the parts any more.
    """

    def __init__(
        self,
        sandboxes: DaytonaSandboxes,
        settings: DaytonaSettings,
        *,
        parts: Callable[[RunRequest], Awaitable[DaytonaParts]],
        finish: Callable[[RunRequest, sdk.AsyncSandbox], Awaitable[None]],
        stale: Callable[[RunRequest], None],
        store_id: str,
        notify: Notify,
    ) -> None:
        self._sandboxes = sandboxes
        self._settings = settings
        self._parts = parts
        self._finish = finish
        self._stale = stale
        self._store_id = store_id
        self._bucket = TokenBucket(settings.creates_per_s, settings.creates_burst)
        self._states: dict[str, str] = {}  # run -> what was seen last of a create that takes long
        self.makings = PendingCreates(notify, give_up_s=settings.call_s)

    async def make(self, request: RunRequest) -> str:
        """The handle of the run's sandbox. Raises Unavailable with the reason Queued while it waits
        for a machine; then `notify` is called when it is time to ask again.
        """
        making = self.makings.get(request.run) or self._begin(request)
        handle = await self.makings.handle(making, patience=asyncio.sleep(PATIENCE_S))
        if handle is None:
            raise _machine_awaited(request, making.since_s, self._states.get(request.run, ""))
        return handle

    def _begin(self, request: RunRequest) -> PendingCreate:
        if len(self.makings) >= self._settings.making_max:
            raise Unavailable(
                f"{len(self.makings)} sandboxes are being made already",
                reason="Queued",
                retry_after_s=WAITS_AGAIN_S,
            )
        return self.makings.begin(request.run, self._make(request))

    async def _make(self, request: RunRequest) -> str:
        """Makes exactly one sandbox, whatever became of earlier requests under the same name."""
        parts = await self._parts(request)
        await self._bucket.take()
        params = self._params(request, parts)
        sandbox = await self._started(request, parts.client.create(params, timeout=0))
        with _perhaps_made():
            await self._finish(request, sandbox)
        return self._sandboxes.keep(sandbox)

    async def _started(
        self, order: RunRequest, request: Coroutine[Any, Any, sdk.AsyncSandbox]
    ) -> sdk.AsyncSandbox:
        what = f"the sandbox of run `{order.run}` cannot be made"
        try:
            return await self._watch_request(order, request)
        except sdk_errors() as error:
            translated = None if is_conflict(error) else self._creation_error(order, error, what)
            if translated is not None:
                raise translated from error
            log.info(
                "create without an answer", extra={"run": order.run, "error": error_words(error)}
            )
            failed = error
        with _perhaps_made():
            return await self._adopted(order, failed)

    async def _adopted(self, request: RunRequest, failed: Exception) -> sdk.AsyncSandbox:
        """Returns the sandbox that an earlier request made. Raises Unavailable without a sandbox:
        the request may still arrive, but no work begins in its sandbox before this is called again.
        """
        sandbox = await self._sandboxes.named(request.run)
        if sandbox is None:
            raise Unavailable(
                f"the sandbox of run `{request.run}` cannot be made: {error_words(failed)}",
                retry_after_s=RETRY_AFTER_S,
            ) from failed
        state = state_of(sandbox)
        if daytona_endings.is_over(state):
            why = sandbox.error_reason or f"it is {state}"
            await self._sandboxes.end(sandbox.id)
            raise Unavailable(
                f"the sandbox of run `{request.run}` failed before anything began: {why}",
                reason="SandboxFailed",
                retry_after_s=FAILED_AFTER_S,
            )
        if state != "started":
            return await self._started(request, _wait_started(sandbox))
        return sandbox

    async def _watch_request(
        self, order: RunRequest, request: Coroutine[Any, Any, sdk.AsyncSandbox]
    ) -> sdk.AsyncSandbox:
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
            if sandbox is None and state == UNANSWERED:
                raise Unavailable(
                    f"Daytona does not answer the create of run `{order.run}`, and has no sandbox"
                    " of that name: it is asked for again",
                    reason="Unreachable",
                    retry_after_s=FAILED_AFTER_S,
                )
            if sandbox is not None:
                await self._sandboxes.end(sandbox.id)
        raise Unavailable(
            f"the sandbox of run `{order.run}` was stuck in `{state}`, and was deleted",
            reason="SandboxStuck",
            retry_after_s=FAILED_AFTER_S,
        )

    async def _outlasted(
        self, request: RunRequest, asking: asyncio.Future[sdk.AsyncSandbox]
    ) -> str:
        """A state that lasts too long, or is all that is waited for, while there is no answer."""
        watching = asyncio.ensure_future(self._find_stuck_state(request))
        either: tuple[asyncio.Future[Any], ...] = (asking, watching)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return watching.result() if watching.done() else ""
        finally:
            watching.cancel()
            await asyncio.wait({watching})
            self._states.pop(request.run, None)

    async def _find_stuck_state(self, request: RunRequest) -> str:
        """Returns a state that lasts too long, or `started`, which is waited for. Looks rarely:
        events notify the waiting callers.
        """
        loop = asyncio.get_running_loop()
        seen = ""
        since_s = loop.time()
        while True:
            state = await self._state_now(request)
            self._states[request.run] = state
            if state == "started":
                return state
            if state and state != seen:
                seen = state
                since_s = loop.time()
            elif state and loop.time() - since_s > self._patience_s(request, state):
                return state
            await asyncio.sleep(LOOK_S)

    async def _state_now(self, request: RunRequest) -> str:
        """Returns the sandbox's state; "" when it is unknown."""
        try:
            sandbox = await self._sandboxes.named(request.run)
        except FleetctlError:
            return ""
        if sandbox is None:
            return UNANSWERED
        return state_of(sandbox)

    def _patience_s(self, request: RunRequest, state: str) -> float:
        if state == "creating" and request.template.resources.gpu is not None:
            return self._settings.queue_s + SLACK_S  # in line for a machine
        if state == UNANSWERED:
            return UNANSWERED_S
        return patience_s(state)

    def _creation_error(
        self,
        request: RunRequest,
        error: Exception,
        what: str,
    ) -> FleetctlError | None:
        """Returns the error of a create that certainly failed; None when there may be a sandbox."""
        if isinstance(error, sdk.DaytonaQueueTimeoutError | sdk.DaytonaSpotEvictedError):
            return Unavailable(f"{what}: {error_words(error)}", reason="Queued", retry_after_s=1.0)
        certain_error = classify_error(error, what)
        if isinstance(certain_error, Unavailable) and certain_error.reason == RATE_LIMITED:
            self._bucket.hold(certain_error.retry_after_s)
        elif isinstance(certain_error, Unavailable) and not (
            certain_error.account or certain_error.reason in OF_NOBODY
        ):
            self._stale(request)
        if isinstance(certain_error, Unavailable) and certain_error.reason in _AT_ANY_QUESTION:
            # A look may have been answered with this error after the create was taken.
            certain_error.perhaps_made = True
        return certain_error

    def _params(self, request: RunRequest, parts: DaytonaParts) -> daytona_driver.Params:
        now_s = time.time()
        life_s = self._life_s(request)
        guest = Guest.of_template(request.template)
        labels = sandbox_names.sandbox_tags(request, self._store_id, now_s)
        labels |= {GUEST_LABEL: guest.label, ENDS_LABEL: str(int(now_s + life_s))}
        gpu = request.template.resources.gpu is not None
        ours: dict[str, Any] = {
            "name": self._sandboxes.name_of(request.run),
            "language": "python",
            "labels": labels,
            "volumes": parts.volumes,
            # Only calls count as activity, so a task that works alone would be stopped; the TTL
            # ends a forgotten sandbox.
            "auto_stop_interval": 0,
            "ttl_minutes": math.ceil(life_s / 60),
        }
        if request.session is not None:
            return daytona_driver.sandbox_params(request.session, parts.snapshot, ours)
        return sdk.CreateSandboxFromSnapshotParams(
            **ours,
            snapshot=parts.snapshot,
            # Stopped is destroyed: no sandbox that we stop is worth its disk.
            ephemeral=True,
            queue_timeout=max(1, int(self._settings.queue_s / 60)) if gpu else None,
            **_network_params(request.template.network),
        )

    def _life_s(self, request: RunRequest) -> float:
        """Daytona ends the sandbox then, whatever becomes of us: never before the task's own limit.

        It counts from the create, so what waits in line for a GPU gets that time, too.
        """
        template = request.template
        usual_s = self._settings.lifetime_s
        line_s = 0.0 if template.resources.gpu is None else self._settings.queue_s
        if template.timeout_seconds is None:
            return usual_s + line_s
        if request.session is not None:
            return template.timeout_seconds + daytona_driver.START_SLACK_S
        task_s = template.timeout_seconds + template.termination_grace_period_seconds
        whole_s = task_s + LIFE_SLACK_S
        return (max(usual_s, whole_s) if request.reusable else whole_s) + line_s


def _network_params(network: Network | None) -> dict[str, Any]:
    if network is None:
        return {}
    if not network.allow:
        return {"network_block_all": True}
    lists = {"network_allow_list": network.blocks, "domain_allow_list": network.hosts}
    return {name: ",".join(entries) for name, entries in lists.items() if entries}


def patience_s(state: str) -> float:
    """Returns how long a sandbox may stay in a state: longer than Daytona lets it."""
    return STATES_S.get(state, OTHERS_S) + SLACK_S


async def _wait_started(sandbox: sdk.AsyncSandbox) -> sdk.AsyncSandbox:
    await sandbox.wait_for_sandbox_start(timeout=0)
    return sandbox


@contextmanager
def _perhaps_made() -> Iterator[None]:
    """Reasons such as RateLimited mean that a create was not accepted: here, one may have been."""
    try:
        yield
    except Unavailable as error:
        error.perhaps_made = True
        raise


def _machine_awaited(
    request: RunRequest,
    since_s: float,
    state: str,
) -> Unavailable:
    since = time.strftime("%H:%M:%S", time.gmtime(since_s))
    if state == UNANSWERED:
        return Unavailable(
            f"Daytona has not answered the create of {since} UTC yet",
            reason="Unreachable",
            retry_after_s=WAITS_AGAIN_S,
            perhaps_made=True,
        )
    gpu = request.template.resources.gpu
    what = "a machine" if gpu is None else f"{gpu.name}:{gpu.count}"
    return Unavailable(
        f"waiting for {what} at Daytona since {since} UTC",
        reason="Queued",
        retry_after_s=WAITS_AGAIN_S,
        hint="" if gpu is None else "another GPU or a fall-back provider may be free sooner",
    )
