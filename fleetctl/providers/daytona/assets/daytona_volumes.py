"""Volumes on Daytona: found by name, made when missing, mounted once they are ready. Called by the
provider.

A Volume of fleetctl has the same name there, so that what other programs wrote is found.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_errors import (
    is_conflict,
    is_not_found,
    retryable_call,
)
from fleetctl.providers.remote.connection.tolerated_answer import ToleratedAnswer
from fleetctl.specs.blocks.template import Template, VolumeMount

if TYPE_CHECKING:
    from daytona.common.volume import Volume

ASK_S = 30.0
READY_S = 120.0  # to be made, or to be deleted
LOOK_S = 0.1
LOOK_MAX_S = 2.0
IN_USE_AFTER_S = 5.0
_GOING = ("pending_delete", "deleting", "deleted")


class DaytonaVolumes:
    """The volumes that one provider has seen ready: looked up once, not once a sandbox."""

    def __init__(self) -> None:
        self._ready: dict[str, str] = {}  # name -> id

    async def mounts(self, client: sdk.AsyncDaytona, template: Template) -> list[sdk.VolumeMount]:
        """The mounts for a create; a volume that is not there is made. Raises Refused and
        Unavailable.
        """
        return [
            sdk.VolumeMount(
                volume_id=await self._id(client, mount.name), mount_path=_mount_path(mount)
            )
            for mount in template.volumes
        ]

    async def ensure(self, client: sdk.AsyncDaytona, name: str) -> None:
        """Makes the volume exist, and waits until it is ready. Idempotent."""
        self.forget(name)
        await self._id(client, name)

    async def remove(self, client: sdk.AsyncDaytona, name: str) -> None:
        """Deletes the volume and all data in it. Raises Unavailable while a sandbox mounts it."""
        self.forget(name)
        volume = await find_volume(client, name)
        if volume is not None and _volume_state(volume) not in _GOING:
            what = f"the volume `{name}` cannot be deleted"
            try:
                async with retryable_call(what, deadline_s=ASK_S):
                    await client.volume.delete(volume)
            except sdk.DaytonaError as error:
                if is_conflict(error):
                    raise Unavailable(
                        f"{what}: a sandbox still mounts it",
                        reason="VolumeInUse",
                        retry_after_s=IN_USE_AFTER_S,
                    ) from error
                if not is_not_found(error):
                    raise
        await _until_gone(client, name)

    def forget(self, name: str) -> None:
        """Looks it up again next time: it may have been deleted and made again."""
        self._ready.pop(name, None)

    async def _id(self, client: sdk.AsyncDaytona, name: str) -> str:
        if name not in self._ready:
            self._ready[name] = (await _wait_ready(client, name)).id
        return self._ready[name]


async def find_volume(client: sdk.AsyncDaytona, name: str) -> Volume | None:
    """Returns the volume with that name, in any state; None without such a volume."""
    with ToleratedAnswer(is_not_found):
        async with retryable_call(f"the volume `{name}` cannot be looked up", deadline_s=ASK_S):
            return await client.volume.get(name)
    return None


async def _wait_ready(client: sdk.AsyncDaytona, name: str) -> Volume:
    what = f"the volume `{name}` is not ready"
    delay_s = LOOK_S
    try:
        async with asyncio.timeout(READY_S):
            while True:
                volume = await find_volume(client, name) or await _make_volume(client, name)
                state = _volume_state(volume) if volume is not None else ""
                if volume is not None and state == "ready":
                    return volume
                if volume is not None and state == "error":
                    raise Refused(
                        f"{what}: {volume.error_reason or 'Daytona reports that it failed'}",
                        hint=f"fleetctl delete volume/{name}, and create it again",
                    )
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 1.5, LOOK_MAX_S)
    except TimeoutError as error:
        raise Unavailable(what, reason="VolumeNotReady", retry_after_s=LOOK_MAX_S) from error


async def _make_volume(client: sdk.AsyncDaytona, name: str) -> Volume | None:
    """Makes the volume; None when another process is making it at this moment."""
    what = f"the volume `{name}` cannot be made"
    try:
        async with retryable_call(what, deadline_s=ASK_S):
            return await client.volume.create(name)
    except (Refused, Exception) as error:
        if is_conflict(error) or "already exists" in str(error):  # a 400, for volumes
            return None
        raise


async def _until_gone(client: sdk.AsyncDaytona, name: str) -> None:
    try:
        async with asyncio.timeout(READY_S):
            while await find_volume(client, name) is not None:
                await asyncio.sleep(LOOK_S)
    except TimeoutError as error:
        what = f"the volume `{name}` is still being deleted"
        raise Unavailable(what, retry_after_s=IN_USE_AFTER_S) from error


def _volume_state(volume: Volume) -> str:
    return str(getattr(volume.state, "value", volume.state))


def _mount_path(mount: VolumeMount) -> str:
    check_writable(mount)
    return mount.mount_path


def check_writable(mount: VolumeMount) -> None:
    """Raises Refused for a mount that Daytona would mount writable all the same."""
    if mount.read_only:
        raise Refused(
            f"volume `{mount.name}` has `readOnly`, and Daytona mounts all volumes writable",
            hint="leave readOnly out, or place the job on another provider",
        )
