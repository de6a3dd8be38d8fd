"""Finds sandboxes on this machine with a tag of ours: those of a state directory's supervisors."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.orphans import GONE_HINT, VOLUME, Orphan, Orphans, a_volume
from fleetctl.providers.local.assets.local_volumes import delete_volume as remove_volume
from fleetctl.providers.local.local_layout import LocalLayout, uid_of
from fleetctl.providers.local.runs.supervisor_link import LivingRun, SupervisorGone, SupervisorLink
from fleetctl.providers.local.runs.supervisors import Supervisors
from fleetctl.providers.paths import make_private

NAME = "local"
GONE_S = 30.0  # for a killed process to be gone
LOOK_S = 0.05


class LocalOrphans:
    def __init__(self, home: Path, account: Account) -> None:
        del account  # this machine is one
        self._layout = LocalLayout(home)
        self._supervisors = Supervisors(self._layout, notify=_ignore_change)

    async def find_all(self) -> Sequence[Orphan]:
        names = self._supervisors.list_perhaps_living()
        found = [orphan for name in names for orphan in await self._of_supervisor(name)]
        volumes = self._layout.volumes
        kept = sorted(os.listdir(volumes)) if volumes.exists() else []
        return [*found, *(a_volume(NAME, name) for name in kept if not name.startswith("."))]

    async def remove(self, orphan: Orphan) -> None:
        if orphan.kind == VOLUME:
            await asyncio.to_thread(remove_volume, self._layout, orphan.handle)
            return
        name = orphan.handle.partition("/")[0]
        until_s = asyncio.get_running_loop().time() + GONE_S
        while any(one.run == orphan.run for one in await self._of_supervisor(name)):
            link = await self._supervisors.reach(name)
            if link is None:
                return
            link.send({"op": "end", "sandbox": orphan.run})
            await asyncio.sleep(LOOK_S)
            if asyncio.get_running_loop().time() > until_s:
                raise Unavailable(f"sandbox `{orphan.run}` does not end on this machine")

    async def claim(
        self,
        orphan: Orphan,
        store_id: str,
        uid: str,
    ) -> None:
        name = orphan.handle.partition("/")[0]
        link = await self._supervisors.reach(name)
        if link is None:
            raise Refused(f"sandbox `{orphan.run}` is gone by now", hint=GONE_HINT)
        if orphan.uid != uid:
            self._share_files(orphan, uid)
        link.send({"op": "own", "sandbox": orphan.run, "owner": store_id})
        living = {one.sandbox: one for one in await _list_living(link)}
        if orphan.run not in living:
            raise Refused(f"sandbox `{orphan.run}` is gone by now", hint=GONE_HINT)
        if living[orphan.run].owner != store_id:
            raise Refused(
                f"sandbox `{orphan.run}` was started by an older version of fleetctl, whose"
                " sandboxes cannot change their store",
                hint="let it end, or `fleetctl orphans --delete` it",
            )

    async def close(self) -> None:
        self._supervisors.close()

    def _share_files(self, orphan: Orphan, uid: str) -> None:
        """The journal and the log get a second name where those of `uid` are; the supervisor writes
        on into the same files.
        """
        made_for = self._layout.runs(orphan.uid)
        to = make_private(self._layout.runs(uid))
        for path in sorted(made_for.glob(f"{orphan.run}.*")):
            there = to / path.name
            if not there.exists():
                os.link(path, there, follow_symlinks=False)

    async def _of_supervisor(self, name: str) -> list[Orphan]:
        link = await self._supervisors.reach(name)
        if link is None:
            return []
        job = link.resource or self._job(name)
        return [_make_orphan(link, one, job) for one in await _list_living(link)]

    def _job(self, name: str) -> str:
        """Returns the job of a supervisor of an older version, which wrote it down."""
        try:
            config = json.loads((self._layout.supervisor(name) / "config.json").read_bytes())
        except (OSError, ValueError):
            return ""  # it is being written or deleted
        return str(config.get("resource", ""))


async def _list_living(link: SupervisorLink) -> list[LivingRun]:
    try:
        return await link.listing()
    except SupervisorGone:
        return []


def _make_orphan(
    link: SupervisorLink,
    one: LivingRun,
    job: str,
) -> Orphan:
    return Orphan(
        provider=NAME,
        handle=link.token,
        store=one.owner,
        run=one.sandbox,
        job=job,
        index=one.index,
        created_at_s=one.created_at_s,
        uid=uid_of(link.token),
        work=one.work,
    )


def _ignore_change(_run: str) -> None:
    """Ignores changes: no caller waits for them."""


_: type[Orphans] = LocalOrphans
