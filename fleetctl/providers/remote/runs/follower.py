"""Follows one run: a stream of its guest's frames into its mirror, and again when the stream drops.

One asyncio task a run, made by remote_runs.py. It knows no provider: how to open a stream and
whether the sandbox is over are functions that it is given.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from random import random

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.remote.runs import run_mirror
from fleetctl.providers.remote.runs.run_mirror import FedFrames, GarbledFrames, RunMirror
from fleetctl.specs.values.hints import NO_TEXT, HintedText, hinted_error

log = logging.getLogger("fleetctl.providers")

# (journal_at, log_at) -> the guest's output from there on, cut anywhere. May raise anything that
# the network raises; `over` reports a sandbox that is gone.
OpenStream = Callable[[int, int], AsyncGenerator[bytes, None]]


class SandboxOver(Exception):
    """Raised by a stream that could not be opened because its sandbox is gone for good. Certain:
    this stream began no run.
    """


_LIKELY = {
    126: "its image does not allow to start `python3`",
    127: "its image has no `python3`",
    137: "it was killed, perhaps for want of memory",
}


class GuestEnded(ConnectionError):
    """Raised by a stream whose guest ended before its run did. code: its exit code."""

    def __init__(self, code: int) -> None:
        likely = f" ({_LIKELY[code]})" if code in _LIKELY else ""
        super().__init__(f"the guest exited with code {code}{likely}")


class FollowEnd(StrEnum):
    """The reason why following has ended."""

    EOF = run_mirror.EOF  # the run's own end, and all its output, are in the mirror
    LOST = run_mirror.LOST  # its supervisor died without a word; the sandbox may still live
    UNBEGUN = run_mirror.UNBEGUN  # the sandbox lives and the run never began in it
    OVER = "over"  # the sandbox is gone, and no end record came


@dataclass(frozen=True, slots=True)
class FollowPace:
    """Seconds. A silent guest sends a sign of life every 15 s."""

    silence_s: float = 60.0
    retry_initial_s: float = 0.2
    retry_max_s: float = 15.0
    crash_s: float = 10.0  # after a bug of ours ended a following, until it begins again
    # The caller that began a run learns it from `begin`. The rest of its journal's first lines may
    # be read later: most short runs end sooner, and need no look before their end.
    first_news_s: float = 2.0
    # How long a sandbox may live without a sign of the ordered work. Twice the wait of Modal
    # itself: "Runtime did not start within 299s".
    begin_s: float = 600.0
    close_s: float = 10.0  # to end a sandbox; after that users see what is waited for
    # A dropped stream is opened again within moments; a longer silence is reported with its reason.
    silent_s: float = 5.0


class Follower:
    """Follows a run. `began` is set once the journal holds a line; `message` is from the last
    frame.

    never_reached: the sandbox was over before any stream could be opened.
    """

    def __init__(
        self,
        target: RunMirror,
        open_stream: OpenStream,
        *,
        over: Callable[[], Awaitable[bool]],
        changed: Callable[[], None],
        silent: Callable[[HintedText], None] = lambda _: None,
        ordered: Callable[[], bool] = lambda: False,
        pace: FollowPace = FollowPace(),
    ) -> None:
        """ordered: whether the streams bring an order before any frame. A guest that reports
        that no one began it has not received it: it is sent again.
        """
        self._mirror = target
        self._open = open_stream
        self._over = over
        self._changed = changed
        self._tell_silence = silent
        self._ordered = ordered
        self._silent_since_s: float | None = None
        self._why = NO_TEXT
        self._pace = pace
        self.began = asyncio.Event()
        self.message = ""
        self.never_reached = False
        self._streams = 0
        self._held_s = 0.0
        if target.journal_at:
            self.began.set()

    async def run(self) -> FollowEnd:
        """Follow until the run or its sandbox has ended. Cancel it to stop following."""
        tries = 0
        while True:
            before = self._mirror.position
            try:
                end = await self._one_stream()
            except SandboxOver:
                end = None
                self.never_reached = self._streams == 1
            if end is not None:
                return end
            # A service that takes no calls now has not reported the sandbox's end.
            if not self._held_s and await self._is_over():
                return FollowEnd.OVER
            if before != self._mirror.position:
                tries = 0
            tries += 1
            self._note_silence()
            await asyncio.sleep(self._held_s + self._delay_s(tries))
            self._held_s = 0.0

    async def _one_stream(self) -> FollowEnd | None:
        """Returns why following has ended; None when only this stream has, for whatever cause."""
        self._mirror.restart()
        self._streams += 1
        loop = asyncio.get_running_loop()
        frames = self._open(self._mirror.journal_at, self._mirror.log_at)
        try:
            async with aclosing(frames), asyncio.timeout(self._pace.silence_s) as patience:
                async for data in frames:
                    patience.reschedule(loop.time() + self._pace.silence_s)
                    end = self._take(self._mirror.feed(data))
                    if end is FollowEnd.UNBEGUN and self._ordered():
                        self._why = HintedText("its guest says that it has no order")
                        return None
                    self._end_silence()
                    if end is not None:
                        return end
        except (Refused, Unavailable, GarbledFrames, OSError, TimeoutError) as error:
            log.info("stream dropped", extra={"error": type(error).__name__, "why": str(error)})
            self._held_s = _throttled_s(error)
            self._why = hinted_error(error)
            if isinstance(error, GuestEnded) and not self.began.is_set():
                self._tell_silence(self._why)  # it began no run, and may never
        return None

    def _take(self, fed: FedFrames) -> FollowEnd | None:
        if fed.journal:
            self.began.set()
            if not fed.end:
                self._changed()
        if not fed.end:
            return None
        self.message = fed.message
        return FollowEnd(fed.end)

    async def _is_over(self) -> bool:
        try:
            return await self._over()
        except (Refused, Unavailable, OSError, TimeoutError) as error:
            self._held_s = _throttled_s(error)
            self._why = hinted_error(error)
            return False  # still unknown; the next stream or the next call shows it

    def _note_silence(self) -> None:
        """Notes that this stream brought no frames; users see it once that lasts."""
        now_s = asyncio.get_running_loop().time()
        if self._silent_since_s is None:
            self._silent_since_s = now_s
        elif now_s - self._silent_since_s >= self._pace.silent_s and self._why:
            self._tell_silence(self._why)

    def _end_silence(self) -> None:
        if self._silent_since_s is not None:
            self._silent_since_s = None
            self._why = NO_TEXT
            self._tell_silence(NO_TEXT)

    def _delay_s(self, tries: int) -> float:
        longest = min(
            self._pace.retry_initial_s * 2.0 ** min(tries - 1, 16), self._pace.retry_max_s
        )
        return longest * (0.5 + random() / 2)  # noqa: S311 - jitter


def _throttled_s(error: Exception) -> float:
    """Returns how long the service takes no such calls, by its own error; 0.0 without a time."""
    if isinstance(error, Unavailable) and error.reason == "RateLimited":
        return error.retry_after_s
    return 0.0
