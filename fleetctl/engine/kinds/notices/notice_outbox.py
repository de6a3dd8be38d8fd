"""Selects the sinks for an object's events: rows of the outbox, written in the transaction of the
status that they report. Called by decide/passes.py; delivery.py sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Self

from fleetctl.controllers.kinds.notices.message import body_of, id_of
from fleetctl.controllers.kinds.notices.notice import Notice
from fleetctl.controllers.kinds.notices.notice_events import NoticeEvent, find_notice_events
from fleetctl.controllers.kinds.notices.sink_pace import GIVE_UP_AFTER_S
from fleetctl.controllers.money.budget import matches_labels
from fleetctl.engine.kinds.notices.delivery import NoticeDelivery
from fleetctl.engine.shared.part import EnginePart, PartWiring
from fleetctl.specs.blocks.notify import Notify
from fleetctl.specs.kinds.notifier import NotifierSpec
from fleetctl.specs.kinds.registry import KINDS, parse_spec
from fleetctl.specs.values.hashing import canonical_json

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import Track

NOTIFIER = "Notifier"


class NoticeOutbox(EnginePart):
    """written: called when rows were written; the transaction may still be undone."""

    kind = NOTIFIER
    applies_at_once = True

    def __init__(self, state: EngineState, *, written: Callable[[], None]) -> None:
        self._state = state
        self._written = written
        self._uids: dict[str, None] = {}  # of the Notifiers, and of some that are gone

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(wiring.state, written=wiring.get(NoticeDelivery).wake)

    def load(self) -> None:
        self._uids = {it.resource.uid: None for it in self._state.tracks.of_kind(NOTIFIER)}

    def take(self, uid: str) -> None:
        self._uids[uid] = None

    def status_written(
        self,
        track: Track,
        before: Mapping[str, object],
        after: Mapping[str, object],
    ) -> None:
        """Queues notices as the status of an object becomes `after`, for each subscriber."""
        resource = track.resource
        if resource.deleted_at_s is not None:
            return
        runs = KINDS[resource.kind].runs
        for what in find_notice_events(resource.kind, before, after, runs=runs):
            sinks = {
                it
                for rule in self._rules(track)
                if what.event in (rule.named_when or ())
                for it in (_sink_text(resource.namespace, rule),)
            }
            if sinks:
                self._write(track, what, after, sorted(sinks))

    def _rules(self, track: Track) -> Iterator[Notify]:
        """Yields the rules of the object itself, and of the Notifiers that select it."""
        own: tuple[Notify, ...] = getattr(track.spec, "notify", ())
        if track.resource.kind != NOTIFIER:
            yield from own
        for spec in self._notifiers(track.resource.namespace):
            if matches_labels(spec.selector, track.resource.labels):
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
                    continue  # its pass raises the same, and reports it in its status
            assert isinstance(track.spec, NotifierSpec)
            yield track.spec

    def _write(
        self,
        track: Track,
        what: NoticeEvent,
        status: Mapping[str, object],
        sinks: list[str],
    ) -> None:
        state = self._state
        resource = track.resource
        now_s = state.clock.now_s()
        id_ = id_of(state.store.store_id, resource, what)
        body = body_of(
            id_,
            resource,
            what.event,
            status,
            now_s,
        )
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
