"""Follows the nodes of an attempt: how each has ended, the consequences for the others, and the one
end of their run.

It decides while a controller is there. Without one a Job of Kubernetes does: the first pod that
fails ends the others, and the next controller finds the report of each.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.guest.nodes.gang import CONSEQUENCE_S, NODE_LOST, combine_ends, state_of
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, Fate

End = dict[str, Any]
ENDED = b'{"e":"ended"'
RESULT = b'{"e":"result"'
EOF = b'{"e":"eof"}\n'
CONSEQUENCE = "NodeEnded"  # for what another node did, or because node 0 was done
TERMINATED = "SandboxEnded"  # the pod was asked to end, and not by us
# Why a guest ends a run that did not end by itself.
STOPPED = "Stopped"
FROM_OUTSIDE = frozenset({STOPPED, "Timeout", "Stalled"})
_OF_ALL = ("ok", "infra", "reason", "message", "exit")

log = logging.getLogger("fleetctl.providers")

ALIVE = b'{"e":"alive"}\n'
ALIVE_S = 10.0  # a follower takes a minute of silence for the end of a stream
LEAVE_S = 30.0  # beyond its grace, for an ended node to report it and for its output to come here
_LAST = (ENDED, RESULT)
AGAIN_S = 5.0  # until a node that could not be asked to stop is asked again


def end_in(journal: bytes) -> End | None:
    """Returns the end in a node's own journal; None while the journal has no end."""
    for line in reversed(journal.splitlines()):
        if line.startswith(ENDED):
            found: End = json.loads(line)
            return {**found, "at": found.get("left_at", found["at"])}
    return None


def make_lost_end(fate: Fate, at_s: float) -> End:
    """Returns the end of a node whose pod is over and has reported no end. A node that used up its
    memory failed by itself.
    """
    ours = fate.cause is Cause.STOPPED
    return {
        "at": at_s,
        "ok": False,
        "infra": not fate.own,
        "reason": CONSEQUENCE if ours else fate.cause.value,
        "message": fate.detail,
        "exit": fate.exit_code,
        "stopped": ours,
        "lost": not ours and fate.cause is not Cause.OUT_OF_MEMORY,
    }


def judge_ends(
    ends: Sequence[End],
    *,
    stopped_at_s: float | None,
    outside: bool,
    at_once: bool = False,
) -> list[End]:
    """Returns the ends of all nodes by rank; an end caused by another node's end is marked as a
    consequence.

    stopped_at_s: since when all were being ended, if they were; outside: by their limits or on
    request, and not because a node failed; at_once: whether the others end with node 0, however it
    ended, as Ray's workers do with their head.
    """
    leads = ends[0]["ok"] or at_once
    since_s = ends[0]["at"] if leads else stopped_at_s
    cause = None if ends[0]["ok"] else _first_preempted(ends)
    found = []
    for rank, end in enumerate(ends):
        after = since_s is not None and end["at"] >= since_s
        if end["ok"]:
            found.append(end)
        elif outside and (after or end["reason"] in FROM_OUTSIDE):
            found.append({**end, "outside": True, "lost": False})
        elif _is_preempted(end) and rank == cause:
            found.append({**end, "lost": True})
        elif (
            _is_preempted(end)
            or end["reason"] == STOPPED
            or (leads and after and rank)
            or _was_taken_after(end, ends)
        ):
            found.append({**end, "stopped": True, "lost": False, "reason": CONSEQUENCE})
        else:
            found.append(end)
    return found


def _was_taken_after(end: End, ends: Sequence[End]) -> bool:
    """Returns whether the node's pod is gone without a reason after another node had failed: the
    Job took it.
    """
    failed_s = min((it["at"] for it in ends if _by_itself(it)), default=float("inf"))
    return bool(end["reason"] == Cause.LOST.value and end["at"] > failed_s)


def _first_preempted(ends: Sequence[End]) -> int | None:
    """Returns the rank of the pod that the cluster took first; None where another one had failed
    long before, so that the Job took the others.
    """
    failed_s = min((end["at"] for end in ends if _by_itself(end)), default=float("inf"))
    taken = [(end["at"], rank) for rank, end in enumerate(ends) if _is_preempted(end)]
    at_s, rank = min(taken, default=(float("inf"), None))
    if at_s <= failed_s + CONSEQUENCE_S:
        return rank
    return None


