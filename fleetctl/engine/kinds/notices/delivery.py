"""Sends what waits in the outbox. A helper of the engine's, beside its ticks: it sends nothing that
is not durable, and calls nothing delivered before its sink says so.

A crash between the sink's answer and the row that tells of it repeats the message, under its id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from fleetctl.common.errors import StoreError, Unavailable
from fleetctl.common.tasks import cancel
from fleetctl.controllers.kinds.notices.message import Message, message_of
from fleetctl.controllers.kinds.notices.notice import Notice, NoticeState, Sink, sink_of
from fleetctl.controllers.kinds.notices.pace import IN_A_MESSAGE_MAX, Pace, retry_after_s
from fleetctl.engine.execute.secrets import Found
from fleetctl.engine.shared.boundary import reported
from fleetctl.notices.outcome import Outcome
from fleetctl.stores.base import EventRow

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State

log = logging.getLogger("fleetctl.engine")

IN_MEMORY_MAX = 10_000  # 1 KB each; those beyond wait in the store
AT_ONCE_MAX = 8  # sinks that are told at the same time, each in a thread
BEAT_S = 60.0  # a clock that is moved is noticed within this
Secrets = Callable[[tuple[str, ...], str], Found]  # of names in a namespace
GONE_AFTER = 2  # answers that say so, one after the other: an odd one decides nothing


class Send(Protocol):
    def __call__(
        self, sink: Sink, values: Mapping[str, str], message: Message, *, now_s: float
    ) -> Awaitable[Outcome]: ...


class Delivery:
    """send: None = this engine tells nobody; what is written waits for one that does."""

    def __init__(self, state: State, *, secrets: Secrets, send: Send | None) -> None:
        self._state, self._secrets, self._send = state, secrets, send
        self._waiting: dict[int, Notice] = {}
        self._seen = 0  # the highest number that was read
        self._paces: dict[str, Pace] = {}
        self._gone: dict[str, int] = {}  # message -> answers that its sink takes no more
        self._sending: dict[str, asyncio.Future[None]] = {}  # by sink
        self._wake = asyncio.Event()

    @property
    def waits(self) -> bool:
        """Whether anything is to be told yet."""
        return self._send is not None and bool(self._waiting)

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Until it is cancelled."""
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
            await cancel(sending)

    def _read(self) -> None:
        """What was committed since. What a tick wrote and lost again is not there."""
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
        """Send what is due. When there is more to do."""
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
            pace = self._paces.setdefault(sink, Pace(now_s))
            due = [it for it in notices if it.due_at_s <= now_s]
            room = pace.room(now_s)
            if due and room and len(self._sending) >= AT_ONCE_MAX:
                continue  # the end of another one wakes this
            if due and room:
                self._sending[sink] = asyncio.ensure_future(
                    reported(self._tell(sink, _together(due, room), pace), what="notice")
                )
            elif due:
                next_s = min(next_s, pace.ready_at_s(now_s))
            else:
                next_s = min(next_s, *(it.due_at_s for it in notices))
        return next_s

    async def _tell(self, sink: str, notices: Sequence[Notice], pace: Pace) -> None:
        try:
            message = message_of(notices)
            if any(it.message != message.id for it in notices):
                # What goes together, and under which id, is durable before anybody hears it.
                notices = [replace(it, message=message.id) for it in notices]
                if not self._write(notices):
                    return
            pace.take()
            outcome = await self._once(sink_of(sink), message)
            self._heard(notices, pace, message.id, outcome)
        finally:
            self._sending.pop(sink, None)
            self._wake.set()

    async def _once(self, sink: Sink, message: Message) -> Outcome:
        values: Mapping[str, str] = {}
        try:
            if sink.secret:
                values = self._secrets((sink.secret,), sink.namespace).values
        except Unavailable as error:
            return Outcome(str(error))
        assert self._send is not None
        return await self._send(sink, values, message, now_s=self._state.clock.now_s())

    def _heard(self, notices: Sequence[Notice], pace: Pace, message: str, outcome: Outcome) -> None:
        now_s = self._state.clock.now_s()
        notices = [replace(it, tries=it.tries + 1) for it in notices]
        if not outcome.problem:
            pace.delivered()
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

    def _end(self, notices: Sequence[Notice], state: NoticeState, problem: str) -> None:
        now_s = self._state.clock.now_s()
        ended = [
            replace(it, state=state, ended_at_s=now_s, problem=problem or it.problem)
            for it in notices
        ]
        told = () if state is NoticeState.DELIVERED else [_given_up(it) for it in ended]
        if not self._write(ended, told):
            return
        for notice in ended:
            self._waiting.pop(notice.number, None)

    def _write(self, notices: Sequence[Notice], events: Sequence[EventRow] = ()) -> bool:
        """False: the store refuses. They are tried again a little later, under the same ids."""
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


def _given_up(notice: Notice) -> EventRow:
    why = notice.problem or "no controller was there to send it"
    text = f"{notice.event} was not told by {sink_of(notice.sink).title}: {why}"
    return EventRow(notice.uid, notice.ended_at_s or 0.0, "Warning", "NoticeUndelivered", text)


def _together(due: Sequence[Notice], room: int) -> list[Notice]:
    """What goes next to one sink: a message that was begun as it is, then each alone while there is
    room for all, and else all in one.
    """
    first = min(due, key=lambda it: (it.tries, it.number))
    if first.message:
        return [it for it in due if it.message == first.message]
    fresh = [it for it in due if not it.message]
    return [first] if len(fresh) <= room else fresh[:IN_A_MESSAGE_MAX]
