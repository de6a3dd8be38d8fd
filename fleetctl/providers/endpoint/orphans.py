"""A call that nobody remembers holds nothing: there are no orphans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.orphans import GONE_HINT, Orphan, Orphans


class NoOrphans:
    def __init__(self, home: Path, account: Account) -> None:
        del home, account

    async def found(self) -> Sequence[Orphan]:
        return ()

    async def remove(self, orphan: Orphan) -> None:
        """None was ever made."""

    async def claim(self, orphan: Orphan, store_id: str, uid: str) -> None:
        del store_id, uid
        raise Refused(f"`{orphan.run}` is a call, which nobody can take over", hint=GONE_HINT)

    async def close(self) -> None:
        """Nothing is open."""


_: type[Orphans] = NoOrphans
