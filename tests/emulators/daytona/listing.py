"""The index that lists are read from: right again only some time after each change.

On the real platform it is a search engine beside the database: what was just made is missing,
what was just deleted is still there, and between the two an entry may flap.
"""

from __future__ import annotations

import random
from typing import Any

from .bodies import list_item
from .state import Sandbox, World

SEED = 20260101  # lags differ from entry to entry, and are the same in every run


class Index:
    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random.Random(SEED)
        self.entries: dict[str, dict[str, Any]] = {}

    def on_change(self, sandbox: Sandbox, before: str | None) -> None:
        """What is true now shows up within the lag, and what is true then after it."""
        lag_s = self._world.settings.list_lag_s
        if lag_s <= 0:
            self._put(sandbox.id, self._entry(sandbox))
            return
        entry, now_s = self._entry(sandbox), self._world.clock.now_s()
        soon_s = now_s + lag_s * self._random.random()
        self._world.clock.call_at(soon_s, lambda: self._put(sandbox.id, entry))
        self._world.clock.call_at(
            now_s + lag_s, lambda: self._put(sandbox.id, self._entry(sandbox))
        )

    def _entry(self, sandbox: Sandbox) -> dict[str, Any] | None:
        gone = sandbox.state == "destroyed" or sandbox.warm_pool_id is not None
        return None if gone else list_item(self._world, sandbox)

    def _put(self, sandbox_id: str, entry: dict[str, Any] | None) -> None:
        if entry is None:
            self.entries.pop(sandbox_id, None)
        else:
            self.entries[sandbox_id] = entry
