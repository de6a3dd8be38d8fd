"""What takes too long for a pass: the next point of a bayes search, worked out outside the loop.

Asked by passes. Nothing of it is durable: a point counts once a run is stored with it, and what was
asked for when the controller ended is asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from fleetctl.common.tasks import cancel
from fleetctl.controllers.planning.kind import KindController, Params
from fleetctl.engine.shared.boundary import NoAnswer, guarded

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State

Search = Callable[[], Params | None]
Aside = Callable[[Search], Awaitable[Params | None]]
FAILED = "SuggestionFailed"


class Suggestions:
    """aside: runs a search elsewhere, such as in a thread."""

    def __init__(self, state: State, *, aside: Aside) -> None:
        self._state, self._aside = state, aside
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._tries: dict[str, int] = {}
        self._not_before_s: dict[str, float] = {}

    def ask(self, uid: str, controller: KindController, index: int, search: Search) -> None:
        """One at a time for each object: the next one is to know of it."""
        not_before_s = self._not_before_s.get(uid, 0.0)
        if not_before_s > self._state.clock.now_s():
            self._state.queue.add(uid, not_before_s)
        elif uid not in self._under_way:
            answer = self._answer(uid, controller, index, search)
            self._under_way[uid] = asyncio.ensure_future(answer)

    async def close(self) -> None:
        await cancel(self._under_way.values())

    async def _answer(
        self, uid: str, controller: KindController, index: int, search: Search
    ) -> None:
        state = self._state
        try:
            found = await guarded(self._aside(search), what=f"search for trial {index}", key=uid)
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
