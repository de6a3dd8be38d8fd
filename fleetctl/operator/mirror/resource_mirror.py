"""Keeps custom resources and stored objects equal, for as long as this process leads.

An event of either side names the key to look at. The action is decided in custom_resource.py; an
object is stored by applier.py; its status is computed in statuses.py and written by
cluster_writer.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.common.errors import NotFound, StoreError, Unavailable
from fleetctl.common.event_loop import cancel_tasks, wait_or_wake
from fleetctl.controllers.model import Resource
from fleetctl.engine.shared.due_queue import DueQueue
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import ApiConnection, Object
from fleetctl.kubernetes.informer import Informer, key_of
from fleetctl.operator.mirror.applier import Applier, JoinedCalls
from fleetctl.operator.mirror.cluster_writer import ClusterWriter
from fleetctl.operator.mirror.custom_resource import (
    CustomResource,
    MirrorAction,
    MirroredObject,
    RefusedApply,
    choose_action,
    origin_of,
    store_namespace,
)
from fleetctl.operator.mirror.entries import (
    MirrorEntry,
    drop_unread,
    format_collection_path,
    is_whole,
    let_go,
)
from fleetctl.operator.mirror.kinds_served import KindsServed
from fleetctl.operator.mirror.statuses import Unaccepted
from fleetctl.specs.kinds.registry import KINDS, Kind
from fleetctl.views.objects import View, build_view

if TYPE_CHECKING:
    from fleetctl.daemon.verbs import RequestVerbs
    from fleetctl.engine.shared.engine_state import EngineState

log = logging.getLogger("fleetctl.operator")

AT_ONCE_MAX = 32  # keys that are worked on; each waits for the API server most of the time
STEPS_MAX = 8  # finalizer, a look, an apply; more is a disagreement, and looked at later
AGAIN_S = 0.5
AGAIN_MAX_S = 60.0
GATHER_S = 0.1
IDLE_S = 30.0
# After a change all that was refused is tried again: together, and rarer the more there is.
RECHECK_S = 0.5
RECHECK_EACH_S = 0.02


class ResourceMirror:
    """The mirror of custom resources. namespace: the only one that is looked at; empty: all. leads:
    checked before any action.
    """

    def __init__(
        self,
        connection: ApiConnection,
        *,
        state: EngineState,
        applier: Applier,
        verbs: RequestVerbs,
        leads: Callable[[], bool],
        namespace: str = "",
    ) -> None:
        self._state = state
        self._applier = applier
        self._deletes = JoinedCalls[str](
            lambda keys: verbs.delete({"keys": list(keys)}), items_max=AT_ONCE_MAX
        )
        self._connection = connection
        self._leads = leads
        self._writer = ClusterWriter(connection, now_s=state.clock.now_s)
        self._queue, self._awake = DueQueue(), asyncio.Event()
        self._entries: dict[str, MirrorEntry] = {}
        self._key_of: dict[str, str] = {}  # uid of a stored object -> key
        self._refused: set[str] = set()  # keys that another object's change may fix
        self._tasks: set[asyncio.Future[None]] = set()
        self.informers = {
            kind.name: Informer(
                connection, format_collection_path(kind, namespace), changed=self._hearer(kind)
            )
            for kind in KINDS.values()
        }
        self.kinds = KindsServed(connection, self.informers)
        self.listed = False  # all objects were received once
        state.on_change = self._changed

    # -- events --------------------------------------------------------------------------------

    def _hearer(self, kind: Kind) -> Callable[[str, Object, Object | None], None]:
        def heard(
            sort: str,
            found: Object,
            _known: Object | None,
        ) -> None:
            drop_unread(found)
            entry = self._entry(kind, key_of(found))
            if sort == "DELETED":
                entry.fresh = None
            elif entry.is_echo(found):
                entry.fresh = None
                if entry.settled and not entry.busy and entry.key not in self._queue:
                    let_go(found)
                return
            if entry.busy:
                entry.heard = True  # at the end of its visit this may be known already
            else:
                self._mark(entry.key)

        return heard

    def _changed(self, uid: str) -> None:
        if (key := self._key_of.get(uid)) is not None:
            # A busy job changes with every tick; several are looked at together.
            at_s = self._state.clock.now_s() + GATHER_S
            entry = self._entries.get(key)
            if entry is not None and entry.soon_s is not None and not entry.deleting:
                at_s = max(at_s, entry.soon_s)  # and no status is computed before its write is due
            self._mark(key, at_s)

    def _mark(self, key: str, at_s: float = 0.0) -> None:
        self._queue.add(key, at_s)
        self._awake.set()

    def _entry(self, kind: Kind, at: tuple[str, str]) -> MirrorEntry:
        made = MirrorEntry(kind, at)
        return self._entries.setdefault(made.key, made)

    # -- the loop ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs until cancelled."""
        listening = [asyncio.ensure_future(it.run()) for it in self.informers.values()]
        try:
            await self.kinds.first()
            listening.append(asyncio.ensure_future(self.kinds.watch()))
            listening += [asyncio.ensure_future(self._begin_kind(it)) for it in self._late()]
            self._remember()
            self.listed = True
            while True:
                self._begin_due()
                due_s = self._queue.next_due_at_s()
                now_s = self._state.clock.now_s()
                wait_s = IDLE_S if due_s is None else min(IDLE_S, max(0.0, due_s - now_s))
                if len(self._tasks) >= AT_ONCE_MAX:
                    wait_s = IDLE_S  # the end of any task wakes the loop
                await wait_or_wake(self._awake, wait_s)
                self._awake.clear()
        finally:
            self._state.on_change = None
            await cancel_tasks([*listening, *self._tasks])

    def _late(self) -> list[Kind]:
        return [it for it in KINDS.values() if not self.kinds.serves(it)]

    async def _begin_kind(self, kind: Kind) -> None:
        """Begins a kind whose definition was missing at the start: all its known objects are looked
        at once the definition is there.
        """
        await self.informers[kind.name].synced.wait()
        log.info("a kind is served by now", extra={"kind": kind.plural})
        for key, entry in self._entries.items():
            if entry.kind is kind:
                self._mark(key)

    def _remember(self) -> None:
        """Loads the stored objects that were made from custom resources, and looks at each once."""
        for row in self._state.store.resources.list():
            if origin_of(row) is None or row.kind not in KINDS:
                continue
            kind = KINDS[row.kind]
            entry = self._entry(kind, (row.namespace if kind.namespaced else "", row.name))
            if not entry.store_uid or row.deleted_at_s is None:
                entry.store_uid = row.uid
            self._key_of[row.uid] = entry.key
            self._mark(entry.key)

    def _begin_due(self) -> None:
        now_s = self._state.clock.now_s()
        free = AT_ONCE_MAX - len(self._tasks)
        for key in self._queue.take(now_s, keys_max=free) if free > 0 else ():
            entry = self._entries.get(key)
            if entry is None:
                continue
            if entry.busy:
                entry.again = True
                continue
            entry.busy = True
            task = asyncio.ensure_future(self._visit(entry))
            self._tasks.add(task)
            task.add_done_callback(self._drop_task)

    def _drop_task(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        self._awake.set()

    async def _visit(self, entry: MirrorEntry) -> None:
        try:
            # A key that the server has not listed yet allows no conclusion.
            if self._leads() and self.kinds.serves(entry.kind):
                await self._hold_together(entry)
            entry.failures = 0
        except (ApiError, Unavailable, StoreError) as error:
            log.info("looked at again", extra={"key": entry.key, "error": str(error)})
            self._retry_later(entry)
        except Exception:  # one bad object never stops the others (P7)
            log.exception("custom resource not handled", extra={"key": entry.key})
            self._retry_later(entry)
        finally:
            entry.busy = False
            if entry.again or (entry.heard and self._is_news(entry)):
                self._mark(entry.key)
            entry.again = entry.heard = False

    def _is_news(self, entry: MirrorEntry) -> bool:
        """Returns True if the visit that ends did not handle all that the cache shows by now."""
        cached = self.informers[entry.kind.name].objects.get(entry.at)
        return entry.failures > 0 or not entry.knows(cached)

    def _retry_later(self, entry: MirrorEntry) -> None:
        entry.failures += 1
        wait_s = min(AGAIN_MAX_S, AGAIN_S * 2.0 ** min(entry.failures, 16))
        self._mark(entry.key, self._state.clock.now_s() + wait_s)

    def figures(self) -> dict[str, float]:
        """Returns the loop's figures for /metrics: keys that wait, that are worked on, and that
        failed last.
        """
        failing = sum(1 for it in self._entries.values() if it.failures)
        return {"waiting": len(self._queue), "busy": len(self._tasks), "failing": failing}

    def find_verdict(self, place: tuple[Kind, str, str], digest: str) -> Unaccepted | bool:
        """Returns whether the state with this digest was carried out, or why it is refused. place:
        kind, namespace and name at the API server."""
        kind, namespace, name = place
        row = self._state.store.resources.get(kind.name, name, store_namespace(kind, namespace))
        origin = origin_of(row) if row is not None else None
        if origin is not None and origin.digest == digest:
            return True
        entry = self._entries.get(MirrorEntry(kind, (namespace, name)).key)
        if entry is None or entry.tried is None or entry.refusal is None:
            return False
        return entry.refusal if entry.tried.origin.digest == digest else False

    # -- one key -------------------------------------------------------------------------------

    async def _hold_together(self, entry: MirrorEntry) -> None:
        looked = False
        for _ in range(STEPS_MAX):
            found = entry.newest(self.informers[entry.kind.name].objects.get(entry.at))
            wanted = entry.parse(found) if found is not None else None
            row = self._row(entry)
            stored = None
            if row is not None:
                stored = MirroredObject(origin_of(row), row.deleted_at_s is not None)
            step = choose_action(
                wanted,
                stored,
                looked=looked,
                tried=entry.tried,
                now_s=self._state.clock.now_s(),
            )
            if step in (MirrorAction.NOTHING, MirrorAction.WAIT) or not self._leads():
                await self._tell(entry, found, row)
                return
            if step is MirrorAction.LOOK:
                await self._look(entry)
                looked = True
            elif step is MirrorAction.DELETE:
                await self._delete(entry, row)
            elif found is not None and wanted is not None:
                await self._carry_out(entry, step, found, wanted)
                looked = looked or step is MirrorAction.HOLD  # the server's own answer
                if step is MirrorAction.RELEASE:
                    self._forget(entry)
                    return
        cached = self.informers[entry.kind.name].objects.get(entry.at)
        await self._tell(entry, entry.newest(cached), self._row(entry))

    async def _carry_out(
        self,
        entry: MirrorEntry,
        step: MirrorAction,
        found: Object,
        wanted: CustomResource,
    ) -> None:
        if step is MirrorAction.HOLD:
            entry.take_reply(await self._writer.hold(entry, found))
        elif step is MirrorAction.RELEASE:
            await self._writer.release(entry, found)
        elif step is MirrorAction.APPLY:
            if not is_whole(found):
                await self._look(entry)  # and with its spec it is decided about again
            else:
                await self._apply(entry, found, wanted)

    async def _look(self, entry: MirrorEntry) -> None:
        """Requests the object by this name from the server itself."""
        try:
            entry.take_reply(await self._connection.request("GET", entry.path))
        except ApiError as error:
            if not error.not_found:
                raise
            entry.fresh = None

    async def _delete(self, entry: MirrorEntry, row: Resource | None) -> None:
        if row is None:
            return
        try:
            await self._deletes.handle(row.key)
        except NotFound:
            return
        log.info("deleted", extra={"key": entry.key})
        self._recheck_refused()

    async def _apply(
        self,
        entry: MirrorEntry,
        found: Object,
        wanted: CustomResource,
    ) -> None:
        now_s = self._state.clock.now_s()
        refusal, again_at_s = await self._applier.apply(entry, found, wanted)
        entry.refusal = refusal
        entry.tried = None
        self._refused.discard(entry.key)
        if refusal is None:
            self._recheck_refused()
        else:
            due_s = now_s + again_at_s if again_at_s is not None else None
            entry.tried = RefusedApply(wanted.origin, wanted.approved, due_s)
            if due_s is not None:
                self._refused.add(entry.key)
                self._mark(entry.key, due_s)
        if entry.store_uid:
            # It may be an older object with this name; without one, the next step looks it up.
            row = self._state.store.resources.get(entry.kind.name, entry.at[1], entry.namespace)
            if row is not None:
                entry.store_uid = row.uid
                self._key_of[row.uid] = entry.key

    def _recheck_refused(self) -> None:
        """Retries refused resources soon: the object that they lacked may be the one that has just
        changed.
        """
        at_s = self._state.clock.now_s() + RECHECK_S + RECHECK_EACH_S * len(self._refused)
        for key in self._refused:
            entry = self._entries[key]
            tried = entry.tried
            if tried is not None and tried.again_at_s is not None and at_s < tried.again_at_s:
                entry.tried = replace(tried, again_at_s=at_s)
                self._mark(key, at_s)

    # -- reports -------------------------------------------------------------------------------

    async def _tell(
        self,
        entry: MirrorEntry,
        found: Object | None,
        row: Resource | None,
    ) -> None:
        """Reports on a resource, as it was read in this turn of the loop."""
        if found is None:
            if row is None:
                self._forget(entry)
            return
        if (pending_s := self._writer.pending_until_s(entry)) is not None:
            self._mark(entry.key, pending_s)
            return
        seen = self._read_view(row)
        if seen is None and entry.refusal is None:
            return
        told = hash((row.uid, row.status, row.deleted_at_s)) if row is not None else 0
        if not is_whole(found):
            if entry.settled and told == entry.told:
                return
            await self._look(entry)
            found = entry.fresh
            if found is None:
                return
        due_at_s = await self._writer.tell(entry, found, seen)
        if due_at_s is not None:
            self._mark(entry.key, due_at_s)
            return
        entry.told = told
        entry.settled = seen is not None and seen.over and entry.refusal is None
        # Read again: the event of the write may have come before its reply was worked off.
        cached = self.informers[entry.kind.name].objects.get(entry.at)
        if entry.settled and cached is not None and entry.newest(cached) is cached:
            let_go(cached)

    def _read_view(self, row: Resource | None) -> View | None:
        if row is None:
            return None
        return build_view(row, lambda: row.spec)  # type: ignore[arg-type]

    def _row(self, entry: MirrorEntry) -> Resource | None:
        """Returns the stored object of an entry, also one that is being deleted, until
        it is gone.
        """
        resources = self._state.store.resources
        known = resources.of(entry.store_uid) if entry.store_uid else None
        if known is not None:
            return known
        self._key_of.pop(entry.store_uid, None)
        entry.store_uid = ""
        row = resources.get(entry.kind.name, entry.at[1], entry.namespace)
        if row is not None:
            entry.store_uid = row.uid
            self._key_of[row.uid] = entry.key
        return row

    def _forget(self, entry: MirrorEntry) -> None:
        self._key_of.pop(entry.store_uid, None)
        self._entries.pop(entry.key, None)
        self._refused.discard(entry.key)
        self._queue.discard(entry.key)
