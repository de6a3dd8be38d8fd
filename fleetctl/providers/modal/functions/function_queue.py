"""Finds whether the calls of a function wait for a machine. One request to Modal covers all calls
of a function, and is sent only while a caller waits for the result.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.tasks import cancel_tasks
from fleetctl.providers.contract.base import Notify
from fleetctl.providers.modal.connection.modal_errors import retryable_call
from fleetctl.specs.blocks.resources import Gpu

if TYPE_CHECKING:
    from fleetctl.providers.modal.functions.deployments import Deployed

FRESH_S = 5.0  # an answer is fresh for this time
PATIENCE_S = 3.0  # a machine that is free is there by then
LOOK_S = 10.0  # between two questions while calls wait
CALL_S = 30.0
QUEUED_AGAIN_S = 60.0  # waiting callers are notified at once when it is through; this is the net


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
