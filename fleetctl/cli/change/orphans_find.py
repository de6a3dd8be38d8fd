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
    from fleetctl.providers.contract.account import Account
    from fleetctl.providers.contract.orphans import Orphan

_CANNOT_ASK = ("KeyMissing", "AccountNotReady")  # no credentials, or no package


class FoundOrphan(NamedTuple):
    """ours: it carries the tag of this store, which has no record of it."""

    orphan: Orphan
    ours: bool

    @property
    def id(self) -> str:
        """What a person names it by. The handle of this machine is of a supervisor of several."""
        orphan = self.orphan
        if orphan.kind != "sandbox":
            return f"{orphan.kind}/{orphan.handle}"
        return orphan.run if runs_here(orphan.provider) else orphan.handle

    @property
    def shown(self) -> str:
        return safe(f"{self.orphan.provider}/{self.id}")


async def orphans_of(
    asked: Sequence[Account], state_dir: Path, screen: Screen, *, named: bool
) -> tuple[list[Orphan], bool]:
    """All that they tell, and whether all could be asked. One without credentials holds nothing."""
    reply = await asyncio.gather(*(_told(account, state_dir) for account in asked))
    found: list[Orphan] = []
    complete = True
    for account, answer in zip(asked, reply, strict=True):
        if isinstance(answer, Refused):
            if named:
                raise answer
            screen.talk(f"{account.name}: not asked: {safe(str(answer))}")
        elif (
            isinstance(answer, Unavailable)
            and not named
            and _never_used(account, answer, state_dir)
        ):
            screen.talk(f"{account.name}: not asked: {safe(str(answer))}")
        elif isinstance(answer, Unavailable):
            screen.error(str(answer), hint=answer.hint)
            complete = False
        else:
            found += answer
    return found, complete


def _never_used(account: Account, answer: Unavailable, state_dir: Path) -> bool:
    """It cannot be asked from here, and nothing of this store was ever there: no answer is missed.
    Where something was, what is not known is told as an error.
    """
    return answer.reason in _CANNOT_ASK and not account.directory(state_dir).exists()


async def _told(account: Account, state_dir: Path) -> Sequence[Orphan] | Refused | Unavailable:
    from fleetctl.wiring.accounts import orphans_of

    orphans = orphans_of(account, state_dir)
    try:
        return await orphans.found()
    except (Refused, Unavailable) as error:
        return error
    finally:
        await orphans.close()


def _all(state_dir: Path) -> list[Account]:
    with open_reading(state_dir) as reading:
        return list(accounts(reading).values())


def orphans_among(orphans: Sequence[Orphan], state_dir: Path) -> list[FoundOrphan]:
    """Those that the store does not remember, the newest last."""
    from fleetctl.providers.contract.orphans import INTERPRETERS
    from fleetctl.providers.remote.sandboxes.names import tag_of
    from fleetctl.stores.interpreters import InterpreterRuns
    from fleetctl.stores.read.reader import Reader

    with Reader(state_dir) as reader:
        known = {text for row in reader.held() for text in row if text}
        tag = tag_of(reader.store_id()) if reader.store_id() else ""
        objects = list(reader.object_keys())
    users = {f"job-{uid}" for uid, *_ in objects}
    assets = {(kind, asset_name(name, within)) for _, kind, name, within in objects}
    users |= {f"function-{name}" for kind, name in assets if kind == "Function"}
    used = InterpreterRuns(state_dir).living()
    found = []
    for orphan in sorted(orphans, key=lambda one: one.created_at_s):
        if orphan.kind == "volume":
            if ("Volume", orphan.handle) not in assets:
                found.append(FoundOrphan(orphan, ours=True))
            continue
        if orphan.kind in ("function", "snapshot") and users & set(orphan.users):
            continue
        if orphan.kind == "snapshot":
            found.append(FoundOrphan(orphan, bool(tag) and orphan.store == tag))
            continue
        if orphan.store == INTERPRETERS and orphan.run in used:
            continue  # by a program of this machine that lives
        ours = bool(tag) and orphan.store == tag
        # A supervisor's handle is that of all its sandboxes; there the name alone tells.
        handle = "" if runs_here(orphan.provider) else orphan.handle
        if not ours or not {orphan.run, handle} & known:
            found.append(FoundOrphan(orphan, ours))
    return found
