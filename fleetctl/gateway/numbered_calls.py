"""Calls by (run, number) under way, each as far as its answer has come, so that a repeated call is
not sent twice. A broken call is kept ten minutes, to be reported as broken.
"""

import asyncio
from collections.abc import AsyncIterator, Set
from dataclasses import dataclass, field

KEPT_S = 600.0
BROKEN_BYTES_MAX = 32 * 2**20  # beyond it the oldest are dropped


@dataclass(frozen=True, slots=True)
class CallAnswer:
    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)


class NumberedCall:
    """One numbered call.

    head: status and headers, once they are there. streams: whether its body comes in pieces. over:
    the body is whole; broken: it never will be. task: the task that sends the call.
    """

    def __init__(self) -> None:
        self.head: tuple[int, dict[str, str]] | None = None
        self.streams = self.over = self.broken = False
        self.task: asyncio.Task[None] | None = None
        self._body = bytearray()
        self._changed = asyncio.Event()

    @property
    def body(self) -> bytes:
        """Returns the body as far as it has come."""
        return bytes(self._body)

    @property
    def length(self) -> int:
        return len(self._body)

    @property
    def done(self) -> bool:
        return self.over or self.broken

    async def begin(self, status: int, headers: dict[str, str]) -> None:
        self.head = (status, headers)
        self.streams = True
        self._change()

    async def piece(self, data: bytes) -> None:
        self._body += data
        self._change()

    def end(self, answer: CallAnswer) -> None:
        """Ends the call. answer: for a stream only its end; the rest is there already."""
        if not self.streams:
            self.head = (answer.status, answer.headers)
            self._body += answer.body
        self.over = True
        self._change()

    def break_off(self) -> None:
        self.broken = True
        self._change()

    async def begun(self) -> None:
        """Waits until the head is there, or never will be."""
        while self.head is None and not self.done:
            await self._changed.wait()

    async def pieces(self, at: int) -> AsyncIterator[bytes]:
        """Yields the body from `at` on, as it comes. Ends when no more follows: see `broken`."""
        while True:
            data = bytes(self._body[at:])
            if data:
                at += len(data)
                yield data
            elif self.done:
                return
            else:
                await self._changed.wait()

    async def whole(self) -> CallAnswer | None:
        """Returns the whole answer; None if the call broke off."""
        body = b"".join([data async for data in self.pieces(0)])
        if self.broken or self.head is None:
            return None
        return CallAnswer(*self.head, body)

    def _change(self) -> None:
        before, self._changed = self._changed, asyncio.Event()
        before.set()


class NumberedCalls:
    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], NumberedCall] = {}
        self._broken: dict[
            tuple[str, str], tuple[float, NumberedCall]
        ] = {}  # seconds until it is gone

    def find(
        self,
        run: str,
        number: str,
        now_s: float,
    ) -> NumberedCall | None:
        """Returns the call; None if it was never sent, or is whole, or is no longer kept."""
        retold = self._asked.get((run, number))
        if retold is None and self._broken:
            until_s, broken = self._broken.get((run, number), (0.0, None))
            if until_s > now_s:
                return broken
            return None
        return retold

    def begin(self, run: str, number: str) -> NumberedCall:
        retold = self._asked[run, number] = NumberedCall()
        return retold

    def end(self, run: str, number: str) -> None:
        """Forgets a finished call: its answer is stored elsewhere, or is not stored."""
        self._asked.pop((run, number), None)

    def cancel(self, runs: Set[str]) -> None:
        """Cancels the calls of finished runs: no task reads their answers."""
        if runs:
            for (run, _), retold in self._asked.items():
                if run in runs and retold.task is not None:
                    retold.task.cancel()

    def broke(
        self,
        run: str,
        number: str,
        now_s: float,
    ) -> None:
        retold = self._asked.pop((run, number), None)
        if retold is not None:
            self._broken[run, number] = (now_s + KEPT_S, retold)
        total_bytes = sum(it.length for _, it in self._broken.values())
        for key, (until_s, old) in list(self._broken.items()):
            if until_s > now_s and total_bytes <= BROKEN_BYTES_MAX:
                return
            total_bytes -= old.length
            del self._broken[key]
