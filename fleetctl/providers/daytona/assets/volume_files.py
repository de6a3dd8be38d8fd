"""Files in volumes on Daytona, for `cp`, `ls` and `rm`. Daytona shows a volume to sandboxes alone,
so each verb has a small one of its own, from one of Daytona's snapshots, and deletes it. What a
killed command leaves ends when nobody has used it for a while, and is an orphan until then.
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

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.volume_files import (
    Copy,
    FileEntry,
    Tell,
    VolumeFiles,
    batches,
    beside,
    clean,
    is_a_directory,
    missing,
    no_volume,
)
from fleetctl.providers.daytona.assets import volumes
from fleetctl.providers.daytona.connection.client import Connection
from fleetctl.providers.daytona.connection.errors import asking
from fleetctl.providers.daytona.runs import outright
from fleetctl.providers.daytona.runs.deletes import end
from fleetctl.providers.daytona.runs.endings import ENDS_LABEL
from fleetctl.providers.remote.sandboxes import names

if TYPE_CHECKING:
    import daytona

MOUNT = "/volume"
START_S = 120.0
LIST_S = 60.0
TRANSFER_S = 3600.0  # of one batch, or of one file's download
LIFE_MINUTES = 180  # the helper ends then, whatever becomes of us
END_S = 60.0
BATCH_FILES_MAX = 50
BATCH_BYTES_MAX = 256 * 1024**2
NOTHING = 44  # what a command below answers where there is nothing at the path
_LOOK = f"cd {MOUNT} && [ -e {{path}} ] || exit {NOTHING}; "
# `%P` of what a directory holds; of a file that is named, only `%p` says its path.
_FIND = "find {path} {depth} \\( -type f -o -type d \\) -printf '%y %s %T@ %p\\0'"


class DaytonaFiles:
    """home is not needed: nothing is kept between two verbs. store_id: whose tag helpers carry."""

    def __init__(self, home: Path, account: Account, *, store_id: str = "") -> None:
        del home
        self._account = account
        self._store_id = store_id

    async def entries(
        self, volume: str, path: str, *, recursive: bool = False
    ) -> Sequence[FileEntry]:
        wanted = clean(path)
        async with self._helper(volume) as helper:
            return await _entries(helper, volume, wanted, recursive=recursive)

    async def put(self, volume: str, files: Sequence[Copy], *, tell: Tell) -> None:
        import daytona

        async with self._helper(volume) as helper:
            folders = {str(PurePosixPath(_place(one.remote)).parent) for one in files}
            await _run(helper, f"mkdir -p {shlex.join(sorted(folders))}", volume)
            for batch in batches(files, files_max=BATCH_FILES_MAX, bytes_max=BATCH_BYTES_MAX):
                uploads = [daytona.FileUpload(str(one.local), _place(one.remote)) for one in batch]
                what = f"volume/{volume} cannot be written to"
                async with asking(what, deadline_s=TRANSFER_S):
                    await helper.fs.upload_files(uploads)
                tell(sum(one.size for one in batch))

    async def get(self, volume: str, files: Sequence[Copy], *, tell: Tell) -> None:
        async with self._helper(volume) as helper:
            for one in files:
                await _download(helper, volume, one)
                tell(one.size)

    async def remove(self, volume: str, path: str, *, recursive: bool = False) -> None:
        wanted = clean(path)
        quoted = shlex.quote(f"./{wanted}")
        async with self._helper(volume) as helper:
            reply = await _entries(helper, volume, wanted, recursive=False)
            if not recursive and [one.path for one in reply] != [wanted]:
                raise is_a_directory(path)
            # The volume's top stays: it is a mount.
            command = f"rm -rf {quoted}" if wanted else "find . -mindepth 1 -delete"
            await _run(helper, _LOOK.format(path=quoted) + command, volume, path)

    async def size(self, volume: str) -> int | None:
        del volume
        return None  # a sandbox for a number would cost more than it is worth

    @asynccontextmanager
    async def _helper(self, volume: str) -> AsyncIterator[daytona.AsyncSandbox]:
        """A sandbox with the volume in it, for the time of one verb."""
        connection = Connection(account=lambda: self._account)
        try:
            client = await connection.client()
            found = await volumes.find(client, volume)
            if found is None:
                raise no_volume("Daytona", volume)
            params = _params(self._store_id, volume, found.id)
            what = "no sandbox for the volume's files"
            helper = await outright.make(client, params, what, deadline_s=START_S)
            try:
                yield helper
            finally:
                await asyncio.shield(end(client, helper, deadline_s=END_S))
        finally:
            await connection.close()


def _params(store_id: str, volume: str, volume_id: str) -> daytona.CreateSandboxFromSnapshotParams:
    import daytona

    now_s, name = time.time(), f"fleetctl-files-{token_hex(6)}"
    return daytona.CreateSandboxFromSnapshotParams(
        name=name,
        language="python",
        labels={
            **names.helper_tags(store_id, name, volume, now_s),
            ENDS_LABEL: str(int(now_s + 60 * LIFE_MINUTES)),
        },
        volumes=[daytona.VolumeMount(volume_id=volume_id, mount_path=MOUNT)],
        ttl_minutes=LIFE_MINUTES,
        ephemeral=True,
    )


async def _entries(
    helper: daytona.AsyncSandbox, volume: str, path: str, *, recursive: bool
) -> list[FileEntry]:
    quoted = shlex.quote(f"./{path}" if path else ".")
    depth = "" if recursive else "-maxdepth 1"
    command = _LOOK.format(path=quoted) + _FIND.format(path=quoted, depth=depth)
    reply = await _run(helper, command, volume, path)
    found = [_entry(line) for line in reply.split("\0") if line]
    # A directory that was asked for is not in itself.
    return sorted(one for one in found if not (one.is_directory and one.path == path))


def _entry(line: str) -> FileEntry:
    sort, size, modified, path = line.split(" ", 3)
    is_directory = sort == "d"
    shown = path.removeprefix(".").removeprefix("/")
    return FileEntry(shown, is_directory, 0 if is_directory else int(size), float(modified))


async def _run(helper: daytona.AsyncSandbox, command: str, volume: str, path: str = "") -> str:
    async with asking(f"volume/{volume} cannot be reached", deadline_s=LIST_S):
        answer = await helper.process.exec(command, timeout=int(LIST_S))
    if answer.exit_code == NOTHING:
        raise missing(volume, path)
    if answer.exit_code:
        output = " ".join(answer.result.split())[-300:]
        raise Refused(f"volume/{volume}: {output}", hint=f"fleetctl ls volume/{volume}")
    return answer.result


async def _download(helper: daytona.AsyncSandbox, volume: str, one: Copy) -> None:
    from daytona import DaytonaFileNotFoundError

    with beside(one.local) as temporary:
        async with asking(f"volume/{volume} cannot be read", deadline_s=TRANSFER_S):
            try:
                await helper.fs.download_file(_place(one.remote), str(temporary))
            except DaytonaFileNotFoundError as error:
                raise missing(volume, one.remote) from error


def _place(remote: str) -> str:
    return f"{MOUNT}/{clean(remote)}"


_: type[VolumeFiles] = DaytonaFiles
