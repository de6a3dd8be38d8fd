"""What may be asked of a sandbox that is there: its states, its settings, its copies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web

from . import bodies, lifecycle, quotas, snapshots
from .asking import body_of, flag, named_texts, named_texts_list, text, whole
from .copies import copy_tree
from .creation import check_name, register, secrets_of
from .errors import CHANGING, Refused, bad_request, conflict
from .sandboxes import find, find_settled, shown
from .state import Image, Resources, Sandbox, World, new_id, text_map

ARCHIVE_MINUTES_MAX = 30 * 24 * 60
NETWORK = {"networkBlockAll": flag, "networkAllowList": text, "domainAllowList": text}


def routes(world: World) -> list[web.RouteDef]:
    one = "/api/sandbox/{sandboxIdOrName}"
    return [
        *_transitions(world, one),
        *_settings(world, one),
        web.post(f"{one}/resize", _resize(world), name="resizeSandbox"),
        web.post(f"{one}/fork", _fork(world), name="forkSandbox"),
        web.post(f"{one}/snapshot", _snapshot(world), name="createSandboxSnapshot"),
        web.post(f"{one}/backup", _backup(world), name="createBackup"),
    ]


def _transitions(world: World, one: str) -> list[web.RouteDef]:
    async def start(request: web.Request) -> web.Response:
        sandbox = find(world, request)
        if sandbox.state == "archiving":  # a start calls it off
            await lifecycle.interrupt(sandbox)
            lifecycle.enter(world, sandbox, "stopped")
        if sandbox.changing:
            raise conflict(CHANGING)
        ways = {
            "stopped": ("starting", lifecycle.start),
            "archived": ("restoring", lifecycle.restore),
            "paused": ("resuming", lifecycle.resume),
        }
        if sandbox.state == "started":
            return shown(world, sandbox)
        if sandbox.state not in ways:
            raise bad_request("Sandbox is not in valid state")
        quotas.check_new(world, sandbox.resources, besides=sandbox)
        state, steps = ways[sandbox.state]
        lifecycle.enter(world, sandbox, state)
        lifecycle.begin(world, sandbox, "started", steps(world, sandbox))
        return shown(world, sandbox)

    async def stop(request: web.Request) -> web.Response:
        sandbox = find_settled(world, request)
        if sandbox.state != "started":
            raise bad_request("Sandbox is not started")
        return go(sandbox, "stopping", "stopped", lifecycle.stop)

    async def pause(request: web.Request) -> web.Response:
        sandbox = find_settled(world, request)
        if sandbox.state != "started":
            raise bad_request("Sandbox is not started")
        return go(sandbox, "pausing", "paused", lifecycle.pause)

    async def archive(request: web.Request) -> web.Response:
        sandbox = find_settled(world, request)
        if sandbox.state != "stopped":
            raise bad_request("Sandbox is not stopped")
        return go(sandbox, "archiving", "archived", lifecycle.archive)

    async def recover(request: web.Request) -> web.Response:
        sandbox = find_settled(world, request)
        if sandbox.state != "error":
            raise bad_request("Sandbox must be in error state to recover")
        if not sandbox.recoverable:
            raise bad_request("This sandbox error is not recoverable")
        if request.query.get("skipStart") == "true":
            sandbox.error_reason, sandbox.recoverable, sandbox.desired = None, False, "stopped"
            sandbox.stopped_at_s = world.clock.now_s()
            lifecycle.enter(world, sandbox, "stopped")
            return shown(world, sandbox)
        return go(sandbox, "starting", "started", lifecycle.start)

    def go(sandbox: Sandbox, state: str, desired: str, steps: Any) -> web.Response:
        lifecycle.enter(world, sandbox, state)
        lifecycle.begin(world, sandbox, desired, steps(world, sandbox))
        return shown(world, sandbox)

    return [
        web.post(f"{one}/start", start, name="startSandbox"),
        web.post(f"{one}/stop", stop, name="stopSandbox"),
        web.post(f"{one}/pause", pause, name="pauseSandbox"),
        web.post(f"{one}/archive", archive, name="archiveSandbox"),
        web.post(f"{one}/recover", recover, name="recoverSandbox"),
    ]


def _settings(world: World, one: str) -> list[web.RouteDef]:
    def changed(sandbox: Sandbox) -> web.Response:
        sandbox.updated_at_s = world.clock.now_s()
        world.tell(sandbox, sandbox.state)
        return shown(world, sandbox)

    async def labels(request: web.Request) -> web.Response:
        sandbox = find(world, request)
        sandbox.labels = text_map((await body_of(request, labels=named_texts)).get("labels"))
        changed(sandbox)
        return web.json_response({"labels": sandbox.labels})

    def interval(set_to: Callable[[Sandbox, int], None]) -> Any:
        async def handle(request: web.Request) -> web.Response:
            sandbox = find(world, request)
            set_to(sandbox, _whole(request.match_info["interval"]))
            return changed(sandbox)

        return handle

    async def ttl(request: web.Request) -> web.Response:
        sandbox = find(world, request)
        minutes = _least_zero(_whole(request.match_info["ttlMinutes"]))
        sandbox.destroy_at_s = world.clock.now_s() + minutes * 60 if minutes else None
        return changed(sandbox)

    async def public(request: web.Request) -> web.Response:
        sandbox = find(world, request)
        sandbox.public = request.match_info["isPublic"] == "true"
        return changed(sandbox)

    async def network(request: web.Request) -> web.Response:
        sandbox, wanted = find(world, request), await body_of(request, **NETWORK)
        if world.settings.restricted_egress:
            raise Refused(403, "Network settings cannot be overridden for this organization")
        sandbox.network = replace(
            sandbox.network,
            block_all=wanted.get("networkBlockAll", sandbox.network.block_all),
            allow_list=wanted.get("networkAllowList", sandbox.network.allow_list),
            domains=wanted.get("domainAllowList", sandbox.network.domains),
        )
        return changed(sandbox)

    async def mounted(request: web.Request) -> web.Response:
        sandbox = find(world, request)
        wanted = await body_of(request, secrets=named_texts_list)
        sandbox.secrets = secrets_of(world, wanted.get("secrets") or [])
        return changed(sandbox)

    async def activity(request: web.Request) -> web.Response:
        sandbox = find(world, request)
        sandbox.activity_at_s = world.clock.now_s()
        changed(sandbox)
        return web.Response(status=201)

    by = {
        ("autostop", "setAutostopInterval"): _set_stop,
        ("autopause", "setAutoPauseInterval"): _set_pause,
        ("autoarchive", "setAutoArchiveInterval"): _set_archive,
        ("autodelete", "setAutoDeleteInterval"): _set_delete,
    }
    return [
        web.put(f"{one}/labels", labels, name="replaceLabels"),
        *(web.post(f"{one}/{p}/{{interval}}", interval(s), name=n) for (p, n), s in by.items()),
        web.post(f"{one}/ttl/{{ttlMinutes}}", ttl, name="setTtl"),
        web.post(f"{one}/public/{{isPublic}}", public, name="updatePublicStatus"),
        web.post(f"{one}/network-settings", network, name="updateNetworkSettings"),
        web.put(f"{one}/secrets", mounted, name="updateSandboxSecrets"),
        web.post(f"{one}/last-activity", activity, name="updateLastActivity"),
    ]


def _set_stop(sandbox: Sandbox, minutes: int) -> None:
    sandbox.intervals.stop = _least_zero(minutes)
    sandbox.intervals.pause = 0 if minutes else sandbox.intervals.pause


def _set_pause(sandbox: Sandbox, minutes: int) -> None:
    if minutes and sandbox.intervals.delete == 0:
        raise bad_request("Ephemeral sandboxes cannot have auto-pause enabled")
    sandbox.intervals.pause = _least_zero(minutes)
    sandbox.intervals.stop = 0 if minutes else sandbox.intervals.stop


def _set_archive(sandbox: Sandbox, minutes: int) -> None:
    if minutes > ARCHIVE_MINUTES_MAX:
        raise bad_request(f"Auto-archive interval must be at most {ARCHIVE_MINUTES_MAX} minutes")
    sandbox.intervals.archive = _least_zero(minutes)


def _set_delete(sandbox: Sandbox, minutes: int) -> None:
    if sandbox.resources.gpu and minutes != 0:
        raise bad_request("GPU sandboxes must be ephemeral (autoDeleteInterval must be 0)")
    sandbox.intervals.delete = minutes


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise bad_request("Validation failed (numeric string is expected)") from error


def _least_zero(minutes: int) -> int:
    if minutes < 0:
        raise bad_request("The interval must be a non-negative integer")
    return minutes


def _resize(world: World) -> Any:
    async def resize(request: web.Request) -> web.Response:
        sandbox = find_settled(world, request)
        wanted = await body_of(request, **dict.fromkeys(_SIZES, whole))
        now = sandbox.resources
        after = Resources(**{**_plain(now), **{k: wanted[k] for k in _SIZES if k in wanted}})
        if sandbox.state not in ("started", "stopped"):
            raise bad_request("Sandbox must be started or stopped to be resized")
        if after.disk < now.disk:
            raise bad_request("Disk size can only be increased")
        if sandbox.state == "started" and after.disk != now.disk:
            raise bad_request("Disk can only be resized when the sandbox is stopped")
        if sandbox.state == "started" and (after.cpu < now.cpu or after.memory < now.memory):
            raise bad_request("CPU and memory can only be increased while the sandbox is started")
        quotas.check_new(world, after, besides=sandbox)
        before = sandbox.state

        async def steps() -> None:
            await lifecycle.last(world, sandbox, "resizing")
            lifecycle.enter(world, sandbox, before)
            sandbox.desired = before

        # Told and counted from here on: the answer has the new sizes already.
        sandbox.resources = after
        lifecycle.enter(world, sandbox, "resizing")
        lifecycle.begin(world, sandbox, "resized", steps())
        return shown(world, sandbox)

    return resize


_SIZES = ("cpu", "memory", "disk")


def _plain(one: Resources) -> dict[str, Any]:
    return {name: getattr(one, name) for name in Resources.__slots__}


def _fork(world: World) -> Any:
    async def fork(request: web.Request) -> web.Response:
        parent, wanted = find_settled(world, request), await body_of(request, name=text)
        if parent.state not in ("started", "stopped", "paused"):
            raise bad_request("Sandbox must be started, paused or stopped to be forked")
        if "name" in wanted:
            check_name(world, wanted["name"])
        quotas.check_new(world, parent.resources)
        child = _child_of(world, parent, wanted.get("name"))
        register(world, child)
        lifecycle.announce(world, child)
        before = parent.state

        async def copied() -> None:
            await lifecycle.last(world, parent, "forking")
            await copy_tree(parent.directory / "root", child.directory / "root")
            lifecycle.enter(world, parent, before)

        async def born() -> None:
            assert parent.work is not None
            await asyncio.wait([parent.work])
            await lifecycle.create(world, child)

        lifecycle.begin(world, parent, parent.desired, copied())
        lifecycle.begin(world, child, "started", born())
        return shown(world, child)

    return fork


def _child_of(world: World, parent: Sandbox, name: str | None) -> Sandbox:
    now_s, child_id = world.clock.now_s(), new_id()
    return Sandbox(
        id=child_id,
        name=name or f"{parent.name}-fork-{child_id[:8]}",
        created_at_s=now_s,
        updated_at_s=now_s,
        activity_at_s=now_s,
        region=parent.region,
        sandbox_class=parent.sandbox_class,
        user=parent.user,
        snapshot=parent.snapshot,
        image=parent.image,
        env=dict(parent.env),
        labels=dict(parent.labels),
        secrets=dict(parent.secrets),
        mounts=list(parent.mounts),
        resources=replace(parent.resources),
        intervals=replace(parent.intervals),
        network=replace(parent.network),
        parent_id=parent.id,
    )


def _snapshot(world: World) -> Any:
    async def snapshot(request: web.Request) -> web.Response:
        sandbox, wanted = find_settled(world, request), await body_of(request, name=text)
        if sandbox.state not in ("started", "stopped", "paused"):
            raise bad_request("Sandbox must be started, paused or stopped to be snapshotted")
        kept = snapshots.new(world, str(wanted.get("name") or ""), sandbox.resources)
        kept.state, kept.source_sandbox_id = "snapshotting", sandbox.id
        before, tree = sandbox.state, _tree_of(world, kept.id)

        async def steps() -> None:
            await lifecycle.last(world, sandbox, "snapshotting")
            await copy_tree(sandbox.directory / "root", tree)
            of = sandbox.image
            name = f"{kept.id}:daytona"
            kept.image = Image(name, tree, venv=of.venv, env=of.env, workdir=of.workdir)
            snapshots.enter(world, kept, "active")
            lifecycle.enter(world, sandbox, before)

        lifecycle.enter(world, sandbox, "snapshotting")
        lifecycle.begin(world, sandbox, sandbox.desired, steps())
        return shown(world, sandbox)

    return snapshot


def _tree_of(world: World, snapshot_id: str) -> Path:
    return world.directory / "images" / snapshot_id / "root"


def _backup(world: World) -> Any:
    async def backup(request: web.Request) -> web.Response:
        sandbox = find_settled(world, request)
        if sandbox.backup_state == "InProgress":
            raise conflict("Sandbox backup is already in progress")
        if sandbox.state not in ("started", "stopped"):
            raise bad_request("Sandbox must be started or stopped to create a backup")
        sandbox.backup_state = "InProgress"

        def over() -> None:
            sandbox.backup_state, sandbox.backup_at_s = "Completed", world.clock.now_s()

        world.clock.call_at(world.clock.now_s() + world.settings.lasting_s("backup"), over)
        return web.json_response(bodies.sandbox(world, sandbox))

    return backup
