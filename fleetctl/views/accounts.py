"""The providers that a user may name: built-in ones, and those of Provider objects.

Read from the store, for verbs that call a provider themselves. Loads no model and no SDK.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.common.errors import NotFound
from fleetctl.common.text import did_you_mean, escape_line
from fleetctl.providers.contract.account import Account, account_of, built_in
from fleetctl.specs.builtin import BUILT_IN
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.outside import row_of
from fleetctl.views.store_reading import StoreReading, open_reading


def load_accounts(reading: StoreReading, *, unusable: bool = False) -> dict[str, Account]:
    """Returns accounts by name, built-in ones first. unusable: also those whose type no package
    provides here.
    """
    found = {name: built_in(name) for name in BUILT_IN}
    for seen in reading.views(KINDS["Provider"], specs=True):
        account = account_of(seen.resource.name, seen.spec())
        if account.sort in BUILT_IN or unusable or row_of(account.sort) is not None:
            found[account.name] = account
    return found


def account_named(name: str, home: Path) -> Account:
    """Returns the account. Raises NotFound, with the nearest name."""
    with open_reading(home) as reading:
        known = load_accounts(reading)
    if name not in known:
        listed = ", ".join(f"`{escape_line(it)}`" for it in known)
        raise NotFound(
            f"there is no provider `{escape_line(name)}`",
            hint=did_you_mean(name, list(known)) or f"there is {listed}",
        )
    return known[name]
