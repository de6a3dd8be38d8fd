"""Queues answers on their way to a sandbox. Each write there is a call of the provider's: answers
that are ready at the same time go in one, and the pieces of streams wait a moment for each other.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping

from fleetctl.common.tasks import wait_or_wake
from fleetctl.providers.remote.relay.relay_messages import RelayAnswer, write_answer
from fleetctl.providers.remote.sandboxes.exec_channel import ExecChannel

GAP_S = 0.05  # between two writes that no answer ends


class Outbox:
    def __init__(self) -> None:
        self._waiting: dict[str, RelayAnswer] = {}
        self._any, self._hurry = asyncio.Event(), asyncio.Event()

    def begin(
        self,
        number: str,
        status: int,
        headers: Mapping[str, str],
    ) -> None:
        """The head of an answer, which goes with its first piece or its end."""
        news = self._waiting.setdefault(number, RelayAnswer())
        news.status = status
        news.headers = headers

    def piece(self, number: str, data: bytes) -> None:
        self._waiting.setdefault(number, RelayAnswer()).data += data
        self._any.set()

    def end(self, number: str) -> None:
        self._waiting.setdefault(number, RelayAnswer()).end = True
        self._any.set()
        self._hurry.set()

    def break_off(self, number: str) -> None:
        self._waiting.setdefault(number, RelayAnswer()).broken = True
        self._any.set()
        self._hurry.set()

    def drop(self, number: str) -> None:
        """Drops an answer that no caller waits for any more."""
        self._waiting.pop(number, None)

    async def send(self, line: ExecChannel) -> None:
        """Sends until cancelled. Raises Unavailable when the line takes no more."""
        loop = asyncio.get_running_loop()
        last_s = -math.inf
        while True:
            await self._any.wait()
            left_s = last_s + GAP_S - loop.time()
            if left_s > 0:
                await wait_or_wake(self._hurry, left_s)
            self._any.clear()
            self._hurry.clear()
            if text := self._take_ready():
                await line.send(text)
                last_s = loop.time()

    def _take_ready(self) -> str:
        ready = {number: it for number, it in self._waiting.items() if _is_ready(it)}
        for number in ready:
            del self._waiting[number]
        return "".join(write_answer(number, it) for number, it in ready.items())


def _is_ready(news: RelayAnswer) -> bool:
    return bool(news.data) or news.end or news.broken
