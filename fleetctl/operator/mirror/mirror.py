"""Custom resources and stored objects, held to each other for as long as this process leads.

An event of either side says which key to look at. What is done is decided in decide.py; how an
object is stored is in applying.py; what is told is in statuses.py and written by writing.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleetctl.common.errors import NotFound, StoreError, Unavailable
from fleetctl.common.tasks import cancel, woken
from fleetctl.controllers.model import Resource
from fleetctl.engine.shared.queue import Queue
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import Connection, Object
from fleetctl.kubernetes.informer import Informer, key_of, version_of
from fleetctl.operator.mirror.applying import Applier
from fleetctl.operator.mirror.decide import Stored, Todo, Tried, todo
from fleetctl.operator.mirror.entries import Entry, collection, is_whole, let_go, lightened
from fleetctl.operator.mirror.wanted import Wanted, origin_of, wanted_of
from fleetctl.operator.mirror.writing import Writer
from fleetctl.specs.kinds.registry import KINDS, Kind
from fleetctl.views.objects import View, view

if TYPE_CHECKING:
    from fleetctl.daemon.verbs import Verbs
    from fleetctl.engine.shared.state import State

log = logging.getLogger("fleetctl.operator")

AT_ONCE_MAX = 16  # keys that are worked on; each waits for the API server most of the time
STEPS_MAX = 8  # finalizer, a look, an apply; more is a disagreement, and looked at later
AGAIN_S, AGAIN_MAX_S = 0.5, 60.0
GATHER_S = 0.1
IDLE_S = 30.0
SYNC_LOOK_S, TROUBLE_TOLD_S = 0.05, 30.0


class Mirror:
    """namespace: that alone is looked at; empty: all. leads: asked before anything is done."""

    def __init__(
        self,
        connection: Connection,
        *,
        state: State,
        applier: Applier,
        verbs: Verbs,
        leads: Callable[[], bool],
        namespace: str = "",
    ) -> None:
        self._state, self._applier, self._verbs = state, applier, verbs
        self._connection, self._leads = connection, leads
        self._writer = Writer(connection, now_s=state.clock.now_s)
        self._queue, self._awake = Queue(), asyncio.Event()
        self._entries: dict[str, Entry] = {}
        self._key_of: dict[str, str] = {}  # uid of a stored object -> key
        self._tasks: set[asyncio.Future[None]] = set()
        self.informers = {
            kind.name: Informer(connection, collection(kind, namespace), changed=self._hearer(kind))
            for kind in KINDS.values()
        }
        state.on_change = self._changed

    # -- what happened -------------------------------------------------------------------------

    def _hearer(self, kind: Kind) -> Callable[[str, Object, Object | None], None]:
        def heard(sort: str, found: Object, _known: Object | None) -> None:
            lightened(found)
            entry = self._entry(kind, key_of(found))
            if sort == "DELETED":
                entry.fresh = None
            self._mark(entry.key)

        return heard

    def _changed(self, uid: str) -> None:
        if (key := self._key_of.get(uid)) is not None:
            # A busy job changes with every tick; several are looked at together.
            self._mark(key, self._state.clock.now_s() + GATHER_S)

    def _mark(self, key: str, at_s: float = 0.0) -> None:
        self._queue.add(key, at_s)
        self._awake.set()

    def _entry(self, kind: Kind, at: tuple[str, str]) -> Entry:
        made = Entry(kind, at)
        return self._entries.setdefault(made.key, made)

    # -- the loop ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        listening = [asyncio.ensure_future(it.run()) for it in self.informers.values()]
        try:
            for informer in self.informers.values():
                await self._heard_of(informer)
            self._remember()
            while True:
                self._begin_due()
                due_s = self._queue.next_due_at_s()
                now_s = self._state.clock.now_s()
                wait_s = IDLE_S if due_s is None else min(IDLE_S, max(0.0, due_s - now_s))
                if len(self._tasks) >= AT_ONCE_MAX:
                    wait_s = IDLE_S  # the end of any of them wakes the loop
                await woken(self._awake, wait_s)
                self._awake.clear()
        finally:
            self._state.on_change = None
            await cancel([*listening, *self._tasks])

    async def _heard_of(self, informer: Informer) -> None:
        """Nothing is concluded from what the server has not listed yet."""
        while not informer.synced.is_set():
            trouble = informer.trouble
            if isinstance(trouble, ApiError) and trouble.not_found:
                log.warning(
                    "the custom resource definitions are missing: kubectl apply -f deploy/crds",
                    extra={"path": informer.path},
                )
            alarm = asyncio.get_running_loop().time() + TROUBLE_TOLD_S
            while not informer.synced.is_set() and asyncio.get_running_loop().time() < alarm:
                await asyncio.sleep(SYNC_LOOK_S)

    def _remember(self) -> None:
        """Which stored objects were made from custom resources, and look at each once."""
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
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        self._awake.set()

    async def _visit(self, entry: Entry) -> None:
        try:
            if self._leads():
                await self._hold_together(entry)
            entry.failures = 0
        except (ApiError, Unavailable, StoreError) as error:
            log.info("looked at again", extra={"key": entry.key, "error": str(error)})
            self._later(entry)
        except Exception:
            # One bad object never stops the others (P7).
            log.exception("custom resource not handled", extra={"key": entry.key})
            self._later(entry)
        finally:
            entry.busy = False
            if entry.again:
                entry.again = False
                self._mark(entry.key)

    def _later(self, entry: Entry) -> None:
        entry.failures += 1
        wait_s = min(AGAIN_MAX_S, AGAIN_S * 2.0 ** min(entry.failures, 16))
        self._mark(entry.key, self._state.clock.now_s() + wait_s)

    # -- one key -------------------------------------------------------------------------------

    async def _hold_together(self, entry: Entry) -> None:
        looked = False
        for _ in range(STEPS_MAX):
            found = entry.newest(self.informers[entry.kind.name].objects.get(entry.at))
            wanted, row = (wanted_of(found) if found is not None else None), self._row(entry)
            stored = None
            if row is not None:
                stored = Stored(origin_of(row), row.deleted_at_s is not None)
            step = todo(
                wanted, stored, looked=looked, tried=entry.tried, now_s=self._state.clock.now_s()
            )
            if step in (Todo.NOTHING, Todo.WAIT) or not self._leads():
                break
            if step is Todo.LOOK:
                await self._look(entry)
                looked = True
            elif step is Todo.DELETE:
                await self._delete(entry, row)
            elif found is not None and wanted is not None:
                await self._carry_out(entry, step, found, wanted)
                looked = looked or step is Todo.HOLD  # the server's own answer
                if step is Todo.RELEASE:
                    self._forget(entry)
                    return
        await self._tell(entry)

    async def _carry_out(self, entry: Entry, step: Todo, found: Object, wanted: Wanted) -> None:
        if step is Todo.HOLD:
            entry.fresh = await self._writer.hold(entry, found)
        elif step is Todo.RELEASE:
            await self._writer.release(entry, found)
        elif step is Todo.APPLY:
            if not is_whole(found):
                await self._look(entry)  # and with its spec it is decided about again
            else:
                await self._apply(entry, found, wanted)

    async def _look(self, entry: Entry) -> None:
        """Hear from the server itself what it has by this name now."""
        try:
            entry.fresh = await self._connection.request("GET", entry.path)
        except ApiError as error:
            if not error.not_found:
                raise
            entry.fresh = None

    async def _delete(self, entry: Entry, row: Resource | None) -> None:
        if row is None:
            return
        try:
            await self._verbs.delete({"keys": [row.key]})
        except NotFound:
            return
        log.info("deleted", extra={"key": entry.key})

    async def _apply(self, entry: Entry, found: Object, wanted: Wanted) -> None:
        now_s = self._state.clock.now_s()
        refusal, again_at_s = await self._applier.apply(entry, found, wanted)
        entry.refusal, entry.tried = refusal, None
        if refusal is not None:
            due_s = now_s + again_at_s if again_at_s is not None else None
            entry.tried = Tried(wanted.origin, wanted.approved, due_s)
            if due_s is not None:
                self._mark(entry.key, due_s)
        row = self._state.store.resources.get(entry.kind.name, entry.at[1], entry.namespace)
        if row is not None:
            entry.store_uid = row.uid
            self._key_of[row.uid] = entry.key

    # -- what is told --------------------------------------------------------------------------

    async def _tell(self, entry: Entry) -> None:
        cached = self.informers[entry.kind.name].objects.get(entry.at)
        found, row = entry.newest(cached), self._row(entry)
        if found is None:
            if row is None:
                self._forget(entry)
            return
        seen = self._seen(row)
        if seen is None and entry.refusal is None:
            return
        if not is_whole(found):
            await self._look(entry)
            found = entry.fresh
            if found is None:
                return
        due_at_s = await self._writer.tell(entry, found, seen)
        if due_at_s is not None:
            self._mark(entry.key, due_at_s)
            return
        over = seen is not None and seen.over and entry.refusal is None
        if over and cached is not None and version_of(cached) == version_of(found):
            let_go(cached)
            entry.fresh = None

    def _seen(self, row: Resource | None) -> View | None:
        if row is None:
            return None
        return view(row, lambda: row.spec)  # type: ignore[arg-type]

    def _row(self, entry: Entry) -> Resource | None:
        """What is stored of it: also one that is being deleted, until nothing of it is left."""
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

    def _forget(self, entry: Entry) -> None:
        self._key_of.pop(entry.store_uid, None)
        self._entries.pop(entry.key, None)
        self._queue.discard(entry.key)
