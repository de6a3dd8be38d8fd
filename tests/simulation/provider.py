"""The Backend that a simulated engine sees. Each incarnation of the controller has its own; all
share one World.

Every call passes the points at which the incarnation may die, waits its latency, draws its faults
from the model's odds, and asks the world. What it asks for happens even if nobody waits for the
answer any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import Observation
from fleetctl.providers.contract.base import (
    FunctionAsset,
    LogChunk,
    Notify,
    Owned,
    RunRef,
    RunRequest,
)
from fleetctl.specs.blocks.template import Template
from tests.simulation import gpus
from tests.simulation.faults import Life
from tests.simulation.loop import SimClock
from tests.simulation.models import Model
from tests.simulation.observing import observe_run
from tests.simulation.politeness import Politeness
from tests.simulation.world import Box, World

UNKNOWN_RUN = "a-run-that-nobody-knows"


class SimProvider:
    """Acts out one Model for one incarnation."""

    def __init__(
        self,
        model: Model,
        world: World,
        life: Life,
        *,
        store_id: str,
        notify: Notify,
        politeness: Politeness,
    ) -> None:
        self.contract = model.contract
        self.clock = SimClock(world.timeline)
        self._model = model
        self._world = world
        self._life = life
        self._store_id = store_id
        self._notify = notify
        self._politeness = politeness

    # ---- runs

    async def start(self, order: RunRequest) -> str:
        if order.sandbox == order.run and not order.handle:
            self._politeness.creates(self._model, now_s=self._world.timeline.now_s)
        asked_at_s = self._world.now_s
        with self._call("start", order.run):
            await self._before("start")
            if "REFUSE" in order.template.env:
                raise Refused(
                    f"template of `{order.run}` asks for what `{self._model.name}` does not have"
                )
            self._world.mutations += 1
            answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._world.ask_start(
                self._model, order, asked_at_s, lambda answer: _tell(self._life, answered, answer)
            )
            self._life.point("effect", f"start asked {order.run}")
            handle = await answered
            self._life.point("effect", f"start done {order.run}")
            await self._after()
            return handle

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        with self._call("observe", ""):
            await self._before("observe")
            found = [observe_run(self._model, self._world, ref) for ref in runs]
            odds = self._model.odds.partial_answer
            answer = [seen for seen in found if seen and not self._world.chance(odds)]
            await self._after()
            return answer

    async def stop(self, ref: RunRef, *, grace_s: float) -> None:
        with self._call("stop", ref.run):
            await self._before("stop")
            if self._world.chance(self._model.odds.stop_refused):
                raise ConnectionError("the sandbox cannot be stopped in its present state")
            self._world.mutations += 1
            self._world.on_stop(ref)
            if not self._world.chance(self._model.odds.stop_ignored):
                self._world.ask_stop(self._model, ref.sandbox)
            self._life.point("effect", f"stop asked {ref.run}")
            await self._after()

    async def owned(self) -> Sequence[Owned]:
        with self._call("owned", ""):
            await self._before("owned")
            answer = [
                Owned(box.sandbox, box.handle, box.created_at_s)
                for box in self._world.boxes
                if box.owner == self._store_id and box.model is self._model and self._listed(box)
            ]
            await self._after()
            return answer

    async def logs(
        self, ref: RunRef, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[LogChunk]:
        yield LogChunk(b"", offset, eof=True)

    # ---- assets

    async def ensure_volume(self, name: str) -> None:
        with self._call("ensure_volume", name):
            await self._before("ensure_volume")
            self._world.mutations += 1
            self._world.volumes[self._model.name].add(name)
            self._world.effect(f"volume {name}")
            self._life.point("effect", f"volume {name}")
            await self._after()

    async def remove_volume(self, name: str) -> None:
        with self._call("remove_volume", name):
            await self._before("remove_volume")
            self._world.mutations += 1
            self._world.volumes[self._model.name].discard(name)
            self._world.removed.append((self._model.name, name))
            self._world.effect(f"no volume {name}")
            self._life.point("effect", f"no volume {name}")
            await self._after()

    async def ensure_function(self, asset: FunctionAsset) -> None:
        await self._of_function("ensure_function", asset.order.name)

    async def remove_function(self, name: str) -> None:
        await self._of_function("remove_function", name)

    async def _of_function(self, verb: str, name: str) -> None:
        with self._call(verb, name):
            await self._before(verb)
            self._world.mutations += 1
            self._life.point("effect", f"{verb} {name}")
            await self._after()

    async def remove_scratch(self, uid: str, *, keep_logs: bool) -> None:
        with self._call("remove_scratch", uid):
            await self._before("remove_scratch")
            self._world.mutations += 1
            self._world.scratch[self._model.name].discard(uid)
            self._world.effect(f"no scratch {uid}")
            self._life.point("effect", f"no scratch {uid}")
            await self._after()

    def revision(self, uid: str, template: Template, template_hash: str) -> str:
        return ""

    def usd_per_s(self, template: Template) -> float | None:
        each = self._model.usd_per_s
        priceless = each is None or "PRICELESS" in template.env
        return None if priceless else each * gpus.dearest(template)

    def lacks(self, template: Template) -> str:
        return ""

    async def close(self) -> None:
        """Nothing is held open."""

    # ---- pushes

    def push(self, run: str) -> None:
        """Tell the engine to look at `run`: perhaps late, twice or not at all."""
        odds = self._model.odds
        if self._world.chance(odds.push_lost):
            return
        times = 2 if self._world.chance(odds.push_twice) else 1
        for _ in range(times):
            delay_s = self._world.rng.uniform(*self._model.push_delay_s)
            self._world.timeline.after(delay_s, lambda: self._deliver(run))
        if times == 2:
            self._deliver(UNKNOWN_RUN)

    def _deliver(self, run: str) -> None:
        if not self._life.dead:
            self._notify(run)

    # ---- faults

    @contextmanager
    def _call(self, verb: str, run: str) -> Iterator[None]:
        self._life.point("effect", f"{verb} {run}")
        self._politeness.enter(self._model, verb, run, now_s=self._world.timeline.now_s)
        try:
            yield
        except Unavailable as error:
            until_s = self._world.timeline.now_s + error.retry_after_s
            self._politeness.told_to_wait(self._model, verb, run, until_s=until_s)
            raise
        finally:
            self._politeness.leave(self._model)

    async def _before(self, verb: str) -> None:
        """What can go wrong before anything happened."""
        world, odds = self._world, self._model.odds
        await asyncio.sleep(world.rng.uniform(*self._model.latency_s) / 2)
        if world.is_down(self._model.name):
            await self._no_answer()
        if world.chance(odds.fail_before):
            raise ConnectionError(f"`{verb}` could not be sent")
        if world.chance(odds.hang_before):
            await _forever()
        if world.chance(odds.unavailable):
            retry_after_s = world.rng.choice((0.0, 1.0, 20.0))
            raise Unavailable(
                "429 too many requests", retry_after_s=retry_after_s, reason="RateLimited"
            )

    async def _after(self) -> None:
        """What can go wrong with the reply; all has happened by now."""
        world = self._world
        await asyncio.sleep(world.rng.uniform(*self._model.latency_s) / 2)
        if world.is_down(self._model.name) or world.chance(self._model.odds.lose_reply):
            await self._no_answer()

    async def _no_answer(self) -> None:
        if self._world.rng.random() < 0.3:
            await _forever()
        raise ConnectionResetError("the connection was closed before the answer came")

    def _listed(self, box: Box) -> bool:
        """Whether a list made now shows the box; a lagging one also shows what died just now."""
        bound_s = self.contract.visibility_bound_s
        now_s = self._world.now_s
        if box.alive:
            return now_s - box.created_at_s >= bound_s or not self._world.chance(0.5)
        assert box.ended_at_s is not None
        lags = not self.contract.strong_get and now_s - box.ended_at_s < bound_s
        return lags and self._world.chance(0.5)


def _tell(life: Life, future: asyncio.Future[str], answer: str | Unavailable) -> None:
    if life.dead or future.done():
        return
    if isinstance(answer, Unavailable):
        future.set_exception(answer)
    else:
        future.set_result(answer)


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()
