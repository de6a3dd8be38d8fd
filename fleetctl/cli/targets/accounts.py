"""The providers that a person may name: those that are built in, and those of Provider objects.

Read from the store, for verbs that talk to a provider themselves. Loads no model and no SDK.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.common.errors import NotFound
from fleetctl.common.text import did_you_mean, safe
from fleetctl.providers.contract.account import Account, account_of, built_in
from fleetctl.specs.builtin import BUILT_IN
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.views.reading import Reading, open_reading


def accounts(reading: Reading) -> dict[str, Account]:
    """By name, those that are built in first. Of types that this version does not know: none."""
    found = {name: built_in(name) for name in BUILT_IN}
    for seen in reading.views(KINDS["Provider"], specs=True):
        account = account_of(seen.resource.name, seen.spec())
        if account.sort in BUILT_IN:
            found[account.name] = account
    return found


def account_named(name: str, home: Path) -> Account:
    """Raises NotFound, with the nearest name."""
    with open_reading(home) as reading:
        known = accounts(reading)
    if name not in known:
        listed = ", ".join(f"`{safe(it)}`" for it in known)
        raise NotFound(
            f"there is no provider `{safe(name)}`",
            hint=did_you_mean(name, list(known)) or f"there is {listed}",
        )
    return known[name]
