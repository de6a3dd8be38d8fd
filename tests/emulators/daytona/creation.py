"""From a create request to a sandbox: what is checked, in which order, and what it gets."""

from __future__ import annotations

from typing import Any

from . import builds, quotas
from .asking import (
    Check,
    fields,
    flag,
    lines,
    listed,
    named_texts,
    named_texts_list,
    text,
    texts,
    whole,
)
from .errors import Refused, bad_request, conflict, not_found
from .settings import Settings
from .state import (
    REGIONS,
    Image,
    Intervals,
    Mount,
    Network,
    Resources,
    Sandbox,
    Snapshot,
    World,
    new_id,
    text_map,
)

DEFAULT_SNAPSHOT = "daytona-small"
GPU_REGION = "earth"
SYSTEM_DIRECTORIES = ("proc", "sys", "dev", "boot", "etc", "bin", "sbin", "lib", "lib64")
NAME_LENGTH_MAX = 255
BUILD_INFO = fields(dockerfileContent=lines, contextHashes=texts)
FIELDS: dict[str, Check] = {
    **dict.fromkeys(("name", "snapshot", "user", "target", "linkedSandbox"), text),
    **dict.fromkeys(("networkAllowList", "domainAllowList", "outboundProxyUrl"), text),
    **dict.fromkeys(("autoStopInterval", "autoPauseInterval", "autoArchiveInterval"), whole),
    **dict.fromkeys(("autoDeleteInterval", "ttlMinutes", "queueTimeout"), whole),
    **dict.fromkeys(("cpu", "memory", "disk", "gpu"), whole),
    **dict.fromkeys(("public", "networkBlockAll", "spot", "kvm"), flag),
    **dict.fromkeys(("env", "labels"), named_texts),
    "otelEndpointOverride": text,
    "gpuType": texts,
    "secrets": named_texts_list,
    "volumes": listed(fields(volumeId=text, mountPath=text, subpath=text)),
    "buildInfo": BUILD_INFO,
}


def new_sandbox(world: World, wanted: dict[str, Any]) -> Sandbox:
    """Checked and registered, not yet begun. Raises Refused with what the platform would answer."""
    name = wanted.get("name")
    if name is not None:
        check_name(world, str(name))
    sandbox = _described(world, wanted)
    _choose_source(world, sandbox, wanted)
    _check_gpu(world.settings, sandbox)
    quotas.check_new(world, sandbox.resources)
    sandbox.mounts = [_mount(world, one) for one in wanted.get("volumes") or []]
    sandbox.secrets = secrets_of(world, wanted.get("secrets") or [])
    _link(world, sandbox, wanted.get("linkedSandbox"))
    register(world, sandbox)
    return sandbox


def register(world: World, sandbox: Sandbox) -> None:
    sandbox.directory = world.box_directory / sandbox.id
    world.sandboxes[sandbox.id] = world.here[sandbox.id] = sandbox
    world.names[sandbox.name] = sandbox.id


def check_name(world: World, name: str) -> None:
    if not name or len(name) > NAME_LENGTH_MAX:
        raise bad_request("Sandbox name must be between 1 and 255 characters")
    if name in world.names or name in world.sandboxes:
        raise conflict(f"Sandbox with name {name} already exists")


def check_region(asked: str | None) -> str:
    if asked is not None and asked not in REGIONS:
        raise not_found(f"Region {asked} not found")
    return asked or REGIONS[0]


def _described(world: World, wanted: dict[str, Any]) -> Sandbox:
    now_s, sandbox_id = world.clock.now_s(), new_id()
    ttl = wanted.get("ttlMinutes") or 0
    return Sandbox(
        id=sandbox_id,
        name=str(wanted.get("name") or sandbox_id),
        created_at_s=now_s,
        updated_at_s=now_s,
        activity_at_s=now_s,
        region=check_region(wanted.get("target")),
        user=wanted.get("user") or "daytona",
        env=text_map(wanted.get("env")),
        labels=text_map(wanted.get("labels")),
        public=bool(wanted.get("public")),
        kvm=bool(wanted.get("kvm")),
        spot=bool(wanted.get("spot")),
        intervals=_intervals(wanted),
        network=_network(world.settings, wanted),
        otel_endpoint=wanted.get("otelEndpointOverride"),
        queue_timeout=wanted.get("queueTimeout") or world.settings.default_queue_minutes or None,
        destroy_at_s=now_s + min(ttl * 60, world.settings.lifespan_s) if ttl else None,
    )


def _intervals(wanted: dict[str, Any]) -> Intervals:
    chosen = Intervals()
    pause = wanted.get("autoPauseInterval")
    if wanted.get("autoStopInterval") is not None:
        chosen.stop = wanted["autoStopInterval"]
    elif pause:
        chosen.stop = 0
    chosen.pause = pause or 0
    if wanted.get("autoArchiveInterval") is not None:
        chosen.archive = wanted["autoArchiveInterval"]
    if wanted.get("autoDeleteInterval") is not None:
        chosen.delete = wanted["autoDeleteInterval"]
    if chosen.stop < 0 or chosen.archive < 0 or chosen.pause < 0:
        raise bad_request("Intervals must be non-negative integers")
    if chosen.stop and chosen.pause:
        raise bad_request("autoStopInterval and autoPauseInterval are mutually exclusive")
    if chosen.pause and chosen.delete == 0:
        raise bad_request("Ephemeral sandboxes cannot have auto-pause enabled")
    return chosen


