"""A sandbox's life: its states in their order, the box behind them, and what ends it by itself.

A transition is one task per sandbox. While it is under way `changing` is set and the routes answer
409. The states last as long as the settings say, or as long as the real work behind them takes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable
from pathlib import Path

from tests.emulators.boxes import Box, base_path

from . import builds, runners, toolbox
from .copies import copy_tree, remove_few, remove_tree, small_tree
from .state import HOME, Change, Image, Sandbox, World

LOG = logging.getLogger(__name__)
# How long the platform lets a sandbox be stuck in a state before it gives it up.
PATIENCE_S = {"starting": 300.0, "creating": 900.0, "pulling_snapshot": 1800.0}
PATIENCE_OTHERS_S = 3600.0


class Failed(Exception):
    """A transition ends in an error state instead."""

    def __init__(self, reason: str | None, *, state: str = "error", recoverable: bool = False):
        super().__init__(reason)
        self.reason, self.state, self.recoverable = reason, state, recoverable


async def end_all(world: World) -> None:
    work = [one.work for one in world.sandboxes.values() if one.work is not None]
    work += [one.work for one in world.builds.values() if one.work is not None]
    work += [one.work for one in world.snapshots.values() if one.work is not None]
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    boxes = [one.box for one in world.sandboxes.values() if one.box is not None]
    await asyncio.gather(*(box.kill() for box in boxes))
    for sandbox in world.sandboxes.values():
        sandbox.box = None


def announce(world: World, sandbox: Sandbox) -> None:
    """A sandbox is there, in its first state."""
    unbuilt = sandbox.build is not None and sandbox.build.image is None
    sandbox.state = "pending_build" if unbuilt else "creating"
    sandbox.history.append(Change(sandbox.state, sandbox.created_at_s))
    world.tell(sandbox, None)


def enter(world: World, sandbox: Sandbox, state: str) -> None:
    """Note a state, and tell everybody who listens: the index, the socket, the timers."""
    before, sandbox.state = sandbox.state, state
    now_s = world.clock.now_s()
    sandbox.updated_at_s = now_s
    sandbox.history.append(Change(state, now_s))
    if state == "destroyed":
        world.here.pop(sandbox.id, None)
    world.tell(sandbox, before)


async def last(world: World, sandbox: Sandbox, state: str) -> None:
    """Be in a state for its time, and meet its fate."""
    if sandbox.state != state:
        enter(world, sandbox, state)
    await world.clock.sleep(world.settings.lasting_s(state))
    fate = world.faults.fate(sandbox.name, state)
    if fate is None:
        return
    if fate.outcome == "stuck":
        await world.clock.sleep(PATIENCE_S.get(state, PATIENCE_OTHERS_S))
        raise Failed(f"Timeout while {state}")
    raise Failed(fate.reason, state=fate.outcome, recoverable=fate.recoverable)


def begin(world: World, sandbox: Sandbox, desired: str, steps: Awaitable[None]) -> None:
    """Set a transition off; the caller has checked that none is under way."""
    sandbox.changing, sandbox.desired = True, desired

    async def work() -> None:
        try:
            await steps
        except Failed as failed:
            await _fail(world, sandbox, failed)
        except runners.TimedOut:
            await _leave_queue(world, sandbox)
        except Exception as error:
            LOG.exception("a transition failed")
            await _fail(world, sandbox, Failed(f"emulator: {error}"))
        finally:
            sandbox.changing = False
        world.tell(sandbox, sandbox.state)

    sandbox.work = asyncio.get_running_loop().create_task(work())


async def create(world: World, sandbox: Sandbox) -> None:
    if sandbox.build is not None and sandbox.build.image is None:
        await last(world, sandbox, "pending_build")
        builds.begin(world, sandbox.build)
        await last(world, sandbox, "building_snapshot")
        await builds.wait(world, sandbox.build)
        if sandbox.build.image is None:
            raise Failed(sandbox.build.error, state="build_failed")
    if sandbox.build is not None:
        assert sandbox.build.image is not None
        sandbox.image = sandbox.build.image
    await last(world, sandbox, "creating")
    await runners.wait(world, sandbox)
    if sandbox.build is not None:
        await last(world, sandbox, "pulling_snapshot")
    await start(world, sandbox)


async def start(world: World, sandbox: Sandbox, *, through: str = "starting") -> None:
    await last(world, sandbox, through)
    await _open_box(world, sandbox)
    sandbox.error_reason, sandbox.recoverable = None, False
    sandbox.stopped_at_s = sandbox.archived_at_s = None
    sandbox.activity_at_s = world.clock.now_s()
    enter(world, sandbox, "started")


async def restore(world: World, sandbox: Sandbox) -> None:
    await last(world, sandbox, "restoring")
    await start(world, sandbox)


async def stop(world: World, sandbox: Sandbox) -> None:
    await last(world, sandbox, "stopping")
    await _close_box(world, sandbox)
    sandbox.stopped_at_s = world.clock.now_s()
    if sandbox.intervals.delete == 0:
        give_name_up(world, sandbox)
        sandbox.desired = "destroyed"
        await destroy(world, sandbox)
        return
    enter(world, sandbox, "stopped")


async def archive(world: World, sandbox: Sandbox) -> None:
    await last(world, sandbox, "archiving")
    sandbox.archived_at_s = world.clock.now_s()
    sandbox.backup_state, sandbox.backup_at_s = "Completed", sandbox.archived_at_s
    enter(world, sandbox, "archived")


async def pause(world: World, sandbox: Sandbox) -> None:
    await last(world, sandbox, "pausing")
    _signal_all(sandbox, stop=True)
    enter(world, sandbox, "paused")


async def resume(world: World, sandbox: Sandbox) -> None:
    await last(world, sandbox, "resuming")
    _signal_all(sandbox, stop=False)
    sandbox.activity_at_s = world.clock.now_s()
    enter(world, sandbox, "started")


async def destroy(world: World, sandbox: Sandbox) -> None:
    await last(world, sandbox, "destroying")
    await _close_box(world, sandbox)
    if not remove_few(sandbox.directory):
        await asyncio.to_thread(remove_tree, sandbox.directory)
    sandbox.destroyed_at_s = world.clock.now_s()
    enter(world, sandbox, "destroyed")


async def _leave_queue(world: World, sandbox: Sandbox) -> None:
    """Destroyed before it had a machine; it can be read by its id for a while."""
    sandbox.queue_timed_out_at_s = sandbox.destroyed_at_s = world.clock.now_s()
    give_name_up(world, sandbox)
    sandbox.desired = "destroyed"
    enter(world, sandbox, "destroyed")


def give_name_up(world: World, sandbox: Sandbox) -> None:
    """From here on the name is free, and finds this sandbox no longer: only its id does."""
    if world.names.get(sandbox.name) == sandbox.id:
        del world.names[sandbox.name]


async def evict(world: World, sandbox: Sandbox) -> None:
    """Spot: everything in it is killed at once, whatever was under way."""
    await interrupt(sandbox)
    sandbox.spot_evicted_at_s = world.clock.now_s()
    await _close_box(world, sandbox, gently=False)
    give_name_up(world, sandbox)
    begin(world, sandbox, "destroyed", destroy(world, sandbox))


async def lose(world: World, sandbox: Sandbox, reason: str | None, *, recoverable: bool) -> None:
    """Its machine is gone: the processes are dead and the platform says `error`."""
    await interrupt(sandbox)
    await _fail(world, sandbox, Failed(reason, recoverable=recoverable))


async def interrupt(sandbox: Sandbox) -> None:
    if sandbox.work is not None and not sandbox.work.done():
        sandbox.work.cancel()
        await asyncio.gather(sandbox.work, return_exceptions=True)


async def _fail(world: World, sandbox: Sandbox, failed: Failed) -> None:
    await _close_box(world, sandbox)
    sandbox.error_reason, sandbox.recoverable = failed.reason, failed.recoverable
    enter(world, sandbox, failed.state)


async def _open_box(world: World, sandbox: Sandbox) -> None:
    image = sandbox.image
    root = sandbox.directory / "root"
    if not root.exists():
        await _lay_out(image, root)
    else:
        # A box cannot begin with the overlays' notes of the one before it on the same disk.
        await asyncio.to_thread(remove_tree, sandbox.directory / "work")
    path = [str(image.venv / "bin")] if image.venv else []
    path += [image.env["PATH"]] if "PATH" in image.env else [base_path()]
    box = Box(
        sandbox.directory,
        **_mounts(world, sandbox),
        layers={str(image.venv): image.venv} if image.venv else {},
        env=environment(world, sandbox) | {"PATH": ":".join(path)},
        hostname=sandbox.id,
    )
    await box.start()
    sandbox.box = box
    await toolbox.started(world, sandbox)


async def _lay_out(image: Image, root: Path) -> None:
    """A fresh disk: the image's own files, and the home that every image has."""
    if image.tree is not None and image.small is None:
        image.small = small_tree(image.tree)
    if image.small is not None:
        image.small.write(root)
    elif image.tree is not None:
        await copy_tree(image.tree, root)
    for path in {HOME, image.workdir}:
        os.makedirs(root / path.lstrip("/"), exist_ok=True)


