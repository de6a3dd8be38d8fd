"""Sandboxes on this machine that carry a tag of ours: those of the keepers of one home."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from fleetctl.errors import Unavailable
from fleetctl.providers.account import Account
from fleetctl.providers.local.keepers import Keepers
from fleetctl.providers.local.link import KeeperGone
from fleetctl.providers.local.paths import Layout
from fleetctl.providers.strays import Stray, Strays

NAME = "local"
GONE_S = 30.0  # for a killed process to be gone
LOOK_S = 0.05


class LocalStrays:
    def __init__(self, home: Path, account: Account) -> None:
        del account  # this machine is one
        self._layout = Layout(home)
        self._keepers = Keepers(self._layout, notify=_nobody)

    async def found(self) -> Sequence[Stray]:
        keepers = self._layout.keepers
        names = sorted(os.listdir(keepers)) if keepers.exists() else []
        return [stray for name in names for stray in await self._of_keeper(name)]

    async def remove(self, stray: Stray) -> None:
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

    async def close(self) -> None:
        self._keepers.close()

    async def _of_keeper(self, name: str) -> list[Stray]:
        link = await self._keepers.reach(name)
        if link is None:
            return []
        try:
            listing = await link.listing()
        except KeeperGone:
            return []
        return [
            Stray(NAME, link.token, link.owner, sandbox, "", "", at_s) for sandbox, at_s in listing
        ]


def _nobody(_run: str) -> None:
    """Nobody waits for changes."""


_: type[Strays] = LocalStrays
