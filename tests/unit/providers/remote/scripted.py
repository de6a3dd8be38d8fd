"""Sandboxes that do as a test says: a guest's journal and log, and streams that break at will."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from fleetctl.common.errors import Unavailable
from fleetctl.providers.remote.runs.follower import FollowPace, SandboxOver
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, Fate, RunWork, StreamOffsets
from tests.unit.providers.remote import frames

QUICK = FollowPace(silence_s=30.0, retry_initial_s=0.001, retry_max_s=0.01, crash_s=0.01)


@dataclass
class Box:
    """One sandbox. A run begins in it with the first stream that brings its work."""

    journals: dict[str, bytes] = field(default_factory=dict)  # run -> what its guest will write
    logs: dict[str, bytes] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)  # run -> how often its work began
    live: bool = True
    fate: Fate = field(default_factory=lambda: Fate(Cause.UNKNOWN))
    ends_itself: bool = True  # runs come to their end; else their streams stay open before it


class Script:
    """Implements remote.Sandboxes. `cuts`: after how many bytes the next streams break; -1: never,
    and nothing is said. `refusals`: how many calls of a verb fail first.
    """

    def __init__(self) -> None:
        self.boxes: dict[str, Box] = {}
        self.names: dict[str, str] = {}
        self.cuts: list[int] = []
        self.refusals: dict[str, int] = {}
        self.forgets = 0  # how many of the next orders begin nothing
        self.bugs = 0  # how many of the next streams a bug of ours ends
        self.opened: list[StreamOffsets] = []
        self.calls: list[str] = []

    def box(self, handle: str, run: str, journal: bytes, log: bytes = b"") -> Box:
        box = self.boxes.setdefault(handle, Box())
        box.journals[run], box.logs[run] = journal, log
        self.names.setdefault(run, handle)
        return box

    async def stream(
        self, handle: str, run: str, work: RunWork | None, at: StreamOffsets
    ) -> AsyncGenerator[bytes, None]:
        self.opened.append(at)
        if self.bugs:
            self.bugs -= 1
            raise ZeroDivisionError
        box = self.boxes[handle]
        if not box.live:
            raise SandboxOver(handle)
        if work is not None and self.forgets:
            self.forgets -= 1
        elif work is not None and run not in box.begun:
            box.begun[run] = 1
        if run not in box.begun:
            yield b'{"e":"unbegun"}\n'
            return
        data = frames.stream(box.journals[run], box.logs[run], at.journal, at.log)
        cut = self.cuts.pop(0) if self.cuts else len(data)
        if not box.ends_itself:
            data = data[: -len(frames.EOF)]
        for start in range(0, min(cut, len(data)), 11):
            yield data[start : min(start + 11, cut)]
            if not box.live:
                raise ConnectionError("the machine is gone")
        if cut < 0 or not box.ends_itself:
            while box.live:
                await asyncio.sleep(0.005)
            raise ConnectionError("the machine is gone")

    async def fate(self, handle: str) -> Fate | None:
        self._call("fate")
        box = self.boxes[handle]
        return None if box.live else box.fate

    async def end(self, handle: str) -> None:
        self._call("end")
        self.boxes[handle].live = False

    async def ask_stop(self, handle: str, run: str, grace_s: float) -> None:
        self._call("ask_stop")
        box = self.boxes[handle]
        box.journals[run] += frames.ended(ok=False, reason="Stopped")
        box.ends_itself = True

    async def find(self, run: str) -> str | None:
        self._call("find")
        return self.names.get(run)

    def _call(self, verb: str) -> None:
        self.calls.append(verb)
        if self.refusals.get(verb, 0):
            self.refusals[verb] -= 1
            raise Unavailable(f"no answer to {verb}")
