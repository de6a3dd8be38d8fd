"""Reads and writes files in volumes on Daytona, for `cp`, `ls` and `rm`. Daytona shows a volume to
sandboxes alone, so each verb has a small one of its own, from one of Daytona's snapshots, and
deletes it. A sandbox that a killed command leaves ends after a time without use, and is an orphan
until then.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from secrets import token_hex

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.volume_files import (
    CONTENTS_READ_S,
    FileCopy,
    FileEntry,
    Tell,
    VolumeFiles,
    clean_path,
    download_beside,
    is_a_directory,
    no_volume,
    path_missing,
    split_batches,
)
from fleetctl.providers.daytona.assets import daytona_volumes
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_connection import DaytonaConnection
from fleetctl.providers.daytona.connection.daytona_errors import retryable_call
from fleetctl.providers.daytona.runs import single_create
from fleetctl.providers.daytona.runs.daytona_endings import ENDS_LABEL
from fleetctl.providers.daytona.runs.sandbox_deletes import end_sandbox
from fleetctl.providers.remote.assets.volume_listing import (
    list_command,
    listing_error,
    look_command,
    parse_listing,
)
from fleetctl.providers.remote.sandboxes import sandbox_names

MOUNT = "/volume"
START_S = 120.0
LIST_S = 60.0
TRANSFER_S = 3600.0  # for a batch, or for the download of a file
LIFE_MINUTES = 180  # the helper ends then, whatever becomes of us
END_S = 60.0
BATCH_FILES_MAX = 50
BATCH_BYTES_MAX = 256 * 1024**2


class DaytonaFiles:
    """home is not needed: no state is kept between two verbs. store_id: the store whose tag helpers
    carry.
    """

    def __init__(
        self,
        home: Path,
        account: Account,
        *,
        store_id: str = "",
    ) -> None:
        del home
        self._account = account
        self._store_id = store_id

    async def entries(
        self,
        volume: str,
        path: str,
        *,
        recursive: bool = False,
        contents: str = "",
    ) -> Sequence[FileEntry]:
        wanted = clean_path(path)
        async with self._helper(volume) as helper:
            return await _list_entries(
                helper, volume, wanted, recursive=recursive, contents=contents
            )

    async def put(
        self,
        volume: str,
        files: Sequence[FileCopy],
        *,
        tell: Tell,
    ) -> None:
        async with self._helper(volume) as helper:
            folders = {str(PurePosixPath(_mounted_path(one.remote)).parent) for one in files}
            await _run_helper(helper, f"mkdir -p {shlex.join(sorted(folders))}", volume)
            for batch in split_batches(files, files_max=BATCH_FILES_MAX, bytes_max=BATCH_BYTES_MAX):
                uploads = [
                    sdk.FileUpload(str(one.local), _mounted_path(one.remote)) for one in batch
                ]
                what = f"volume/{volume} cannot be written to"
                async with retryable_call(what, deadline_s=TRANSFER_S):
                    await helper.fs.upload_files(uploads)
                tell(sum(one.size for one in batch))

    async def get(
        self,
        volume: str,
        files: Sequence[FileCopy],
        *,
        tell: Tell,
    ) -> None:
        async with self._helper(volume) as helper:
            for one in files:
                await _download_file(helper, volume, one)
                tell(one.size)

    async def remove(
        self,
        volume: str,
        path: str,
        *,
        recursive: bool = False,
    ) -> None:
        wanted = clean_path(path)
        quoted = shlex.quote(f"./{wanted}")
        async with self._helper(volume) as helper:
            reply = await _list_entries(helper, volume, wanted, recursive=False)
            if not recursive and [one.path for one in reply] != [wanted]:
                raise is_a_directory(path)
            # The volume's top stays: it is a mount.
            command = f"rm -rf {quoted}" if wanted else "find . -mindepth 1 -delete"
            await _run_helper(helper, look_command(MOUNT, quoted) + command, volume, path)

    async def size(self, volume: str) -> int | None:
        del volume
        return None  # a sandbox for a number would cost more than it is worth

    @asynccontextmanager
    async def _helper(self, volume: str) -> AsyncIterator[sdk.AsyncSandbox]:
        """Yields a sandbox with the volume in it, for the time of a verb."""
        connection = DaytonaConnection(account=lambda: self._account)
        try:
            client = await connection.client()
            found = await daytona_volumes.find_volume(client, volume)
            if found is None:
                raise no_volume("Daytona", volume)
            params = _helper_params(self._store_id, volume, found.id)
            what = "no sandbox for the volume's files"
            helper = await single_create.make_single(client, params, what, deadline_s=START_S)
            try:
                yield helper
            finally:
                await asyncio.shield(end_sandbox(client, helper, deadline_s=END_S))
        finally:
            await connection.close()


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


async def _list_entries(
    helper: sdk.AsyncSandbox,
    volume: str,
    path: str,
    *,
    recursive: bool,
    contents: str = "",
) -> list[FileEntry]:
    command = list_command(MOUNT, path, recursive=recursive, contents=contents)
    deadline_s = LIST_S + CONTENTS_READ_S if contents else LIST_S
    reply = await _run_helper(helper, command, volume, path, deadline_s=deadline_s)
    return parse_listing(reply, path)


async def _run_helper(
    helper: sdk.AsyncSandbox,
    command: str,
    volume: str,
    path: str = "",
    *,
    deadline_s: float = LIST_S,
) -> str:
    async with retryable_call(f"volume/{volume} cannot be reached", deadline_s=deadline_s):
        answer = await helper.process.exec(command, timeout=int(deadline_s))
    if error := listing_error(int(answer.exit_code), volume, path):
        raise error
    if answer.exit_code:
        output = " ".join(answer.result.split())[-300:]
        raise Refused(f"volume/{volume}: {output}", hint=f"fleetctl ls volume/{volume}")
    return answer.result


async def _download_file(
    helper: sdk.AsyncSandbox,
    volume: str,
    one: FileCopy,
) -> None:
    with download_beside(one.local) as temporary:
        async with retryable_call(f"volume/{volume} cannot be read", deadline_s=TRANSFER_S):
            try:
                await helper.fs.download_file(_mounted_path(one.remote), str(temporary))
            except sdk.DaytonaFileNotFoundError as error:
                raise path_missing(volume, one.remote) from error


def _mounted_path(remote: str) -> str:
    return f"{MOUNT}/{clean_path(remote)}"


_: type[VolumeFiles] = DaytonaFiles
