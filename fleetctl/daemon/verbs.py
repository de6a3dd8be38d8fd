"""Handles requests on stored objects: delete, suspend, resume, retry, adopt.

Called by the socket server. apply/write/commit.py writes the changes, apply/write/requeue.py a
retry, adopt.py an adoption; this module calls them, schedules a pass of the object, and makes the
reply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from secrets import token_hex
from typing import TYPE_CHECKING

from fleetctl.apply.ownership import refuse_kept
from fleetctl.apply.request import (
    Reply,
    Request,
    keys_in,
    list_in,
    orphan_of,
    ranges_of,
    traceparent_in,
)
from fleetctl.apply.write import commit
from fleetctl.apply.write.requeue import RetryChoice, requeue_units
from fleetctl.apply.write.scheduled import ScheduleMaker, by_hand
from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.controllers.depends.dependency_status import AWAITS, MISSING
from fleetctl.controllers.trials.prior import AWAITS_PRIOR
from fleetctl.controllers.trials.winner import AWAITS_BEST
from fleetctl.daemon.adopt import OrphanAdopter
from fleetctl.engine.capacity.price_book import asset_provider
from fleetctl.engine.kinds.traces import RunTraces
from fleetctl.engine.shared.due_queue import Key, key_of
from fleetctl.manifest.files.patience import call_in_file_thread
from fleetctl.specs.kinds.registry import KINDS, parse_spec
from fleetctl.specs.values.namespaces import object_key
from fleetctl.tracking.annotations import ORIGIN, SCHEDULED_BY
from fleetctl.tracking.manifest_sources import source_of

if TYPE_CHECKING:
    from fleetctl.controllers.model import Resource
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import Track


# Reasons of objects that have not begun for want of another one.
_WAITS = (AWAITS, MISSING, AWAITS_BEST, AWAITS_PRIOR, "Suspended")
WAITING_TOLD_MAX = 5


class RequestVerbs:
    """The verbs. adopter: None = no sandbox can be adopted. traces: None = no retry is traced."""

    def __init__(
        self,
        state: EngineState,
        adopter: OrphanAdopter | None = None,
        *,
        traces: RunTraces | None = None,
    ) -> None:
        self._state = state
        self._adopter = adopter
        self._traces = RunTraces(state, sink=None) if traces is None else traces

    async def delete(self, request: Request) -> Reply:
        results = []
        keys = keys_in(request)
        store = self._state.store
        refused: list[Reply] = []
        if request.get("each"):
            keys, refused = self._allowed(keys, override=bool(request.get("override")))
        else:  # all are there, or none is deleted
            rows = [commit.find_object(store, *wanted) for wanted in keys]
            if not request.get("override"):
                refuse_kept(rows)
        waiting = {wanted: self.describe_waiting(wanted, keys) for wanted in keys}
        orphans = request.get("cascade") == "orphan"
        now_s = self._state.clock.now_s()
        uids = commit.delete_objects(store, keys, now_s, orphans=orphans)
        for wanted, uid in zip(keys, uids, strict=True):
            self._state.poke(uid)
            key, message = object_key(*wanted), waiting[wanted]
            results.append({"key": key, "outcome": "deleted", "message": message, "uid": uid})
        return {"ok": True, "results": [*results, *refused]}

    def _allowed(self, keys: Sequence[Key], *, override: bool) -> tuple[list[Key], list[Reply]]:
        """Returns the keys that a user may change or delete, and an entry for each other."""
        found: list[Key] = []
        refused: list[Reply] = []
        for wanted in keys:
            try:
                row = commit.find_object(self._state.store, *wanted)
                if not override:
                    refuse_kept([row])
            except (NotFound, Refused) as error:
                refused.append(
                    {
                        "key": object_key(*wanted),
                        "outcome": "refused" if isinstance(error, Refused) else "missing",
                        "message": str(error),
                        "hint": error.hint,
                    }
                )
            else:
                found.append(wanted)
        return found, refused

    def describe_waiting(self, wanted: Key, leaving: Sequence[Key]) -> str:
        """Returns a sentence on the objects that wait for this one and stay; empty for none."""
        return _describe_waiting(self._list_waiting(wanted, leaving))

    def _list_waiting(self, wanted: Key, leaving: Sequence[Key]) -> list[str]:
        """Returns keys of the objects that wait for this one and stay."""
        tracks = (self._state.tracks.get(uid) for uid in self._state.dependents.of(wanted))
        return sorted(
            it.resource.key
            for it in tracks
            if it is not None
            and not it.dormant
            and it.resource.deleted_at_s is None
            and key_of(it.resource) not in leaving
            and it.status.get("reason") in _WAITS
        )

    async def create(self, request: Request) -> Reply:
        """Makes an object of a schedule by hand, now; the schedule itself stays as it is."""
        ((word, name, namespace),) = keys_in({"keys": [request.get("from")]})
        state = self._state
        now_s = state.clock.now_s()
        schedule = commit.find_object(state.store, word, name, namespace)
        kind = str(request.get("kind") or "")
        named = str(request.get("name") or "")
        wanted = by_hand(schedule, kind, named)

        maker = ScheduleMaker(state.store, state.providers, state.sources)
        looked = None
        if maker.asks(wanted):
            looked = await maker.look(wanted)
        with state.store.transaction():
            made = maker.make(wanted, looked, now_s)
        state.poke(made.uid)

        created = {"key": made.key, "outcome": "created", "message": ""}
        return {"ok": True, "results": [created]}

    async def abandon(self, request: Request) -> Reply:
        """Removes deleted objects at once, without waiting for the end of their parts. Reports the
        parts that may be left, which end as soon as their provider is reachable.
        """
        results = []
        wanted = set(map(str, list_in(request, "uids")))
        rows = self._state.store.resources.list()
        gone = {it.uid for it in rows if it.uid in wanted and it.deleted_at_s is not None}
        for row in rows:
            uid, track = row.uid, self._state.tracks.get(row.uid)
            # An object of a schedule is deleted with it, and its own pass has yet to mark it.
            if uid not in gone and row.annotations.get(SCHEDULED_BY) not in gone:
                continue
            left = list(_list_leftovers(track)) if track is not None else []
            results.append({"key": row.key, "left": left})
            self._state.abandoned.add(uid)
            self._state.poke(uid)
        return {"ok": True, "results": results}

    async def reconcile(self, request: Request) -> Reply:
        """Makes Sources read their repositories now; their statuses show when that is done."""
        results = []
        keys = keys_in(request)
        for kind, name, namespace in keys:
            if kind != "Source":
                raise UsageError(f"{object_key(kind, name, namespace)} is not a Source")
            commit.find_object(self._state.store, kind, name, namespace)
        for _, name, namespace in keys:
            asked = token_hex(6)
            yes = request.get("yes") is True
            seen = str(request.get("revision") or "")
            store = self._state.store
            row = commit.request_reconcile(
                store,
                name,
                asked,
                approved=yes,
                seen=seen,
                namespace=namespace,
            )
            self._state.poke(row.uid)
            results.append({"key": row.key, "request": asked})
        return {"ok": True, "results": results}

    async def suspend(self, request: Request) -> Reply:
        return self._set_suspend(request, wanted=True)

    async def resume(self, request: Request) -> Reply:
        return self._set_suspend(request, wanted=False)

    def _set_suspend(self, request: Request, *, wanted: bool) -> Reply:
        state = self._state
        results = []
        word = "suspended" if wanted else "resumed"
        keys = keys_in(request)
        override = bool(request.get("override"))
        refused: list[Reply] = []
        if request.get("each"):
            keys, refused = self._allowed(keys, override=override)
        elif not override:
            refuse_kept(commit.find_object(state.store, *it) for it in keys)
        for kind, name, namespace in keys:
            changed = commit.suspend_object(
                state.store,
                kind,
                name,
                state.clock.now_s(),
                wanted=wanted,
                namespace=namespace,
            )
            outcome = word if changed else "unchanged"
            key = object_key(kind, name, namespace)
            results.append({"key": key, "outcome": outcome, "message": ""})
        state.inbox.wake()
        return {"ok": True, "results": [*results, *refused]}

    async def retry(self, request: Request) -> Reply:
        which = request.get("which")
        if which not in ("failed", "index", "from", "all", "rerun"):
            raise UsageError("a retry needs `which`: failed, index, from, all or rerun")
        trace = self._traces.begin_apply(traceparent_in(request), self._state.clock.now_s())
        choice = RetryChoice(
            which,
            ranges_of(list_in(request, "indexes")) if "indexes" in request else (),
            str(request.get("request") or ""),
            names=tuple(map(str, list_in(request, "names"))) if "names" in request else (),
            only=request.get("only") is True,
            approved=request.get("yes") is True,
            traceparent="" if trace is None else trace.context.header,
        )
        results = []
        changed: list[tuple[Resource | None, Resource]] = []
        resources = self._state.store.resources
        for kind, name, namespace in keys_in(request):
            now_s = self._state.clock.now_s()
            before = resources.get(kind, name, namespace)
            done = requeue_units(
                self._state.store,
                kind,
                name,
                choice,
                now_s,
                namespace=namespace,
            )
            results.append(
                {
                    "key": done.key,
                    "units": done.units,
                    "live": done.live,
                    "unit": KINDS[kind].unit,
                    "sourceMoved": await self._source_moved(kind, name, namespace),
                }
            )
            after = resources.get(kind, name, namespace)
            if before is not None and after is not None and after.version != before.version:
                changed.append((before, after))
        self._traces.record_apply(trace, "retry", changed)
        self._state.inbox.wake()
        return {"ok": True, "results": results}

    async def _source_moved(
        self,
        kind: str,
        name: str,
        namespace: str,
    ) -> str:
        """Returns how the directory of its source differs by now from the copy that it runs;
        otherwise empty."""
        row = self._state.store.resources.get(kind, name, namespace)
        sources = self._state.sources
        if row is None or sources is None or ORIGIN not in row.annotations:
            return ""
        try:
            source = source_of(parse_spec(kind, row.spec))
        except ValueError:
            return ""  # a newer fleetctl wrote it; its source may have another format
        return await call_in_file_thread(sources.describe_drift, source, row.annotations)

    async def adopt(self, request: Request) -> Reply:
        if self._adopter is None:
            raise UsageError("this controller adopts nothing")
        orphans = [orphan_of(item) for item in list_in(request, "sandboxes")]
        done = await self._adopter.adopt(orphans, str(request.get("into") or ""))
        results = [
            {
                "run": it.orphan.run,
                "key": it.key,
                "index": it.index,
                "made": it.made,
                "why": it.why,
                "hint": it.hint,
            }
            for it in done
        ]
        return {"ok": True, "results": results}


def _list_leftovers(track: Track) -> Iterator[str]:
    """Yields the parts that may be left when the verb does not wait for their end, as sentences."""
    if KINDS[track.resource.kind].starts:
        return
    if track.work is None:
        yield f"{track.resource.key} at provider `{asset_provider(track.resource)}`"
        return
    for box in track.work.history.sandboxes.values():
        call = track.calls.get(box.last.name)
        if call is None or not call.nothing_made or box.last.handle:
            yield f"sandbox `{box.last.handle or box.name}` at provider `{box.provider}`"


def _describe_waiting(keys: Sequence[str]) -> str:
    if not keys:
        return ""
    more = len(keys) - WAITING_TOLD_MAX
    told = ", ".join(keys[:WAITING_TOLD_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"{told} {'waits' if len(keys) == 1 else 'wait'} for it until it is applied again"
