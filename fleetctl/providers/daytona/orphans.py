"""Sandboxes at Daytona that carry a label of ours, of any store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.orphans import (
    GONE_HINT,
    INTERPRETERS,
    SNAPSHOT,
    VOLUME,
    Orphan,
    Orphans,
    a_volume,
)
from fleetctl.providers.daytona.assets import snapshots, volumes
from fleetctl.providers.daytona.connection.client import Connection
from fleetctl.providers.daytona.connection.errors import asking, is_not_found
from fleetctl.providers.daytona.runs import endings
from fleetctl.providers.daytona.runs.deletes import delete
from fleetctl.providers.daytona.runs.endings import state_of
from fleetctl.providers.remote.assets import volumes_used
from fleetctl.providers.remote.sandboxes import names
from fleetctl.providers.remote.sandboxes.names import of_tags

JOBS = "jobs"  # where the objects of this home link the images that they need
INTERPRETER_LABEL, PARENT_LABEL = "fleetctl-interpreter", "fleetctl-parent"
LIST_S = 60.0
END_S = 120.0  # to end a sandbox and hear that it is over


class DaytonaOrphans:
    """A connection of its own, made at the first call."""

    def __init__(self, home: Path, account: Account) -> None:
        self._place = account.directory(home)
        self._name = account.name
        self._connection = Connection(account=lambda: account)

    async def found(self) -> Sequence[Orphan]:
        client = await self._connection.client()
        async with asking("the sandboxes at Daytona cannot be listed", deadline_s=LIST_S):
            listed = [sandbox async for sandbox in client.list()]
        orphans = (
            of_tags(self._name, one.id, dict(one.labels))
            for one in listed
            if endings.is_listed(state_of(one))
        )
        known = [
            a_volume(self._name, volume)
            for volume in volumes_used.used(self._place)
            if await volumes.find(client, volume) is not None
        ]
        left = [
            _of_interpreter(self._name, one.id, dict(one.labels))
            for one in listed
            if endings.is_listed(state_of(one))
        ]
        made = await snapshots.listed(client)
        return [
            *(orphan for orphan in (*orphans, *left) if orphan is not None),
            *known,
            *(_of_snapshot(self._name, one.name, self._place / JOBS) for one in made),
        ]

    async def remove(self, orphan: Orphan) -> None:
        client = await self._connection.client()
        if orphan.kind == VOLUME:
            await volumes.Volumes().remove(client, orphan.handle)
            volumes_used.forget(self._place, orphan.handle)
            return
        if orphan.kind == SNAPSHOT:
            await snapshots.remove(client, orphan.handle)
            return
        try:
            async with asking(f"sandbox `{orphan.handle}` cannot be ended", deadline_s=END_S):
                await delete(await client.get(orphan.handle))
        except Exception as error:
            if not is_not_found(error):
                raise

    async def claim(self, orphan: Orphan, store_id: str, uid: str) -> None:
        client = await self._connection.client()
        what = f"the labels of sandbox `{orphan.handle}` cannot be changed"
        try:
            async with asking(what, deadline_s=LIST_S):
                sandbox = await client.get(orphan.handle)
                await sandbox.set_labels(names.claimed(dict(sandbox.labels), store_id, uid))
        except Exception as error:
            if is_not_found(error):
                raise Refused(
                    f"sandbox `{orphan.handle}` at Daytona is gone by now", hint=GONE_HINT
                ) from None
            raise

    async def close(self) -> None:
        await self._connection.close()


def _of_snapshot(provider: str, name: str, jobs: Path) -> Orphan:
    needed = tuple(f"job-{uid}" for uid in snapshots.users(jobs, snapshots.key_of(name)))
    store = snapshots.store_of(name)
    return Orphan(provider, name, store, "", "", "", 0.0, kind=SNAPSHOT, users=needed)


def _of_interpreter(provider: str, handle: str, labels: dict[str, str]) -> Orphan | None:
    """The sandbox of an interpreter. It ends with its program, or by its TTL; as an orphan it is
    shown, and may be ended before.
    """
    name = labels.get(INTERPRETER_LABEL)
    if not name:
        return None
    parent = labels.get(PARENT_LABEL, "")
    return Orphan(provider, handle, INTERPRETERS, name, "", "", 0.0, parent=parent)


_: type[Orphans] = DaytonaOrphans
