"""Asks every provider for what carries a tag of ours, and keeps what no object remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.cli.output.render import Screen
from fleetctl.cli.targets.accounts import accounts
from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.text import safe
from fleetctl.specs.builtin import runs_here
from fleetctl.specs.values.namespaces import asset_name
from fleetctl.views.reading import open_reading

if TYPE_CHECKING:
    from fleetctl.providers.account import Account
    from fleetctl.providers.orphans import Stray

_CANNOT_ASK = ("KeyMissing", "AccountNotReady")  # no credentials, or no package


class Orphan(NamedTuple):
    """ours: it carries the tag of this store, which has no record of it."""

    stray: Stray
    ours: bool

    @property
    def id(self) -> str:
        """What a person names it by. The handle of this machine is of a keeper of several."""
        stray = self.stray
        if stray.kind != "sandbox":
            return f"{stray.kind}/{stray.handle}"
        return stray.run if runs_here(stray.provider) else stray.handle

    @property
    def shown(self) -> str:
        return safe(f"{self.stray.provider}/{self.id}")


async def strays_of(
    asked: Sequence[Account], place: Path, screen: Screen, *, named: bool
) -> tuple[list[Stray], bool]:
    """All that they tell, and whether all could be asked. One without credentials holds nothing."""
    told = await asyncio.gather(*(_told(account, place) for account in asked))
    found: list[Stray] = []
    complete = True
    for account, answer in zip(asked, told, strict=True):
        if isinstance(answer, Refused):
            if named:
                raise answer
            screen.talk(f"{account.name}: not asked: {safe(str(answer))}")
        elif isinstance(answer, Unavailable) and not named and _never_used(account, answer, place):
            screen.talk(f"{account.name}: not asked: {safe(str(answer))}")
        elif isinstance(answer, Unavailable):
            screen.error(str(answer), hint=answer.hint)
            complete = False
        else:
            found += answer
    return found, complete


def _never_used(account: Account, answer: Unavailable, place: Path) -> bool:
    """It cannot be asked from here, and nothing of this store was ever there: no answer is missed.
    Where something was, what is not known is told as an error.
    """
    return answer.reason in _CANNOT_ASK and not account.directory(place).exists()


async def _told(account: Account, place: Path) -> Sequence[Stray] | Refused | Unavailable:
    from fleetctl.wiring.accounts import strays_of

    strays = strays_of(account, place)
    try:
        return await strays.found()
    except (Refused, Unavailable) as error:
        return error
    finally:
        await strays.close()


def _all(place: Path) -> list[Account]:
    with open_reading(place) as reading:
        return list(accounts(reading).values())


def orphans_among(strays: Sequence[Stray], place: Path) -> list[Orphan]:
    """Those that the store does not remember, the newest last."""
    from fleetctl.providers.remote.sandboxes.names import tag_of
    from fleetctl.stores.read.reader import Reader

    with Reader(place) as reader:
        known = {text for row in reader.held() for text in row if text}
        tag = tag_of(reader.store_id()) if reader.store_id() else ""
        objects = list(reader.object_keys())
    users = {f"job-{uid}" for uid, *_ in objects}
    assets = {(kind, asset_name(name, within)) for _, kind, name, within in objects}
    users |= {f"function-{name}" for kind, name in assets if kind == "Function"}
    found = []
    for stray in sorted(strays, key=lambda one: one.created_at_s):
        if stray.kind == "volume":
            if ("Volume", stray.handle) not in assets:
                found.append(Orphan(stray, ours=True))
            continue
        if stray.kind in ("function", "snapshot") and users & set(stray.users):
            continue
        if stray.kind == "snapshot":
            found.append(Orphan(stray, bool(tag) and stray.store == tag))
            continue
        ours = bool(tag) and stray.store == tag
        # A keeper's handle is that of all its sandboxes; there the name alone tells.
        handle = "" if runs_here(stray.provider) else stray.handle
        if not ours or not {stray.run, handle} & known:
            found.append(Orphan(stray, ours))
    return found
