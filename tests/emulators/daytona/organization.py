"""The organization, its limits, the regions, and what the server says about itself."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from . import bodies, quotas
from .creation import DEFAULT_SNAPSHOT, GPU_REGION
from .errors import not_found
from .state import ORGANIZATION_ID, REGIONS, USER_ID, World

VERSION = "0.226.1"
SINCE = "2026-01-01T00:00:00.000Z"
PERMISSIONS = (
    "write:snapshots",
    "delete:snapshots",
    "write:sandboxes",
    "delete:sandboxes",
    "read:volumes",
    "write:volumes",
    "delete:volumes",
    "manage:secrets",
)


def routes(world: World) -> list[web.RouteDef]:
    async def config(request: web.Request) -> web.Response:
        return web.json_response(_config(world))

    async def health(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "info": {}, "error": {}, "details": {}})

    async def organizations(request: web.Request) -> web.Response:
        return web.json_response([bodies.organization(world)])

    async def organization(request: web.Request) -> web.Response:
        _ours(request)
        return web.json_response(bodies.organization(world))

    async def usage(request: web.Request) -> web.Response:
        _ours(request)
        return web.json_response(_usage(world))

    async def classes(request: web.Request) -> web.Response:
        _ours(request)
        here = [
            {"regionId": name, "sandboxClass": "container", "gpuAvailable": name == GPU_REGION}
            for name in REGIONS
        ]
        return web.json_response(here)

    async def of_sandbox(request: web.Request) -> web.Response:
        if world.sandbox(request.match_info["sandboxId"]) is None:
            raise not_found("Sandbox not found")
        return web.json_response(bodies.organization(world))

    async def quota_of_sandbox(request: web.Request) -> web.Response:
        sandbox = world.sandbox(request.match_info["sandboxId"])
        if sandbox is None:
            raise not_found("Sandbox not found")
        return web.json_response(_region_quota(world, sandbox.region))

    async def regions(request: web.Request) -> web.Response:
        return web.json_response([_region(name) for name in REGIONS])

    async def region(request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if name not in REGIONS:
            raise not_found(f"Region {name} not found")
        return web.json_response(_region(name))

    async def key(request: web.Request) -> web.Response:
        return web.json_response(_key())

    async def user(request: web.Request) -> web.Response:
        return web.json_response(_user())

    async def metrics(request: web.Request) -> web.Response:
        if world.sandbox(request.match_info["sandboxId"]) is None:
            raise not_found("Sandbox not found")
        return web.json_response(_metrics(world, request))

    one = "/api/organizations/{organizationId}"
    of = "/api/sandbox/{sandboxId}"
    return [
        web.get("/api/config", config, name="ConfigController_getConfig"),
        web.get("/api/health", health, name="HealthController_live"),
        web.get("/api/health/ready", health, name="HealthController_check"),
        web.get("/api/organizations", organizations, name="listOrganizations"),
        web.get(one, organization, name="getOrganization"),
        web.get(f"{one}/usage", usage, name="getOrganizationUsageOverview"),
        web.get(f"{one}/available-sandbox-classes", classes, name="listAvailableSandboxClasses"),
        web.get(f"{of}/organization", of_sandbox, name="getOrganizationBySandboxId"),
        web.get(f"{of}/region-quota", quota_of_sandbox, name="getRegionQuotaBySandboxId"),
        web.get(f"{of}/telemetry/metrics", metrics, name="getSandboxMetrics"),
        web.get("/api/shared-regions", regions, name="listSharedRegions"),
        web.get("/api/regions", regions, name="listAvailableRegions"),
        web.get("/api/regions/{id}", region, name="getRegionById"),
        web.get("/api/api-keys/current", key, name="getCurrentApiKey"),
        web.get("/api/users/me", user, name="getAuthenticatedUser"),
    ]


def _ours(request: web.Request) -> None:
    if request.match_info["organizationId"] != ORGANIZATION_ID:
        raise not_found(f"Organization with ID {request.match_info['organizationId']} not found")


def _config(world: World) -> dict[str, Any]:
    return {
        "version": VERSION,
        "oidc": {
            "provider": "dex",
            "issuer": f"{world.url}/dex",
            "clientId": "daytona",
            "audience": "daytona",
        },
        "linkedAccountsEnabled": False,
        "announcements": {},
        "proxyTemplateUrl": f"{world.url}/preview/{{{{sandboxId}}}}/{{{{PORT}}}}",
        "proxyToolboxUrl": f"{world.url}/toolbox",
        "defaultSnapshot": DEFAULT_SNAPSHOT,
        "dashboardUrl": f"{world.url}/dashboard",
        "maxAutoArchiveInterval": 30 * 24 * 60,
        "maintananceMode": False,
        "environment": "emulated",
        "sshGatewayCommand": "ssh -p 2222 {{TOKEN}}@127.0.0.1",
    }


def _usage(world: World) -> dict[str, Any]:
    held = quotas.usage(world)
    quota = world.settings.quota
    volumes = sum(1 for one in world.volumes.values() if one.state != "deleted")
    snapshots = sum(1 for one in world.snapshots.values() if not one.general)
    region = {
        **_region_quota(world, REGIONS[0]),
        "currentCpuUsage": held.cpu,
        "currentMemoryUsage": held.memory,
        "currentDiskUsage": held.disk,
        "currentGpuUsage": held.gpu,
    }
    del region["organizationId"], region["maxSandboxLifespan"]
    return {
        "regionUsage": [region],
        "totalSnapshotQuota": quota.snapshots,
        "currentSnapshotUsage": snapshots,
        "totalVolumeQuota": quota.volumes,
        "currentVolumeUsage": volumes,
    }


def _region_quota(world: World, region: str) -> dict[str, Any]:
    quota = world.settings.quota
    return {
        "organizationId": ORGANIZATION_ID,
        "regionId": region,
        "sandboxClass": "container",
        "totalCpuQuota": quota.cpu,
        "totalMemoryQuota": quota.memory,
        "totalDiskQuota": quota.disk,
        "totalGpuQuota": quota.gpu,
        "allowedGpuTypes": list(world.settings.gpu_types),
        "maxCpuPerSandbox": quota.cpu_per_sandbox,
        "maxMemoryPerSandbox": quota.memory_per_sandbox,
        "maxDiskPerSandbox": quota.disk_per_sandbox,
        "maxDiskPerNonEphemeralSandbox": quota.disk_per_sandbox,
        "maxCpuPerGpu": quota.cpu_per_gpu,
        "maxMemoryPerGpu": quota.memory_per_gpu,
        "maxDiskPerGpu": quota.disk_per_gpu,
        "maxSandboxLifespan": None,
    }


def _region(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "regionType": "shared",
        "createdAt": SINCE,
        "updatedAt": SINCE,
    }


def _key() -> dict[str, Any]:
    return {
        "name": "emulator",
        "value": "dtn_********",
        "createdAt": SINCE,
        "permissions": list(PERMISSIONS),
        "lastUsedAt": None,
        "expiresAt": None,
        "userId": USER_ID,
    }


def _user() -> dict[str, Any]:
    return {
        "id": USER_ID,
        "name": "Emulated User",
        "email": "user@example.com",
        "emailVerified": True,
        "publicKeys": [],
        "createdAt": SINCE,
    }


def _metrics(world: World, request: web.Request) -> dict[str, Any]:
    """What a sandbox has been given, as one point now; nothing here measures it."""
    sandbox = world.sandbox(request.match_info["sandboxId"])
    assert sandbox is not None
    has = sandbox.resources
    values = {
        "daytona.sandbox.cpu.limit": has.cpu,
        "daytona.sandbox.memory.limit": has.memory << 30,
        "daytona.sandbox.filesystem.total": has.disk << 30,
    }
    wanted = [
        part for value in request.query.getall("metricNames", []) for part in value.split(",")
    ]
    at = world.clock.iso()
    chosen = {name: v for name, v in values.items() if not wanted or name in wanted}
    series = [
        {"metricName": name, "dataPoints": [{"timestamp": at, "value": value}]}
        for name, value in chosen.items()
    ]
    return {"series": series}
