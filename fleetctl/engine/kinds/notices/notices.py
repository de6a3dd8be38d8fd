"""Who is to be told of what becomes of an object: rows of the outbox, written in the transaction of
the status that they tell of. Called by decide/passes.py; delivery.py sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from fleetctl.controllers.kinds.notices.happened import Happened, happened
from fleetctl.controllers.kinds.notices.message import body_of, id_of
from fleetctl.controllers.kinds.notices.notice import Notice
from fleetctl.controllers.kinds.notices.pace import GIVE_UP_AFTER_S
from fleetctl.controllers.money.budget import selects
from fleetctl.specs.blocks.notify import Notify
from fleetctl.specs.kinds.notifier import NotifierSpec
from fleetctl.specs.kinds.registry import KINDS, parse_spec
from fleetctl.specs.values.hashing import canonical_json

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State
    from fleetctl.tracking.track import Track

NOTIFIER = "Notifier"


class Notices:
    """written: called when rows were written; the transaction may still be undone."""

    def __init__(self, state: State, *, written: Callable[[], None]) -> None:
        self._state, self._written = state, written
        self._uids: dict[str, None] = {}  # of the Notifiers, and of some that are gone

    def load(self) -> None:
        """Which Notifiers there are, once the tracks are there."""
        tracks = self._state.tracks.assets.values()
        self._uids = {it.resource.uid: None for it in tracks if it.resource.kind == NOTIFIER}

    def take(self, uid: str) -> None:
        """A Notifier holds from the tick in which it is heard of."""
        self._uids[uid] = None

    def note(self, track: Track, before: Mapping[str, object], after: Mapping[str, object]) -> None:
        """The status of an object becomes `after`: whoever asked for it is to be told."""
        resource = track.resource
        if resource.deleted_at_s is not None:
            return
        runs = KINDS[resource.kind].runs
        for what in happened(resource.kind, before, after, runs=runs):
            sinks = {
                it
                for rule in self._rules(track)
                if what.event in rule.on
                for it in (_sink_text(resource.namespace, rule),)
            }
            if sinks:
                self._write(track, what, after, sorted(sinks))

    def _rules(self, track: Track) -> Iterator[Notify]:
        """Of the object itself, and of the Notifiers that select it."""
        own: tuple[Notify, ...] = getattr(track.spec, "notify", ())
        if track.resource.kind != NOTIFIER:
            yield from own
        for spec in self._notifiers(track.resource.namespace):
            if selects(spec.selector, track.resource.labels):
                yield from spec.notify

    def _notifiers(self, namespace: str) -> Iterator[NotifierSpec]:
        for uid in self._uids:
            track = self._state.tracks.get(uid)
            if track is None or track.resource.deleted_at_s is not None:
                continue
            if track.resource.namespace != namespace:
                continue
            if track.spec is None:
                try:
                    track.spec = parse_spec(NOTIFIER, track.resource.spec)
                except ValueError:
                    continue  # its pass raises the same, and says so in its status
            assert isinstance(track.spec, NotifierSpec)
            yield track.spec

    def _write(
        self, track: Track, what: Happened, status: Mapping[str, object], sinks: list[str]
    ) -> None:
        state, resource = self._state, track.resource
        now_s = state.clock.now_s()
        id_ = id_of(state.store.store_id, resource, what)
        body = body_of(id_, resource, what.event, status, now_s)
        state.store.notices.add(
            [
                Notice(
                    id=id_,
                    sink=sink,
                    uid=resource.uid,
                    object=resource.key,
                    namespace=resource.namespace,
                    event=what.event,
                    body=body,
                    at_s=now_s,
                    deadline_s=now_s + GIVE_UP_AFTER_S,
                    due_at_s=now_s,
                )
                for sink in sinks
            ]
        )
        self._written()


def _sink_text(namespace: str, rule: Notify) -> str:
    return canonical_json({"namespace": namespace, **rule.sink})
