"""Follows one run: reads it to its end, makes it durable here, and ends its sandbox.

Made by remote_runs.py, in this order and no other: the end and all output are in the mirror, the
mirror is on the disk, the sandbox is confirmed over, and only then the end is reported.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from enum import Enum, auto
from functools import partial

from fleetctl.common.event_loop import cancel_tasks
from fleetctl.providers.remote.runs.follower import FollowEnd, Follower, FollowPace, OpenStream
from fleetctl.providers.remote.runs.run_mirror import RunMirror
from fleetctl.providers.remote.sandboxes.pending_creates import Terminations
from fleetctl.providers.remote.sandboxes.sandbox_protocol import (
    Cause,
    Fate,
    RunWork,
    Sandboxes,
    StreamOffsets,
)
from fleetctl.providers.rundir.run_journal import RunJournal
from fleetctl.specs.values.hints import NO_TEXT, HintedText

log = logging.getLogger("fleetctl.providers")


class TrackedPhase(Enum):
    FOLLOWING = auto()  # it may run, as far as is known
    CLOSING = auto()  # all output is here; its sandbox is being ended
    OPEN = auto()  # ended, and its sandbox waits for the next task
    UNBEGUN = auto()  # the sandbox lives, and the run was not begun in it
    OVER = auto()  # the sandbox is confirmed over


class TrackedRun:
    """A run that is followed to its end. sandbox_open: whether the journal here reports that the
    run ended and left its sandbox open; None when it holds no end.
    """

    def __init__(
        self,
        run: str,
        handle: str,
        mirror: RunMirror,
        *,
        work: RunWork | None,
        sandbox_open: Callable[[], bool | None],
    ) -> None:
        self.run = run
        self.handle = handle
        self.work = work
        self.mirror = mirror
        self.phase = TrackedPhase.FOLLOWING
        self.fate: Fate | None = None
        self.fate_asked_at_s = 0.0
        self.unbegun_since_s = 0.0
        self.tried = False  # somebody may have begun it before we were asked to
        self.last_read: RunJournal | None = None  # the whole journal, with its end
        # Since when its provider reports it alive, while the ordered work is silent.
        self._mute_since_s: float | None = None
        self.held = ""  # why its end cannot be reported yet, if that takes long
        self.silence = NO_TEXT  # why it is silent, if that lasts
        # Its provider reported at the last call that it knows no such sandbox. The next look asks
        # again; the caller decides when that is believed.
        self.missing = False
        self._changed: Callable[[str], None] = lambda _: None
        self._sandbox_open = sandbox_open
        self._follower: Follower | None = None
        self._task: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._first_news: asyncio.TimerHandle | None = None

    @property
    def began(self) -> bool:
        return self.mirror.journal_at > 0

    @property
    def never_reached(self) -> bool:
        return self._follower is not None and self._follower.never_reached

    def read_before(self, offset: int) -> RunJournal | None:
        """Returns the journal's last read at its end, if that is whole; given out once, as it may
        be large. From an offset on its metrics and remarks are others, and all else is the same.
        """
        seen = self.last_read
        self.last_read = None
        if seen is None or seen.offset != self.mirror.journal_at:
            return None
        if offset == 0 or not seen.tells:
            return seen
        return None

    def look_after(
        self,
        sandboxes: Sandboxes,
        closings: Terminations,
        changed: Callable[[str], None],
        pace: FollowPace,
    ) -> None:
        """Begin; called once."""
        self._changed = changed
        left_open = self._sandbox_open() if self.began else None
        if left_open is not None:
            self.phase = TrackedPhase.CLOSING
        follower = self._follower = Follower(
            self.mirror,
            self._opener(sandboxes),
            over=partial(self._is_over, sandboxes, pace.begin_s),
            changed=partial(self._take_growth, changed, pace),
            silent=self._note_silence,
            ordered=lambda: self.work is not None and not self.began,
            pace=pace,
        )
        closing = partial(self._close, closings, changed, pace.close_s)
        self._task = asyncio.ensure_future(self._live(follower, closings, closing, left_open))
        self._task.add_done_callback(lambda done: self._finish_work(done, changed, pace))
        # A wait for the beginning of a run that is over would be in vain.
        self._task.add_done_callback(lambda _: follower.began.set())

    @property
    def crash(self) -> BaseException | None:
        """The error of ours that ended the task which follows the run."""
        task = self._task
        if task is None or not task.done() or task.cancelled():
            return None
        return task.exception()

    @property
    def due_again(self) -> bool:
        """Returns whether the task that follows the run crashed so long ago that a look begins it
        again.
        """
        if self.crash is None or self._again is None:
            return False
        return asyncio.get_running_loop().time() >= self._again.when()

    async def beginning(self) -> None:
        """Waits until the run has begun, or never will in this sandbox."""
        if self._follower is not None:
            await self._follower.began.wait()

    async def settled(self) -> None:
        """Waits until there is no more work for the run."""
        assert self._task is not None
        await asyncio.wait({self._task})

    async def leave(self) -> None:
        """Stops following the run. Its files here stay."""
        for timer in (self._again, self._first_news):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            await cancel_tasks([self._task])

    async def sandbox_ended(self) -> None:
        """Notes that its sandbox is confirmed ended, in spite of later frames of its stream."""
        self.phase = TrackedPhase.OVER
        await self.leave()
        await asyncio.to_thread(self.mirror.flush)

    def _opener(self, sandboxes: Sandboxes) -> OpenStream:
        def opened(journal_at: int, log_at: int) -> AsyncGenerator[bytes, None]:
            # Once its journal is here the run has begun, and its order is not sent again.
            work = None if self.began else self.work
            return sandboxes.stream(
                self.handle,
                self.run,
                work,
                StreamOffsets(journal_at, log_at, self.mirror.services_at, self.mirror.outputs.at),
            )

        return opened

    async def _is_over(self, sandboxes: Sandboxes, begin_s: float) -> bool:
        since_s, self._mute_since_s = self._mute_since_s, None  # a look that fails begins again
        fate = await sandboxes.fate(self.handle)
        if self._is_missing(fate):
            return False  # it may be an odd answer: streams are tried on, and looks ask again
        self.fate = fate
        if self.fate is None and self.work is not None and not self.began:
            now_s = time.monotonic()
            self._mute_since_s = now_s if since_s is None else since_s
            if now_s - self._mute_since_s >= begin_s:
                await sandboxes.end(self.handle)
                self.fate = Fate(Cause.UNBEGUN, f"{begin_s:.0f} s without a word")
        return self.fate is not None

    async def look_again(self, sandboxes: Sandboxes) -> None:
        """Asks again about a sandbox that was missing."""
        self._is_missing(await sandboxes.fate(self.handle))

    def _is_missing(self, fate: Fate | None) -> bool:
        before = self.missing
        self.missing = fate is not None and fate.cause is Cause.UNKNOWN
        if self.missing and not before:
            if self._follower is not None:
                self._follower.began.set()  # waiting for its beginning ends
            self._changed(self.run)
        return self.missing

    def _note_silence(self, why: HintedText) -> None:
        before = self.silence
        self.silence = why.prefixed("it does not report: ") if why else why
        if self.silence != before:
            self._changed(self.run)

    async def _close(
        self,
        closings: Terminations,
        changed: Callable[[str], None],
        patience_s: float,
    ) -> None:
        """Returns once the sandbox is confirmed ended."""

        def tell() -> None:
            asked = time.strftime("%H:%M:%S", time.gmtime(time.time() - patience_s))
            self.held = f"its work has ended; the end of sandbox `{self.handle}`, asked for at"
            self.held += f" {asked} UTC, is not confirmed yet"
            changed(self.run)

        late = asyncio.get_running_loop().call_later(patience_s, tell)
        try:
            await closings.close(self.handle)
        finally:
            late.cancel()

    async def _live(
        self,
        follower: Follower,
        closings: Terminations,
        close: Callable[[], Awaitable[None]],
        left_open: bool | None,
    ) -> None:
        if left_open is None:
            end = await follower.run()
            self.fate_asked_at_s = time.monotonic()  # it has just spoken
            self.phase = TrackedPhase.CLOSING
            await asyncio.to_thread(self.mirror.flush)
            left_open = await asyncio.to_thread(self._sandbox_open)
            if end is FollowEnd.UNBEGUN:
                self.phase = TrackedPhase.UNBEGUN
                self.unbegun_since_s = time.monotonic()
                return
            if end is FollowEnd.LOST:
                self.fate = Fate(Cause.OUT_OF_MEMORY, follower.message)
            if end is FollowEnd.OVER:
                closings.note(self.handle, self.fate or Fate(Cause.LOST))
        if left_open and closings.fate(self.handle) is None:
            self.phase = TrackedPhase.OPEN
            return
        self.phase = TrackedPhase.CLOSING
        await close()
        self.phase = TrackedPhase.OVER

    def _take_growth(self, changed: Callable[[str], None], pace: FollowPace) -> None:
        self.missing = False
        if self._first_news is not None:
            self._first_news.cancel()
        elif self.work is not None:
            loop = asyncio.get_running_loop()
            self._first_news = loop.call_later(pace.first_news_s, changed, self.run)
            return
        changed(self.run)

    def _finish_work(
        self,
        done: asyncio.Task[None],
        changed: Callable[[str], None],
        pace: FollowPace,
    ) -> None:
        if self._first_news is not None:
            self._first_news.cancel()
        if done.cancelled():
            return
        if done.exception() is None:
            if self.began:
                # It is remembered for long, and need not be sent again.
                self.work = None
                self._follower = None
            changed(self.run)
            return
        log.error("following failed", exc_info=done.exception(), extra={"run": self.run})
        # The caller that looks begins it again: at once, it would crash and be logged again without
        # end.
        loop = asyncio.get_running_loop()
        self._again = loop.call_later(pace.crash_s, changed, self.run)
