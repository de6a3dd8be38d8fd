"""Collects messages of calls and observers for the loop, and wakes it. Written by any code on the
loop's thread, taken by ticks.
"""

from __future__ import annotations

import asyncio

from fleetctl.engine.shared.messages import Message, can_wait


class Inbox:
    """gather_s: how long a message that can wait does so, while `crowded` is set."""

    def __init__(self, *, gather_s: float) -> None:
        self.facts: list[Message] = []  # not taken in yet
        self.at_capacity = False  # many runs are live, so one tick should cover several messages
        self._gather_s = gather_s
        self._woken = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None

    def tell(self, message: Message) -> None:
        """Takes a message of an effect or an observer."""
        self.facts.append(message)
        if not (self.at_capacity and can_wait(message)):
            self.wake()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(self._gather_s, self.wake)

    def wake(self) -> None:
        """Wakes the loop."""
        self._woken.set()

    async def wait(self, until_s: float) -> None:
        """Waits until the loop is woken, or until_s seconds have passed."""
        alarm = asyncio.get_running_loop().call_later(until_s, self.wake)
        try:
            await self._woken.wait()
        finally:
            alarm.cancel()

    def rest(self) -> None:
        """Clears the wake, as the loop is about to look at all."""
        self._woken.clear()
        if self._later is not None:
            self._later.cancel()
            self._later = None