def end_frames(
    ends: Sequence[End],
    addresses: Sequence[str],
    result: bytes,
) -> bytes:
    """Returns the last lines of the run's journal, and the last frame. ends: as judged; result: the
    line that node 0 handed in, or b"".
    """
    whole = combine_ends(list(ends))
    if whole["reason"] == CONSEQUENCE:  # all were asked to end, and no node has a reason
        whole = {**whole, "infra": True, "reason": NODE_LOST, "message": "all nodes were ended"}
    last = {**ends[0], **{name: whole[name] for name in _OF_ALL}}
    for name in ("lost", "stopped", "outside", "node"):
        last.pop(name, None)
    if whole.get("node"):
        last["node"] = whole["node"]
    last["open"] = False
    table = _json_line({"e": "nodes", "at": ends[0]["at"], "nodes": node_rows(ends, addresses)})
    return (result if whole["ok"] else b"") + table + _json_line({"e": "ended", **last}) + EOF


def node_rows(ends: Sequence[End | None], addresses: Sequence[str]) -> list[dict[str, Any]]:
    """Returns a row for each node, by rank."""
    return [
        {
            "state": state_of(end),
            "address": address,
            **({"reason": end["reason"], "exit": end["exit"]} if end is not None else {}),
        }
        for end, address in zip(ends, addresses, strict=True)
    ]


def begin_line(handle: str, at_s: float) -> bytes:
    """Returns the first line of a journal of which node 0 left no line."""
    return _json_line({"e": "started", "at": at_s, "keeper": handle, "note": ""})


def _is_preempted(end: End) -> bool:
    return not end["ok"] and end["reason"] == TERMINATED


def _by_itself(end: End) -> bool:
    ended = end.get("lost") or end.get("stopped") or _is_preempted(end)
    return not (end["ok"] or ended or end["reason"] in FROM_OUTSIDE)


def _json_line(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


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
        return node_rows(self.ends, self.addresses)

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
            end = end_in(self._journal(rank)) if rank else None
            await self._take_end(rank, end or make_lost_end(fate or Fate(Cause.LOST), time.time()))

    async def first_ended(self, line: bytes, result: bytes) -> None:
        """Notes how node 0 ended."""
        end = end_in(line)
        self._result = result
        if self.ends[0] is None and end is not None:
            if end["reason"] in FROM_OUTSIDE and self._stopped_at_s is None:
                self.stop_asked(end["at"] - self._grace_s - LEAVE_S)
            await self._take_end(0, end)

    def stop_asked(self, at_s: float) -> None:
        """Notes that all are being ended from outside."""
        self._outside = True
        self._stopped_at_s = min(at_s, self._stopped_at_s or at_s)

    async def story(self, *, from_start: bool) -> AsyncGenerator[bytes, None]:
        """Returns the last frames of the run, once all nodes have ended or had their time. Node 0
        has.
        """
        until_s = time.monotonic() + self._grace_s + LEAVE_S
        while None in self.ends and time.monotonic() < until_s:
            yield ALIVE
            await self._change(min(ALIVE_S, until_s - time.monotonic()))
        now_s = time.time()
        ends = [it or make_lost_end(Fate(Cause.STOPPED), now_s) for it in self.ends]
        ends = judge_ends(
            ends,
            stopped_at_s=self._stopped_at_s,
            outside=self._outside,
            at_once=self._at_once,
        )
        if from_start:
            yield begin_line(self._handle, now_s)
        yield end_frames(ends, self.addresses, self._result)

    async def stream_all(
        self, frames: AsyncGenerator[bytes, None], *, heard: bool
    ) -> AsyncGenerator[bytes, None]:
        """Yields the frames of node 0; its end follows with the ends of all. frames:
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
                    if EOF in last:
                        ended, result = (last.get(it, b"") for it in _LAST)
                        await self.first_ended(ended, result)
                        break
        if self.ends[0] is not None:
            async for data in self.story(from_start=not heard):
                yield data

    async def close(self) -> None:
        await cancel_tasks([self._task])

    async def _take_end(self, rank: int, end: End) -> None:
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
        sort = next((it for it in (*_LAST, EOF) if whole.startswith(it)), None)
        if sort is None:
            passed.append(whole)
        else:
            last[sort] = whole
    return passed
