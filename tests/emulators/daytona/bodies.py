"""What callers are shown: the answers' bodies, as the specification and the client's models say.

Keys whose value is unknown are left out, but for those that must be present though null.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from .state import (
    ORGANIZATION_ID,
    USER_ID,
    Build,
    Grant,
    Sandbox,
    Secret,
    Snapshot,
    Volume,
    WarmPool,
    World,
)

DAEMON_VERSION = "0.226.1"
RUNNER_ID = "5a8c2f6e-0f0e-4a0e-8a51-51f4a1d0c001"
# Told by a sandbox itself, and not by a list.
ONLY_WHOLE = (
    "env",
    "kvm",
    "volumes",
    "buildInfo",
    "backupCreatedAt",
    "outboundProxyUrl",
    "otelEndpointOverride",
    "linkedSandboxId",
)


def sandbox(world: World, one: Sandbox) -> dict[str, Any]:
    body = {
        "id": one.id,
        "organizationId": ORGANIZATION_ID,
        "name": one.name,
        "snapshot": one.snapshot,
        "user": one.user,
        "env": dict(one.env),
        "labels": dict(one.labels),
        "public": one.public,
        "kvm": one.kvm,
        "target": one.region,
        "volumes": [_mount(mount) for mount in one.mounts],
        "buildInfo": build(world, one.build) if one.build else None,
        "sandboxClass": one.sandbox_class,
        "daemonVersion": DAEMON_VERSION,
        "runnerId": RUNNER_ID if one.state != "archived" else None,
        "linkedSandboxId": one.linked_to,
        "otelEndpointOverride": one.otel_endpoint,
        "warmPoolId": one.warm_pool_id,
        "toolboxProxyUrl": f"{world.url}/toolbox",
        **_resources(one),
        **_network(one),
        **_life(world, one),
    }
    return told(body)


def text(body: Any, **_: Any) -> str:
    """JSON, in a fourth of the time that `json` takes; in its place where that is to be given."""
    try:
        return to_json(body).decode()
    except PydanticSerializationError:
        return json.dumps(body)  # half of a pair of surrogates, which only `json` can write


def list_item(body: dict[str, Any]) -> dict[str, Any]:
    """What a list tells of what a sandbox itself tells."""
    return {key: value for key, value in body.items() if key not in ONLY_WHOLE}


def build(world: World, one: Build) -> dict[str, Any]:
    return {
        "dockerfileContent": one.dockerfile,
        "contextHashes": list(one.context_hashes),
        "createdAt": world.clock.iso(one.created_at_s),
        "updatedAt": world.clock.iso(one.updated_at_s),
        "snapshotRef": one.reference,
    }


def snapshot(world: World, one: Snapshot) -> dict[str, Any]:
    must = {
        "size": one.size_gib,
        "entrypoint": one.entrypoint,
        "errorReason": one.error_reason,
        "lastUsedAt": _at(world, one.last_used_at_s),
        "sourceSandboxId": one.source_sandbox_id,
    }
    may = {
        "id": one.id,
        "organizationId": None if one.general else ORGANIZATION_ID,
        "general": one.general,
        "name": one.name,
        "imageName": one.image_name,
        "state": one.state,
        "cpu": one.resources.cpu,
        "gpu": one.resources.gpu,
        "gpuType": one.resources.gpu_type,
        "mem": one.resources.memory,
        "disk": one.resources.disk,
        "createdAt": world.clock.iso(one.created_at_s),
        "updatedAt": world.clock.iso(one.updated_at_s),
        "buildInfo": build(world, one.build) if one.build else None,
        "regionIds": [one.region],
        "initialRunnerId": RUNNER_ID,
        "ref": one.image.reference if one.image else None,
        "sandboxClass": one.sandbox_class,
    }
    # The specification wants a list where the platform has nothing; so do its models.
    must["entrypoint"] = must["entrypoint"] or []
    return {**told(may), **must}


def volume(world: World, one: Volume) -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "organizationId": ORGANIZATION_ID,
        "state": one.state,
        "createdAt": world.clock.iso(one.created_at_s),
        "updatedAt": world.clock.iso(one.updated_at_s),
        "lastUsedAt": _at(world, one.last_used_at_s),
        "errorReason": one.error_reason,
    }


def secret(world: World, one: Secret) -> dict[str, Any]:
    body = {
        "id": one.id,
        "name": one.name,
        "description": one.description,
        "placeholder": one.placeholder,
        "hosts": list(one.hosts),
        "createdAt": world.clock.iso(one.created_at_s),
        "updatedAt": world.clock.iso(one.updated_at_s),
    }
    return told(body)


def warm_pool(world: World, one: WarmPool) -> dict[str, Any]:
    found = world.snapshot_named(one.snapshot)
    assert found is not None, "a pool's snapshot is looked up when the pool is made"
    waiting = [s for s in world.present() if s.warm_pool_id == one.id and s.state == "started"]
    return {
        "id": one.id,
        "organizationId": ORGANIZATION_ID,
        "snapshot": one.snapshot,
        "target": one.target,
        "pool": one.pool,
        "currentSize": len(waiting),
        "cpu": found.resources.cpu,
        "mem": found.resources.memory,
        "disk": found.resources.disk,
        "osUser": "daytona",
        "env": {},
        "errorReason": None,
        "createdAt": world.clock.iso(one.created_at_s),
        "updatedAt": world.clock.iso(one.updated_at_s),
    }


def ssh_access(world: World, one: Grant) -> dict[str, Any]:
    created = world.clock.iso(one.created_at_s)
    return {
        "id": one.id,
        "sandboxId": one.sandbox_id,
        "token": one.token,
        "expiresAt": world.clock.iso(one.expires_at_s),
        "createdAt": created,
        "updatedAt": created,
        "sshCommand": f"ssh -p 2222 {one.token}@127.0.0.1",
    }


def organization(world: World) -> dict[str, Any]:
    quota, since = world.settings.quota, "2026-01-01T00:00:00.000Z"
    rate = world.settings.rate_per_minute
    return {
        "id": ORGANIZATION_ID,
        "name": "Personal",
        "createdBy": USER_ID,
        "personal": True,
        "createdAt": since,
        "updatedAt": since,
        "suspended": False,
        "suspendedAt": since,
        "suspensionReason": "",
        "suspendedUntil": since,
        "suspensionCleanupGracePeriodHours": 24,
        "maxCpuPerSandbox": quota.cpu_per_sandbox,
        "maxMemoryPerSandbox": quota.memory_per_sandbox,
        "maxDiskPerSandbox": quota.disk_per_sandbox,
        "secretQuota": quota.secrets,
        "maxSecretsPerSandbox": quota.secrets,
        "snapshotDeactivationTimeoutMinutes": 20160,
        "sandboxLimitedNetworkEgress": world.settings.restricted_egress,
        "previewWarningEnabled": False,
        "ssoEnabled": False,
        "scimEnabled": False,
        "defaultQueueTimeout": world.settings.default_queue_minutes,
        "defaultRegionId": "us",
        "authenticatedRateLimit": rate["authenticated"],
        "sandboxCreateRateLimit": rate["sandbox-create"],
        "sandboxLifecycleRateLimit": rate["sandbox-lifecycle"],
        "experimentalConfig": {},
        "otelConfig": None,
        "authenticatedRateLimitTtlSeconds": 60,
        "sandboxCreateRateLimitTtlSeconds": 60,
        "sandboxLifecycleRateLimitTtlSeconds": 60,
    }


def told(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value is not None}


def _life(world: World, one: Sandbox) -> dict[str, Any]:
    return {
        "state": one.state,
        "desiredState": one.desired,
        "errorReason": one.error_reason,
        "recoverable": one.recoverable,
        "backupState": one.backup_state,
        "backupCreatedAt": _at(world, one.backup_at_s),
        "autoStopInterval": one.intervals.stop,
        "autoPauseInterval": one.intervals.pause,
        "autoArchiveInterval": one.intervals.archive,
        "autoDeleteInterval": one.intervals.delete,
        "autoDestroyAt": _at(world, one.destroy_at_s),
        "queueTimeout": one.queue_timeout,
        "spotEvictedAt": _at(world, one.spot_evicted_at_s),
        "queueTimedOutAt": _at(world, one.queue_timed_out_at_s),
        "createdAt": world.clock.iso(one.created_at_s),
        "updatedAt": world.clock.iso(one.updated_at_s),
        "lastActivityAt": world.clock.iso(one.activity_at_s),
    }


def _resources(one: Sandbox) -> dict[str, Any]:
    has = one.resources
    return {
        "cpu": has.cpu,
        "memory": has.memory,
        "disk": has.disk,
        "gpu": has.gpu,
        "gpuType": has.gpu_type,
        "spot": one.spot,
    }


def _network(one: Sandbox) -> dict[str, Any]:
    return {
        "networkBlockAll": one.network.block_all,
        "networkAllowList": one.network.allow_list,
        "domainAllowList": one.network.domains,
        "outboundProxyUrl": one.network.proxy_url,
    }


def _mount(mount: Any) -> dict[str, Any]:
    body = {"volumeId": mount.volume_id, "mountPath": mount.path, "subpath": mount.subpath}
    return told(body)


def _at(world: World, at_s: float | None) -> str | None:
    return None if at_s is None else world.clock.iso(at_s)
