"""One pass over a Source: what controllers/kinds/gitops decides is carried out and written at once.

What takes long (a remote, a thousand files) is asked for and awaited outside; its answer wakes the
Source. Which commit is attempted is durable before anything of it is stored; the objects of a
commit and the status that names it are one transaction, so that a crash applies all or nothing.
Called by decide/passes.py.
"""

from __future__ import annotations

import asyncio
from asyncio import ensure_future
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from fleetctl.common.errors import FleetctlError, StoreError, Unavailable
from fleetctl.common.tasks import cancel
from fleetctl.controllers.kinds.gitops.decide import Decision, Memory, Step, decide, repairs
from fleetctl.controllers.model import Resource
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.engine.kinds.gitops.desk import Desk
from fleetctl.engine.kinds.gitops.keeper import Keeper, Kept, Moved
from fleetctl.engine.kinds.gitops.members import Members
from fleetctl.engine.kinds.gitops.status import (
    counts_text,
    deleting_status,
    memory_of,
    objects_of,
    status_of,
)
from fleetctl.engine.shared.boundary import reported
from fleetctl.specs.kinds.source import SourceSpec
from fleetctl.stores.base import EventRow
from fleetctl.tracking.annotations import APPROVED, RECONCILE
from fleetctl.tracking.kept_by import kept_by, short

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State
    from fleetctl.tracking.track import Track

KIND = "Source"
Answer = TypeVar("Answer")
# A clock that is moved, and a machine that slept, are noticed within this.
BEAT_S = 60.0
WARNINGS_TOLD_MAX = 5


