"""Runs one pass over a Source: the decisions of controllers/kinds are carried out, and it is
tracked which objects the Source keeps and which were changed by hand.

Slow work (a remote, a thousand files) is requested and awaited outside; its reply wakes the
Source. The commit to attempt is durable before any of its objects is stored; the objects of a
commit and the status that names it are one transaction, so that a crash applies all or nothing.
"""

from __future__ import annotations

import asyncio
from asyncio import ensure_future
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self, TypeVar

from fleetctl.common.errors import FleetctlError, StoreError, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.controllers.kinds.source_decision import (
    SourceDecision,
    SourceMemory,
    SourceStep,
    decide_source_step,
    repairs_drift,
)
from fleetctl.controllers.model import Resource
from fleetctl.controllers.status_keys import Status
from fleetctl.engine.kinds.source_status import (
    ObjectsChanged,
    SourceKeeper,
    SourceStoreResult,
    SourceWork,
    counts_text,
    deleting_status,
    memory_of,
    objects_of,
    status_of,
)
from fleetctl.engine.shared.boundary import run_reported
from fleetctl.engine.shared.part import EnginePart, PartWiring
from fleetctl.specs.kinds.source import SourceSpec
from fleetctl.stores.base import EventRow, ResourceStore
from fleetctl.tracking.annotations import APPROVED, RECONCILE
from fleetctl.tracking.by_hand import has_drifted
from fleetctl.tracking.kept_by import read_owner, shorten_commit

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import Track


KIND = "Source"
Answer = TypeVar("Answer")
# A clock that is moved, and a machine that slept, are noticed within this.
BEAT_S = 60.0
WARNINGS_TOLD_MAX = 5


