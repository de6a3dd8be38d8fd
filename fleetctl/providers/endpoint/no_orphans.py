"""Orphans of provider `endpoint`: a forgotten call holds no resource, so there are no orphans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.orphans import GONE_HINT, Orphan, Orphans


class NoOrphans:
    def __init__(self, home: Path, account: Account) -> None:
        del home, account

    async def find_all(self) -> Sequence[Orphan]:
        return ()

    async def remove(self, orphan: Orphan) -> None:
        """Does no work: there are no orphans."""

    async def claim(
        self,
        orphan: Orphan,
        store_id: str,
        uid: str,
    ) -> None:
        del store_id, uid
        raise Refused(f"`{orphan.run}` is a call, which cannot be adopted", hint=GONE_HINT)

    async def close(self) -> None:
        """Does no work: no connection is open."""


_: type[Orphans] = NoOrphans
