"""Ends sandboxes and remembers which are over. One attempt at a time for each, until confirmed.

Called by remote_runs.py and tracked_run.py. Its memory only saves calls: the provider would answer
the same again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.tasks import cancel_tasks
from fleetctl.providers.remote.sandboxes.fates import Cause, Fate
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Sandboxes
from fleetctl.specs.values.hints import NO_TEXT, HintedText, hinted_error

log = logging.getLogger("fleetctl.providers")

FATES_KEPT_MAX = 10_000
RETRY_INITIAL_S = 0.5
RETRY_MAX_S = 30.0


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
        """Returns whether the end of any sandbox is asked for and not confirmed."""
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
                self._hindered(handle, error)
                wait_s = max(delay_s, getattr(error, "retry_after_s", 0.0))
                await asyncio.sleep(wait_s)
                delay_s = min(delay_s * 2, RETRY_MAX_S)
            else:
                self._problems.pop(handle, None)
                self.note(handle, Fate(Cause.STOPPED))
                return

    def _hindered(self, handle: str, error: Exception) -> None:
        message = hinted_error(error)
        if self._problems.get(handle) != message:
            self._problems[handle] = message
            self._troubled(handle)