class SourcePasses(EnginePart):
    """keeper: None = this engine keeps no objects, and reports so."""

    kind = KIND
    makes_passes = True
    rests = True

    def __init__(self, state: EngineState, keeper: SourceKeeper | None) -> None:
        self._state = state
        self._keeper = keeper
        self._members = SourceMembers(state.store.resources)
        self._desks: dict[str, SourceWork] = {}
        self._uids: dict[str, str] = {}  # key of a Source -> its uid
        self._ending: set[asyncio.Future[None]] = set()

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(wiring.state, wiring.services.keeper)

    # -- events of other objects -------------------------------------------------------------------

    def row_written(self, row: Resource) -> None:
        """Takes a written or removed object: its Source checks if it is as it was made."""
        source = self._members.note_object(row)
        if source:
            self.nudge(source)

    def nudge(self, source: str) -> None:
        """Wakes the Source after a change of its objects' runs: consent may be needed no more."""
        uid = self._uids.get(source, "")
        if uid in self._desks:
            self._desks[uid].nudged = True
            self._state.queue.add(uid)

    def object_moved(self, track: Track) -> None:
        self._nudge_owner(track.resource)

    def dropped(self, track: Track) -> None:
        self._nudge_owner(track.resource)

    def _nudge_owner(self, row: Resource) -> None:
        note = read_owner(row.annotations)
        if note is not None:
            self.nudge(note.source)

    def forget(self) -> None:
        """Drops the received writes that the store did not commit."""
        self._members.forget()
        for desk in self._desks.values():
            desk.kept = False

    async def answered(self) -> None:
        """Waits until every request has a reply."""
        asked = [it.task for it in self._desks.values() if it.task is not None]
        if asked:
            await asyncio.wait(asked)

    async def close(self) -> None:
        asked = [it.task for it in self._desks.values() if it.task is not None]
        self._desks.clear()
        await cancel_tasks([*asked, *self._ending])

    # -- passes --------------------------------------------------------------------------------

    def run_pass(self, track: Track, now_s: float) -> Status:
        """Runs the next step; returns the status from then on."""
        assert isinstance(track.spec, SourceSpec)
        uid = track.resource.uid
        spec = track.spec
        memory = memory_of(track.status)
        desk = self._desks.setdefault(uid, SourceWork())
        self._uids[track.resource.key] = uid
        self._take_answer(desk, now_s)
        if desk.kept:  # the transaction that stored it was the one before
            desk.over(now_s)
        elif desk.over_with_error:
            memory = replace(memory, request=desk.request)  # the result is that error
        request = track.resource.annotations.get(RECONCILE, "")
        differs = self._differs(track)
        drifted = bool(differs) and repairs_drift(spec)
        sight = desk.build_knowledge(request, allowed=_has_consent(track, desk), drifted=drifted)
        decision = decide_source_step(
            spec,
            track.resource.generation,
            memory,
            sight,
            now_s,
        )
        memory, kept = self._carry_out(
            track,
            spec,
            decision,
            desk,
            memory,
            now_s,
        )
        self._wake(uid, decision, now_s)
        status = status_of(
            track,
            spec,
            decision,
            desk,
            memory,
            kept,
            now_s,
        )
        status["drift"] = [] if kept is not None else differs
        self._report_problem(track, status, desk)
        for row in kept.rows if kept is not None else ():
            # Passes that follow in this very tick must not decide by the rows before.
            self._state.changed_rows[row.uid] = row
            self._state.queue.add(row.uid)
        return status

    def remove(self, track: Track) -> Status | None:
        """Removes a deleted Source: with `prune`, its objects are deleted with it; else they stay,
        without an owner. None once all is done.
        """
        source = track.resource
        desk = self._desks.pop(source.uid, None)
        if desk is not None and desk.task is not None:
            desk.task.cancel()
        self._uids[source.key] = source.uid  # for events of its objects
        prunes = isinstance(track.spec, SourceSpec) and track.spec.prune
        left = self._members.rows(source.key)
        if left and prunes:
            self._delete([it for it in left if it.deleted_at_s is None])
            self._desks[source.uid] = SourceWork()
            return deleting_status(track, left)
        if left and self._keeper is not None:
            for row in self._keeper.release(source):
                self._members.note_object(row)
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
        decision: SourceDecision,
        desk: SourceWork,
        memory: SourceMemory,
        now_s: float,
    ) -> tuple[SourceMemory, SourceStoreResult | None]:
        """Returns (the memory from then on, the stored objects)"""
        if decision.step is SourceStep.LOOK:
            desk.request = track.resource.annotations.get(RECONCILE, "")
            self._ask(track, spec, desk, "")
        elif decision.step is SourceStep.READ:
            memory = replace(memory, attempted=desk.tip)
            desk.error = None  # it was of the round before
            self._ask(track, spec, desk, desk.tip)
        elif decision.step is SourceStep.KEEP:
            return self._keep(
                track,
                spec,
                desk,
                memory,
                now_s,
            )
        elif decision.step is SourceStep.REST and desk.tip:
            memory = replace(memory, attempted=desk.tip, request=desk.request)
            if desk.held and desk.reading is not None and desk.reading.commit == desk.tip:
                desk.waits(desk.losses, now_s)
            else:
                desk.over(now_s)  # it is what was applied
            self._state.queue.add(track.resource.uid)
        return memory, None

    def _keep(
        self,
        track: Track,
        spec: SourceSpec,
        desk: SourceWork,
        memory: SourceMemory,
        now_s: float,
    ) -> tuple[SourceMemory, SourceStoreResult | None]:
        reading = desk.reading
        keeper = self._keeper
        assert reading is not None and keeper is not None
        uid = track.resource.uid
        desk.nudged = False
        self._state.queue.add(uid)
        if memory.attempted != reading.commit:
            return replace(memory, attempted=reading.commit), None
        allows = _has_consent(track, desk)
        if desk.held and allows:
            desk.request = track.resource.annotations.get(RECONCILE, "")
        live = {it for it, known in self._state.tracks.items() if _is_running(known)}
        # Consent counts for this request alone: a user who allows a commit has not seen the next
        # one.
        request = track.resource.annotations.get(RECONCILE, "")
        approved = allows and request == desk.request != memory.request
        try:
            kept = keeper.keep(reading, live, approved=approved, now_s=now_s)
        except ObjectsChanged:
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
        desk.kept = True
        desk.held = False
        desk.losses = ()
        desk.error = None
        for row in kept.rows:
            self._members.note_object(row)
        self._members.settled(track.resource.key)
        where = f"{spec.git.ref or 'HEAD'}@{shorten_commit(reading.commit)}"
        if any(kept.changed.values()) or memory.applied != reading.commit:
            self._state.say(uid, "Applied", f"{where}: {counts_text(kept.changed)}")
        if reading.warnings and memory.applied != reading.commit:
            shown = "; ".join(reading.warnings[:WARNINGS_TOLD_MAX])
            self._state.say(uid, "ManifestWarning", f"{where}: {shown}", kind="Warning")
        # The request is stored with it: its consent is used up in any case.
        return SourceMemory(reading.commit, desk.generation, reading.commit, desk.request), kept

    def _ask(
        self,
        track: Track,
        spec: SourceSpec,
        desk: SourceWork,
        commit: str,
    ) -> None:
        """Requests the commit that the ref names, or, where a commit is given, its changes."""
        uid = track.resource.uid
        if self._keeper is None:
            desk.over(self._state.clock.now_s(), FleetctlError("this controller keeps no sources"))
            return
        if commit:
            desk.generation = track.resource.generation
            desk.reading = None
            desk.task = ensure_future(
                _await_answer(self._keeper.read(track.resource, spec, commit))
            )
        else:
            desk.looked_generation = track.resource.generation
            desk.task = ensure_future(_await_answer(self._keeper.tip(track.resource, spec)))
        desk.task.add_done_callback(lambda _: self._state.poke(uid))

    def _take_answer(self, desk: SourceWork, now_s: float) -> None:
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
            desk.reading = found
            desk.held = False

    def _differs(self, track: Track) -> list[str]:
        """Returns how its objects differ from its manifests, a sentence for each."""
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
        """Deletes objects in the ordinary way: a row stays until all is confirmed gone."""
        store = self._state.store
        now_s = self._state.clock.now_s()
        for row in doomed:
            store.resources.put(replace(row, deleted_at_s=now_s), expected_version=row.version)
            text = "its Source was deleted"
            self._state.events.append(
                EventRow(
                    row.uid,
                    now_s,
                    "Normal",
                    "Deleted",
                    text,
                )
            )
            self._state.queue.add(row.uid)

    def _report_problem(
        self,
        track: Track,
        status: Status,
        desk: SourceWork,
    ) -> None:
        """Adds an event about the problem, once."""
        text = str(status.get("lastError") or "")
        if text and text != track.status.get("lastError"):
            self._state.say(track.resource.uid, str(status["reason"]), text, kind="Warning")
        if desk.held and track.status.get("reason") != status["reason"]:
            text = str(status["message"])
            self._state.say(track.resource.uid, str(status["reason"]), text, kind="Warning")

    def _wake(
        self,
        uid: str,
        decision: SourceDecision,
        now_s: float,
    ) -> None:
        if decision.at_s is not None:
            self._state.queue.add(uid, max(min(decision.at_s, now_s + BEAT_S), now_s))


