"""Volumes on Daytona: found by name, made when missing, mounted once they are ready; their files
are read and written for `cp`, `ls` and `rm`.

A Volume of fleetctl has the same name at Daytona, so that what other programs wrote is found.
Daytona shows a volume to sandboxes alone, so each verb has a small one of its own, from one of
Daytona's snapshots, and deletes it. A sandbox that a killed command leaves ends after a time
without use, and is an orphan until then.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.volume_files import (
    FileCopy,
    VolumeFiles,
    clean_path,
    no_volume,
    path_missing,
)
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_connection import DaytonaConnection
from fleetctl.providers.daytona.connection.daytona_errors import (
    is_conflict,
    is_not_found,
    retryable_call,
)
from fleetctl.providers.daytona.runs import daytona_endings
from fleetctl.providers.daytona.runs.daytona_endings import ENDS_LABEL, end_sandbox
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.service_calls import ToleratedAnswer
from fleetctl.providers.remote.volume_listing import (
    MOUNT,
    TRANSFER_S,
    HelperFiles,
    check_exit,
)
from fleetctl.specs.blocks.template import Template, VolumeMount

if TYPE_CHECKING:
    from daytona.common.volume import Volume


ASK_S = 30.0
READY_S = 120.0  # to be made, or to be deleted
LOOK_S = 0.1
LOOK_MAX_S = 2.0
IN_USE_AFTER_S = 5.0
_GOING = ("pending_delete", "deleting", "deleted")

START_S = 120.0
LIFE_MINUTES = 180  # the helper ends then, whatever becomes of us
END_S = 60.0


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


class DaytonaFiles(HelperFiles):
    """home is not needed: no state is kept between two verbs. store_id: the store whose tag helpers
    carry.
    """

    batch_files_max = 50

    def __init__(self, home: Path, account: Account, *, store_id: str = "") -> None:
        del home
        self._account = account
        self._store_id = store_id

    @asynccontextmanager
    async def _helper(self, volume: str) -> AsyncIterator[DaytonaHelper]:
        connection = DaytonaConnection(account=lambda: self._account)
        try:
            client = await connection.client()
            found = await find_volume(client, volume)
            if found is None:
                raise no_volume("Daytona", volume)
            params = _helper_params(self._store_id, volume, found.id)
            what = "no sandbox for the volume's files"
            helper = await daytona_endings.make_single(client, params, what, deadline_s=START_S)
            try:
                yield DaytonaHelper(helper, volume)
            finally:
                await asyncio.shield(end_sandbox(client, helper, deadline_s=END_S))
        finally:
            await connection.close()


class DaytonaHelper:
    def __init__(self, sandbox: sdk.AsyncSandbox, volume: str) -> None:
        self._sandbox = sandbox
        self._volume = volume

    async def run(self, command: str, *, path: str = "", deadline_s: float = TRANSFER_S) -> str:
        what = f"volume/{self._volume} cannot be reached"
        async with retryable_call(what, deadline_s=deadline_s):
            answer = await self._sandbox.process.exec(command, timeout=int(deadline_s))
        check_exit(int(answer.exit_code), answer.result, volume=self._volume, path=path)
        return answer.result

    async def upload(self, batch: Sequence[FileCopy]) -> None:
        folders = {str(PurePosixPath(_mounted_path(one.remote)).parent) for one in batch}
        await self.run(f"mkdir -p {shlex.join(sorted(folders))}")
        uploads = [sdk.FileUpload(str(one.local), _mounted_path(one.remote)) for one in batch]
        what = f"volume/{self._volume} cannot be written to"
        async with retryable_call(what, deadline_s=TRANSFER_S):
            await self._sandbox.fs.upload_files(uploads)

    async def download(self, one: FileCopy, target: Path) -> None:
        what = f"volume/{self._volume} cannot be read"
        async with retryable_call(what, deadline_s=TRANSFER_S):
            try:
                await self._sandbox.fs.download_file(_mounted_path(one.remote), str(target))
            except sdk.DaytonaFileNotFoundError as error:
                raise path_missing(self._volume, one.remote) from error


def _helper_params(
    store_id: str,
    volume: str,
    volume_id: str,
) -> sdk.CreateSandboxFromSnapshotParams:
    now_s = time.time()
    name = f"fleetctl-files-{token_hex(6)}"
    return sdk.CreateSandboxFromSnapshotParams(
        name=name,
        language="python",
        labels={
            **sandbox_names.helper_tags(store_id, name, volume, now_s),
            ENDS_LABEL: str(int(now_s + 60 * LIFE_MINUTES)),
        },
        volumes=[sdk.VolumeMount(volume_id=volume_id, mount_path=MOUNT)],
        ttl_minutes=LIFE_MINUTES,
        ephemeral=True,
    )


def _mounted_path(remote: str) -> str:
    return f"{MOUNT}/{clean_path(remote)}"


_: type[VolumeFiles] = DaytonaFiles
