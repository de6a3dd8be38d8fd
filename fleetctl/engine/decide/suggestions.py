"""Computes slow suggestions, the next point of a bayes search, outside the loop.

Called by passes. Its state is in memory: a point counts once a run is stored with it, and a request
that was open when the controller ended is made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

from fleetctl.common.event_loop import cancel_tasks
from fleetctl.controllers.planning.kind_controller import KindController, Params
from fleetctl.engine.shared.boundary import NoAnswer, guard_call
from fleetctl.engine.shared.part import EnginePart, PartWiring, WorkDecision

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState

Search = Callable[[], Params | None]
Aside = Callable[[Search], Awaitable[Params | None]]
FAILED = "SuggestionFailed"


class Suggestions(EnginePart):
    """aside: runs a search elsewhere, such as in a thread."""

    works_for = frozenset({"Sweep"})

    def __init__(self, state: EngineState, *, aside: Aside) -> None:
        self._state = state
        self._aside = aside
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._tries: dict[str, int] = {}
        self._not_before_s: dict[str, float] = {}

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(wiring.state, aside=wiring.aside)

    def take_decision(self, decision: WorkDecision) -> None:
        controller = decision.desired.controller
        history = decision.work.history
        if controller.handed is not None:
            return
        index = decision.next_unit
        if index is not None and len(history.live) < decision.most_units:
            search = controller.work(history, index)
            self.ask(decision.work.resource.uid, controller, index, search)

    def ask(
        self,
        uid: str,
        controller: KindController,
        index: int,
        search: Search,
    ) -> None:
        """Requests one point at a time for each object: the next one depends on it."""
        not_before_s = self._not_before_s.get(uid, 0.0)
        if not_before_s > self._state.clock.now_s():
            self._state.queue.add(uid, not_before_s)
        elif uid not in self._under_way:
            answer = self._answer(uid, controller, index, search)
            self._under_way[uid] = asyncio.ensure_future(answer)

    async def close(self) -> None:
        await cancel_tasks(self._under_way.values())

    async def _answer(
        self,
        uid: str,
        controller: KindController,
        index: int,
        search: Search,
    ) -> None:
        state = self._state
        try:
            found = await guard_call(self._aside(search), what=f"search for trial {index}", key=uid)
        finally:
            del self._under_way[uid]
        if isinstance(found, NoAnswer):
            tries = self._tries[uid] = self._tries.get(uid, 0) + 1
            again_at_s = state.clock.now_s() + state.backoff_s(tries)
            self._not_before_s[uid] = again_at_s
            state.say(uid, FAILED, found.why, kind="Warning")
            state.queue.add(uid, again_at_s)
        else:
            self._tries.pop(uid, None)
            self._not_before_s.pop(uid, None)
            track = state.tracks.get(uid)
            if track is not None and track.work is not None and track.work.controller is controller:
                controller.answer(index, found)
            state.queue.add(uid)
        state.inbox.wake()
