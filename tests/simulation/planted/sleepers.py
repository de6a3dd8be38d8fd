"""Bugs in letting go of what is over: who sleeps, and who or what wakes it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from fleetctl.stores.sqlite.resources import SqliteSleep
from fleetctl.tracking.track import Track
from tests.simulation.planted.plant import Plant, around, swapped

Context = AbstractContextManager[object]


def what_is_due_sleeps_for_ever() -> Context:
    """An object that is over is put to sleep although something is to be freed later."""

    def make(put: Callable[..., bool]) -> Callable[..., bool]:
        return lambda self, uid, until_s, **rest: put(self, uid, until_s=None, **rest)

    return around(SqliteSleep, "put", make)


def a_change_wakes_nobody() -> Context:
    """What was over before its spec changed sleeps on."""

    def over(self: Any) -> bool:
        done = self.status.get("phase") in ("Succeeded", "Failed")
        return done and self.resource.deleted_at_s is None

    return swapped(Track, "dormant", property(over))


PLANTS: tuple[Plant, ...] = (
    what_is_due_sleeps_for_ever,
    a_change_wakes_nobody,
)
