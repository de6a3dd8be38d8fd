"""Volumes on Modal: found by name, made when missing, mounted. Called by the provider.

A Volume of fleetctl has the same name there, so that files of other programs are found. A volume
made here has version 2, which keeps the files that a task `sync`s while it runs; an existing volume
is used as it is, also with version 1, which Modal commits only when a sandbox ends.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from fleetctl.common.errors import Refused
from fleetctl.providers.modal.connection.modal_errors import retryable_call
from fleetctl.specs.blocks.template import Template

if TYPE_CHECKING:
    import modal

VERSION = 2
ASK_S = 30.0


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
