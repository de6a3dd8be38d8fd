"""The queue for a runner that has the GPUs which a sandbox asks for."""

from __future__ import annotations

import asyncio

from .state import Sandbox, World

LOOK_EVERY_S = 0.05
HOLDING = frozenset(
    ["creating", "pulling_snapshot", "starting", "started", "paused", "resuming", "stopping"]
)


class TimedOut(Exception):
    """No runner was free for as long as the sandbox was to wait."""


async def wait(world: World, sandbox: Sandbox) -> None:
    if sandbox.resources.gpu == 0:
        return
    since_s, limit = world.clock.now_s(), sandbox.queue_timeout
    while not _room(world, sandbox):
        if limit is not None and world.clock.now_s() - since_s >= limit * 60:
            raise TimedOut
        await asyncio.sleep(LOOK_EVERY_S)


def _room(world: World, wanting: Sandbox) -> bool:
    """First come, first served: who is before it in the queue holds what it asks for."""
    taken = 0
    for one in world.here.values():
        if one is wanting:
            break
        if one.resources.gpu_type == wanting.resources.gpu_type and one.state in HOLDING:
            taken += one.resources.gpu
    return taken + wanting.resources.gpu <= world.settings.gpus_per_type
