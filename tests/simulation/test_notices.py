"""Lives of notices drawn from a seed: sinks that fail, hang, and take what they do not confirm;
crashes, downtime and writes that fail. Each end is told, each telling has one id, and bugs that
must be seen are.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fleetctl.controllers.kinds.notices import GIVE_UP_AFTER_S, NoticeMessage, NoticeSink
from fleetctl.engine.kinds import notices as delivery
from fleetctl.engine.kinds.notices import NoticeDelivery, NoticeOutbox
from fleetctl.notices.request import TAKEN, SinkOutcome
from tests.simulation.planted.plant import around
from tests.unit.engine.fake_world import Fleet, tasks

SEEDS = 8
SEEDS_OF_A_PLANT = 30
STEPS = 30
RULE = {"on": ["Succeeded", "Failed"], "webhook": {"url": "http://127.0.0.1:9/hook"}}
OVER = ("Succeeded", "Failed")


@dataclass(slots=True)
class Model:
    """A sink. heard: id of a notice -> the messages in which it came."""

    rng: random.Random
    heard: dict[str, set[str]] = field(default_factory=dict)
    said: set[tuple[str, str]] = field(default_factory=set)  # (object, event)
    well: bool = False
    hangs: list[asyncio.Future[None]] = field(default_factory=list)

    async def send(
        self, sink: NoticeSink, values: Mapping[str, str], message: NoticeMessage, *, now_s: float
    ) -> SinkOutcome:
        fault = "" if self.well else self.rng.choice(("", "", "fails", "lost", "hangs", "busy"))
        if fault not in ("fails", "busy"):
            for body in message.bodies:
                self.heard.setdefault(body["id"], set()).add(message.id)
                self.said.add((body["name"], body["event"]))
        if fault == "hangs":
            self.hangs.append(asyncio.get_running_loop().create_future())
            await self.hangs[-1]
        if fault == "busy":
            return SinkOutcome("it answers 429", retry_after_s=self.rng.choice((30.0, 1000.0)))
        return SinkOutcome("no answer") if fault else TAKEN

    def let_go(self) -> None:
        """What hangs comes to its deadline."""
        for one in self.hangs:
            if not one.done():
                one.set_result(None)
        self.hangs.clear()


@dataclass(slots=True)
class Life:
    world: Fleet
    sink: Model
    rng: random.Random
    jobs: int = 0
    broken: list[str] = field(default_factory=list)

    async def live(self) -> None:
        for _ in range(STEPS):
            act = self.rng.choice(self._acts())
            await act()
            self._look()
        await self._come_to_rest()

    def _acts(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        often = (self._begin, self._end, self._end, self._pass_time, self._pass_time)
        return (*often, self._crash, self._be_away, self._fail_writes, self._let_go)

    async def _begin(self) -> None:
        for _ in range(self.rng.choice((1, 2, 15))):
            self.jobs += 1
            spec = tasks(1, notify=[RULE], cache={"policy": "Never"})
            await self.world.apply("BatchJob", f"j{self.jobs}", spec)

    async def _end(self) -> None:
        for key in self._working():
            if self.rng.random() < 0.7:
                self.world.local.finish(0, of=key, ok=self.rng.random() < 0.6)
        # A crash may come before anything is sent.
        await (self._crash() if self.rng.random() < 0.2 else self.world.settle())

    def _working(self) -> list[str]:
        orders, boxes = self.world.local.orders, self.world.local.boxes.values()
        return [orders[box.working].resource for box in boxes if box.working]

    async def _pass_time(self) -> None:
        await self.world.later(self.rng.choice((1.0, 10.0, 120.0, 1800.0)))

    async def _let_go(self) -> None:
        self.sink.let_go()
        await self.world.settle()

    async def _crash(self) -> None:
        await self.world.crash()
        await self.world.settle()

    async def _be_away(self) -> None:
        await self.world.crash()
        await self.world.later(self.rng.choice((600.0, 7200.0)))

    async def _fail_writes(self) -> None:
        self.world.fail_commits = self.rng.choice((1, 3))
        await self._end()
        await self.world.later(120.0)
        self.world.fail_commits = 0

    def _look(self) -> None:
        over = self._over()
        for name, event in self.sink.said:
            if over.get(name) != event:
                self.broken.append(f"{name} is said to be {event}, and is {over.get(name)}")
        for id_, messages in self.sink.heard.items():
            if len(messages) != 1:
                self.broken.append(f"{id_} came as {len(messages)} messages")
        for id_, state, _ in self._rows():
            if state == "Delivered" and id_ not in self.sink.heard:
                self.broken.append(f"{id_} is called delivered, and nobody has heard it")

    def _over(self) -> dict[str, str]:
        rows = self.world.store.resources.list()
        phases = {it.name: str(json.loads(it.status or "{}").get("phase")) for it in rows}
        return {name: phase for name, phase in phases.items() if phase in OVER}

    def _rows(self) -> list[tuple[str, str, float]]:
        query = "SELECT id, state, at_s FROM notices"
        return self.world.database.state.execute(query).fetchall()

    async def _come_to_rest(self) -> None:
        """The sink is well, and whatever was written is heard, unless a day has passed."""
        self.sink.well = True
        for _ in range(8):
            self.sink.let_go()
            for key in self._working():
                self.world.local.finish(0, of=key)
            await self.world.later(1000.0)
            self._look()
        now_s = self.world.clock.time_s
        for id_, state, at_s in self._rows():
            late = state == "Undelivered" and now_s - at_s >= GIVE_UP_AFTER_S
            if state != "Delivered" and not late:
                self.broken.append(f"{id_} is {state}")
        told, over = len(self._rows()), self._over()
        if told != len(over) or told != len({id_ for id_, _, _ in self._rows()}):
            self.broken.append(f"{told} notices of {len(over)} ends")


def wrong(seed: int) -> list[str]:
    """What is not as it should be in one life."""

    async def play() -> list[str]:
        rng = random.Random(f"notices {seed}")
        sink = Model(rng)
        async with Fleet(send=sink.send) as world:
            life = Life(world, sink, rng)
            await life.live()
            return life.broken

    return asyncio.run(play())


def test_each_end_is_told_under_one_id_and_called_delivered_when_it_is() -> None:
    assert [(seed, found) for seed in range(SEEDS) if (found := wrong(seed))] == []


Plant = AbstractContextManager[object]


def an_id_is_new_in_each_try() -> Plant:
    """As one that is drawn when a message is put together."""
    drawn = iter(range(10**9))

    def make(original: Callable[..., NoticeMessage]) -> Callable[..., NoticeMessage]:
        return lambda notices: replace(original(notices), id=f"msg_{next(drawn)}")

    return around(delivery, "message_of", make)


def delivered_before_the_answer() -> Plant:
    """Written down first, so that nothing is sent twice."""

    def make(
        original: Callable[..., Awaitable[SinkOutcome]],
    ) -> Callable[..., Awaitable[SinkOutcome]]:
        async def patched(
            self: NoticeDelivery, sink: NoticeSink, message: NoticeMessage
        ) -> SinkOutcome:
            ids = {body["id"] for body in message.bodies}
            sent = [it for it in self._waiting.values() if it.id in ids]
            self._heard(sent, delivery.SinkPace(0.0), message.id, TAKEN)
            return await original(self, sink, message)

        return patched

    return around(NoticeDelivery, "_deliver_once", make)


@contextmanager
def written_after_the_change() -> Iterator[None]:
    """The outbox gets its row with the next change, in a transaction of that."""
    late: dict[int, list[tuple[Any, ...]]] = {}

    def make(original: Callable[..., None]) -> Callable[..., None]:
        def patched(self: NoticeOutbox, *what: Any) -> None:
            for earlier in late.pop(id(self), []):
                original(self, *earlier)
            late.setdefault(id(self), []).append(what)

        return patched

    with around(NoticeOutbox, "_write", make):
        yield


def together_under_an_id_that_nobody_keeps() -> Plant:
    """Which notices go together is found out anew in each try."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda due, room: original([replace(it, message="") for it in due], room)

    return around(delivery, "_choose_message", make)


@pytest.mark.parametrize(
    "plant",
    [
        an_id_is_new_in_each_try,
        delivered_before_the_answer,
        written_after_the_change,
        together_under_an_id_that_nobody_keeps,
    ],
)
def test_planted_bugs_are_seen(plant: Callable[[], Plant]) -> None:
    with plant():
        assert any(wrong(seed) for seed in range(SEEDS_OF_A_PLANT))
