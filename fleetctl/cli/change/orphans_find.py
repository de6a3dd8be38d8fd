"""Asks every provider for sandboxes with our tag, and returns those without a record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.text import escape_line
from fleetctl.specs.builtin import runs_here
from fleetctl.specs.values.namespaces import asset_name
from fleetctl.views.accounts import load_accounts
from fleetctl.views.store_reading import open_reading

if TYPE_CHECKING:
    from fleetctl.providers.contract.account import Account
    from fleetctl.providers.contract.orphans import Orphan

_CANNOT_ASK = ("KeyMissing", "AccountNotReady")  # no credentials, or no package


class FoundOrphan(NamedTuple):
    """An orphan. ours: it carries the tag of this store, which does not know it."""

    orphan: Orphan
    ours: bool

    @property
    def id(self) -> str:
        """Returns the name for the user. On this machine a handle is of a supervisor of several
        sandboxes."""
        orphan = self.orphan
        if orphan.kind != "sandbox":
            return f"{orphan.kind}/{orphan.handle}"
        if runs_here(orphan.provider):
            return orphan.run
        return orphan.handle

    @property
    def shown(self) -> str:
        return escape_line(f"{self.orphan.provider}/{self.id}")


async def orphans_of(
    asked: Sequence[Account],
    state_dir: Path,
    screen: Screen,
    *,
    named: bool,
) -> tuple[list[Orphan], bool]:
    """Returns all that they list, and true where all responded. One without credentials has no
    sandbox."""
    reply = await asyncio.gather(*(_query_account(account, state_dir) for account in asked))
    found: list[Orphan] = []
    complete = True
    for account, answer in zip(asked, reply, strict=True):
        if isinstance(answer, Refused):
            if named:
                raise answer
            screen.talk(f"{account.name}: not asked: {escape_line(str(answer))}")
        elif (
            isinstance(answer, Unavailable)
            and not named
            and _never_used(account, answer, state_dir)
        ):
            screen.talk(f"{account.name}: not asked: {escape_line(str(answer))}")
        elif isinstance(answer, Unavailable):
            screen.error(str(answer), hint=answer.hint)
            complete = False
        else:
            found += answer
    return found, complete


def _never_used(
    account: Account,
    answer: Unavailable,
    state_dir: Path,
) -> bool:
    """Returns true for an account that cannot be queried from here and was never used by this
    store: no reply is missing. Where it was used, an unknown list is reported as an error.
    """
    return answer.reason in _CANNOT_ASK and not account.directory(state_dir).exists()


async def _query_account(
    account: Account, state_dir: Path
) -> Sequence[Orphan] | Refused | Unavailable:
    from fleetctl.wiring.account_registry import orphans_of

    orphans = orphans_of(account, state_dir)
    try:
        return await orphans.find_all()
    except (Refused, Unavailable) as error:
        return error
    finally:
        await orphans.close()


def _list_accounts(state_dir: Path) -> list[Account]:
    with open_reading(state_dir) as reading:
        return list(load_accounts(reading).values())


def orphans_among(orphans: Sequence[Orphan], state_dir: Path) -> list[FoundOrphan]:
    """Returns those that the store does not remember, the newest last."""
    from fleetctl.providers.contract.orphans import INTERPRETERS
    from fleetctl.providers.remote.sandboxes.sandbox_names import tag_of
    from fleetctl.stores.interpreters import InterpreterRuns
    from fleetctl.stores.read.reader import Reader

    with Reader(state_dir) as reader:
        known = {text for row in reader.held_sandboxes() for text in row if text}
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
            continue  # made by a program of this machine that lives
        ours = bool(tag) and orphan.store == tag
        # A supervisor's handle is that of all its sandboxes; on this machine the name alone
        # identifies one.
        handle = "" if runs_here(orphan.provider) else orphan.handle
        if not ours or not {orphan.run, handle} & known:
            found.append(FoundOrphan(orphan, ours))
    return found
