"""Files in volumes on Modal, for `cp`, `ls` and `rm`: through the SDK, without a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import NotFound, Refused, Unavailable
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.volume_files import (
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
from fleetctl.providers.modal.assets import modal_volumes
from fleetctl.providers.modal.connection.modal_connection import ModalConnection
from fleetctl.providers.modal.connection.modal_errors import retryable_call
from fleetctl.providers.modal.connection.workspace import WorkspaceMemory

if TYPE_CHECKING:
    import modal

LIST_S = 60.0
SIZE_S = 10.0  # `describe` waits no longer for a number
CHANGE_S = 60.0
BATCH_FILES_MAX = 100  # of an upload, which reports when the batch is done
BATCH_BYTES_MAX = 256 * 1024**2
TRANSFER_S = 3600.0  # for an upload, or for the download of a file
DOWNLOADS_AT_ONCE = 8


class ModalFiles:
    """Has a connection of its own, made at the first call; refuses a workspace that is not the
    store's.
    """

    def __init__(
        self,
        home: Path,
        account: Account,
        *,
        store_id: str = "",
    ) -> None:
        del store_id  # no sandbox is needed for a look, which would carry it
        memory = WorkspaceMemory(account.directory(home))
        self._connection = ModalConnection("files", account=lambda: account, memory=memory)

    async def entries(
        self,
        volume: str,
        path: str,
        *,
        recursive: bool = False,
        contents: str = "",
    ) -> Sequence[FileEntry]:
        del contents  # a listing has none, and reading them would be a call a file
        found = await self._volume(volume)
        wanted = clean_path(path)
        from modal import exception as sdk

        async with retryable_call(f"volume/{volume} cannot be listed", deadline_s=LIST_S):
            try:
                listed = await found.listdir.aio(f"/{wanted}", recursive=recursive)
            except sdk.NotFoundError as error:
                raise path_missing(volume, wanted) from error
        return sorted(_file_entry(one) for one in listed if one.type.name in ("FILE", "DIRECTORY"))

    async def put(
        self,
        volume: str,
        files: Sequence[FileCopy],
        *,
        tell: Tell,
    ) -> None:
        found = await self._volume(volume)
        for batch in split_batches(files, files_max=BATCH_FILES_MAX, bytes_max=BATCH_BYTES_MAX):
            what = f"volume/{volume} cannot be written to"
            async with (
                retryable_call(what, deadline_s=TRANSFER_S),
                found.batch_upload.aio(force=True) as uploading,
            ):
                for one in batch:
                    uploading.put_file(one.local, f"/{clean_path(one.remote)}")
            tell(sum(one.size for one in batch))

    async def get(
        self,
        volume: str,
        files: Sequence[FileCopy],
        *,
        tell: Tell,
    ) -> None:
        found = await self._volume(volume)
        slots = asyncio.Semaphore(DOWNLOADS_AT_ONCE)

        async def fetch(one: FileCopy) -> None:
            async with slots:
                await _download_file(found, volume, one, tell)

        try:
            async with asyncio.TaskGroup() as group:
                for one in files:
                    group.create_task(fetch(one))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # the first error is enough to report

    async def remove(
        self,
        volume: str,
        path: str,
        *,
        recursive: bool = False,
    ) -> None:
        found = await self._volume(volume)
        wanted = clean_path(path)
        reply = await self.entries(volume, wanted)
        if not recursive and [one.path for one in reply] != [wanted]:
            raise is_a_directory(path)
        async with retryable_call(f"volume/{volume} cannot be changed", deadline_s=CHANGE_S):
            try:
                await found.remove_file.aio(f"/{wanted}", recursive=recursive)
            except FileNotFoundError as error:
                raise path_missing(volume, wanted) from error

    async def size(self, volume: str) -> int | None:
        try:
            async with asyncio.timeout(SIZE_S):
                return sum(one.size for one in await self.entries(volume, "", recursive=True))
        except (TimeoutError, NotFound, Refused, Unavailable):
            return None

    async def _volume(self, name: str) -> modal.Volume:
        found = await modal_volumes.find_volume(await self._connection.client(), name)
        if found is None:
            raise no_volume("Modal", name)
        return found


async def _download_file(
    found: modal.Volume,
    volume: str,
    one: FileCopy,
    tell: Tell,
) -> None:
    with download_beside(one.local) as temporary:
        async with retryable_call(f"volume/{volume} cannot be read", deadline_s=TRANSFER_S):
            with temporary.open("wb") as writer:
                try:
                    async for piece in found.read_file.aio(f"/{clean_path(one.remote)}"):
                        writer.write(piece)
                        tell(len(piece))
                except FileNotFoundError as error:
                    raise path_missing(volume, one.remote) from error


def _file_entry(one: modal.types.FileEntry) -> FileEntry:
    is_directory = one.type.name == "DIRECTORY"
    return FileEntry(one.path.strip("/"), is_directory, 0 if is_directory else one.size, one.mtime)


_: type[VolumeFiles] = ModalFiles