def _network(settings: Settings, wanted: dict[str, Any]) -> Network:
    return Network(
        block_all=bool(wanted.get("networkBlockAll")) or settings.restricted_egress,
        allow_list=wanted.get("networkAllowList"),
        domains=wanted.get("domainAllowList"),
        proxy_url=wanted.get("outboundProxyUrl"),
    )


def _choose_source(world: World, sandbox: Sandbox, wanted: dict[str, Any]) -> None:
    """An image that is built with resources of its own, or a snapshot with its resources."""
    if wanted.get("buildInfo"):
        sandbox.build = builds.of(world, wanted["buildInfo"])
        sandbox.snapshot = sandbox.build.reference
        sandbox.image = sandbox.build.image or Image(sandbox.build.reference)
        sandbox.resources = resources(world.settings, wanted)
        return
    if any(wanted.get(key) for key in ("cpu", "memory", "disk", "gpu")):
        raise bad_request("Cannot specify Sandbox resources when using a snapshot")
    snapshot = snapshot_for(world, wanted.get("snapshot") or DEFAULT_SNAPSHOT)
    assert snapshot.image is not None
    snapshot.last_used_at_s = world.clock.now_s()
    has = snapshot.resources
    sandbox.snapshot, sandbox.image = snapshot.name, snapshot.image
    sandbox.sandbox_class = snapshot.sandbox_class
    sandbox.resources = Resources(has.cpu, has.memory, has.disk, has.gpu, has.gpu_type)


def snapshot_for(world: World, name: str) -> Snapshot:
    found = world.snapshot_named(name)
    if found is None or found.state == "removing":
        message = f"Snapshot {name} not found. Did you add it through the Daytona Dashboard?"
        raise bad_request(message)
    if found.state != "active":
        raise bad_request(f"Snapshot {name} is {found.state}")
    return found


def resources(settings: Settings, wanted: dict[str, Any]) -> Resources:
    """Whole numbers, or the platform's own where nothing is said."""
    plain = Resources()
    for name in ("cpu", "memory", "disk", "gpu"):
        value = wanted.get(name)
        if value is None:
            continue
        setattr(plain, name, value)
    types = wanted.get("gpuType") or []
    if plain.gpu:
        offered = [kind for kind in types or settings.gpu_types if kind in settings.gpu_types]
        if not offered:
            raise bad_request(f"GPU type {', '.join(types)} is not available")
        plain.gpu_type = offered[0]
    return plain


def _check_gpu(settings: Settings, sandbox: Sandbox) -> None:
    gpu = sandbox.resources.gpu
    if sandbox.spot and not gpu:
        raise bad_request("Spot is only available for GPU sandboxes")
    if gpu and sandbox.intervals.delete != 0:
        raise bad_request("GPU sandboxes must be ephemeral (autoDeleteInterval must be 0)")
    if gpu:
        sandbox.region = GPU_REGION


def _mount(world: World, wanted: dict[str, Any]) -> Mount:
    asked, path = str(wanted.get("volumeId")), str(wanted.get("mountPath"))
    volume = world.volume_named(asked)
    if volume is None:
        raise not_found(f"Volume '{asked}' not found")
    if volume.state != "ready":
        message = f"Volume '{volume.name}' is not in a ready state. Current state: {volume.state}"
        raise bad_request(message)
    parts = path.strip("/").split("/")
    if not path.startswith("/") or parts == [""] or ".." in parts or "//" in path:
        raise bad_request(f"Invalid mount path {path} (must be absolute and within bounds)")
    if parts[0] in SYSTEM_DIRECTORIES:
        raise bad_request(f"Invalid mount path {path} (cannot mount to system directory)")
    subpath = wanted.get("subpath")
    if subpath is not None and (".." in subpath.split("/") or subpath.startswith("/")):
        raise bad_request(f"Invalid subpath {subpath}")
    volume.last_used_at_s = world.clock.now_s()
    return Mount(volume.id, path, subpath)


def secrets_of(world: World, wanted: list[Any]) -> dict[str, str]:
    """Variable to name; each name must be that of a secret."""
    chosen: dict[str, str] = {}
    for entry in wanted:
        chosen |= text_map(entry)
    names = {secret.name for secret in world.secrets.values()}
    missing = sorted(set(chosen.values()) - names)
    if missing:
        raise bad_request(f"Secrets not found: {', '.join(missing)}")
    return chosen


def _link(world: World, sandbox: Sandbox, asked: str | None) -> None:
    if asked is None:
        return
    other = world.sandbox(asked)
    if other is None:
        raise not_found(f"Sandbox with ID or name {asked} not found")
    if sandbox.intervals.delete != 0:
        raise bad_request("Linked sandboxes must be ephemeral (autoDeleteInterval must be 0)")
    if other.linked_to is not None:
        raise Refused(400, "A linked sandbox cannot be linked to another sandbox")
    sandbox.linked_to = other.id
