"""Follows the nodes of an attempt: how each has ended, and the consequences for the others. Made by
the sandboxes of gangs.

It decides while a controller is there. Without one a Job of Kubernetes does: the first pod that
fails ends the others, and the next controller finds the report of each.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.tasks import cancel_tasks
from fleetctl.providers.remote.gangs import conclusion
from fleetctl.providers.remote.gangs.conclusion import End
from fleetctl.providers.remote.sandboxes.fates import Cause, Fate

log = logging.getLogger("fleetctl.providers")

ALIVE = b'{"e":"alive"}\n'
ALIVE_S = 10.0  # a follower takes a minute of silence for the end of a stream
LEAVE_S = 30.0  # beyond its grace, for an ended node to report it and for its output to come here
_LAST = (conclusion.ENDED, conclusion.RESULT)
AGAIN_S = 5.0  # until a node that could not be asked to stop is asked again


class NodeGang:
    """The followed nodes of an attempt. addresses: of all nodes, by rank. journal: returns a node's
    journal, as far as it is here.
    ask_stop: (rank, grace in seconds). at_once: the other nodes have no work to finish once node 0
    is done, as with Ray.
    """

    def __init__(
        self,
        handle: str,
        addresses: Sequence[str],
        *,
        grace_s: float,
        at_once: bool,
        journal: Callable[[int], bytes],
        ask_stop: Callable[[int, float], Awaitable[None]],
    ) -> None:
        self.addresses = list(addresses)
        self.ends: list[End | None] = [None] * len(self.addresses)
        self._handle = handle
        self._grace_s = grace_s
        self._at_once = at_once
        self._journal = journal
        self._ask_stop = ask_stop
        self._result = b""
        self._stopped_at_s: float | None = None
        self._outside = False
        self._asked: set[int] = set()  # to stop
        self._news = asyncio.Condition()
        self._task = asyncio.ensure_future(self._look_after())

    @property
    def table(self) -> list[dict[str, object]]:
        return conclusion.node_rows(self.ends, self.addresses)

    @property
    def failed(self) -> bool:
        """Returns whether a node has failed."""
        return any(end is not None and not end["ok"] for end in self.ends)

    def note_begun(self, rank: int) -> None:
        """Notes that a node has its order: a stop that came before it had no run to end."""
        self._asked.discard(rank)

    async def settled(self, rank: int, fate: Fate | None = None) -> None:
        """Notes that all output of a node is here. fate: of its pod, where that is known."""
        if self.ends[rank] is None:
            end = conclusion.end_in(self._journal(rank)) if rank else None
            await self._ended(
                rank, end or conclusion.lost_end(fate or Fate(Cause.LOST), time.time())
            )

    async def first_ended(self, line: bytes, result: bytes) -> None:
        """Notes how node 0 ended."""
        end = conclusion.end_in(line)
        self._result = result
        if self.ends[0] is None and end is not None:
            if end["reason"] in conclusion.FROM_OUTSIDE and self._stopped_at_s is None:
                self.stop_asked(end["at"] - self._grace_s - LEAVE_S)
            await self._ended(0, end)

    def stop_asked(self, at_s: float) -> None:
        """Notes that all are being ended from outside."""
        self._outside = True
        self._stopped_at_s = min(at_s, self._stopped_at_s or at_s)

    async def story(self, *, from_start: bool) -> AsyncGenerator[bytes, None]:
        """The end of the run's story, once all are over, or had their time. Node 0 is."""
        until_s = time.monotonic() + self._grace_s + LEAVE_S
        while None in self.ends and time.monotonic() < until_s:
            yield ALIVE
            await self._change(min(ALIVE_S, until_s - time.monotonic()))
        now_s = time.time()
        ends = [it or conclusion.lost_end(Fate(Cause.STOPPED), now_s) for it in self.ends]
        ends = conclusion.judge_ends(
            ends,
            stopped_at_s=self._stopped_at_s,
            outside=self._outside,
            at_once=self._at_once,
        )
        if from_start:
            yield conclusion.begin_line(self._handle, now_s)
        yield conclusion.end_frames(ends, self.addresses, self._result)

    async def story_of_all(
        self, frames: AsyncGenerator[bytes, None], *, heard: bool
    ) -> AsyncGenerator[bytes, None]:
        """Yields the story of node 0 except its end, which follows with the ends of all. frames:
        of node 0, opened when they are needed; heard: whether an earlier stream had some.
        """
        tail = b""
        last: dict[bytes, bytes] = {}
        if self.ends[0] is None:
            async with aclosing(frames):
                async for data in frames:
                    *lines, tail = (tail + data).split(b"\n")
                    if passed := b"".join(_hold_back_end(lines, last)):
                        heard = True
                        yield passed
                    if conclusion.EOF in last:
                        ended, result = (last.get(it, b"") for it in _LAST)
                        await self.first_ended(ended, result)
                        break
        if self.ends[0] is not None:
            async for data in self.story(from_start=not heard):
                yield data

    async def close(self) -> None:
        await cancel_tasks([self._task])

    async def _ended(self, rank: int, end: End) -> None:
        self.ends[rank] = end
        async with self._news:
            self._news.notify_all()

    async def _change(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s), self._news:
                await self._news.wait()
        except TimeoutError:
            return

    async def _look_after(self) -> None:
        """Ends the others: at once where one has failed; where node 0 is done, once they had time
        to leave.
        """
        while None in self.ends and not self.failed and self.ends[0] is None:
            await self._change(ALIVE_S)
        grace_s = self._grace_s
        if not self.failed:
            until_s = time.monotonic() + (0.0 if self._at_once else grace_s)
            while None in self.ends and time.monotonic() < until_s:
                await self._change(until_s - time.monotonic())
            grace_s = 0.0
        if self._stopped_at_s is None:
            self._stopped_at_s = time.time()
        await self._end_rest(grace_s)

    async def _end_rest(self, grace_s: float) -> None:
        while None in self.ends:
            for rank, end in enumerate(self.ends):
                if end is None and rank not in self._asked and await self._try_stop(rank, grace_s):
                    self._asked.add(rank)
            await self._change(AGAIN_S)

    async def _try_stop(self, rank: int, grace_s: float) -> bool:
        try:
            await self._ask_stop(rank, grace_s)
        except (Refused, Unavailable, OSError, TimeoutError) as error:
            log.info("node not stopped", extra={"rank": rank, "error": str(error)})
            return False
        return True


def _hold_back_end(lines: list[bytes], last: dict[bytes, bytes]) -> list[bytes]:
    """Returns the lines to hand on; the lines of the end are put into `last`, by their sort."""
    passed = []
    for line in lines:
        whole = line + b"\n"
        sort = next((it for it in (*_LAST, conclusion.EOF) if whole.startswith(it)), None)
        if sort is None:
            passed.append(whole)
        else:
            last[sort] = whole
    return passed
