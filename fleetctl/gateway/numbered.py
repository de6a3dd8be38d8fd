"""Answers by (run, number), kept ten minutes, so that what is told again is not asked twice."""

import asyncio
from dataclasses import dataclass, field

KEPT_S = 600.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)


class Numbered:
    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[float, asyncio.Future[Answer]]] = {}
        self._asking: dict[tuple[str, str], asyncio.Task[None]] = {}

    def find(self, run: str, number: str, now_s: float) -> "asyncio.Future[Answer] | None":
        """The answer, or the one under way; None when it was never asked."""
        while self._kept:
            key, (until_s, future) = next(iter(self._kept.items()))
            if until_s > now_s or not future.done():
                break
            del self._kept[key]
        found = self._kept.get((run, number))
        return found[1] if found else None

    def begin(self, run: str, number: str, now_s: float) -> "asyncio.Future[Answer]":
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._kept[run, number] = (now_s + KEPT_S, future)
        return future

    def forget(self, run: str, number: str) -> None:
        self._kept.pop((run, number), None)

    def asks(self, run: str, number: str, task: "asyncio.Task[None]") -> None:
        """task: gets the answer that was begun."""
        self._asking[run, number] = task
        task.add_done_callback(lambda _: self._asking.pop((run, number), None))

    def drop(self, run: str, number: str) -> None:
        """Nobody wants it any more: what waits is not asked, and what is asked is given up. An
        answer that is there stays.
        """
        task = self._asking.get((run, number))
        if task is not None:
            self.forget(run, number)
            task.cancel()
