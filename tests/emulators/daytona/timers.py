"""What happens to a sandbox by itself: TTL, auto-stop, -pause, -archive and -delete."""

from __future__ import annotations

import asyncio

from . import lifecycle
from .state import Sandbox, World

MINUTE_S = 60.0
ARCHIVE_LONGEST_S = 30 * 24 * 60 * MINUTE_S
READABLE_S = 24 * 60 * MINUTE_S  # evicted and timed out sandboxes answer by id so long


def watch(world: World, sandbox: Sandbox) -> None:
    """Look again when something may be due; called at every change of a sandbox."""
    if sandbox.state in ("destroyed", "destroying"):
        return
    due_at_s = min((at_s for at_s, _action in _due(sandbox)), default=None)
    if due_at_s is None or (sandbox.look_at_s is not None and sandbox.look_at_s <= due_at_s):
        return
    sandbox.look_at_s = due_at_s
    world.clock.call_at(due_at_s, lambda: _look(world, sandbox))


def _look(world: World, sandbox: Sandbox) -> None:
    """What was due when this look was planned may be no longer: only what is due now happens."""
    sandbox.look_at_s = None
    now_s = world.clock.now_s()
    if sandbox.open_requests and sandbox.state == "started":
        sandbox.activity_at_s = now_s
    due = min(_due(sandbox), default=None)
    if sandbox.state in ("destroyed", "destroying") or due is None:
        return
    if due[0] <= now_s:
        _act(world, sandbox, due[1])
    else:
        watch(world, sandbox)


def _due(sandbox: Sandbox) -> list[tuple[float, str]]:
    due: list[tuple[float, str]] = []
    every = sandbox.intervals
    if sandbox.destroy_at_s is not None:
        due.append((sandbox.destroy_at_s, "destroy"))
    if sandbox.warm_pool_id is not None or sandbox.changing:
        return due
    if sandbox.state == "started":
        due += [(sandbox.activity_at_s + every.stop * MINUTE_S, "stop")] if every.stop else []
        due += [(sandbox.activity_at_s + every.pause * MINUTE_S, "pause")] if every.pause else []
    if sandbox.state in ("stopped", "archived") and sandbox.stopped_at_s is not None:
        if every.delete >= 0:
            due.append((sandbox.stopped_at_s + every.delete * MINUTE_S, "destroy"))
        if sandbox.state == "stopped":
            after_s = every.archive * MINUTE_S or ARCHIVE_LONGEST_S
            due.append((sandbox.stopped_at_s + after_s, "archive"))
    return due


def _act(world: World, sandbox: Sandbox, action: str) -> None:
    if action == "destroy":
        expire(world, sandbox)
    elif action == "stop":
        lifecycle.begin(world, sandbox, "stopped", lifecycle.stop(world, sandbox))
    elif action == "pause":
        lifecycle.begin(world, sandbox, "paused", lifecycle.pause(world, sandbox))
    else:
        lifecycle.begin(world, sandbox, "archived", lifecycle.archive(world, sandbox))


def expire(world: World, sandbox: Sandbox) -> None:
    """Destroyed whatever its state, also in the midst of a change."""
    lifecycle.give_name_up(world, sandbox)
    under_way = sandbox.work if sandbox.work is not None and not sandbox.work.done() else None

    async def steps() -> None:
        if under_way is not None:
            under_way.cancel()
            await asyncio.gather(under_way, return_exceptions=True)
            sandbox.changing = True
        await lifecycle.destroy(world, sandbox)

    lifecycle.begin(world, sandbox, "destroyed", steps())