class Sources:
    """keeper: None = this engine keeps nothing, and says so."""

    def __init__(self, state: State, keeper: Keeper | None) -> None:
        self._state, self._keeper = state, keeper
        self._members = Members(state.store.resources)
        self._desks: dict[str, Desk] = {}
        self._uids: dict[str, str] = {}  # key of a Source -> its uid
        self._ending: set[asyncio.Future[None]] = set()

    # -- what others tell ----------------------------------------------------------------------

    def heard(self, row: Resource) -> None:
        """An object was written, or is gone: who keeps it looks whether it is as it was made."""
        source = self._members.heard(row)
        if source:
            self.nudge(source)

    def nudge(self, source: str) -> None:
        """Something that its objects do changed: consent may be needed no more."""
        uid = self._uids.get(source, "")
        if uid in self._desks:
            self._desks[uid].nudged = True
            self._state.queue.add(uid)

    def moved(self, row: Resource) -> None:
        """An object has another phase."""
        note = kept_by(row.annotations)
        if note is not None:
            self.nudge(note.source)

    def forget(self) -> None:
        """The store did not take what was told it."""
        self._members.forget()
        for desk in self._desks.values():
            desk.kept = False

    async def answered(self) -> None:
        """Until all that is asked for is answered."""
        asked = [it.task for it in self._desks.values() if it.task is not None]
        if asked:
            await asyncio.wait(asked)

    async def close(self) -> None:
        asked = [it.task for it in self._desks.values() if it.task is not None]
        self._desks.clear()
        await cancel([*asked, *self._ending])

    # -- passes --------------------------------------------------------------------------------

    def run(self, track: Track, now_s: float) -> tuple[Status, Sequence[Resource]]:
        """The next step, the status from then on, and the rows that it stored."""
        assert isinstance(track.spec, SourceSpec)
        uid, spec, memory = track.resource.uid, track.spec, memory_of(track.status)
        desk = self._desks.setdefault(uid, Desk())
        self._uids[track.resource.key] = uid
        self._take_answer(desk, now_s)
        if desk.kept:  # the transaction that stored it was the one before
            desk.over(now_s)
        elif desk.over_with_error:
            memory = replace(memory, request=desk.request)  # the answer is that error
        request = track.resource.annotations.get(RECONCILE, "")
        differs = self._differs(track)
        drifted = bool(differs) and repairs(spec)
        sight = desk.sight(request, allowed=_allows(track, desk), drifted=drifted)
        decision = decide(spec, track.resource.generation, memory, sight, now_s)
        memory, kept = self._carry_out(track, spec, decision, desk, memory, now_s)
        self._wake(uid, decision, now_s)
        status = status_of(track, spec, decision, desk, memory, kept, now_s)
        status["drift"] = [] if kept is not None else differs
        self._tell(track, status, desk)
        return status, kept.rows if kept is not None else ()

    def remove(self, track: Track) -> Status | None:
        """Of one that is deleted: with `prune`, its objects go with it; else they stay, and are
        nobody's. None once all of that is done.
        """
        source = track.resource
        desk = self._desks.pop(source.uid, None)
        if desk is not None and desk.task is not None:
            desk.task.cancel()
        self._uids[source.key] = source.uid  # for the news of its objects
        prunes = isinstance(track.spec, SourceSpec) and track.spec.prune
        left = self._members.rows(source.key)
        if left and prunes:
            self._delete([it for it in left if it.deleted_at_s is None])
            self._desks[source.uid] = Desk()
            return deleting_status(track, left)
        if left and self._keeper is not None:
            for row in self._keeper.release(source):
                self._members.heard(row)
        self._uids.pop(source.key, None)
        if self._keeper is not None:
            ending = ensure_future(self._keeper.forget(source))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        return None

    # -- one step ------------------------------------------------------------------------------

    def _carry_out(
        self,
        track: Track,
        spec: SourceSpec,
        decision: Decision,
        desk: Desk,
        memory: Memory,
        now_s: float,
    ) -> tuple[Memory, Kept | None]:
        """(what is remembered from then on, what was stored)"""
        if decision.step is Step.LOOK:
            desk.request = track.resource.annotations.get(RECONCILE, "")
            self._ask(track, spec, desk, "")
        elif decision.step is Step.READ:
            memory = replace(memory, attempted=desk.tip)
            desk.error = None  # it was of the round before
            self._ask(track, spec, desk, desk.tip)
        elif decision.step is Step.KEEP:
            return self._keep(track, spec, desk, memory, now_s)
        elif decision.step is Step.REST and desk.tip:
            memory = replace(memory, attempted=desk.tip, request=desk.request)
            if desk.held and desk.reading is not None and desk.reading.commit == desk.tip:
                desk.waits(desk.losses, now_s)
            else:
                desk.over(now_s)  # it is what was applied
            self._state.queue.add(track.resource.uid)
        return memory, None

    def _keep(
        self, track: Track, spec: SourceSpec, desk: Desk, memory: Memory, now_s: float
    ) -> tuple[Memory, Kept | None]:
        reading, keeper = desk.reading, self._keeper
        assert reading is not None and keeper is not None
        uid = track.resource.uid
        desk.nudged = False
        self._state.queue.add(uid)
        if memory.attempted != reading.commit:
            return replace(memory, attempted=reading.commit), None
        allows = _allows(track, desk)
        if desk.held and allows:
            desk.request = track.resource.annotations.get(RECONCILE, "")
        live = {it for it, known in self._state.tracks.items() if _runs(known)}
        # Of this request alone: who allows a commit has not seen the next one.
        request = track.resource.annotations.get(RECONCILE, "")
        approved = allows and request == desk.request != memory.request
        try:
            kept = keeper.keep(reading, live, approved=approved, now_s=now_s)
        except Moved:
            desk.reading = None
            desk.tip = desk.tip or reading.commit
            return memory, None
        except StoreError:
            raise
        except FleetctlError as error:
            desk.over(now_s, error)
            return replace(memory, request=desk.request), None
        if kept.losses:
            desk.waits(kept.losses, now_s)
            return replace(memory, request=desk.request), None
        desk.kept, desk.held, desk.losses, desk.error = True, False, (), None
        for row in kept.rows:
            self._members.heard(row)
        self._members.settled(track.resource.key)
        where = f"{spec.git.ref or 'HEAD'}@{short(reading.commit)}"
        if any(kept.changed.values()) or memory.applied != reading.commit:
            self._state.say(uid, "Applied", f"{where}: {counts_text(kept.changed)}")
        if reading.warnings and memory.applied != reading.commit:
            shown = "; ".join(reading.warnings[:WARNINGS_TOLD_MAX])
            self._state.say(uid, "ManifestWarning", f"{where}: {shown}", kind="Warning")
        # The request with it: what it allowed is used up, whatever happens next.
        return Memory(reading.commit, desk.generation, reading.commit, desk.request), kept

    def _ask(self, track: Track, spec: SourceSpec, desk: Desk, commit: str) -> None:
        """For the commit that the ref names, or where one is given for what it would change."""
        uid = track.resource.uid
        if self._keeper is None:
            desk.over(self._state.clock.now_s(), FleetctlError("this controller keeps no sources"))
            return
        if commit:
            desk.generation, desk.reading = track.resource.generation, None
            desk.task = ensure_future(_answered(self._keeper.read(track.resource, spec, commit)))
        else:
            desk.looked_generation = track.resource.generation
            desk.task = ensure_future(_answered(self._keeper.tip(track.resource, spec)))
        desk.task.add_done_callback(lambda _: self._state.poke(uid))

    def _take_answer(self, desk: Desk, now_s: float) -> None:
        task = desk.task
        if task is None or not task.done():
            return
        desk.task = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, FleetctlError):
            raise error
        if error is not None:
            desk.over(now_s, error)
            return
        found = task.result()
        if isinstance(found, str):
            desk.tip = found
        else:
            desk.reading, desk.held = found, False

    def _differs(self, track: Track) -> list[str]:
        """How its objects differ from what it made of them, a sentence for each."""
        source = track.resource.key
        differs = self._members.changed(source)
        lost = (
            objects_of(track.status)
            - self._members.living(source)
            - sum(it.endswith("was deleted") for it in differs)
        )
        if lost > 0:
            differs.append(f"{lost:,} more are gone")
        return differs

    def _delete(self, doomed: Sequence[Resource]) -> None:
        """The ordinary deletion: a row stays until all of it is confirmed gone."""
        store, now_s = self._state.store, self._state.clock.now_s()
        for row in doomed:
            store.resources.put(replace(row, deleted_at_s=now_s), expected_version=row.version)
            text = "its Source was deleted"
            self._state.events.append(EventRow(row.uid, now_s, "Normal", "Deleted", text))
            self._state.queue.add(row.uid)

    def _tell(self, track: Track, status: Status, desk: Desk) -> None:
        """An event of what is wrong, once."""
        text = str(status.get("lastError") or "")
        if text and text != track.status.get("lastError"):
            self._state.say(track.resource.uid, str(status["reason"]), text, kind="Warning")
        if desk.held and track.status.get("reason") != status["reason"]:
            text = str(status["message"])
            self._state.say(track.resource.uid, str(status["reason"]), text, kind="Warning")

    def _wake(self, uid: str, decision: Decision, now_s: float) -> None:
        if decision.at_s is not None:
            self._state.queue.add(uid, max(min(decision.at_s, now_s + BEAT_S), now_s))


def _allows(track: Track, desk: Desk) -> bool:
    """Whether the last request by hand consents to the commit that is read."""
    annotations = track.resource.annotations
    allowed, _, seen = annotations.get(APPROVED, "").partition(" ")
    commit = desk.reading.commit if desk.reading is not None else ""
    return allowed == annotations.get(RECONCILE, "") != "" and seen in ("", commit)


async def _answered(work: Awaitable[Answer]) -> Answer:
    """Raises FleetctlError alone."""
    found = await reported(work, what="source")
    if found is None:
        raise Unavailable("the controller failed at this; its log tells how")
    return found


def _runs(track: Track) -> bool:
    return track.work is not None and bool(track.work.history.live)
