"""Sandboxes on their way: those that are being made, one task for each run, and those that are
being ended until that is confirmed.

A sandbox is made, or ended, by one attempt at a time, which goes on without a waiting caller. The
memory of fates only saves calls: the provider would answer the same again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.providers.contract.base import Notify
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, Fate, Sandboxes
from fleetctl.specs.values.hints import NO_TEXT, HintedText, hinted_error

log = logging.getLogger("fleetctl.providers")

FATES_KEPT_MAX = 10_000
RETRY_INITIAL_S = 0.5
RETRY_MAX_S = 30.0


@dataclass(slots=True)
class PendingCreate:
    """since_s: when it began. awaited: by how many."""

    run: str
    task: asyncio.Task[str]
    since_s: float
    awaited: int = 0


class PendingCreates:
    """give_up_s: how long one that is given up may take to end."""

    def __init__(self, notify: Notify, *, give_up_s: float) -> None:
        self._notify = notify
        self._give_up_s = give_up_s
        self._making: dict[str, PendingCreate] = {}

    def __len__(self) -> int:
        return len(self._making)

    def __contains__(self, run: str) -> bool:
        return run in self._making

    def get(self, run: str) -> PendingCreate | None:
        return self._making.get(run)

    def begin(self, run: str, work: Coroutine[None, None, str]) -> PendingCreate:
        """Starts the creation of a run's sandbox. work: returns the sandbox's handle."""
        making = self._making[run] = PendingCreate(run, asyncio.ensure_future(work), time.time())
        making.task.add_done_callback(lambda done: self._drop_create(making, done))
        return making

    async def handle(
        self, making: PendingCreate, *, patience: Coroutine[None, None, None] | None = None
    ) -> str | None:
        """Returns the handle of the sandbox; None when `patience` ended before: then `notify` is
        called when it is made.
        """
        making.awaited += 1
        patient = asyncio.ensure_future(patience) if patience is not None else None
        either: set[asyncio.Task[Any]] = {making.task} | ({patient} if patient else set())
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            making.awaited -= 1
            if patient is not None:
                patient.cancel()
        if not making.task.done():
            return None
        self._forget(making)
        if making.task.cancelled():
            raise Unavailable(f"the start of `{making.run}` was given up", retry_after_s=1.0)
        return making.task.result()

    async def give_up(self, run: str) -> None:
        """Stops making the sandbox. One that was made already is found by its name."""
        making = self._making.pop(run, None)
        if making is not None:
            making.task.cancel()
            await asyncio.wait({making.task}, timeout=self._give_up_s)

    async def close(self) -> None:
        """Gives up pending creates; the next controller finds it under the same names."""
        await asyncio.gather(*(self.give_up(run) for run in list(self._making)))

    def _drop_create(self, making: PendingCreate, done: asyncio.Task[str]) -> None:
        if not done.cancelled():
            done.exception()  # the next caller gets it
        if not making.awaited and self._making.get(making.run) is making:
            self._notify(making.run)

    def _forget(self, making: PendingCreate) -> None:
        if self._making.get(making.run) is making:
            del self._making[making.run]


class Terminations:
    """Ends sandboxes, and keeps their fates. troubled: called with the handle of a sandbox that
    cannot be ended, when that is news.
    """

    def __init__(
        self, sandboxes: Sandboxes, *, troubled: Callable[[str], None] = lambda _: None
    ) -> None:
        self._sandboxes = sandboxes
        self._troubled = troubled
        self._problems: dict[str, HintedText] = {}
        self._fates: OrderedDict[str, Fate] = OrderedDict()
        self._closing: dict[str, asyncio.Task[None]] = {}

    def fate(self, handle: str) -> Fate | None:
        """Returns the known fate of the sandbox; None while its end is unknown."""
        return self._fates.get(handle)

    def problem(self, handle: str) -> HintedText:
        """Returns why it cannot be ended at the moment; empty without a known obstacle."""
        return self._problems.get(handle, NO_TEXT)

    @property
    def busy(self) -> bool:
        """Returns whether the end of any sandbox is requested and not confirmed."""
        return bool(self._closing)

    def forget(self, handle: str) -> None:
        """Forgets what was concluded of the sandbox: it was found alive."""
        self._fates.pop(handle, None)

    def note(self, handle: str, fate: Fate) -> None:
        """Notes the sandbox's fate; the first one stays."""
        self._fates.setdefault(handle, fate)
        while len(self._fates) > FATES_KEPT_MAX:
            self._fates.popitem(last=False)

    async def close(self, handle: str) -> None:
        """Ends the sandbox; returns once it is confirmed over. The work goes on if the caller is
        cancelled.
        """
        if handle in self._fates:
            return
        task = self._closing.get(handle)
        if task is None:
            task = self._closing[handle] = asyncio.ensure_future(self._close(handle))
            task.add_done_callback(lambda _: self._closing.pop(handle, None))
        await asyncio.shield(task)

    async def drop_all(self) -> None:
        """Stops trying. The next controller tries on."""
        await cancel_tasks(self._closing.values())

    async def _close(self, handle: str) -> None:
        delay_s = RETRY_INITIAL_S
        while True:
            try:
                await self._sandboxes.end(handle)
            except (Refused, Unavailable, OSError, TimeoutError) as error:
                log.warning("sandbox not ended", extra={"sandbox": handle, "error": str(error)})
                self._note_problem(handle, error)
                wait_s = max(delay_s, getattr(error, "retry_after_s", 0.0))
                await asyncio.sleep(wait_s)
                delay_s = min(delay_s * 2, RETRY_MAX_S)
            else:
                self._problems.pop(handle, None)
                self.note(handle, Fate(Cause.STOPPED))
                return

    def _note_problem(self, handle: str, error: Exception) -> None:
        message = hinted_error(error)
        if self._problems.get(handle) != message:
            self._problems[handle] = message
            self._troubled(handle)
