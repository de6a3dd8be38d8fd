"""The index that lists are read from: right again only some time after each change.

On the real platform it is a search engine beside the database: what was just made is missing,
what was just deleted is still there, and between the two an entry may flap.
"""

from __future__ import annotations

import random
from typing import Any

from . import bodies
from .state import Sandbox, World

SEED = 20260101  # lags differ from entry to entry, and are the same in every run


class Index:
    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random.Random(SEED)
        self.entries: dict[str, dict[str, Any]] = {}

    def on_change(self, sandbox: Sandbox, body: dict[str, Any]) -> None:
        """What is true now shows up within the lag, and what is true then after it."""
        lag_s, entry = self._world.settings.list_lag_s, _entry(sandbox, body)
        if lag_s <= 0:
            self._put(sandbox.id, entry)
            return
        now_s = self._world.clock.now_s()
        soon_s = now_s + lag_s * self._random.random()
        self._world.clock.call_at(soon_s, lambda: self._put(sandbox.id, entry))
        self._world.clock.call_at(now_s + lag_s, lambda: self._settle(sandbox))

    def _settle(self, sandbox: Sandbox) -> None:
        self._put(sandbox.id, _entry(sandbox, bodies.sandbox(self._world, sandbox)))

    def _put(self, sandbox_id: str, entry: dict[str, Any] | None) -> None:
        if entry is None:
            self.entries.pop(sandbox_id, None)
        else:
            self.entries[sandbox_id] = entry


def _entry(sandbox: Sandbox, body: dict[str, Any]) -> dict[str, Any] | None:
    gone = sandbox.state == "destroyed" or sandbox.warm_pool_id is not None
    return None if gone else bodies.list_item(body)
