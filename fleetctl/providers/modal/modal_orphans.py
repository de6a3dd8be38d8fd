"""Sandboxes at Modal that carry a tag of ours, of any store: one app a store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.orphans import (
    FUNCTION,
    GONE_HINT,
    VOLUME,
    Orphan,
    Orphans,
    a_volume,
)
from fleetctl.providers.modal.assets import modal_volumes
from fleetctl.providers.modal.connection.modal_connection import ModalConnection, WorkspaceMemory
from fleetctl.providers.modal.connection.modal_errors import is_not_found, retryable_call
from fleetctl.providers.modal.functions.deployments import APPS, stop_app
from fleetctl.providers.paths import checked_name
from fleetctl.providers.remote import volume_listing
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.sandbox_names import of_tags
from fleetctl.providers.remote.service_calls import ToleratedAnswer

if TYPE_CHECKING:
    import modal

LIST_S = 60.0
END_S = 60.0  # to end a sandbox and see that it is over
TAGS_AT_ONCE = 16


class ModalOrphans:
    """A connection of its own, made at the first call."""

    def __init__(self, home: Path, account: Account) -> None:
        self._place = account.directory(home)
        self._name = account.name
        # A volume's name leads elsewhere in another environment: to somebody else's data.
        memory = WorkspaceMemory(self._place)
        self._connection = ModalConnection("strays", account=lambda: account, memory=memory)
        self._asking = asyncio.Semaphore(TAGS_AT_ONCE)

    async def find_all(self) -> Sequence[Orphan]:
        client = await self._connection.client()
        import modal

        async with retryable_call("the apps at Modal cannot be listed", deadline_s=LIST_S):
            apps = await modal.Environment.from_context(client=client).apps.list.aio()
        orphans: list[Orphan] = []
        for app in apps:
            if app.name and app.name.startswith(APPS):
                orphans += await self._of_function(client, str(app.name))
            elif app.name and app.name.startswith(sandbox_names.GROUP):
                orphans += await self._of_app(client, str(app.app_id))
        for volume in volume_listing.list_used(self._place):
            if await modal_volumes.find_volume(client, volume) is not None:
                orphans.append(a_volume(self._name, volume))
        return orphans

    async def remove(self, orphan: Orphan) -> None:
        client = await self._connection.client()
        if orphan.kind == VOLUME:
            await modal_volumes.ModalVolumes().remove(client, orphan.handle)
            volume_listing.forget_used(self._place, orphan.handle)
            return
        if orphan.kind == FUNCTION:
            await stop_app(client, orphan.handle, deadline_s=END_S)
            return
        import modal
        from modal import exception as sdk

        over = (sdk.NotFoundError, sdk.SandboxTimeoutError, sdk.SandboxTerminatedError)
        with suppress(*over):
            async with retryable_call(
                f"sandbox `{orphan.handle}` cannot be ended", deadline_s=END_S
            ):
                sandbox = await modal.Sandbox.from_id.aio(orphan.handle, client=client)
                await sandbox.terminate.aio(wait=True)

    async def claim(
        self,
        orphan: Orphan,
        store_id: str,
        uid: str,
    ) -> None:
        client = await self._connection.client()
        import modal
        from modal import exception as sdk

        what = f"the tags of sandbox `{orphan.handle}` cannot be changed"
        try:
            async with retryable_call(what, deadline_s=LIST_S):
                sandbox = await modal.Sandbox.from_id.aio(orphan.handle, client=client)
                carried = await sandbox.get_tags.aio()
                await sandbox.set_tags.aio(sandbox_names.claim_tags(carried, store_id, uid))
        except sdk.NotFoundError:
            raise Refused(
                f"sandbox `{orphan.handle}` at Modal is gone by now", hint=GONE_HINT
            ) from None

    async def close(self) -> None:
        await self._connection.close()

    async def _of_function(self, client: modal.Client, name: str) -> list[Orphan]:
        """Returns the orphan of an app's function; our files name its callers."""
        import modal

        carried = None
        with ToleratedAnswer(is_not_found):
            async with retryable_call(f"the app `{name}` cannot be looked up", deadline_s=LIST_S):
                app = await modal.App.lookup.aio(name, client=client)
                carried = await app.get_tags.aio(client=client)
        if carried is None:
            return []  # it was stopped
        markers = self._place / "functions" / checked_name(name)
        users = tuple(sorted(it.name for it in markers.iterdir())) if markers.is_dir() else ()
        store = sandbox_names.fleet_of(carried)
        found = Orphan(
            self._name,
            name,
            store,
            "",
            "",
            "",
            0.0,
            kind=FUNCTION,
            users=users,
        )
        if store:
            return [found]
        return []

    async def _of_app(self, client: modal.Client, app_id: str) -> list[Orphan]:
        import modal

        async with retryable_call("the sandboxes at Modal cannot be listed", deadline_s=LIST_S):
            listing = modal.Sandbox.list.aio(app_id=app_id, client=client)
            listed = [sandbox async for sandbox in listing]
        reply = await asyncio.gather(*(self._read_sandbox(sandbox) for sandbox in listed))
        return [orphan for orphan in reply if orphan is not None]

    async def _read_sandbox(self, sandbox: modal.Sandbox) -> Orphan | None:
        handle = sandbox.object_id
        with ToleratedAnswer(is_not_found):
            async with (
                self._asking,
                retryable_call(f"the tags of sandbox `{handle}` cannot be read", deadline_s=LIST_S),
            ):
                carried = await sandbox.get_tags.aio()
                return of_tags(self._name, handle, carried)
        return None  # it ended meanwhile


_: type[Orphans] = ModalOrphans
