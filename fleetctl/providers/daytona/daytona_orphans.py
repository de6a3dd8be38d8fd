"""Sandboxes at Daytona that carry a label of ours, of any store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.orphans import (
    GONE_HINT,
    SNAPSHOT,
    VOLUME,
    Orphan,
    Orphans,
    a_volume,
)
from fleetctl.providers.daytona.assets import daytona_snapshots, daytona_volumes
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_connection import DaytonaConnection
from fleetctl.providers.daytona.connection.daytona_errors import is_not_found, retryable_call
from fleetctl.providers.daytona.runs import daytona_endings
from fleetctl.providers.daytona.runs.daytona_endings import delete_sandbox, state_of
from fleetctl.providers.remote import volume_listing
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.sandbox_names import of_tags
from fleetctl.providers.remote.service_calls import ToleratedAnswer

JOBS = "jobs"  # where the objects of this home link the images that they need
LIST_S = 60.0
LOOKS_AT_ONCE = 16
END_S = 120.0  # to end a sandbox and see that it is over


class DaytonaOrphans:
    """A connection of its own, made at the first call."""

    def __init__(self, home: Path, account: Account) -> None:
        self._place = account.directory(home)
        self._name = account.name
        self._connection = DaytonaConnection(account=lambda: account)

    async def find_all(self) -> Sequence[Orphan]:
        client = await self._connection.client()
        async with retryable_call("the sandboxes at Daytona cannot be listed", deadline_s=LIST_S):
            listed = [sandbox async for sandbox in client.list()]
        read = [
            orphan
            for one in listed
            if daytona_endings.is_listed(state_of(one))
            and (orphan := of_tags(self._name, one.id, dict(one.labels))) is not None
        ]
        # The list comes from an index, which shows for a while what has ended.
        places = asyncio.Semaphore(LOOKS_AT_ONCE)
        there = await asyncio.gather(*(_is_there(client, it.handle, places) for it in read))
        known = [
            a_volume(self._name, volume)
            for volume in volume_listing.list_used(self._place)
            if await daytona_volumes.find_volume(client, volume) is not None
        ]
        made = await daytona_snapshots.list_snapshots(client)
        return [
            *(orphan for orphan, is_there in zip(read, there, strict=True) if is_there),
            *known,
            *(_of_snapshot(self._name, one.name, self._place / JOBS) for one in made),
        ]

    async def remove(self, orphan: Orphan) -> None:
        client = await self._connection.client()
        if orphan.kind == VOLUME:
            await daytona_volumes.DaytonaVolumes().remove(client, orphan.handle)
            volume_listing.forget_used(self._place, orphan.handle)
            return
        if orphan.kind == SNAPSHOT:
            await daytona_snapshots.remove_snapshot(client, orphan.handle)
            return
        with ToleratedAnswer(is_not_found):
            async with retryable_call(
                f"sandbox `{orphan.handle}` cannot be ended", deadline_s=END_S
            ):
                await delete_sandbox(await client.get(orphan.handle))

    async def claim(
        self,
        orphan: Orphan,
        store_id: str,
        uid: str,
    ) -> None:
        client = await self._connection.client()
        what = f"the labels of sandbox `{orphan.handle}` cannot be changed"
        try:
            async with retryable_call(what, deadline_s=LIST_S):
                sandbox = await client.get(orphan.handle)
                await sandbox.set_labels(
                    sandbox_names.claim_tags(dict(sandbox.labels), store_id, uid)
                )
        except sdk.DaytonaNotFoundError as error:
            if is_not_found(error):
                raise Refused(
                    f"sandbox `{orphan.handle}` at Daytona is gone by now", hint=GONE_HINT
                ) from None
            raise

    async def close(self) -> None:
        await self._connection.close()


async def _is_there(
    client: sdk.AsyncDaytona,
    handle: str,
    places: asyncio.Semaphore,
) -> bool:
    """Returns whether a sandbox exists and does not end just now."""
    what = f"sandbox `{handle}` cannot be looked at"
    with ToleratedAnswer(is_not_found):
        async with places, retryable_call(what, deadline_s=LIST_S):
            return daytona_endings.is_listed(state_of(await client.get(handle)))
    return False


def _of_snapshot(
    provider: str,
    name: str,
    jobs: Path,
) -> Orphan:
    needed = tuple(
        f"job-{uid}" for uid in daytona_snapshots.list_users(jobs, daytona_snapshots.key_of(name))
    )
    store = daytona_snapshots.store_of(name)
    return Orphan(
        provider,
        name,
        store,
        "",
        "",
        "",
        0.0,
        kind=SNAPSHOT,
        users=needed,
    )


_: type[Orphans] = DaytonaOrphans
