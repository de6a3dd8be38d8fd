"""Selects the sinks for an object's events, as rows of the outbox in the transaction of the event,
and sends waiting rows beside the ticks of the engine.

Only durable notices are sent, and a notice is marked as delivered only when its sink confirms. A
crash between the sink's reply and the row that records it repeats the message, under its id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, Self

from fleetctl.common.errors import StoreError, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.controllers.budget import matches_labels
from fleetctl.controllers.kinds.notices import (
    GIVE_UP_AFTER_S,
    IN_A_MESSAGE_MAX,
    Notice,
    NoticeEvent,
    NoticeMessage,
    NoticeSink,
    NoticeState,
    SinkPace,
    body_of,
    find_notice_events,
    id_of,
    message_of,
    retry_after_s,
    sink_of,
)
from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.engine.shared.boundary import run_reported
from fleetctl.engine.shared.part import EnginePart, Helper, PartWiring
from fleetctl.notices.request import SinkOutcome
from fleetctl.specs.blocks.notify import Notify
from fleetctl.specs.kinds.notifier import NotifierSpec
from fleetctl.specs.kinds.registry import KINDS, parse_spec
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.stores.base import EventRow

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import Track


NOTIFIER = "Notifier"

log = logging.getLogger("fleetctl.engine")

IN_MEMORY_MAX = 10_000  # 1 KB each; those beyond wait in the store
AT_ONCE_MAX = 8  # sinks that are sent to at the same time, each in a thread
BEAT_S = 60.0  # a clock that is moved is noticed within this
Secrets = Callable[[tuple[str, ...], str], ResolvedSecrets]  # of names in a namespace
GONE_AFTER = 2  # consecutive replies with this result: a single one is not enough


class NoticeOutbox(EnginePart):
    """written: called when rows were written; the transaction may still be undone."""

    kind = NOTIFIER
    applies_at_once = True
    rests = True
    field = "notify"

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


class SendNotice(Protocol):
    def __call__(
        self,
        sink: NoticeSink,
        values: Mapping[str, str],
        message: NoticeMessage,
        *,
        now_s: float,
    ) -> Awaitable[SinkOutcome]: ...


class NoticeDelivery(EnginePart):
    """send: None = this engine sends no notices; written ones wait for an engine that does."""

    def __init__(
        self,
        state: EngineState,
        *,
        secrets: Secrets,
        send: SendNotice | None,
    ) -> None:
        self._state, self._secrets, self._send = state, secrets, send
        self._waiting: dict[int, Notice] = {}
        self._seen = 0  # the highest number that was read
        self._paces: dict[str, SinkPace] = {}
        self._gone: dict[str, int] = {}  # message -> replies that its sink takes no more
        self._sending: dict[str, asyncio.Future[None]] = {}  # by sink
        self._wake = asyncio.Event()

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(wiring.state, secrets=wiring.secrets, send=wiring.services.send)

    def list_helpers(self) -> tuple[Helper, ...]:
        return (self.run,)

    def is_idle(self) -> bool:
        """Returns whether every notice is sent."""
        return self._send is None or not self._waiting

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        if self._send is None:
            return
        self._waiting.clear()
        self._seen = 0
        try:
            while True:
                self._wake.clear()
                self._read()
                self._give_up()
                at_s = self._start()
                wait_s = min(max(at_s - self._state.clock.now_s(), 0.0), BEAT_S)
                try:
                    # `wait_for` of Python 3.11 loses a cancellation that comes with the event.
                    async with asyncio.timeout(wait_s):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        finally:
            sending = list(self._sending.values())
            self._sending.clear()
            for task in sending:
                task.cancel()
            await cancel_tasks(sending)

    def _read(self) -> None:
        """Reads the committed notices. A notice of a tick that was rolled back is not among
        them.
        """
        room = IN_MEMORY_MAX - len(self._waiting)
        for notice in self._state.store.notices.waiting(after=self._seen, count_max=room):
            self._waiting[notice.number] = notice
            self._seen = notice.number

    def _give_up(self) -> None:
        now_s = self._state.clock.now_s()
        late = [
            it
            for it in self._waiting.values()
            if now_s >= it.deadline_s and it.sink not in self._sending
        ]
        if late:
            self._end(late, NoticeState.UNDELIVERED, "")

    def _start(self) -> float:
        """Sends due notices. Returns when the next is due."""
        now_s = self._state.clock.now_s()
        by_sink: dict[str, list[Notice]] = {}
        for notice in self._waiting.values():
            by_sink.setdefault(notice.sink, []).append(notice)
        for known in self._paces.keys() - by_sink.keys():
            if self._paces[known].idle(now_s):
                del self._paces[known]
        next_s = now_s + BEAT_S
        for sink, notices in by_sink.items():
            if sink in self._sending:
                continue  # its end wakes this
            pace = self._paces.setdefault(sink, SinkPace(now_s))
            due = [it for it in notices if it.due_at_s <= now_s]
            room = pace.room(now_s)
            if due and room and len(self._sending) >= AT_ONCE_MAX:
                continue  # the end of another one wakes this
            if due and room:
                self._sending[sink] = asyncio.ensure_future(
                    run_reported(
                        self._deliver_message(sink, _choose_message(due, room), pace),
                        what="notice",
                    )
                )
            elif due:
                next_s = min(next_s, pace.ready_at_s(now_s))
            else:
                next_s = min(next_s, *(it.due_at_s for it in notices))
        return next_s

    async def _deliver_message(
        self,
        sink: str,
        notices: Sequence[Notice],
        pace: SinkPace,
    ) -> None:
        try:
            message = message_of(notices)
            if any(it.message != message.id for it in notices):
                # The grouping, and its id, is durable before any sink receives it.
                notices = [replace(it, message=message.id) for it in notices]
                if not self._write(notices):
                    return
            pace.take()
            outcome = await self._deliver_once(sink_of(sink), message)
            self._record_outcome(notices, pace, message.id, outcome)
        finally:
            self._sending.pop(sink, None)
            self._wake.set()

    async def _deliver_once(self, sink: NoticeSink, message: NoticeMessage) -> SinkOutcome:
        values: Mapping[str, str] = {}
        try:
            if sink.secret:
                values = self._secrets((sink.secret,), sink.namespace).values
        except Unavailable as error:
            return SinkOutcome(str(error))
        assert self._send is not None
        return await self._send(sink, values, message, now_s=self._state.clock.now_s())

    def _record_outcome(
        self,
        notices: Sequence[Notice],
        pace: SinkPace,
        message: str,
        outcome: SinkOutcome,
    ) -> None:
        now_s = self._state.clock.now_s()
        notices = [replace(it, tries=it.tries + 1) for it in notices]
        if not outcome.problem:
            pace.reset_failures()
            self._gone.pop(message, None)
            self._end(notices, NoticeState.DELIVERED, outcome.remark)
            return
        chance = self._state.random.random()
        pace.failed(now_s, asked_s=outcome.retry_after_s, chance=chance)
        self._gone[message] = self._gone.get(message, 0) + 1 if outcome.gone else 0
        if self._gone[message] >= GONE_AFTER:
            del self._gone[message]
            self._end(notices, NoticeState.UNDELIVERED, outcome.problem)
            return
        due_s = now_s + retry_after_s(
            notices[0].tries, asked_s=outcome.retry_after_s, chance=chance
        )
        self._write([replace(it, due_at_s=due_s, problem=outcome.problem) for it in notices])

    def _end(
        self,
        notices: Sequence[Notice],
        state: NoticeState,
        problem: str,
    ) -> None:
        now_s = self._state.clock.now_s()
        ended = [
            replace(
                it,
                state=state,
                ended_at_s=now_s,
                problem=problem or it.problem,
            )
            for it in notices
        ]
        told = () if state is NoticeState.DELIVERED else [_record_given_up(it) for it in ended]
        if not self._write(ended, told):
            return
        for notice in ended:
            self._waiting.pop(notice.number, None)

    def _write(self, notices: Sequence[Notice], events: Sequence[EventRow] = ()) -> bool:
        """Writes notices and events. False: the store refuses. They are tried again a little later,
        under the same ids.
        """
        store = self._state.store
        try:
            with store.transaction():
                store.notices.advance(notices)
                if events:
                    store.events.record(events)
        except StoreError as error:
            log.warning("notices wait for the store", extra={"error": str(error)})
            if error.final:
                raise
            again_s = self._state.clock.now_s() + BEAT_S
            notices = [replace(self._waiting[it.number], due_at_s=again_s) for it in notices]
            self._waiting.update({it.number: it for it in notices})
            return False
        self._waiting.update({it.number: it for it in notices})
        return True


def _record_given_up(notice: Notice) -> EventRow:
    why = notice.problem or "no controller was there to send it"
    text = f"{notice.event} was not sent by {sink_of(notice.sink).title}: {why}"
    return EventRow(
        notice.uid,
        notice.ended_at_s or 0.0,
        "Warning",
        "NoticeUndelivered",
        text,
    )


def _choose_message(due: Sequence[Notice], room: int) -> list[Notice]:
    """Chooses the next notices for one sink: a message that was begun as it is, then each alone
    while there are tokens for all, and else all in one.
    """
    first = min(due, key=lambda it: (it.tries, it.number))
    if first.message:
        return [it for it in due if it.message == first.message]
    fresh = [it for it in due if not it.message]
    if len(fresh) <= room:
        return [first]
    return fresh[:IN_A_MESSAGE_MAX]