def _has_consent(track: Track, desk: SourceWork) -> bool:
    """Returns true if the last request by hand consents to the commit that is read."""
    annotations = track.resource.annotations
    allowed, _, seen = annotations.get(APPROVED, "").partition(" ")
    commit = desk.reading.commit if desk.reading is not None else ""
    return allowed == annotations.get(RECONCILE, "") != "" and seen in ("", commit)


async def _await_answer(work: Awaitable[Answer]) -> Answer:
    """Returns the result of the work. Raises FleetctlError alone: a bug is logged, and becomes
    Unavailable.
    """
    found = await run_reported(work, what="source")
    if found is None:
        raise Unavailable("the controller failed at this; its log shows how")
    return found


def _is_running(track: Track) -> bool:
    return track.work is not None and bool(track.work.history.live)


class SourceMembers:
    """Tracks the objects that each Source keeps. In memory, built from the store at first use;
    receives every object that is written.
    """

    def __init__(self, resources: ResourceStore) -> None:
        self._resources = resources
        self._loaded = False
        self._source_of: dict[str, str] = {}  # by uid
        self._uids: dict[str, set[str]] = {}  # by source
        self._keys: dict[str, str] = {}  # by uid
        self._how: dict[str, str] = {}  # uid -> how it differs, for changed objects
        self._deleted: set[str] = set()  # uids of objects that are being deleted

    def note_object(self, row: Resource) -> str:
        """Takes a written object. Returns the key of the Source that keeps it, or kept it until
        now; empty for an object without a Source.
        """
        note = read_owner(row.annotations)
        before = self._source_of.get(row.uid, "")
        source = note.source if note is not None else ""
        if not self._loaded:
            return source
        if before and before != source:
            self._let_go(row.uid)
        if note is not None:
            self._source_of[row.uid], self._keys[row.uid] = source, row.key
            self._uids.setdefault(source, set()).add(row.uid)
            self._how.pop(row.uid, None)
            if row.deleted_at_s is not None:
                self._how[row.uid] = f"{row.key} was deleted"
                self._deleted.add(row.uid)
            elif has_drifted(row, note):
                self._how[row.uid] = f"{row.key} was changed by hand"
        return source or before

    def forget(self) -> None:
        """Drops the cache: the store may differ from the received writes."""
        self._loaded = False
        self._source_of.clear()
        self._uids.clear()
        self._keys.clear()
        self._how.clear()
        self._deleted.clear()

    def settled(self, source: str) -> None:
        """Drops the deleted objects of a Source: each is restored by now, or no longer wanted."""
        self._load()
        for uid in self._uids.get(source, set()) & self._deleted:
            self._let_go(uid)

    def living(self, source: str) -> int:
        self._load()
        return len(self._uids.get(source, set()) - self._deleted)

    def changed(self, source: str) -> list[str]:
        """Returns a sentence for each object that differs, in order; one that was deleted and
        restored does not.
        """
        self._load()
        uids = self._uids.get(source, set())
        there = {self._keys[it] for it in uids - self._deleted}
        doubtful = uids & self._how.keys()
        gone = {it for it in doubtful & self._deleted if self._keys[it] in there}
        return sorted(self._how[it] for it in doubtful - gone)

    def rows(self, source: str) -> list[Resource]:
        """Returns the rows by uid, also of objects that are being deleted."""
        self._load()
        found = []
        for uid in sorted(self._uids.get(source, ())):
            row = self._resources.of(uid)
            if row is None:
                self._let_go(uid)
            else:
                found.append(row)
        return found

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            for row in self._resources.list():
                self.note_object(row)

    def _let_go(self, uid: str) -> None:
        self._uids.get(self._source_of.pop(uid, ""), set()).discard(uid)
        self._keys.pop(uid, None)
        self._how.pop(uid, None)
        self._deleted.discard(uid)