def environment(world: World, sandbox: Sandbox) -> dict[str, str]:
    """What every process in it sees. A secret is there as its placeholder, never as its value."""
    placeholders = {
        variable: secret.placeholder
        for variable, name in sandbox.secrets.items()
        for secret in world.secrets.values()
        if secret.name == name
    }
    own = {"HOME": HOME, "USER": sandbox.user, "DAYTONA_SANDBOX_ID": sandbox.id}
    return {**own, **sandbox.image.env, **placeholders, **sandbox.env}


def _mounts(world: World, sandbox: Sandbox) -> dict[str, dict[str, Path]]:
    """Volumes at their paths: one directory of the host each, shared by all who mount it."""
    mounts = {}
    for mount in sandbox.mounts:
        source = world.volumes[mount.volume_id].directory
        if mount.subpath:
            source = source / mount.subpath
        source.mkdir(parents=True, exist_ok=True)
        mounts[mount.path] = source
    return {"mounts" if world.settings.volumes_are_directories else "objects": mounts}


async def _close_box(world: World, sandbox: Sandbox, *, gently: bool = True) -> None:
    box = sandbox.box
    if box is None:
        return
    if gently:
        await toolbox.stopping(world, sandbox)
    # Who waits for a program in it learns that the sandbox is gone, not that it was killed.
    for connection in list(sandbox.connections):
        connection.abort()
    await box.kill()
    sandbox.box = None
    sandbox.toolbox.clear()


def _signal_all(sandbox: Sandbox, *, stop: bool) -> None:
    """Freeze or thaw what runs in it, by process groups."""
    number = signal.SIGSTOP if stop else signal.SIGCONT
    for process in list(sandbox.box.processes.values()) if sandbox.box else []:
        process.send_signal(number, group=True)
