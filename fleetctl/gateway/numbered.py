"""Calls by (run, number), kept ten minutes, so that what is told again is not asked twice: each as
far as its answer has come.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

KEPT_S = 600.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)


class Retold:
    """One numbered call. head: status and headers, once they are there. streams: whether its body
    comes in pieces. over: the body is whole; broken: it never will be. task: who asks.
    """

    def __init__(self) -> None:
        self.head: tuple[int, dict[str, str]] | None = None
        self.streams = self.over = self.broken = False
        self.task: asyncio.Task[None] | None = None
        self._body = bytearray()
        self._changed = asyncio.Event()

    @property
    def done(self) -> bool:
        return self.over or self.broken

    async def begin(self, status: int, content_type: str) -> None:
        self.head, self.streams = (status, {"Content-Type": content_type}), True
        self._change()

    async def piece(self, data: bytes) -> None:
        self._body += data
        self._change()

    def end(self, answer: Answer) -> None:
        """answer: of a stream only its end, which is there already."""
        if not self.streams:
            self.head = (answer.status, answer.headers)
            self._body += answer.body
        self.over = True
        self._change()

    def break_off(self) -> None:
        self.broken = True
        self._change()

    async def begun(self) -> None:
        """Until the head is there, or never will be."""
        while self.head is None and not self.done:
            await self._changed.wait()

    async def pieces(self, at: int) -> AsyncIterator[bytes]:
        """The body from there on, as it comes. Ends when nothing follows: see `broken`."""
        while True:
            data = bytes(self._body[at:])
            if data:
                at += len(data)
                yield data
            elif self.done:
                return
            else:
                await self._changed.wait()

    async def whole(self) -> Answer | None:
        """None of one that broke off."""
        body = b"".join([data async for data in self.pieces(0)])
        if self.broken or self.head is None:
            return None
        return Answer(*self.head, body)

    def _change(self) -> None:
        before, self._changed = self._changed, asyncio.Event()
        before.set()


class Numbered:
    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[float, Retold]] = {}

    def find(self, run: str, number: str, now_s: float) -> Retold | None:
        """None when it was never asked, or is no longer kept."""
        while self._kept:
            key, (until_s, retold) = next(iter(self._kept.items()))
            if until_s > now_s or not retold.done:
                break
            del self._kept[key]
        found = self._kept.get((run, number))
        return found[1] if found else None

    def begin(self, run: str, number: str, now_s: float) -> Retold:
        retold = Retold()
        self._kept[run, number] = (now_s + KEPT_S, retold)
        return retold

    def forget(self, run: str, number: str) -> None:
        self._kept.pop((run, number), None)
