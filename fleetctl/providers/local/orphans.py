"""Sandboxes on this machine that carry a tag of ours: those of the keepers of one home."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.account import Account
from fleetctl.providers.local.assets.volumes import remove as remove_volume
from fleetctl.providers.local.paths import Layout, uid_of
from fleetctl.providers.local.runs.keepers import Keepers
from fleetctl.providers.local.runs.link import KeeperGone, Link, Living
from fleetctl.providers.orphans import GONE_HINT, VOLUME, Stray, Strays, a_volume
from fleetctl.providers.paths import make_private

NAME = "local"
GONE_S = 30.0  # for a killed process to be gone
LOOK_S = 0.05


class LocalStrays:
    def __init__(self, home: Path, account: Account) -> None:
        del account  # this machine is one
        self._layout = Layout(home)
        self._keepers = Keepers(self._layout, notify=_nobody)

    async def found(self) -> Sequence[Stray]:
        names = self._keepers.perhaps_living()
        found = [stray for name in names for stray in await self._of_keeper(name)]
        volumes = self._layout.volumes
        kept = sorted(os.listdir(volumes)) if volumes.exists() else []
        return [*found, *(a_volume(NAME, name) for name in kept if not name.startswith("."))]

    async def remove(self, stray: Stray) -> None:
        if stray.kind == VOLUME:
            await asyncio.to_thread(remove_volume, self._layout, stray.handle)
            return
        name = stray.handle.partition("/")[0]
        until_s = asyncio.get_running_loop().time() + GONE_S
        while any(one.run == stray.run for one in await self._of_keeper(name)):
            link = await self._keepers.reach(name)
            if link is None:
                return
            link.send({"op": "end", "sandbox": stray.run})
            await asyncio.sleep(LOOK_S)
            if asyncio.get_running_loop().time() > until_s:
                raise Unavailable(f"sandbox `{stray.run}` does not end on this machine")

    async def claim(self, stray: Stray, store_id: str, uid: str) -> None:
        name = stray.handle.partition("/")[0]
        link = await self._keepers.reach(name)
        if link is None:
            raise Refused(f"sandbox `{stray.run}` is gone by now", hint=GONE_HINT)
        if stray.uid != uid:
            self._share_files(stray, uid)
        link.send({"op": "own", "sandbox": stray.run, "owner": store_id})
        living = {one.sandbox: one for one in await _listing(link)}
        if stray.run not in living:
            raise Refused(f"sandbox `{stray.run}` is gone by now", hint=GONE_HINT)
        if living[stray.run].owner != store_id:
            raise Refused(
                f"sandbox `{stray.run}` was started by an older version of fleetctl, whose"
                " sandboxes cannot change their store",
                hint="let it end, or `fleetctl orphans --delete` it",
            )

    async def close(self) -> None:
        self._keepers.close()

    def _share_files(self, stray: Stray, uid: str) -> None:
        """The journal and the log get a second name where those of `uid` are; the keeper writes on
        into the same files.
        """
        made_for, to = self._layout.runs(stray.uid), make_private(self._layout.runs(uid))
        for path in sorted(made_for.glob(f"{stray.run}.*")):
            there = to / path.name
            if not there.exists():
                os.link(path, there, follow_symlinks=False)

    async def _of_keeper(self, name: str) -> list[Stray]:
        link = await self._keepers.reach(name)
        if link is None:
            return []
        job = link.resource or self._job(name)
        return [_stray(link, one, job) for one in await _listing(link)]

    def _job(self, name: str) -> str:
        """Of a keeper of an older version, which wrote it down."""
        try:
            config = json.loads((self._layout.keeper(name) / "config.json").read_bytes())
        except (OSError, ValueError):
            return ""  # it is being written, or going away
        return str(config.get("resource", ""))


async def _listing(link: Link) -> list[Living]:
    try:
        return await link.listing()
    except KeeperGone:
        return []


def _stray(link: Link, one: Living, job: str) -> Stray:
    return Stray(
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


def _nobody(_run: str) -> None:
    """Nobody waits for changes."""


_: type[Strays] = LocalStrays
