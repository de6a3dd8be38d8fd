"""What the organization may have at once. Else: a 400 whose text names the quantity."""

from __future__ import annotations

from .errors import bad_request
from .state import Resources, Sandbox, World

NOTHING_HELD = ("destroyed", "archived", "build_failed")
DISK_ONLY = ("stopped", "paused")  # `error` holds everything: failures are to be deleted


def check_new(world: World, wanted: Resources, *, besides: Sandbox | None = None) -> None:
    _check_size(world, wanted)
    quota, used = world.settings.quota, usage(world, besides=besides)
    limits = (
        ("CPU", wanted.cpu, used.cpu, quota.cpu, ""),
        ("memory", wanted.memory, used.memory, quota.memory, "GiB"),
        ("disk", wanted.disk, used.disk, quota.disk, "GiB"),
        ("GPU", wanted.gpu, used.gpu, quota.gpu, ""),
    )
    for name, more, now, most, unit in limits:
        if more and now + more > most:
            raise bad_request(f"Total {name} limit exceeded. Maximum allowed: {most}{unit}.")


def usage(world: World, *, besides: Sandbox | None = None) -> Resources:
    """Held by everything that is there, whatever a sandbox does with it."""
    held = Resources(cpu=0, memory=0, disk=0)
    for one in world.present():
        if one is besides or one.state in NOTHING_HELD:
            continue
        held.disk += one.resources.disk
        if one.state not in DISK_ONLY:
            held.cpu += one.resources.cpu
            held.memory += one.resources.memory
            held.gpu += one.resources.gpu
    return held


def _check_size(world: World, wanted: Resources) -> None:
    quota = world.settings.quota
    limits = (
        ("CPU", wanted.cpu, quota.cpu_per_sandbox, quota.cpu_per_gpu, ""),
        ("Memory", wanted.memory, quota.memory_per_sandbox, quota.memory_per_gpu, "GB"),
        ("Disk", wanted.disk, quota.disk_per_sandbox, quota.disk_per_gpu, "GB"),
    )
    for name, asked, plain, per_gpu, unit in limits:
        most = per_gpu * wanted.gpu if wanted.gpu else plain
        if asked < 1:
            raise bad_request(f"{name} must be at least 1")
        if asked > most:
            message = (
                f"{name} request {asked}{unit} exceeds maximum allowed per sandbox ({most}{unit})"
            )
            raise bad_request(message)
