"""The runs of a provider with remote sandboxes: begun through the guest's latch, observed from
their mirrors, stopped, and their logs read.

Called by the provider's face. No call is made for a run whose stream is healthy: all its events are
in its mirror.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import Alive, Ended, Gone, Observation
from fleetctl.guest.journal.masking import Masking
from fleetctl.guest.journal.record import masking_of
from fleetctl.providers.contract.base import SANDBOX_CLOSED, LogChunk, Notify, RunRef, RunRequest
from fleetctl.providers.paths import journal_path, make_private
from fleetctl.providers.remote.runs.follower import FollowPace
from fleetctl.providers.remote.runs.guest_order import mark_expired
from fleetctl.providers.remote.runs.run_mirror import RunMirror, mark_begun
from fleetctl.providers.remote.runs.segments import Listings
from fleetctl.providers.remote.runs.tracked_run import TrackedPhase, TrackedRun
from fleetctl.providers.remote.sandboxes.pending_creates import Terminations
from fleetctl.providers.remote.sandboxes.sandbox_protocol import (
    Cause,
    Fate,
    RunWork,
    Sandboxes,
    without_record,
)
from fleetctl.providers.rundir.journal_runs import (
    AT_END,
    JournalRuns,
    describe_run,
    observe_alive,
    with_arrived_outputs,
    with_last_words,
)
from fleetctl.providers.rundir.run_journal import RunJournal, parse_complete
from fleetctl.providers.rundir.run_log_reader import RunLogReader
from fleetctl.specs.values.hints import NO_TEXT, HintedText

log = logging.getLogger("fleetctl.providers")

STOP_SLACK_S = 5.0  # beyond its grace, for a stopped run's last frames to come
TRACKED_MAX = 20_000
FATE_ASKED_EVERY_S = 10.0  # of an idle open sandbox, which has no stream that would break


class RemoteRuns:
    def __init__(
        self,
        home: Path,
        provider: str,
        sandboxes: Sandboxes,
        *,
        notify: Notify,
        pace: FollowPace = FollowPace(),  # noqa: B008 - frozen
        stop_slack_s: float = STOP_SLACK_S,
    ) -> None:
        self.journals = JournalRuns(home, provider)
        self.closings = Terminations(sandboxes, troubled=self._notify_all_in)
        self._sandboxes = sandboxes
        self._notify = notify
        self._pace = pace
        self._stop_slack_s = stop_slack_s
        self._tracked: dict[str, TrackedRun] = {}
        self._uids: dict[str, str] = {}
        self._in_sandbox: dict[str, set[str]] = {}  # handle -> its tracked runs
        self._stops: dict[str, asyncio.Task[None]] = {}
        self._listings = Listings()

    # -- beginning ---------------------------------------------------------------------------------

    def handle_of(self, uid: str, run: str) -> str:
        """Returns the sandbox that a run is known to have begun in; "" while it is unknown here."""
        tracked = self._tracked.get(run)
        if tracked is not None:
            return tracked.handle
        begun = self.journals.begun(uid, run)
        if begun is not None:
            return begun.supervisor
        return ""

    def was_tried(self, uid: str, run: str) -> bool:
        """Returns whether `begin` was ever called for the run, also by an earlier controller: then
        it may have begun.
        """
        return run in self._tracked or journal_path(self.journals.directory(uid), run).exists()

    async def begin(self, request: RunRequest, work: RunWork) -> None:
        """Begins the run in the sandbox `request.handle`, or finds that it has begun or never will.

        Raises Unavailable with the reason SANDBOX_CLOSED when the open sandbox of another run's
        making is gone and the run has not begun.
        """
        tracked = self._tracked.get(request.run)
        if tracked is None or tracked.crash or not (tracked.began or tracked.work):
            tracked = await self._track_work(request, work)
        await tracked.beginning()
        if tracked.crash is not None and not tracked.began:
            raise tracked.crash
        never = tracked.never_reached and not tracked.began and not tracked.tried
        if never and request.sandbox != request.run:
            await self._forget(request.run)
            raise Unavailable(f"the sandbox of `{request.run}` is closed", reason=SANDBOX_CLOSED)

    async def follow(
        self,
        uid: str,
        run: str,
        handle: str,
    ) -> None:
        """Follows a run that others begin, now or at any moment."""
        tracked = self._tracked.get(run)
        if tracked is not None and tracked.handle == handle and not tracked.crash:
            return
        await self._forget(run)
        mirror = self._mirror(uid, run, fresh=mark_begun(self.journals.directory(uid), run))
        if run not in self._tracked:  # no other caller came first meanwhile
            self._track(
                uid,
                run,
                handle,
                None,
                mirror,
            )

    def lives(self, run: str) -> bool | None:
        """Returns whether the run may still work; None for a run without a follower."""
        tracked = self._tracked.get(run)
        if tracked is None:
            return None
        return tracked.phase is TrackedPhase.FOLLOWING

    def silence(self, run: str) -> HintedText:
        """Returns why a run that may still work is silent; empty when all is well."""
        tracked = self._tracked.get(run)
        if tracked is not None and tracked.phase is TrackedPhase.FOLLOWING:
            return tracked.silence
        return NO_TEXT

    def is_over(self, run: str) -> bool:
        """Returns whether the run is followed and no more frames can come."""
        tracked = self._tracked.get(run)
        return tracked is not None and tracked.phase is TrackedPhase.OVER

    async def _track_work(self, request: RunRequest, work: RunWork) -> TrackedRun:
        await self._forget(request.run)
        first = mark_begun(self.journals.directory(request.uid), request.run)
        masking = masking_of({"masked": request.masked()}, dict(work.secrets))
        mirror = self._mirror(request.uid, request.run, fresh=first, masking=masking)
        tracked = self._track(
            request.uid,
            request.run,
            request.handle,
            work,
            mirror,
        )
        tracked.tried = not first
        return tracked

    def _track(
        self,
        uid: str,
        run: str,
        handle: str,
        work: RunWork | None,
        mirror: RunMirror | None = None,
    ) -> TrackedRun:
        def sandbox_open() -> bool | None:
            journal = tracked.mirror.take_journal()
            seen = self.journals.end_of(uid, run) if journal is None else parse_complete(journal)
            if seen is None or seen.ending is None:
                return None
            tracked.last_read = None if journal is None else seen
            return seen.ending.sandbox_open

        if mirror is None:
            make_private(self.journals.directory(uid))
            mirror = self._mirror(uid, run)
        tracked = TrackedRun(
            run,
            handle,
            mirror,
            work=work,
            sandbox_open=sandbox_open,
        )
        self._make_room()
        self._tracked[run], self._uids[run] = tracked, uid
        self._in_sandbox.setdefault(handle, set()).add(run)
        tracked.look_after(self._sandboxes, self.closings, self._notify, self._pace)
        return tracked

    def _mirror(
        self,
        uid: str,
        run: str,
        *,
        fresh: bool = False,
        masking: Masking | None = None,
    ) -> RunMirror:
        directory = self.journals.directory(uid)
        listing = self._listings.of(directory)
        return RunMirror(
            directory,
            run,
            listing=listing,
            fresh=fresh,
            masking=masking,
        )

    # -- observing ---------------------------------------------------------------------------------

    async def observe(self, refs: Sequence[RunRef]) -> list[Observation]:
        """Returns observations from the mirrors; unknown runs are not in the answer."""
        asked = [ref for ref in refs if self._needs_look(ref)]
        answers = await asyncio.gather(*map(self._look_after, asked), return_exceptions=True)
        unknown = {}
        for ref, answer in zip(asked, answers, strict=True):
            if isinstance(answer, Refused | Unavailable | OSError):
                unknown[ref.run] = answer
            elif answer is not None:
                raise answer
        parts = [await self._observe_run(ref) for ref in refs if ref.run not in unknown]
        if unknown and len(unknown) == len(refs):
            raise next(iter(unknown.values()))
        return [one for one in parts if one is not None]

    def _needs_look(self, ref: RunRef) -> bool:
        tracked = self._tracked.get(ref.run)
        if tracked is None or tracked.due_again:
            return True
        return tracked.phase in (TrackedPhase.OPEN, TrackedPhase.UNBEGUN) or tracked.missing

    async def _look_after(self, ref: RunRef) -> None:
        """Asks for facts that only the provider knows: the handle of a lost run, the fate of an
        idle sandbox.
        """
        tracked = self._tracked.get(ref.run)
        if tracked is not None and tracked.due_again:
            await self._forget(ref.run)
            tracked = None
        if tracked is None:
            handle = ref.handle or self.handle_of(ref.uid, ref.run)
            handle = handle or await self._sandboxes.find(ref.run) or ""
            if handle and ref.uid:
                self._track(ref.uid, ref.run, handle, None)
            return
        if tracked.phase is TrackedPhase.FOLLOWING:
            await tracked.look_again(self._sandboxes)
            return
        now_s = time.monotonic()
        others = self._in_sandbox[tracked.handle]
        busy = any(self._tracked[one].phase is TrackedPhase.FOLLOWING for one in others)
        if busy or now_s - tracked.fate_asked_at_s < FATE_ASKED_EVERY_S:
            return
        tracked.fate_asked_at_s = now_s
        fate = await self._sandboxes.fate(tracked.handle)
        unbegun = tracked.phase is TrackedPhase.UNBEGUN
        if fate is None and unbegun and now_s - tracked.unbegun_since_s >= self._pace.begin_s:
            # The caller that was to begin it has not come: this is the only end of the sandbox.
            await self._sandboxes.end(tracked.handle)
            fate = Fate(Cause.UNBEGUN, f"{self._pace.begin_s:.0f} s without a word")
        if fate is not None and fate.cause is Cause.UNKNOWN:
            self.stop(ref, tracked.handle, grace_s=0.0)  # no run is in it: it can go by its id
        elif fate is not None:
            self.closings.note(tracked.handle, fate)

    async def _observe_run(self, ref: RunRef) -> Observation | None:
        tracked = self._tracked.get(ref.run)
        if tracked is None:
            # Without a resource it has no mirror here, so a run with a sandbox is unknown.
            if ref.handle:
                return None
            return Gone(ref.run, time.time())
        uid = self._uids[ref.run]
        # Before its journal is read: the next look sees an end that comes meanwhile.
        fate = self.closings.fate(tracked.handle)
        phase = tracked.phase
        seen = tracked.read_before(ref.journal_offset)
        seen = seen or await self.journals.look(uid, ref.run, ref.journal_offset)
        if phase is TrackedPhase.UNBEGUN and fate is None:
            return None
        if seen is not None and seen.ending is not None and _is_complete(phase, fate):
            runs = self.journals.directory(uid)
            node = seen.ending.node
            seen = with_arrived_outputs(seen, runs, ref.run)
            observation = describe_run(ref, seen, tracked.handle, sandbox_open=fate is None)
            return with_last_words(mark_expired(observation, runs), runs, node=node)
        if seen is not None and seen.more:
            return _observe_alive(ref, tracked, seen)
        if tracked.missing and phase is TrackedPhase.FOLLOWING:
            return _observe_gone(ref, tracked, seen)
        if phase in (TrackedPhase.OVER, TrackedPhase.UNBEGUN):
            known = replace(ref, handle=tracked.handle)
            why = tracked.fate or fate or Fate(Cause.LOST)
            return without_record(known, seen, why, time.time())
        return _observe_alive(ref, tracked, seen, held=self._explain_hold(tracked))

    def _explain_hold(self, tracked: TrackedRun) -> HintedText:
        """Returns why no frames of the run arrive now, for messages; empty when all is
        well.
        """
        problem = self.closings.problem(tracked.handle)
        if not problem:
            return HintedText(tracked.held) if tracked.held else tracked.silence
        waited = f"the end of sandbox `{tracked.handle}` is not confirmed"
        return problem.prefixed(f"{tracked.held or waited}: ")

    def _notify_all_in(self, handle: str) -> None:
        for run in sorted(self._in_sandbox.get(handle, ())):
            self._notify(run)

    # -- stopping ----------------------------------------------------------------------------------

    def stop(
        self,
        ref: RunRef,
        handle: str,
        *,
        grace_s: float,
    ) -> None:
        """Ends the run and its sandbox in the background. The caller has checked whose it is."""
        if not ref.uid:
            self.closings.forget(handle)  # a list shows it alive, whatever was concluded before
        if self.closings.fate(handle) is not None:
            return
        under_way = self._stops.get(handle)
        if under_way is not None:
            if grace_s > 0:
                return  # asked before; a stop without grace does not wait for one that has some
            under_way.cancel()
        task = asyncio.ensure_future(self._stop(ref, handle, grace_s))
        self._stops[handle] = task
        task.add_done_callback(lambda done: self._drop_stop(handle, done))

    async def _stop(
        self,
        ref: RunRef,
        handle: str,
        grace_s: float,
    ) -> None:
        tracked = self._tracked.get(ref.run)
        if tracked is None and ref.uid:
            tracked = self._track(ref.uid, ref.run, handle, None)
        running = (
            tracked is not None
            and tracked.phase is TrackedPhase.FOLLOWING
            and tracked.mirror.exists
        )
        if tracked is not None and running and grace_s > 0:
            try:
                async with asyncio.timeout(grace_s + self._stop_slack_s):
                    await self._sandboxes.ask_stop(handle, ref.run, grace_s)
                    await tracked.settled()
            except (Refused, Unavailable, OSError, TimeoutError) as error:
                log.info("stop by force", extra={"run": ref.run, "error": type(error).__name__})
        await self.closings.close(handle)
        for run in sorted(self._in_sandbox.get(handle, ())):
            await self._tracked[run].sandbox_ended()
            self._notify(run)

    def _drop_stop(self, handle: str, done: asyncio.Task[None]) -> None:
        if self._stops.get(handle) is done:
            del self._stops[handle]
        if not done.cancelled() and done.exception() is not None:
            log.error("stop failed", exc_info=done.exception(), extra={"sandbox": handle})

    # -- logs and letting go -----------------------------------------------------------------------

    async def logs(
        self,
        ref: RunRef,
        *,
        offset: int,
        follow: bool,
    ) -> AsyncIterator[LogChunk]:
        """Output from byte `offset` as it comes into the mirror."""
        uid = ref.uid or self._uids.get(ref.run, "")
        reader = RunLogReader(self.journals.directory(uid), ref.run)

        async def ended() -> bool:
            [*seen] = await self.observe([replace(ref, uid=uid, journal_offset=AT_END)])
            return bool(seen) and isinstance(seen[0], Gone | Ended)

        async for data, at, eof in reader.tail(offset, ended, follow=follow):
            yield LogChunk(data, at, eof=eof)

    async def forget(self, uid: str, run: str) -> None:
        """Stops following a run, and removes its journal and log here."""
        await self._forget(run)
        for path in self.journals.directory(uid).glob(f"{run}.*"):
            path.unlink(missing_ok=True)

    async def forget_all_of(self, uid: str) -> None:
        """Stops following the runs of a resource: their files are about to go."""
        for run in [run for run, owner in self._uids.items() if owner == uid]:
            await self._forget(run)

    @property
    def busy(self) -> bool:
        """Returns whether the end of any sandbox is requested and not confirmed."""
        return bool(self._stops) or self.closings.busy

    async def close(self) -> None:
        """Stops all following. Runs go on."""
        for task in list(self._stops.values()):
            task.cancel()
        for run in list(self._tracked):
            await self._forget(run)
        await self.closings.drop_all()

    async def _forget(self, run: str) -> None:
        tracked = self._tracked.pop(run, None)
        if tracked is None:
            return
        self._uids.pop(run, None)
        together = self._in_sandbox[tracked.handle]
        together.discard(run)
        if not together:
            del self._in_sandbox[tracked.handle]
        await tracked.leave()

    def _make_room(self) -> None:
        """Forgets the oldest runs that are over. Their mirrors can still answer."""
        if len(self._tracked) < TRACKED_MAX:
            return
        over = [one for one in self._tracked.values() if one.phase is TrackedPhase.OVER]
        for one in over[: len(over) // 2 + 1]:
            del self._tracked[one.run], self._uids[one.run]
            self._in_sandbox[one.handle].discard(one.run)
            if not self._in_sandbox[one.handle]:
                del self._in_sandbox[one.handle]


def _observe_gone(
    ref: RunRef,
    tracked: TrackedRun,
    seen: RunJournal | None,
) -> Observation:
    """Returns the observation of a run that is gone; its earlier events count all the same, and
    comes first.
    """
    if seen is None or not seen.tells:
        return Gone(ref.run, time.time())
    return _observe_alive(ref, tracked, replace(seen, more=True))


def _is_complete(phase: TrackedPhase, fate: Fate | None) -> bool:
    """Returns whether all is here that must be before the end of the run is reported."""
    return phase in (TrackedPhase.OPEN, TrackedPhase.OVER) or fate is not None


def _observe_alive(
    ref: RunRef,
    tracked: TrackedRun,
    seen: RunJournal | None,
    *,
    held: HintedText = NO_TEXT,
) -> Alive:
    handle = ref.handle or tracked.handle
    if seen is None:
        return Alive(
            ref.run,
            handle,
            None,
            ref.journal_offset,
            held=held,
        )
    return replace(observe_alive(ref, seen, handle), held=held)
