"""Volumes and secrets that Modal keeps, by name: volumes are made when missing and mounted, their
files are read and written through the SDK, without a sandbox.

A Volume of fleetctl has the same name at Modal, so that files of other programs are found. A volume
made here has version 2, which keeps the files that a task `sync`s while it runs; an existing volume
is used as it is, also with version 1, which Modal commits only when a sandbox ends. Secrets are
looked up before a start; their values never come here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

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
from fleetctl.providers.modal.connection.modal_connection import ModalConnection, WorkspaceMemory
from fleetctl.providers.modal.connection.modal_errors import retryable_call
from fleetctl.specs.blocks.template import Template

if TYPE_CHECKING:
    import modal


VERSION = 2
ASK_S = 30.0

LIST_S = 60.0
SIZE_S = 10.0  # `describe` waits no longer for a number
CHANGE_S = 60.0
BATCH_FILES_MAX = 100  # of an upload, which reports when the batch is done
BATCH_BYTES_MAX = 256 * 1024**2
TRANSFER_S = 3600.0  # for an upload, or for the download of a file
DOWNLOADS_AT_ONCE = 8

FRESH_S = 60.0  # for this time a secret that was found is not looked up again


class ModalVolumes:
    """The volumes that one provider knows of each client: looked up once, not once a sandbox."""

    def __init__(self) -> None:
        self._found: WeakKeyDictionary[modal.Client, dict[str, modal.Volume]]
        self._found = WeakKeyDictionary()

    async def mounts(self, client: modal.Client, template: Template) -> dict[str, modal.Volume]:
        """Volumes by their mount paths, for `Sandbox.create`; one that is not there is made.

        Raises Refused and Unavailable.
        """
        mounts: dict[str, modal.Volume] = {}
        for mount in template.volumes:
            volume = await self._volume(client, mount.name)
            if mount.read_only:
                volume = volume.with_mount_options(read_only=True)
            mounts[mount.mount_path] = volume
        return mounts

    async def committed_late(self, client: modal.Client, template: Template) -> tuple[str, ...]:
        """Names of the volumes to which a sandbox may write and which Modal commits only when that
        ends: those of version 1. Raises Refused and Unavailable.
        """
        names = dict.fromkeys(it.name for it in template.volumes if not it.read_only)
        return tuple([it for it in names if _is_of_version_1(await self._volume(client, it))])

    async def ensure(self, client: modal.Client, name: str) -> None:
        """Makes the volume exist. Idempotent. Raises Refused and Unavailable."""
        self.forget(client, name)
        await self._volume(client, name)

    async def remove(self, client: modal.Client, name: str) -> None:
        """Deletes the volume and all data in it. Idempotent. Raises Refused and Unavailable."""
        import modal

        self.forget(client, name)
        async with retryable_call(f"the volume `{name}` cannot be deleted", deadline_s=ASK_S):
            await modal.Volume.objects.delete.aio(name, allow_missing=True, client=client)

    def forget(self, client: modal.Client, name: str) -> None:
        """Looks it up again next time: it may have been deleted and made again."""
        self._found.get(client, {}).pop(name, None)

    async def _volume(self, client: modal.Client, name: str) -> modal.Volume:
        known = self._found.setdefault(client, {})
        if name not in known:
            known[name] = await find_volume(client, name) or await _make_volume(client, name)
        return known[name]


async def find_volume(client: modal.Client, name: str) -> modal.Volume | None:
    """Returns the volume with that name, with any version; None without such a volume."""
    import modal
    from modal.exception import NotFoundError

    async with retryable_call(f"the volume `{name}` cannot be looked up", deadline_s=ASK_S):
        volume = modal.Volume.from_name(name, client=client)
        try:
            await volume.hydrate.aio()
        except NotFoundError:
            return None
        return volume


async def list_names(
    client: modal.Client,
    name: str,
    path: str,
) -> list[str]:
    """Returns the names in a directory of a volume; [] without the directory or the volume."""
    import modal  # noqa: F401 - the package first; see connection/modal_connection.py
    from modal.exception import NotFoundError

    volume = await find_volume(client, name)
    if volume is None:
        return []
    async with retryable_call(f"volume/{name} cannot be listed", deadline_s=ASK_S):
        try:
            listed = await volume.listdir.aio(f"/{path}", recursive=False)
        except NotFoundError:
            return []
    return [one.path.rpartition("/")[2] for one in listed]


def _is_of_version_1(volume: modal.Volume) -> bool:
    """Returns whether a looked-up volume has version 1. The SDK knows the version but has no public
    attribute for it.
    """
    import modal  # noqa: F401 - the package first; see connection/modal_connection.py
    from modal._utils.async_utils import synchronizer

    old: bool = synchronizer._translate_in(volume)._is_v1  # type: ignore[no-untyped-call]
    return old


async def _make_volume(client: modal.Client, name: str) -> modal.Volume:
    import modal
    from modal.exception import AlreadyExistsError

    async with retryable_call(f"the volume `{name}` cannot be made", deadline_s=ASK_S):
        # Made by somebody else since we looked, it is used as it is.
        with suppress(AlreadyExistsError):
            await modal.Volume.objects.create.aio(name, version=VERSION, client=client)
    volume = await find_volume(client, name)
    if volume is None:
        raise Refused(
            f"the volume `{name}` was made and is not found",
            hint="look at `modal volume list`; another program may delete it",
        )
    return volume


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
        found = await find_volume(await self._connection.client(), name)
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


class Secrets:
    """The secrets that one provider has found, by client."""

    def __init__(self) -> None:
        self._found: WeakKeyDictionary[modal.Client, dict[str, tuple[float, modal.Secret]]]
        self._found = WeakKeyDictionary()

    async def named(self, client: modal.Client, refs: Sequence[str]) -> list[modal.Secret]:
        """The secrets of these names, for `Sandbox.create`. Raises Refused for one that is not
        there, and Unavailable.
        """
        found = self._found.setdefault(client, {})
        now_s = time.monotonic()
        for name in refs:
            if name not in found or now_s - found[name][0] > FRESH_S:
                found[name] = (now_s, await _find_secret(client, name))
        return [found[name][1] for name in refs]


async def _find_secret(client: modal.Client, name: str) -> modal.Secret:
    import modal
    from modal.exception import NotFoundError

    async with retryable_call(
        f"the secret `{name}` of Modal cannot be looked up", deadline_s=ASK_S
    ):
        secret = modal.Secret.from_name(name, client=client)
        try:
            await secret.hydrate.aio()
        except NotFoundError as error:
            raise Refused(
                f"Modal keeps no secret `{name}`, which `fromProvider` names",
                hint=f"modal secret create {name} KEY=VALUE",
            ) from error
        return secret
